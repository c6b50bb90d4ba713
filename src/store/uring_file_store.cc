#include "store/uring_file_store.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/mutex.h"
#include "base/process_id.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "store/file_io.h"
#include "store/page_cache.h"
#include "store/store_table.h"
#include "store/uring.h"

namespace headrace {
namespace {

constexpr std::string_view kUringName = "io_uring";
constexpr int kQueueDepthMax = 4096;
constexpr std::uint64_t kWakeUp = ~std::uint64_t{0};  // user_data of the read of the eventfd
constexpr std::uint64_t kReadBytesMax = std::uint64_t{1} << 30;  // of one entry of the ring
constexpr int kTriesMax = 16;                                    // of one read, for a busy kernel

// With many reads in flight, completions are taken up to 8 at a time: the device has enough work,
// and system calls are shared. With few, each is taken immediately.
constexpr std::uint64_t kInFlightPerAnswer = 4;
constexpr std::uint64_t kAnswersMax = 8;

// Ranges copied from the page cache before the ring is polled again.
constexpr int kCopiesInARow = 16;

}  // namespace

// The thread of the store. The steps of a request:
//   1. Post() puts it into the inbox, and wakes the loop through an eventfd if the inbox was empty.
//   2. The loop moves it from the inbox to `waiting_`.
//   3. If it needs no device, the loop answers it; otherwise it becomes an operation of the ring,
//      once one is free.
//   4. A short read is submitted again for the rest; then the loop answers the request.
// Stop() lets all requests finish, then the loop ends.
class UringFileStore::Loop {
 public:
  Loop(const FileCatalog& catalog, const UringFileStoreOptions& options)
      : page_cache_wanted_(options.page_cache),
        files_(catalog, {.direct = options.direct,
                         .descriptors_max = options.descriptors_max,
                         .direct_alignment = options.direct_alignment}),
        operations_(static_cast<std::size_t>(options.queue_depth)) {
    for (std::size_t i = 0; i < operations_.size(); ++i) free_.push_back(i);
  }

  Status Make();
  void Run();
  void Post(std::vector<ReadRequest> requests, const std::stop_token& stop);
  void Stop();

  StoreCounters& counters() { return counters_; }

  // May be called from any thread.
  ReadNowAnswer ReadNow(const Extent& extent, std::span<std::byte> dst);
  void ReadAllNow(std::span<NowRead> reads);
  FileTable& files() { return files_; }
  PageCacheReader& page_cache() { return page_cache_; }

 private:
  struct Waiting {
    ReadRequest request;
    std::stop_token stop;
  };

  // A read in flight.
  struct Operation {
    ReadRequest request;
    std::shared_ptr<OpenFile> file;
    bool direct = false;
    WidenedRange range;   // read to the start of the buffer
    std::size_t got = 0;  // bytes read
    int tries = 0;        // tries for which the kernel was too busy
  };

  void Wake();
  void ArmWakeUp();
  bool TakeInbox();
  void BeginWaiting();
  bool AnswerWithoutDevice(Waiting& waiting);
  void Begin(Waiting waiting);
  void Aim(Operation& operation);
  void Submit(std::size_t index);
  void Take(std::uint64_t user_data, int result);
  void TakeRead(std::size_t index, int result);
  void Finish(std::size_t index, const Status& status);
  [[nodiscard]] std::size_t in_flight() const { return operations_.size() - free_.size(); }

  const bool page_cache_wanted_;
  FileTable files_;
  PageCacheReader page_cache_;
  StoreCounters counters_;
  UniqueFd wake_;

  // Used by the loop's thread only.
  Uring ring_;
  std::deque<Waiting> waiting_;
  std::shared_ptr<OpenFile> opened_;  // the file of waiting_.front(), if it is open
  std::vector<Operation> operations_;
  std::vector<std::size_t> free_;  // indexes of operations_
  std::uint64_t wake_count_ = 0;   // target of the read of the eventfd
  bool wake_armed_ = false;

