#include "store/decoded/decoded_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "store/decoded/coded_catalog.h"
#include "store/decoded/file_decoder.h"
#include "store/store_table.h"

namespace headrace {
namespace {

constexpr int kThreads = 4;  // each holds an object while it decodes it

class Factory final : public StoreFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return kDecodedScheme; }
  [[nodiscard]] bool Suits(const StoreRequest& request) const override {
    return request.scheme == kDecodedScheme;
  }
  [[nodiscard]] Result<StoreParts> Open(const StoreRequest& request) const override {
    HEADRACE_RETURN_IF_ERROR(CheckScheme(request, kDecodedScheme));
    StoreParts parts;
    HEADRACE_ASSIGN_OR_RETURN(parts.executor, request.start_threads(kThreads, "headrace-unzip"));
    parts.store = std::make_unique<DecodedStore>(
        std::make_unique<FileDecoder>(*request.catalog, request.root), *parts.executor,
        DecodedStoreOptions{.name = std::string(name()), .note = request.note});
    return parts;
  }
};

}  // namespace

const StoreFactory& DecodedStoreFactory() {
  static const Factory factory;
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
    Wait({std::move(request), stop});
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
    executor_.Submit(0, [this, id] { AnswerAll(id, DecodeNow(id)); });
    return;
  }
  queued_.push_back(id);
  StartQueued();
}

// Starts as many decodes as decoding_bytes_max has room for.
void DecodedStore::StartQueued() {
  while (!queued_.empty()) {
    const ObjectId id = queued_.front();
    const Result<std::uint64_t> size = decoder_->DecodedSize(id);
    const std::uint64_t bytes = size.ok() ? size.value() : 0;  // DecodeNow() returns its error.
    const std::uint64_t room =
        options_.decoding_bytes_max - std::min(options_.decoding_bytes_max, decoding_bytes_);
    if (decoding_ > 0 && bytes > room) return;
    queued_.pop_front();
    ++decoding_;
    decoding_bytes_ += bytes;
    executor_.Submit(0, [this, id, bytes] { Decode(id, bytes); });
  }
}

void DecodedStore::Decode(ObjectId id, std::uint64_t bytes) {
  const Result<DecodedBytes> decoded = DecodeNow(id);
  {
    MutexLock lock(mutex_);
    --decoding_;
    decoding_bytes_ -= bytes;
    StartQueued();
  }
  AnswerAll(id, decoded);
}

// Answers all that wait for an object. A later request finds the object kept, or has it decoded
// again.
void DecodedStore::AnswerAll(ObjectId id, const Result<DecodedBytes>& decoded) {
  for (Waiter& waiter : TakeWaiters(id)) {
    // It came after all others had stopped, and nothing was decoded for them.
    if (decoded.status().code() == StatusCode::kCancelled && !waiter.stop.stop_requested()) {
      Wait(std::move(waiter));
      continue;
    }
    Answer(waiter, decoded);
    waiter.request.done = nullptr;  // Its captures must not outlive the store.
    gate_.Leave();
  }
}

Result<DecodedBytes> DecodedStore::DecodeNow(ObjectId id) {
  {
    MutexLock lock(mutex_);
    Object& object = objects_[id];
    if (object.kept.has_value()) {
      recent_.splice(recent_.begin(), recent_, object.recent);
      return *object.kept;
    }
  }
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

// Forgets those used longest ago, until the rest fits; those in use live until they are copied.
void DecodedStore::Keep(ObjectId id, const DecodedBytes& decoded) {
  std::vector<DecodedBytes> forgotten;  // freed without the lock
  MutexLock lock(mutex_);
  Object& object = objects_[id];
  object.kept = decoded;
  recent_.push_front(id);
  object.recent = recent_.begin();
  kept_bytes_ += decoded.charged_bytes;
  while (kept_bytes_ > options_.kept_bytes_max && recent_.back() != id) {
    const auto last = objects_.find(recent_.back());
    recent_.pop_back();
    kept_bytes_ -= last->second.kept->charged_bytes;
    forgotten.push_back(*std::exchange(last->second.kept, std::nullopt));
    if (last->second.waiters.empty()) objects_.erase(last);
  }
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
}

StoreStats DecodedStore::stats() const { return counters_.Snapshot(options_.name, options_.note); }

}  // namespace headrace
