#include "loader/session/open_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/memory/buffer_pool.h"
#include "base/mutex.h"
#include "base/units.h"
#include "index/homes/homes.h"
#include "loader/machine/thread_executor.h"
#include "store/share/shared_store.h"

namespace headrace {
namespace {

constexpr std::uint64_t kPrototypes = 64;
// From this many samples a file on, a dataset is ranges of large files.
constexpr std::uint64_t kSamplesOfALargeFile = 8;

constexpr std::uint64_t kPieceBytes = kMiB;  // of one read of ReadExtents()
constexpr std::size_t kPiecesInFlight = 4;
constexpr std::int64_t kAskEveryNs = 50 * kNsPerMs;

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

// Reads of ReadExtents() in flight. Outlives them: their answers and buffers lie here.
class PieceReads : public std::enable_shared_from_this<PieceReads> {
 public:
  // Starts a read of `extent`, whose bytes are for `dst`. Fewer than kPiecesInFlight are in flight.
  //
  // Errors: ResourceExhausted
  Status Start(ByteStore& store, const Extent& extent, std::span<std::byte> dst) {
    Piece piece{.buffer = TakeBuffer(store.BufferBytes(extent.range)), .dst = dst};
    if (piece.buffer->bytes().empty()) {
      return Status(StatusCode::kResourceExhausted, "out of memory");
    }
    ++in_flight_;
    std::vector<ReadRequest> requests;
    requests.push_back(
        {.extent = extent,
         .buffer = piece.buffer->bytes(),
         .done = [self = shared_from_this(), piece](Result<std::span<std::byte>> data) {
           MutexLock lock(self->mutex_);
           self->landed_.push_back({piece, std::move(data)});
           self->changed_.NotifyAll();
         }});
    store.Read(std::move(requests), stop_.get_token());
    return Status();
  }

  [[nodiscard]] std::size_t in_flight() const { return in_flight_; }

  // Waits for the next answer, and copies its bytes to where they are for.
  //
  // Errors: that of the read; Cancelled  `keep_going` said so
  Status Take(const std::function<bool()>& keep_going) {
    std::optional<Landed> next;
    while (!next.has_value()) {
      {
        MutexLock lock(mutex_);
        if (landed_.empty()) static_cast<void>(changed_.WaitFor(mutex_, kAskEveryNs));
        if (!landed_.empty()) {
          next.emplace(std::move(landed_.front()));
          landed_.pop_front();
        }
      }
      // By the clock: answers may come faster than any wait.
      const std::int64_t now_ns = MonotonicClock().NowNanos();
      if (keep_going == nullptr || now_ns - asked_ns_ < kAskEveryNs) continue;
      asked_ns_ = now_ns;
      if (!keep_going()) {
        stop_.request_stop();
        return Status(StatusCode::kCancelled, "reading: stopped");
      }
    }
    --in_flight_;
    if (!next->data.ok()) return next->data.status();
    std::ranges::copy(next->data.value(), next->piece.dst.begin());
    spare_.push_back(std::move(next->piece.buffer));
    return Status();
  }

  void Stop() { stop_.request_stop(); }

 private:
  struct Piece {
    std::shared_ptr<Buffer> buffer;
    std::span<std::byte> dst;  // touched by the caller of Take() alone
  };
  struct Landed {
    Piece piece;
    Result<std::span<std::byte>> data;
  };

  std::shared_ptr<Buffer> TakeBuffer(std::size_t bytes) {
    if (!spare_.empty()) {
      std::shared_ptr<Buffer> spare = std::move(spare_.back());
      spare_.pop_back();
      if (spare->bytes().size() >= bytes) return spare;
    }
    auto made = BufferPool::Make(BufferPool::ChargedBytes(bytes))->Acquire(bytes);
    return std::make_shared<Buffer>(made.has_value() ? *std::move(made) : Buffer());
  }