  Mutex mutex_;
  CondVar ended_changed_;
  std::vector<Waiting> inbox_ HEADRACE_GUARDED_BY(mutex_);
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool ended_ HEADRACE_GUARDED_BY(mutex_) = false;
};

Status UringFileStore::Loop::Make() {
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (!wake_) return ErrnoStatus(errno, "eventfd");
  return ring_.Make(static_cast<unsigned>(operations_.size()) + 1);
}

void UringFileStore::Loop::Run() {
  HEADRACE_CHECK(ring_.Start().ok());  // Make() succeeded.
  for (;;) {
    const bool stopping = TakeInbox();
    if (!stopping && !wake_armed_) ArmWakeUp();
    BeginWaiting();
    const bool idle = waiting_.empty() && in_flight() == 0;
    if (stopping && idle && !wake_armed_) break;
    const bool more = !waiting_.empty() && !free_.empty();
    const std::uint64_t answers =
        std::clamp<std::uint64_t>(in_flight() / kInFlightPerAnswer, 1, kAnswersMax);
    ring_.Submit(more ? 0 : static_cast<unsigned>(answers));
    ring_.Reap([this](std::uint64_t user_data, int result) { Take(user_data, result); });
  }
  MutexLock lock(mutex_);
  ended_ = true;
  ended_changed_.NotifyAll();
}

void UringFileStore::Loop::Post(std::vector<ReadRequest> requests, const std::stop_token& stop) {
  MutexLock lock(mutex_);
  HEADRACE_CHECK(!stopping_);  // A store must not be called during its destruction.
  const bool wake = inbox_.empty() && !requests.empty();
  for (ReadRequest& request : requests) inbox_.push_back({std::move(request), stop});
  // Under the lock: after its release the loop and its eventfd may be destroyed.
  if (wake) Wake();
}

void UringFileStore::Loop::Stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
  Wake();
  while (!ended_) ended_changed_.Wait(mutex_);
}

void UringFileStore::Loop::Wake() {
  const std::uint64_t one = 1;
  HEADRACE_CHECK(::write(wake_.get(), &one, sizeof(one)) == sizeof(one));
}

void UringFileStore::Loop::ArmWakeUp() {
  io_uring_sqe& entry = ring_.Next();
  io_uring_prep_read(&entry, wake_.get(), &wake_count_, sizeof(wake_count_), 0);
  entry.user_data = kWakeUp;
  wake_armed_ = true;
}

// Returns whether Stop() was called.
bool UringFileStore::Loop::TakeInbox() {
  std::vector<Waiting> taken;
  bool stopping = false;
  {
    MutexLock lock(mutex_);
    taken.swap(inbox_);
    stopping = stopping_;
  }
  for (Waiting& waiting : taken) waiting_.push_back(std::move(waiting));
  return stopping;
}

void UringFileStore::Loop::BeginWaiting() {
  int copies = 0;
  while (!waiting_.empty() && !free_.empty() && copies < kCopiesInARow) {
    Waiting waiting = std::move(waiting_.front());
    waiting_.pop_front();
    if (AnswerWithoutDevice(waiting)) {
      ++copies;
    } else {
      Begin(std::move(waiting));
    }
  }
}

// Answers a request that is cancelled, wrong, empty or in the page cache; otherwise opens the file.
bool UringFileStore::Loop::AnswerWithoutDevice(Waiting& waiting) {
  ReadRequest& request = waiting.request;
  const Extent& extent = request.extent;
  if (waiting.stop.stop_requested()) {
    counters_.Answer(request, Status(StatusCode::kCancelled, "stop requested")
                                  .WithContext(Doing(ObjectName(extent.object), extent.range)));
    return true;
  }
  if (extent.range.size == 0) {
    const Status status = files_.Check(extent);
    counters_.Answer(request, status.ok() ? Result(request.buffer.first(0))
                                          : Result<std::span<std::byte>>(status));
    return true;
  }
  Result<std::shared_ptr<OpenFile>> opened = files_.Open(extent);
  if (!opened.ok()) {
    counters_.Answer(request, opened.status());
    return true;
  }
  opened_ = std::move(opened).value();
  if (!page_cache_wanted_ || request.looked || !opened_->direct()) return false;
  if (!page_cache_.TryRead(*opened_, extent.range, request.buffer)) return false;
  opened_ = nullptr;
  counters_.AddPageCache(extent.range.size);
  counters_.Answer(request, request.buffer.first(extent.range.size));
  return true;
}

