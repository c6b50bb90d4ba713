#include "store/thread_file_store.h"

#include <memory>
#include <utility>

#include "base/check.h"
#include "store/file_io.h"
#include "store/store_table.h"

namespace headrace {
namespace {

constexpr std::string_view kThreadsName = "threads";
constexpr int kReadThreads = 32;

class ThreadFactory final : public StoreFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return kThreadsName; }
  [[nodiscard]] bool Suits(const StoreRequest& request) const override {
    return request.scheme == kFileScheme;
  }
  [[nodiscard]] Result<StoreParts> Open(const StoreRequest& request) const override {
    const int threads = request.reads_at_once == 0 ? kReadThreads : request.reads_at_once;
    StoreParts parts;
    HEADRACE_ASSIGN_OR_RETURN(parts.executor, request.start_threads(threads, "headrace-read"));
    parts.store = std::make_unique<ThreadFileStore>(
        *request.catalog, *parts.executor,
        ThreadFileStoreOptions{.direct = request.direct(),
                               .page_cache = !request.avoid_page_cache,
                               .note = request.note});
    return parts;
  }
};

}  // namespace

const StoreFactory& ThreadStoreFactory() {
  static const ThreadFactory factory;
  return factory;
}

ThreadFileStore::ThreadFileStore(const FileCatalog& catalog, Executor& executor,
                                 ThreadFileStoreOptions options)
    : executor_(executor),
      options_(std::move(options)),
      files_(catalog, {.direct = options_.direct,
                       .descriptors_max = options_.descriptors_max,
                       .direct_alignment = options_.direct_alignment}) {}

ThreadFileStore::~ThreadFileStore() { gate_.Close(); }

std::size_t ThreadFileStore::BufferBytes(ByteRange range) const {
  if (!options_.direct || range.size == 0) return range.size;
  return Widen(range, kBufferAlignment).blocks.size;
}

void ThreadFileStore::Read(std::vector<ReadRequest> requests, std::stop_token stop) {
  for (ReadRequest& request : requests) {
    CheckBuffer(request, BufferBytes(request.extent.range));
    HEADRACE_CHECK(gate_.TryEnter());  // A store must not be called during its destruction.
    auto shared = std::make_shared<ReadRequest>(std::move(request));
    // Reads first: on an executor that also decodes, decoding depends on them.
    executor_.Submit(0, [this, stop, shared = std::move(shared)] {
      counters_.Answer(*shared, ReadNow(*shared, stop));
      shared->done = nullptr;  // Its captures must not outlive the store.
      gate_.Leave();
    });
  }
}

Status ThreadFileStore::CheckObject(ObjectId object) { return files_.CheckObject(object); }

ReadNowAnswer ThreadFileStore::ReadNow(const Extent& extent, std::span<std::byte> dst) {
  // Opening a file may take as long as a read: Read() does that.
  const std::shared_ptr<OpenFile> file = files_.FindOpen(extent);
  if (file == nullptr) return ReadNowAnswer::kNotAsked;
  if (!page_cache_.Read(*file, extent.range, dst)) return ReadNowAnswer::kNotHeld;
  counters_.AddNow(extent.range.size);
  counters_.AddPageCache(extent.range.size);
  return ReadNowAnswer::kRead;
}

void ThreadFileStore::ReadAllNow(std::span<NowRead> reads) {
  page_cache_.ReadAll(files_, reads);
  counters_.AddPageCache(counters_.AddAllNow(reads).second);
}

bool ThreadFileStore::HoldsNow(const Extent& extent) {
  return MayReadNow() && page_cache_.HoldsMapped(files_, extent);
}

bool ThreadFileStore::MayReadNow() {
  return options_.direct && options_.page_cache && page_cache_.WorthAsking();
}

StoreStats ThreadFileStore::stats() const {
  return counters_.Snapshot(std::string(kThreadsName), options_.note);
}

ThreadFileStore::Answer ThreadFileStore::ReadNow(const ReadRequest& request,
                                                 const std::stop_token& stop) {
  const Extent& extent = request.extent;
  if (stop.stop_requested()) {
    return Status(StatusCode::kCancelled, "stop requested")
        .WithContext(Doing(ObjectName(extent.object), extent.range));
  }
  if (extent.range.size == 0) {
    HEADRACE_RETURN_IF_ERROR(files_.Check(extent));
    return request.buffer.first(0);
  }
  HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<OpenFile> file, files_.Open(extent));
  Answer answer = file->direct() ? ReadDirect(*file, request) : ReadBuffered(*file, request);
  if (!answer.ok()) return answer.status().WithContext(Doing(file->path(), extent.range));
  return answer;
}

ThreadFileStore::Answer ThreadFileStore::ReadBuffered(const OpenFile& file,
                                                      const ReadRequest& request) {
  const ByteRange range = request.extent.range;
  const std::span<std::byte> dst = request.buffer.first(range.size);
  HEADRACE_ASSIGN_OR_RETURN(const std::size_t got, ReadAt(file.fd(), dst, range.offset, 1));
  if (got < range.size) return file.WhyShort(range.size - got);
  return dst;
}

ThreadFileStore::Answer ThreadFileStore::ReadDirect(OpenFile& file, const ReadRequest& request) {
  const ByteRange range = request.extent.range;
  if (options_.page_cache && !request.looked && page_cache_.TryRead(file, range, request.buffer)) {
    counters_.AddPageCache(range.size);
    return request.buffer.first(range.size);
  }
  const WidenedRange widened = Widen(range, file.direct_alignment());
  const Result<std::size_t> got =
      ReadAt(file.direct_fd(), request.buffer.first(widened.blocks.size), widened.blocks.offset,
             file.direct_alignment());
  if (!got.ok() && got.status().code() == StatusCode::kInvalidArgument) {
    file.RefuseDirect();
    return ReadBuffered(file, request);
  }
  HEADRACE_RETURN_IF_ERROR(got.status());
  counters_.AddDirect(got.value());
  if (got.value() < widened.needed) return file.WhyShort(widened.needed - got.value());
  return request.buffer.subspan(widened.lead, range.size);
}

}  // namespace headrace
