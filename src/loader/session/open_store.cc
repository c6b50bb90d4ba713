#include "loader/session/open_store.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/memory/buffer_pool.h"
#include "base/mutex.h"
#include "loader/machine/thread_executor.h"
#include "store/retry_store.h"
#include "store/synthetic_store.h"
#include "store/thread_file_store.h"
#include "store/uring_file_store.h"

namespace headrace {
namespace {

constexpr int kReadThreads = 32;
constexpr int kReadTries = 3;
constexpr std::uint64_t kPrototypes = 64;
// From this many samples a file on, a dataset is ranges of large files.
constexpr std::uint64_t kSamplesOfALargeFile = 8;

// Samples spread over the dataset, the smallest of many among them: one fits wherever one is asked
// for.
Result<std::vector<std::string>> ReadPrototypes(const Index& index, ByteStore& store) {
  std::vector<std::string> prototypes;
  for (std::size_t field = 0; field < index.fields().size(); ++field) {
    if (index.fields()[field].is_inline) continue;
    const std::uint64_t count = std::min(index.sample_count(), kPrototypes);
    for (std::uint64_t i = 0; i < count; ++i) {
      const SampleId id{i * (index.sample_count() / count)};
      HEADRACE_ASSIGN_OR_RETURN(const Extent extent, index.extent(field, id));
      HEADRACE_ASSIGN_OR_RETURN(std::string bytes, ReadWhole(store, extent));
      prototypes.push_back(std::move(bytes));
    }
    std::optional<Extent> smallest;
    const std::uint64_t looked_at = std::min<std::uint64_t>(index.sample_count(), 1'000'000);
    for (std::uint64_t i = 0; i < looked_at; ++i) {
      HEADRACE_ASSIGN_OR_RETURN(const Extent extent, index.extent(field, SampleId{i}));
      if (!smallest.has_value() || extent.range.size < smallest->range.size) smallest = extent;
    }
    HEADRACE_ASSIGN_OR_RETURN(std::string bytes, ReadWhole(store, *smallest));
    prototypes.push_back(std::move(bytes));
  }
  return prototypes;
}

}  // namespace

Result<std::string> ReadWhole(ByteStore& store, const Extent& extent) {
  const std::size_t bytes = store.BufferBytes(extent.range);
  const std::shared_ptr<BufferPool> pool = BufferPool::Make(BufferPool::ChargedBytes(bytes));
  const std::optional<Buffer> buffer = pool->Acquire(bytes);
  if (!buffer.has_value()) return Status(StatusCode::kResourceExhausted, "out of memory");
  Mutex mutex;
  CondVar changed;
  std::optional<Result<std::string>> answer;
  std::vector<ReadRequest> requests;
  requests.push_back(
      {.extent = extent, .buffer = buffer->bytes(), .done = [&](Result<std::span<std::byte>> data) {
         MutexLock lock(mutex);
         if (data.ok()) {
           const std::span<std::byte> read = data.value();
           answer.emplace(std::string(reinterpret_cast<const char*>(read.data()), read.size()));
         } else {
           answer.emplace(data.status());
         }
         changed.NotifyAll();
       }});
  store.Read(std::move(requests), {});
  MutexLock lock(mutex);
  while (!answer.has_value()) changed.Wait(mutex);
  return *std::move(answer);
}

Result<FileInfo> IndexCatalog::file(ObjectId object) const {
  HEADRACE_ASSIGN_OR_RETURN(const ObjectInfo info, index_->object(object));
  return FileInfo{.path = index_->root() + "/" + std::string(info.name),
                  .size = info.size,
                  .mtime_ns = info.mtime_ns};
}

OpenedStore::OpenedStore() = default;
OpenedStore::OpenedStore(OpenedStore&&) noexcept = default;

OpenedStore& OpenedStore::operator=(OpenedStore&& other) noexcept {
  store_ = std::move(other.store_);  // First what uses the others.
  executor_ = std::move(other.executor_);
  catalog_ = std::move(other.catalog_);
  return *this;
}

OpenedStore::~OpenedStore() { store_.reset(); }

bool ReadsRanges(const Index& index) {
  return index.sample_count() >=
         kSamplesOfALargeFile * std::max<std::uint64_t>(index.object_count(), 1);
}

Result<OpenedStore> OpenStore(const std::shared_ptr<const Index>& index, IoChoice choice,
                              PageCache page_cache) {
  OpenedStore opened;
  opened.catalog_ = std::make_unique<IndexCatalog>(index);
  const bool large_files = ReadsRanges(*index);
  const bool direct = large_files || page_cache == PageCache::kAvoided;
  const bool ask_first = page_cache == PageCache::kUsed;
  std::string note = large_files ? "ranges of large files" : "whole files";
  if (choice == IoChoice::kUring || (choice == IoChoice::kAuto && large_files)) {
    HEADRACE_ASSIGN_OR_RETURN(opened.executor_,
                              ThreadExecutor::Make({.threads = 1, .name = "headrace-uring"}));
    Result<std::unique_ptr<UringFileStore>> uring =
        UringFileStore::Open(*opened.catalog_, *opened.executor_,
                             {.direct = direct, .page_cache = ask_first, .note = note});
    if (uring.ok()) {
      opened.store_ = std::make_unique<RetryStore>(std::move(uring).value(), kReadTries);
      return opened;
    }
    if (choice == IoChoice::kUring) return uring.status();
    note.append("; io_uring: ").append(uring.status().message());
  }
  HEADRACE_ASSIGN_OR_RETURN(
      opened.executor_, ThreadExecutor::Make({.threads = kReadThreads, .name = "headrace-read"}));
  opened.store_ = std::make_unique<RetryStore>(
      std::make_unique<ThreadFileStore>(
          *opened.catalog_, *opened.executor_,
          ThreadFileStoreOptions{.direct = direct, .page_cache = ask_first, .note = note}),
      kReadTries);
  if (choice == IoChoice::kSynthetic) {
    HEADRACE_ASSIGN_OR_RETURN(std::vector<std::string> prototypes,
                              ReadPrototypes(*index, opened.store()));
    opened.store_ = std::make_unique<SyntheticStore>(std::move(prototypes));
    opened.executor_.reset();
  }
  return opened;
}

}  // namespace headrace
