#include "store/decoded/decoded_store.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "store/decoded/coded_catalog.h"
#include "store/decoded/file_decoder.h"
#include "store/store_table.h"

namespace headrace {
namespace {

constexpr int kThreads = 4;  // each holds an object while it decodes it

class DecodedFactory final : public StoreFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return kDecodedScheme; }
  [[nodiscard]] bool Suits(const StoreRequest& request) const override {
    return request.scheme == kDecodedScheme;
  }
  [[nodiscard]] Result<StoreParts> Open(const StoreRequest& request) const override {
    HEADRACE_RETURN_IF_ERROR(CheckScheme(request, kDecodedScheme));
    auto decoder = std::make_unique<FileDecoder>(*request.catalog, request.root);
    StoreParts parts;
    if (const std::string_view scheme = SchemeOf(decoder->stored().folder());
        scheme != kFileScheme) {
      HEADRACE_ASSIGN_OR_RETURN(StoreParts stored,
                                OpenStoreOf({.catalog = &decoder->stored(),
                                             .scheme = std::string(scheme),
                                             .root = std::string(decoder->stored().folder()),
                                             .start_threads = request.start_threads},
                                            kAnyStore));
      decoder->ReadBy(std::move(stored));
      parts.retries_itself = true;
    }
    HEADRACE_ASSIGN_OR_RETURN(parts.executor, request.start_threads(kThreads, "headrace-unzip"));
    parts.store = std::make_unique<DecodedStore>(
        std::move(decoder), *parts.executor,
        DecodedStoreOptions{
            .limits = request.decoded, .name = std::string(name()), .note = request.note});
    return parts;
  }
  [[nodiscard]] std::optional<ObjectMemory> MemoryOf(std::string_view name,
                                                     std::uint64_t size) const override {
    return FileDecoder::MemoryOf(name, size);
  }
};

}  // namespace

const StoreFactory& DecodedStoreFactory() {
  static const DecodedFactory factory;
  return factory;
}

DecodedStore::DecodedStore(std::unique_ptr<ObjectDecoder> decoder, Executor& executor,
                           DecodedStoreOptions options)
    : decoder_(std::move(decoder)), executor_(executor), options_(std::move(options)) {}

DecodedStore::~DecodedStore() { gate_.Close(); }

void DecodedStore::Read(std::vector<ReadRequest> requests, std::stop_token stop) {
  for (ReadRequest& request : requests) {
    CheckBuffer(request, request.extent.range.size);
    HEADRACE_CHECK(gate_.TryEnter());  // A store must not be called during its destruction.
    Waiter waiter{std::move(request), stop};
    if (waiter.request.extent.range.size != 0) {
      Wait(std::move(waiter));
    } else {
      executor_.Submit(0, [this, waiter = std::move(waiter)]() mutable { AnswerEmpty(waiter); });
    }
  }
}

// The first that waits for an object has it decoded, unless it is kept.
void DecodedStore::Wait(Waiter waiter) {
  const ObjectId id = waiter.request.extent.object;
  MutexLock lock(mutex_);
  Object& object = objects_[id];
  object.waiters.push_back(std::move(waiter));
  if (object.waiters.size() > 1) return;
  if (object.kept.has_value()) {
    recent_.splice(recent_.begin(), recent_, object.recent);
    ++object.copying;
    executor_.Submit(0, [this, id] { CopyKept(id); });
    return;
  }
  queued_.push_back(id);
  StartQueued();
}

// Starts as many decodes as decoding_bytes_max has room for.
void DecodedStore::StartQueued() {
  while (!queued_.empty()) {
    const ObjectId id = queued_.front();
    const Result<std::uint64_t> needed = decoder_->DecodeBytes(id);
    const std::uint64_t bytes = needed.ok() ? needed.value() : 0;  // DecodeNow() returns its error.
    const std::uint64_t most = options_.limits.decoding_bytes_max;
    const std::uint64_t room = most - std::min(most, decoding_bytes_);
    if (decoding_ > 0 && bytes > room) return;
    queued_.pop_front();
    ++decoding_;
    decoding_bytes_ += bytes;
    CountHeld();
    executor_.Submit(0, [this, id, bytes] { Decode(id, bytes); });
  }
}

void DecodedStore::Decode(ObjectId id, std::uint64_t bytes) {
  Answers answers;
  {
    const Result<DecodedBytes> decoded = DecodeNow(id);
    answers = AnswerAll(id, decoded);
  }  // Freed, unless it is kept, while its bytes still count.
  {
    MutexLock lock(mutex_);
    --decoding_;
    decoding_bytes_ -= bytes;
    CountHeld();
    StartQueued();
  }
  for (Waiter& waiter : answers.again) Wait(std::move(waiter));
  Leave(answers.given);
}

void DecodedStore::CopyKept(ObjectId id) {
  Answers answers;
  {
    const Result<DecodedBytes> kept = [&] {
      MutexLock lock(mutex_);
      return *objects_[id].kept;
    }();
    answers = AnswerAll(id, kept);
  }
  {
    MutexLock lock(mutex_);
    --objects_[id].copying;
  }
  Leave(answers.given);
}

// Answers all that wait for an object. A later request finds the object kept, or has it decoded
// again.
DecodedStore::Answers DecodedStore::AnswerAll(ObjectId id, const Result<DecodedBytes>& decoded) {
  Answers answers;
  for (Waiter& waiter : TakeWaiters(id)) {
    // It came after all others had stopped, and nothing was decoded for them.
    if (decoded.status().code() == StatusCode::kCancelled && !waiter.stop.stop_requested()) {
      answers.again.push_back(std::move(waiter));
      continue;
    }
    Answer(waiter, decoded);
    ++answers.given;
  }
  return answers;
}

