#include "store/objects/object_store.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <iterator>
#include <latch>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/format/errors.h"
#include "base/mutex.h"
#include "base/prng.h"
#include "base/process_id.h"
#include "base/unique_fd.h"
#include "store/helper_command.h"
#include "store/objects/object_requests.h"
#include "store/request.h"
#include "store/store_table.h"

namespace headrace {
namespace {

constexpr std::string_view kObjectsName = "object_store";
constexpr std::array<std::string_view, 5> kObjectSchemes = {"s3", "gs", "az", "https", "http"};
constexpr std::size_t kFetchersMax = 4;

Status BelongsTo(pid_t process) {
  return FailedPrecondition(
      "the store belongs to process {}, and this process is a fork of it; open the dataset again "
      "after fork",
      process);
}

}  // namespace

// The thread of the store. The steps of a request:
//   1. Post() puts it into the inbox, and wakes the loop through an eventfd if the inbox was empty.
//   2. The loop moves it from the inbox to `requests_`.
//   3. Once the memory allows, its pieces become reads of `reads_`.
//   4. The loop does what `reads_` asks for, and reports what the fetchers did.
//   5. The request is answered when its pieces have ended.
// Stop() lets all requests finish, then the loop ends.
class ObjectStore::Loop {
 public:
  Loop(const FileCatalog& catalog, const ObjectStoreOptions& options, std::int64_t now_ns)
      : catalog_(catalog),
        prng_(static_cast<std::uint64_t>(now_ns), 0, RandomStream::kOrder,
              static_cast<std::uint64_t>(ProcessId())),
        reads_(options.reads, prng_),
        requests_(catalog, reads_,
                  {.piece_bytes = options.piece_bytes,
                   .memory_bytes = options.fetchers.memory_bytes / 2}) {}

  Status Make(FetchersOptions options);
  void Run();
  void Post(std::vector<ReadRequest> requests, const std::stop_token& stop);
  // Reads a byte for CheckObject().
  void PostCheck(ObjectId object, std::span<std::byte> buffer, ReadRequest::Done done);
  void Stop();

  StoreCounters& counters() { return requests_.counters(); }
  [[nodiscard]] const FileCatalog& catalog() const { return catalog_; }
  void AddTo(StoreStats& stats) const;

 private:
  void Wake();
  bool TakeInbox();
  void Act();
  void Do(const ReadAction& action);
  void StartAttempt(const ReadAction& action);
  // Returns whether there was one.
  bool TakeEvents();
  void Publish();
  void Wait();
  [[nodiscard]] std::int64_t now_ns() const { return clock_.NowNanos(); }

  const FileCatalog& catalog_;
  const MonotonicClock clock_;
  UniqueFd wake_;

  // Used by the loop's thread only.
  Prng prng_;
  ObjectReads reads_;
  std::unique_ptr<Fetchers> fetchers_;
  ObjectRequests requests_;
  std::vector<ReadAction> actions_;
  std::vector<pollfd> polls_;

  // Written by the loop's thread only.
  std::atomic<std::uint64_t> retries_ = 0;
  std::atomic<std::uint64_t> hedges_ = 0;
  std::atomic<std::uint64_t> slow_downs_ = 0;
  std::atomic<std::uint64_t> used_bytes_ = 0;
  std::atomic<std::uint64_t> used_bytes_peak_ = 0;