ReadNowAnswer UringFileStore::Loop::ReadNow(const Extent& extent, std::span<std::byte> dst) {
  // Opening a file may take as long as a read: Read() does that.
  const std::shared_ptr<OpenFile> file = files_.FindOpen(extent);
  if (file == nullptr) return ReadNowAnswer::kNotAsked;
  if (!page_cache_.Read(*file, extent.range, dst)) return ReadNowAnswer::kNotHeld;
  counters_.AddNow(extent.range.size);
  counters_.AddPageCache(extent.range.size);
  return ReadNowAnswer::kRead;
}

void UringFileStore::Loop::ReadAllNow(std::span<NowRead> reads) {
  page_cache_.ReadAll(files_, reads);
  counters_.AddPageCache(counters_.AddAllNow(reads).second);
}

void UringFileStore::Loop::Begin(Waiting waiting) {
  const std::size_t index = free_.back();
  free_.pop_back();
  Operation& operation = operations_[index];
  operation.request = std::move(waiting.request);
  operation.file = std::move(opened_);
  operation.tries = 0;
  Aim(operation);
  Submit(index);
}

// Decides what to read, from the range's start.
void UringFileStore::Loop::Aim(Operation& operation) {
  operation.direct = operation.file->direct();
  operation.range = Widen(operation.request.extent.range,
                          operation.direct ? operation.file->direct_alignment() : 1);
  operation.got = 0;
}

void UringFileStore::Loop::Submit(std::size_t index) {
  const Operation& operation = operations_[index];
  const std::uint64_t left = operation.range.blocks.size - operation.got;
  io_uring_sqe& entry = ring_.Next();
  io_uring_prep_read(&entry, operation.direct ? operation.file->direct_fd() : operation.file->fd(),
                     operation.request.buffer.data() + operation.got,
                     static_cast<unsigned>(std::min(left, kReadBytesMax)),
                     operation.range.blocks.offset + operation.got);
  entry.user_data = index;
}

void UringFileStore::Loop::Take(std::uint64_t user_data, int result) {
  if (user_data == kWakeUp) {
    wake_armed_ = false;
  } else {
    TakeRead(user_data, result);
  }
}

void UringFileStore::Loop::TakeRead(std::size_t index, int result) {
  Operation& operation = operations_[index];
  if (result == -EINVAL && operation.direct) {
    operation.file->RefuseDirect();
    Aim(operation);
    return Submit(index);
  }
  const bool busy = result == -EAGAIN || result == -EINTR || result == -ECANCELED;
  if (busy && ++operation.tries < kTriesMax) {
    counters_.AddRetry();
    return Submit(index);
  }
  if (result < 0) return Finish(index, ErrnoStatus(-result, "read"));
  operation.got += static_cast<std::size_t>(result);
  if (operation.direct) counters_.AddDirect(static_cast<std::uint64_t>(result));
  if (operation.got >= operation.range.needed) return Finish(index, Status());
  // Only the end of the file ends a read inside a block.
  const bool at_end =
      result == 0 || (operation.direct && operation.got % operation.file->direct_alignment() != 0);
  if (!at_end) return Submit(index);
  Finish(index, operation.file->WhyShort(operation.range.needed - operation.got));
}

void UringFileStore::Loop::Finish(std::size_t index, const Status& status) {
  Operation operation = std::exchange(operations_[index], Operation());
  free_.push_back(index);
  const ByteRange range = operation.request.extent.range;
  if (status.ok()) {
    counters_.Answer(operation.request,
                     operation.request.buffer.subspan(operation.range.lead, range.size));
  } else {
    counters_.Answer(operation.request, status.WithContext(Doing(operation.file->path(), range)));
  }
}

namespace {

class UringFactory final : public StoreFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return kUringName; }
  [[nodiscard]] bool Suits(const StoreRequest& request) const override {
    return request.scheme == kFileScheme && request.large_files;
  }
  [[nodiscard]] Result<StoreParts> Open(const StoreRequest& request) const override {
    StoreParts parts;
    HEADRACE_ASSIGN_OR_RETURN(parts.executor, request.start_threads(1, "headrace-uring"));
    HEADRACE_ASSIGN_OR_RETURN(parts.store,
                              UringFileStore::Open(*request.catalog, *parts.executor,
                                                   {.direct = request.direct(),
                                                    .page_cache = !request.avoid_page_cache,
                                                    .note = request.note}));
    return parts;
  }
};

}  // namespace