  // Of the caller's thread.
  std::vector<std::shared_ptr<Buffer>> spare_;
  std::size_t in_flight_ = 0;
  std::int64_t asked_ns_ = MonotonicClock().NowNanos();  // when keep_going was called last
  std::stop_source stop_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Landed> landed_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace

Status ReadExtents(ByteStore& store, std::span<const Extent> extents, std::span<std::byte> dst,
                   const std::function<bool()>& keep_going) {
  const auto reads = std::make_shared<PieceReads>();
  const auto read = [&]() -> Status {
    for (const Extent& extent : extents) {
      if (extent.range.size == 0) HEADRACE_RETURN_IF_ERROR(store.CheckObject(extent.object));
      for (std::uint64_t done = 0; done < extent.range.size;) {
        const std::uint64_t size = std::min(kPieceBytes, extent.range.size - done);
        if (reads->in_flight() == kPiecesInFlight) {
          HEADRACE_RETURN_IF_ERROR(reads->Take(keep_going));
        }
        const Extent piece{extent.object, {extent.range.offset + done, size}};
        HEADRACE_RETURN_IF_ERROR(reads->Start(store, piece, dst.first(size)));
        dst = dst.subspan(size);
        done += size;
      }
    }
    while (reads->in_flight() != 0) HEADRACE_RETURN_IF_ERROR(reads->Take(keep_going));
    return Status();
  };
  Status status = read();
  if (!status.ok()) reads->Stop();
  return status;
}

Result<std::string> ReadWhole(ByteStore& store, const Extent& extent) {
  std::string bytes(extent.range.size, '\0');
  HEADRACE_RETURN_IF_ERROR(
      ReadExtents(store, std::span(&extent, 1), std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

Result<FileInfo> IndexCatalog::file(ObjectId object) const {
  HEADRACE_ASSIGN_OR_RETURN(const ObjectInfo info, index_->object(object));
  return FileInfo{.path = index_->root() + "/" + std::string(info.name),
                  .size = info.size,
                  .mtime_ns = info.mtime_ns};
}

std::string IndexCatalog::RemedyOfMissing(const std::string& path) const {
  std::call_once(homes_counted_, [&] {
    const Result<Homes> homes = HomesOf(*index_);
    if (homes.ok()) home_count_ = homes.value().count;
  });
  std::string remedy = FileCatalog::RemedyOfMissing(path);
  if (home_count_ == 1 || SchemeOf(index_->root()) != kFileScheme) return remedy;
  const std::uint32_t home = HomeFolderOf(std::string_view(path).substr(index_->root().size() + 1));
  const std::string folder = index_->root() + "/" + HomeFolder(home);
  std::error_code unknown;
  if (std::filesystem::exists(folder, unknown) || unknown) return remedy;
  return fmt::format(
      "home {} of {} is not on this node: {} is not here; copy it, or run on {} nodes, each with "
      "its home, and order epoch with homes={} (`headrace docs nodes`)",
      home, home_count_, folder, home_count_, home_count_);
}

OpenedStore::OpenedStore() = default;
OpenedStore::OpenedStore(OpenedStore&&) noexcept = default;

OpenedStore& OpenedStore::operator=(OpenedStore&& other) noexcept {
  parts_.store = std::move(other.parts_.store);  // First what uses the others.
  parts_.executor = std::move(other.parts_.executor);
  catalog_ = std::move(other.catalog_);
  return *this;
}

OpenedStore::~OpenedStore() { parts_.store.reset(); }

bool ReadsRanges(const Index& index) {
  return index.sample_count() >=
         kSamplesOfALargeFile * std::max<std::uint64_t>(index.object_count(), 1);
}

Result<OpenedStore> OpenStore(const std::shared_ptr<const Index>& index,
                              const OpenStoreOptions& options) {
  OpenedStore opened;
  opened.catalog_ = std::make_unique<IndexCatalog>(index, options.remedies);
  StoreRequest request{
      .catalog = opened.catalog_.get(),
      .scheme = std::string(SchemeOf(index->root())),
      .root = index->root(),
      .large_files = ReadsRanges(*index),
      .avoid_page_cache = options.page_cache == PageCache::kAvoided,
      .reads_at_once = options.reads_at_once,
      .decoded = options.decoded,
      .requests = options.requests,
      .start_threads = [](int threads, std::string name) -> Result<std::unique_ptr<Executor>> {
        HEADRACE_ASSIGN_OR_RETURN(
            std::unique_ptr<ThreadExecutor> executor,
            ThreadExecutor::Make({.threads = threads, .name = std::move(name)}));
        return std::unique_ptr<Executor>(std::move(executor));
      },
      .examples = [&]() -> Result<std::vector<std::string>> {
        HEADRACE_ASSIGN_OR_RETURN(const OpenedStore stored,
                                  OpenStore(index, {.remedies = options.remedies}));
        return ReadPrototypes(*index, stored.store());
      }};
  request.note = request.large_files ? "ranges of large files" : "whole files";
  const std::uint64_t gap_bytes = NeedsOf(options.io, request.scheme).block_gap_bytes;
  HEADRACE_ASSIGN_OR_RETURN(opened.parts_, OpenStoreOf(std::move(request), options.io));
  if (options.share != nullptr && ReadsStorage(options.io)) {
    opened.parts_.store = SharedStore::Make(std::move(opened.parts_.store), options.share,
                                            index->fingerprint(), gap_bytes);
  }
  return opened;
}

}  // namespace headrace