  Mutex mutex_;
  CondVar ended_changed_;
  std::vector<std::shared_ptr<ObjectRequest>> inbox_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<ObjectBatch>> stopped_ HEADRACE_GUARDED_BY(mutex_);
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool ended_ HEADRACE_GUARDED_BY(mutex_) = false;
};

Status ObjectStore::Loop::Make(FetchersOptions options) {
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return ResourceExhausted("eventfd: {}", ErrnoText(errno));
  HEADRACE_ASSIGN_OR_RETURN(fetchers_, Fetchers::Make(std::move(options)));
  return Status();
}

void ObjectStore::Loop::Run() {
  for (;;) {
    const bool stopping = TakeInbox();
    do {
      requests_.Begin(now_ns());
      Act();
      fetchers_->Send(now_ns());
    } while (TakeEvents() || requests_.MayBegin());
    Publish();
    if (stopping && requests_.empty()) break;
    Wait();
    fetchers_->Receive(now_ns());
    TakeEvents();
    reads_.Tick(now_ns());
    Act();
  }
  MutexLock lock(mutex_);
  ended_ = true;
  ended_changed_.NotifyAll();
}

void ObjectStore::Loop::Post(std::vector<ReadRequest> requests, const std::stop_token& stop) {
  if (requests.empty()) return;
  std::shared_ptr<ObjectBatch> batch;
  if (stop.stop_possible()) {
    batch = std::make_shared<ObjectBatch>();
    batch->left = requests.size();
  }
  std::vector<std::shared_ptr<ObjectRequest>> posted;
  posted.reserve(requests.size());
  for (ReadRequest& request : requests) {
    posted.push_back(std::make_shared<ObjectRequest>());
    posted.back()->request = std::move(request);
    posted.back()->batch = batch;
    posted.back()->stop = stop;
  }
  if (batch != nullptr) {
    // Runs here, if stop was requested before: the loop then sees that as it begins each request.
    batch->on_stop.emplace(stop, [this, weak = std::weak_ptr<ObjectBatch>(batch)] {
      std::shared_ptr<ObjectBatch> stopped = weak.lock();
      if (stopped == nullptr) return;
      MutexLock lock(mutex_);
      stopped_.push_back(std::move(stopped));
      Wake();
    });
    batch = nullptr;
  }
  MutexLock lock(mutex_);
  HEADRACE_CHECK(!stopping_);  // A store must not be called during its destruction.
  const bool wake = inbox_.empty();
  std::ranges::move(posted, std::back_inserter(inbox_));
  // Under the lock: after its release the loop and its eventfd may be destroyed.
  if (wake) Wake();
}

void ObjectStore::Loop::PostCheck(ObjectId object, std::span<std::byte> buffer,
                                  ReadRequest::Done done) {
  auto request = std::make_shared<ObjectRequest>();
  request->request = {.extent = {object, {0, 1}}, .buffer = buffer, .done = std::move(done)};
  request->check = true;
  MutexLock lock(mutex_);
  HEADRACE_CHECK(!stopping_);
  inbox_.push_back(std::move(request));
  Wake();
}

void ObjectStore::Loop::Stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
  Wake();
  while (!ended_) ended_changed_.Wait(mutex_);
}

void ObjectStore::Loop::AddTo(StoreStats& stats) const {
  stats.retries = retries_;
  stats.hedges = hedges_;
  stats.slow_downs = slow_downs_;
  stats.request_bytes = used_bytes_;
  stats.request_bytes_peak = used_bytes_peak_;
}

void ObjectStore::Loop::Wake() {
  const std::uint64_t one = 1;
  HEADRACE_CHECK(::write(wake_.get(), &one, sizeof(one)) == sizeof(one));
}

// Returns whether Stop() was called.
bool ObjectStore::Loop::TakeInbox() {
  std::vector<std::shared_ptr<ObjectRequest>> taken;
  std::vector<std::shared_ptr<ObjectBatch>> stopped;
  bool stopping = false;
  {
    MutexLock lock(mutex_);
    taken.swap(inbox_);
    stopped.swap(stopped_);
    stopping = stopping_;
  }
  requests_.Add(std::move(taken));
  for (const std::shared_ptr<ObjectBatch>& batch : stopped) requests_.Stop(*batch, now_ns());
  return stopping;
}

void ObjectStore::Loop::Act() {
  for (;;) {
    reads_.TakeActions(actions_);
    if (actions_.empty()) return;
    for (const ReadAction& action : std::exchange(actions_, {})) Do(action);
  }
}