const StoreFactory& UringStoreFactory() {
  static const UringFactory factory;
  return factory;
}

Status UringFileStore::Probe() {
  Uring ring;
  HEADRACE_RETURN_IF_ERROR(ring.Make(1));
  HEADRACE_RETURN_IF_ERROR(ring.Start());
  io_uring_prep_nop(&ring.Next());
  bool answered = false;
  while (!answered) {
    ring.Submit(1);
    ring.Reap([&answered](std::uint64_t /*user_data*/, int /*result*/) { answered = true; });
  }
  return Status();
}

Result<std::unique_ptr<UringFileStore>> UringFileStore::Open(const FileCatalog& catalog,
                                                             Executor& executor,
                                                             UringFileStoreOptions options) {
  if (options.queue_depth < 1 || options.queue_depth > kQueueDepthMax) {
    return InvalidArgument("io_uring queue_depth: got {}, must be in [1, {}]", options.queue_depth,
                           kQueueDepthMax);
  }
  auto loop = std::make_unique<Loop>(catalog, options);
  HEADRACE_RETURN_IF_ERROR(loop->Make());
  executor.Submit(0, [raw = loop.get()] { raw->Run(); });
  return std::unique_ptr<UringFileStore>(new UringFileStore(std::move(options), std::move(loop)));
}

UringFileStore::UringFileStore(UringFileStoreOptions options, std::unique_ptr<Loop> loop)
    : options_(std::move(options)), pid_(ProcessId()), loop_(std::move(loop)) {}

UringFileStore::~UringFileStore() {
  if (Forked()) {
    // The thread is the parent's, and may have been anywhere in these fields. Leave them alone; the
    // ring and the files close when the child ends.
    (void)loop_.release();
  } else {
    loop_->Stop();
  }
}

bool UringFileStore::Forked() const { return ProcessId() != pid_; }

Status UringFileStore::BelongsToParent() const {
  return FailedPrecondition(
      "the store belongs to process {}, and this process is a fork of it; open the dataset again "
      "after fork",
      pid_);
}

std::size_t UringFileStore::BufferBytes(ByteRange range) const {
  if (!options_.direct || range.size == 0) return range.size;
  return Widen(range, kBufferAlignment).blocks.size;
}

void UringFileStore::Read(std::vector<ReadRequest> requests, std::stop_token stop) {
  for (const ReadRequest& request : requests) {
    CheckBuffer(request, BufferBytes(request.extent.range));
  }
  if (!Forked()) return loop_->Post(std::move(requests), stop);
  for (ReadRequest& request : requests) {
    const Extent& extent = request.extent;
    loop_->counters().Answer(
        request, BelongsToParent().WithContext(Doing(ObjectName(extent.object), extent.range)));
  }
}

Status UringFileStore::CheckObject(ObjectId object) {
  if (!Forked()) return loop_->files().CheckObject(object);
  return BelongsToParent().WithContext("opening " + ObjectName(object));
}

Status UringFileStore::CheckOpen() { return Forked() ? Status() : loop_->files().CheckOpen(); }

bool UringFileStore::HasOpen() { return !Forked() && loop_->files().HasOpen(); }

ReadNowAnswer UringFileStore::ReadNow(const Extent& extent, std::span<std::byte> dst) {
  return Forked() ? ReadNowAnswer::kNotAsked : loop_->ReadNow(extent, dst);
}

void UringFileStore::ReadAllNow(std::span<NowRead> reads) {
  if (!Forked()) loop_->ReadAllNow(reads);
}

bool UringFileStore::HoldsNow(const Extent& extent) {
  return MayReadNow() && loop_->page_cache().HoldsMapped(loop_->files(), extent);
}

bool UringFileStore::MayReadNow() {
  return options_.direct && options_.page_cache && !Forked() && loop_->page_cache().WorthAsking();
}

StoreStats UringFileStore::stats() const {
  return loop_->counters().Snapshot(std::string(kUringName), options_.note);
}

}  // namespace headrace
