#include "node/server/lane_client.h"

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"
#include "engine/batch/batch_memory.h"

namespace headrace {
namespace {

// Where bytes of a batch lie, as its client finds them: in the memory of the buffer that has them.
class Places {
 public:
  void Add(const Buffer& buffer, std::uint32_t memory) {
    if (!buffer.bytes().empty())
      buffers_.push_back({buffer.bytes(), buffer.place().offset, memory});
  }

  [[nodiscard]] BytesPlace Of(std::span<const std::byte> bytes) const {
    // Nothing has to lie nowhere.
    if (bytes.empty()) return {.memory = buffers_.empty() ? 0 : buffers_.front().memory};
    for (const Known& each : buffers_) {
      const std::less<const std::byte*> before;
      if (before(bytes.data(), each.bytes.data())) continue;
      const auto offset = static_cast<std::uint64_t>(bytes.data() - each.bytes.data());
      if (offset > each.bytes.size() || bytes.size() > each.bytes.size() - offset) continue;
      return {.memory = each.memory, .offset = each.offset + offset, .size = bytes.size()};
    }
    HEADRACE_CHECK(false);  // A row outside its batch's buffers.
    return {};
  }

 private:
  struct Known {
    std::span<const std::byte> bytes;
    std::uint64_t offset = 0;
    std::uint32_t memory = 0;
  };
  std::vector<Known> buffers_;
};

BatchReady Describe(const Batch& batch, std::span<const BatchField> schema, const Places& places) {
  BatchReady ready{.epoch = batch.epoch,
                   .step = batch.step,
                   .ends_epoch = batch.ends_epoch,
                   .beyond_budget = batch.beyond_budget,
                   .times = batch.times,
                   .samples = batch.samples,
                   .substitutions = batch.substitutions,
                   .sources = batch.sources};
  for (std::size_t i = 0; i < schema.size(); ++i) {
    std::vector<BytesPlace>& rows = ready.fields.emplace_back();
    if (!schema[i].ragged) {
      rows.push_back(places.Of(batch.fields[i].packed));
      continue;
    }
    rows.reserve(batch.fields[i].rows.size());
    for (const std::span<std::byte> row : batch.fields[i].rows) rows.push_back(places.Of(row));
  }
  return ready;
}

// The error for a message that cannot be sent.
template <typename Message>
NodeMessage InsteadOf(const Message& message, const Status& why) {
  if constexpr (requires { message.call; }) {
    return Message{.call = message.call, .status = why};
  } else if constexpr (requires { message.start; }) {
    return RunEnded{.start = message.start, .status = why};
  } else {
    return Refused{.status = why};
  }
}

}  // namespace

// An answer too large for a message is an error of who asked; else what cannot be sent ends the
// peer, which its node notices elsewhere.
void LaneClient::Send(const NodeMessage& message, std::span<const int> fds) {
  Status sent = peer_->Send(Encode(message), fds);
  if (sent.code() == StatusCode::kInvalidArgument) {
    const Status too_large(sent.code(), "the node process answers: " + std::string(sent.message()) +
                                            "; ask for less at a time, or write Job(node=False)");
    sent = peer_->Send(
        std::visit([&](const auto& each) { return Encode(InsteadOf(each, too_large)); }, message));
  }
  if (!sent.ok()) peer_->Close(sent);
}

void LaneClient::SendBatch(std::uint64_t start, std::span<const BatchField> schema,
                           std::shared_ptr<Batch> batch) {
  Memories unknown;
  BatchReady ready;
  {
    MutexLock lock(mutex_);
    if (gone_) return;
    const Batch& made = *batch;
    Sent sent{.batch = std::move(batch)};
    Places places;
    const Buffer& rows = made.memory->rows;
    places.Add(rows, NumberOf(rows, sent, unknown));
    for (const Buffer& extra : made.memory->extra)
      places.Add(extra, NumberOf(extra, sent, unknown));
    ready = Describe(made, schema, places);
    ready.start = start;
    ready.number = ++last_number_;
    sent_.emplace(ready.number, std::move(sent));
  }
  // Outside: what is sent may end the peer. Only one thread sends batches, so memories come first.
  for (const auto& [memory, shared] : unknown) {
    const std::array<int, 1> fds = {shared->fd()};
    Send(memory, fds);
  }
  Send(std::move(ready));
}

std::uint32_t LaneClient::NumberOf(const Buffer& buffer, Sent& sent, Memories& unknown) {
  const std::shared_ptr<SharedMemory>& memory = buffer.place().memory;
  if (memory == nullptr) return 0;  // An empty buffer.
  if (const auto found = known_.find(memory.get()); found != known_.end()) {
    return found->second.number;
  }
  // An arena is larger than any of its buffers.
  const bool dedicated = memory->bytes().size() == buffer.bytes().size();
  const std::uint32_t number = ++last_memory_;
  known_.emplace(memory.get(), Known{.number = number, .memory = memory});
  if (dedicated) sent.dedicated.push_back(memory.get());
  unknown.emplace_back(
      NewMemory{.memory = number, .bytes = memory->bytes().size(), .dedicated = dedicated}, memory);
  return number;
}

void LaneClient::Forget(const Sent& sent) {
  for (const SharedMemory* memory : sent.dedicated) known_.erase(memory);
}

std::shared_ptr<const Batch> LaneClient::Take(std::uint64_t number) {
  MutexLock lock(mutex_);
  const auto found = sent_.find(number);
  if (found == sent_.end() || std::exchange(found->second.taken, true)) return nullptr;
  return found->second.batch;
}

// Batches die outside the lock: their memory wakes the engine.
void LaneClient::LetGo(std::uint64_t number) {
  Sent dropped;
  MutexLock lock(mutex_);
  const auto found = sent_.find(number);
  if (found == sent_.end()) return;
  dropped = std::move(found->second);
  sent_.erase(found);
  Forget(dropped);
}

void LaneClient::DropUntaken() {
  std::vector<Sent> dropped;
  MutexLock lock(mutex_);
  for (auto each = sent_.begin(); each != sent_.end();) {
    if (each->second.taken) {
      ++each;
      continue;
    }
    Forget(each->second);
    dropped.push_back(std::move(each->second));
    each = sent_.erase(each);
  }
}

void LaneClient::DropAll() {
  std::map<std::uint64_t, Sent> dropped;
  MutexLock lock(mutex_);
  gone_ = true;
  dropped.swap(sent_);
  known_.clear();
}

void LaneSink::Release() {
  MutexLock lock(mutex_);
  released_ = true;
  for (const std::shared_ptr<Batch>& batch : unsent_) Send(batch);
  unsent_.clear();
  if (end_.has_value()) SendEnd(*end_);
}

void LaneSink::Remove(const LaneClient& client) {
  MutexLock lock(mutex_);
  std::erase_if(receivers_,
                [&](const Receiver& receiver) { return receiver.client.get() == &client; });
}

void LaneSink::Send(const std::shared_ptr<Batch>& batch) {
  for (const Receiver& receiver : receivers_) {
    receiver.client->SendBatch(receiver.start, schema_, batch);
  }
}

void LaneSink::SendEnd(const Status& status) {
  for (const Receiver& receiver : receivers_) {
    receiver.client->Send(RunEnded{.start = receiver.start, .status = status});
  }
}

void LaneSink::OnBatch(std::shared_ptr<Batch> batch) {
  MutexLock lock(mutex_);
  if (receivers_.empty()) return;  // The lane leaves the run in a moment.
  if (!released_) {
    unsent_.push_back(std::move(batch));
  } else {
    Send(batch);
  }
}

void LaneSink::OnEnd(Status status) {
  MutexLock lock(mutex_);
  if (!released_) {
    end_ = std::move(status);
  } else {
    SendEnd(status);
  }
}

}  // namespace headrace