void ObjectStore::Loop::Do(const ReadAction& action) {
  switch (action.kind) {
    case ReadAction::Kind::kStart:
      return StartAttempt(action);
    case ReadAction::Kind::kCancel: {
      AttemptEnd end{.result = AttemptResult::kBroken,
                     .received_bytes = fetchers_->Cancel(action.attempt, now_ns()),
                     .cause = Status(StatusCode::kCancelled, "stop requested")};
      return reads_.Ended(action.attempt, std::move(end), now_ns());
    }
    case ReadAction::Kind::kKeep: {
      const ObjectRequests::Piece& piece = requests_.piece(action.read);
      const std::span<const std::byte> from =
          fetchers_->cell(action.attempt).subspan(action.cell_offset, action.bytes.size);
      std::ranges::copy(
          from,
          piece.request->request.buffer.subspan(piece.bytes.offset + action.bytes.offset).begin());
      return;
    }
    case ReadAction::Kind::kDone:
      Publish();  // So that an answer is seen after what it took.
      return requests_.End(action.read, action.status, now_ns());
  }
}

void ObjectStore::Loop::StartAttempt(const ReadAction& action) {
  const ObjectRequests::Piece& piece = requests_.piece(action.read);
  const ObjectRequest& request = *piece.request;
  fetchers_->Start(
      {.attempt = action.attempt,
       .bytes = {request.request.extent.range.offset + piece.bytes.offset + action.bytes.offset,
                 action.bytes.size},
       .object_bytes = request.file.size,
       .version = request.file.mtime_ns,
       .url = request.file.path});
}

bool ObjectStore::Loop::TakeEvents() {
  bool any = false;
  while (std::optional<FetcherEvent> event = fetchers_->NextEvent()) {
    any = true;
    if (event->ended) {
      reads_.Ended(event->attempt, std::move(event->end), now_ns());
      Act();
      fetchers_->Release(event->attempt);
    } else {
      reads_.Received(event->attempt, event->end.received_bytes, now_ns());
      Act();
    }
  }
  return any;
}

void ObjectStore::Loop::Publish() {
  const ObjectReadsCounts& counts = reads_.counts();
  retries_ = counts.retries;
  hedges_ = counts.hedges;
  slow_downs_ = counts.slow_downs;
  used_bytes_ = fetchers_->used_bytes();
  used_bytes_peak_ = std::max(used_bytes_peak_.load(), fetchers_->used_bytes());
}

void ObjectStore::Loop::Wait() {
  polls_.assign(1, {.fd = wake_.get(), .events = POLLIN, .revents = 0});
  fetchers_->AddPolls(polls_);
  std::optional<std::int64_t> until_ns = reads_.next_ns();
  if (const std::optional<std::int64_t> next_ns = fetchers_->next_ns()) {
    until_ns = std::min(until_ns.value_or(*next_ns), *next_ns);
  }
  timespec timeout{};
  if (until_ns) {
    const std::int64_t wait_ns = std::max<std::int64_t>(*until_ns - now_ns(), 0);
    timeout.tv_sec = wait_ns / kNsPerSecond;
    timeout.tv_nsec = wait_ns % kNsPerSecond;
  }
  const int ready = ::ppoll(polls_.data(), polls_.size(), until_ns ? &timeout : nullptr, nullptr);
  HEADRACE_CHECK(ready >= 0 || errno == EINTR);
  std::uint64_t wakes = 0;
  if (polls_[0].revents != 0) static_cast<void>(::read(wake_.get(), &wakes, sizeof(wakes)));
}