void DecodedStore::AnswerEmpty(Waiter& waiter) {
  const Extent extent = waiter.request.extent;
  const auto check = [&]() -> Status {
    if (waiter.stop.stop_requested()) return Status(StatusCode::kCancelled, "stop requested");
    HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t size, decoder_->DecodedSize(extent.object));
    return CheckRange(extent.range, size);
  };
  Status status = check();
  if (status.ok()) {
    status = decoder_->CheckObject(extent.object);
  } else {
    status = status.WithContext(Doing(decoder_->Name(extent.object), extent.range));
  }
  Result<std::span<std::byte>> empty = waiter.request.buffer.first(0);
  if (!status.ok()) empty = std::move(status);
  counters_.Answer(waiter.request, std::move(empty));
  waiter.request.done = nullptr;  // Its captures must not outlive the store.
  Leave(1);
}

// Last: the store may be gone then.
void DecodedStore::Leave(std::size_t requests) {
  for (std::size_t i = 0; i < requests; ++i) gate_.Leave();
}

Result<DecodedBytes> DecodedStore::DecodeNow(ObjectId id) {
  HEADRACE_RETURN_IF_ERROR(decoder_->DecodedSize(id).status());  // Told also to those that stop.
  if (!IsWanted(id)) return Status(StatusCode::kCancelled, "stop requested");
  HEADRACE_ASSIGN_OR_RETURN(DecodedBytes decoded,
                            decoder_->Decode(id, [this, id] { return IsWanted(id); }));
  Keep(id, decoded);
  return decoded;
}

bool DecodedStore::IsWanted(ObjectId id) {
  MutexLock lock(mutex_);
  return std::ranges::any_of(objects_[id].waiters,
                             [](const Waiter& waiter) { return !waiter.stop.stop_requested(); });
}

std::vector<DecodedStore::Waiter> DecodedStore::TakeWaiters(ObjectId id) {
  MutexLock lock(mutex_);
  const auto found = objects_.find(id);
  std::vector<Waiter> waiters = std::exchange(found->second.waiters, {});
  if (!found->second.kept.has_value()) objects_.erase(found);
  return waiters;
}

// Makes room first. One for which there is none, as others are being copied, is not kept.
void DecodedStore::Keep(ObjectId id, const DecodedBytes& decoded) {
  const std::uint64_t most = options_.limits.kept_bytes_max;
  // With more than this many bytes kept, there is no room for it.
  const std::uint64_t full_at = most - std::min(most, decoded.charged_bytes);
  std::vector<DecodedBytes> forgotten = Forget(full_at);
  std::uint64_t freed = 0;
  for (const DecodedBytes& each : forgotten) freed += each.charged_bytes;
  forgotten.clear();  // without the lock, and while they still count
  MutexLock lock(mutex_);
  kept_bytes_ -= freed;
  if (kept_bytes_ <= full_at) {
    Object& object = objects_[id];
    object.kept = decoded;
    recent_.push_front(id);
    object.recent = recent_.begin();
    kept_bytes_ += decoded.charged_bytes;
  }
  CountHeld();
}

// Takes out those used longest ago until the rest has at most `bytes`, but none that is being
// copied. They count until the caller subtracts them from kept_bytes_.
std::vector<DecodedBytes> DecodedStore::Forget(std::uint64_t bytes) {
  std::vector<DecodedBytes> forgotten;
  MutexLock lock(mutex_);
  std::uint64_t left = kept_bytes_;
  for (auto it = recent_.end(); it != recent_.begin() && left > bytes;) {
    --it;
    const auto found = objects_.find(*it);
    if (found->second.copying > 0) continue;
    left -= found->second.kept->charged_bytes;
    forgotten.push_back(*std::exchange(found->second.kept, std::nullopt));
    if (found->second.waiters.empty()) objects_.erase(found);
    it = recent_.erase(it);
  }
  return forgotten;
}

void DecodedStore::CountHeld() {
  const std::uint64_t held = kept_bytes_ + decoding_bytes_;
  held_bytes_ = held;
  if (held > held_bytes_peak_) held_bytes_peak_ = held;
}

void DecodedStore::Answer(Waiter& waiter, const Result<DecodedBytes>& decoded) {
  const ByteRange range = waiter.request.extent.range;
  const auto answer = [&]() -> Result<std::span<std::byte>> {
    if (waiter.stop.stop_requested()) return Status(StatusCode::kCancelled, "stop requested");
    HEADRACE_RETURN_IF_ERROR(decoded.status());
    const std::span<const std::byte> bytes = decoded.value().bytes;
    HEADRACE_RETURN_IF_ERROR(CheckRange(range, bytes.size()));
    const std::span<std::byte> to = waiter.request.buffer.first(range.size);
    std::ranges::copy(bytes.subspan(range.offset, range.size), to.begin());
    return to;
  };
  Result<std::span<std::byte>> result = answer();
  if (!result.ok()) {
    result =
        result.status().WithContext(Doing(decoder_->Name(waiter.request.extent.object), range));
  }
  counters_.Answer(waiter.request, std::move(result));
  waiter.request.done = nullptr;  // Its captures must not outlive the store.
}

StoreStats DecodedStore::stats() const {
  StoreStats stats = counters_.Snapshot(options_.name, options_.note);
  stats.held_bytes = held_bytes_;
  stats.held_bytes_peak = held_bytes_peak_;
  decoder_->AddTo(stats);
  return stats;
}

}  // namespace headrace
