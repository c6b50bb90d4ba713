#include "store/decoded/decoded_store.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "store/file_io.h"
#include "store/store_table.h"

namespace headrace {
namespace {

constexpr std::string_view kName = "decoded";
constexpr int kThreads = 4;  // each holds an object while it decodes it

class Factory final : public StoreFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return kName; }
  [[nodiscard]] bool Suits(const StoreRequest& request) const override {
    return request.scheme == kDecodedScheme;
  }
  [[nodiscard]] Result<StoreParts> Open(const StoreRequest& request) const override {
    StoreParts parts;
    HEADRACE_ASSIGN_OR_RETURN(parts.executor, request.start_threads(kThreads, "headrace-unzip"));
    parts.store = std::make_unique<DecodedStore>(*request.catalog, request.root, *parts.executor,
                                                 DecodedStoreOptions{.note = request.note});
    return parts;
  }
};

Result<Buffer> Memory(std::uint64_t bytes) {
  const std::uint64_t some = std::max<std::uint64_t>(bytes, 1);
  std::optional<Buffer> memory = BufferPool::Make(BufferPool::ChargedBytes(some))->Acquire(some);
  if (memory.has_value()) return *std::move(memory);
  return Status(StatusCode::kResourceExhausted,
                "the system has no memory for " + FormatBytes(bytes));
}

}  // namespace

const StoreFactory& DecodedStoreFactory() {
  static const Factory factory;
  return factory;
}

DecodedStore::DecodedStore(const FileCatalog& objects, std::string root, Executor& executor,
                           DecodedStoreOptions options)
    : catalog_(objects, std::move(root)),
      executor_(executor),
      options_(std::move(options)),
      files_(catalog_, {}) {}

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
  executor_.Submit(0, [this, id] { Decode(id); });
}

// Answers all that wait for an object. Those that come later have it decoded, or find it kept.
void DecodedStore::Decode(ObjectId id) {
  Decoded kept;
  bool wanted = false;
  {
    MutexLock lock(mutex_);
    Object& object = objects_[id];
    wanted = std::ranges::any_of(
        object.waiters, [](const Waiter& waiter) { return !waiter.stop.stop_requested(); });
    kept = object.decoded;
    if (kept != nullptr) recent_.splice(recent_.begin(), recent_, object.recent);
  }
  const Result<CodedFile> file = catalog_.coded(id);
  Result<Decoded> decoded = kept;
  if (!file.ok()) {
    decoded = file.status();
  } else if (kept == nullptr && !wanted) {
    decoded = Status(StatusCode::kCancelled, "stop requested");
  } else if (kept == nullptr) {
    decoded = DecodeNow(file.value(), id);
    if (decoded.ok()) Keep(id, decoded.value(), file.value().decoded_bytes);
  }
  const std::string path = file.ok() ? file.value().stored.path : ObjectName(id);
  for (Waiter& waiter : TakeWaiters(id)) {
    Answer(waiter, decoded, path);
    waiter.request.done = nullptr;  // Its captures must not outlive the store.
    gate_.Leave();
  }
}

Result<DecodedStore::Decoded> DecodedStore::DecodeNow(const CodedFile& file, ObjectId id) {
  HEADRACE_ASSIGN_OR_RETURN(
      const std::shared_ptr<OpenFile> open,
      files_.Open({.object = id, .range = {.offset = 0, .size = file.stored.size}}));
  HEADRACE_ASSIGN_OR_RETURN(const Buffer encoded, Memory(file.stored.size));
  const std::span<std::byte> bytes = encoded.bytes().first(file.stored.size);
  HEADRACE_ASSIGN_OR_RETURN(const std::size_t got, ReadAt(open->fd(), bytes, 0, 1));
  if (got < bytes.size()) return open->WhyShort(bytes.size() - got);
  HEADRACE_ASSIGN_OR_RETURN(Buffer decoded, Memory(file.decoded_bytes));
  HEADRACE_RETURN_IF_ERROR(Decompress(file.coding, bytes, decoded.bytes().first(file.decoded_bytes))
                               .WithContext("decoding " + file.stored.path));
  return std::make_shared<const Buffer>(std::move(decoded));
}

std::vector<DecodedStore::Waiter> DecodedStore::TakeWaiters(ObjectId id) {
  MutexLock lock(mutex_);
  const auto found = objects_.find(id);
  std::vector<Waiter> waiters = std::exchange(found->second.waiters, {});
  if (found->second.decoded == nullptr) objects_.erase(found);
  return waiters;
}

// Forgets those used longest ago, until the rest fits; those in use live until they are copied.
void DecodedStore::Keep(ObjectId id, const Decoded& decoded, std::uint64_t bytes) {
  std::vector<Decoded> forgotten;  // freed without the lock
  MutexLock lock(mutex_);
  Object& object = objects_[id];
  object.decoded = decoded;
  object.bytes = bytes;
  recent_.push_front(id);
  object.recent = recent_.begin();
  kept_bytes_ += bytes;
  while (kept_bytes_ > options_.kept_bytes_max && recent_.back() != id) {
    const auto last = objects_.find(recent_.back());
    recent_.pop_back();
    kept_bytes_ -= last->second.bytes;
    forgotten.push_back(std::exchange(last->second.decoded, nullptr));
    if (last->second.waiters.empty()) objects_.erase(last);
  }
}

void DecodedStore::Answer(Waiter& waiter, const Result<Decoded>& decoded, const std::string& path) {
  const ByteRange range = waiter.request.extent.range;
  const auto answer = [&]() -> Result<std::span<std::byte>> {
    if (waiter.stop.stop_requested()) return Status(StatusCode::kCancelled, "stop requested");
    HEADRACE_RETURN_IF_ERROR(decoded.status());
    const std::span<const std::byte> bytes = decoded.value()->bytes();
    HEADRACE_ASSIGN_OR_RETURN(const CodedFile file, catalog_.coded(waiter.request.extent.object));
    HEADRACE_RETURN_IF_ERROR(CheckRange(range, file.decoded_bytes));
    const std::span<std::byte> to = waiter.request.buffer.first(range.size);
    std::ranges::copy(bytes.subspan(range.offset, range.size), to.begin());
    return to;
  };
  Result<std::span<std::byte>> result = answer();
  if (!result.ok()) result = result.status().WithContext(Doing(path, range));
  counters_.Answer(waiter.request, std::move(result));
}

Status DecodedStore::CheckObject(ObjectId object) { return files_.CheckObject(object); }

StoreStats DecodedStore::stats() const {
  return counters_.Snapshot(std::string(kName), options_.note);
}

}  // namespace headrace