namespace {

class ObjectFactory final : public StoreFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return kObjectsName; }
  [[nodiscard]] bool Suits(const StoreRequest& request) const override {
    return std::ranges::find(kObjectSchemes, request.scheme) != kObjectSchemes.end();
  }
  [[nodiscard]] StoreNeeds needs() const override { return kObjectStoreNeeds; }
  [[nodiscard]] Result<StoreParts> Open(const StoreRequest& request) const override {
    if (!Suits(request)) {
      return FailedPrecondition(
          "io: '{}' reads only objects of s3://, gs://, az://, https:// and http://, these are of "
          "{}://; leave io= out",
          kObjectsName, request.scheme);
    }
    ObjectStoreOptions options{
        .fetchers = {.command = HelperCommand(kFetcherProgram),
                     .processes_max = std::clamp<std::size_t>(std::thread::hardware_concurrency(),
                                                              1, kFetchersMax)},
        .note = request.note};
    if (request.requests.memory_bytes != 0) {
      options.fetchers.memory_bytes = request.requests.memory_bytes;
      options.piece_bytes = request.requests.bytes_max;
    }
    if (request.reads_at_once > 0) {
      ReadWindow::Options& window = options.reads.window;
      window.max = static_cast<std::uint32_t>(request.reads_at_once);
      window.start = std::min(window.start, window.max);
    }
    StoreParts parts;
    HEADRACE_ASSIGN_OR_RETURN(parts.executor, request.start_threads(1, "headrace-objects"));
    HEADRACE_ASSIGN_OR_RETURN(
        parts.store, ObjectStore::Open(*request.catalog, *parts.executor, std::move(options)));
    return parts;
  }
};

}  // namespace

const StoreFactory& ObjectStoreFactory() {
  static const ObjectFactory factory;
  return factory;
}

Result<std::unique_ptr<ObjectStore>> ObjectStore::Open(const FileCatalog& catalog,
                                                       Executor& executor,
                                                       ObjectStoreOptions options) {
  auto loop = std::make_unique<Loop>(catalog, options, MonotonicClock().NowNanos());
  HEADRACE_RETURN_IF_ERROR(loop->Make(std::move(options.fetchers)));
  executor.Submit(0, [raw = loop.get()] { raw->Run(); });
  return std::unique_ptr<ObjectStore>(new ObjectStore(std::move(options.note), std::move(loop)));
}

ObjectStore::ObjectStore(std::string note, std::unique_ptr<Loop> loop)
    : note_(std::move(note)), pid_(ProcessId()), loop_(std::move(loop)) {}

ObjectStore::~ObjectStore() {
  if (Forked()) {
    // The thread and the fetchers are the parent's. Leave them alone.
    (void)loop_.release();
  } else {
    loop_->Stop();
  }
}

bool ObjectStore::Forked() const { return ProcessId() != pid_; }

void ObjectStore::Read(std::vector<ReadRequest> requests, std::stop_token stop) {
  for (const ReadRequest& request : requests) {
    CheckBuffer(request, BufferBytes(request.extent.range));
  }
  if (!Forked()) return loop_->Post(std::move(requests), stop);
  for (ReadRequest& request : requests) {
    const Extent& extent = request.extent;
    loop_->counters().Answer(
        request, BelongsTo(pid_).WithContext(Doing(ObjectName(extent.object), extent.range)));
  }
}

Status ObjectStore::CheckObject(ObjectId object) {
  if (Forked()) return BelongsTo(pid_).WithContext("opening " + ObjectName(object));
  const Result<FileInfo> file = loop_->catalog().file(object);
  if (!file.ok()) return file.status().WithContext("opening " + ObjectName(object));
  if (file.value().size == 0) return Status();
  std::byte byte{};
  Status status;
  std::latch ended(1);
  loop_->PostCheck(object, std::span(&byte, 1), [&](const Result<std::span<std::byte>>& result) {
    status = result.status();
    ended.count_down();
  });
  ended.wait();
  return status;
}

StoreStats ObjectStore::stats() const {
  StoreStats stats = loop_->counters().Snapshot(std::string(kObjectsName), note_);
  loop_->AddTo(stats);
  return stats;
}

}  // namespace headrace
