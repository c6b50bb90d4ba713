#include "device_reads.h"

#include <fcntl.h>
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/format/errors.h"
#include "base/mutex.h"
#include "base/testing/test_executor.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "store/file_io.h"
#include "store/store_table.h"

namespace headrace {
namespace {

// A slower reading ends after this time, with what was read so far.
constexpr std::int64_t kDurationMaxNs = 30 * kNsPerSecond;

// How many completions to wait for: as the store does.
constexpr std::size_t kInFlightPerAnswer = 4;
constexpr std::size_t kAnswersMax = 8;

using Slots = std::vector<std::size_t>;

// Reads of one thread, each into the buffer of its slot.
class AsyncReads {
 public:
  virtual ~AsyncReads() = default;
  // Starts the read by the next Wait() at the latest.
  virtual void Start(std::size_t slot, const Place& place) = 0;
  // Waits until reads have finished, and adds their slots to `finished`.
  virtual Status Wait(std::size_t in_flight, Slots& finished) = 0;
};

// Hands answers from the store's thread to the one that asks, as the engine's inbox does.
class Answers {
 public:
  void Put(std::size_t slot, const Status& status) HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    if (!status.ok()) status_ = status;
    slots_.push_back(slot);
    if (slots_.size() == 1) put_.NotifyAll();
  }

  Status TakeAll(Slots& slots) HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (slots_.empty()) put_.Wait(mutex_);
    slots.swap(slots_);
    slots_.clear();
    return status_;
  }

 private:
  Mutex mutex_;
  CondVar put_;
  Slots slots_ HEADRACE_GUARDED_BY(mutex_);
  Status status_ HEADRACE_GUARDED_BY(mutex_);
};

class StoreReads final : public AsyncReads {
 public:
  static Result<std::unique_ptr<StoreReads>> Open(const ReadFiles& files, bool buffered,
                                                  std::span<std::byte> memory,
                                                  std::uint64_t block_bytes) {
    HEADRACE_ASSIGN_OR_RETURN(
        StoreParts parts,
        OpenStoreOf({.catalog = &files,
                     .scheme = std::string(kFileScheme),
                     .large_files = !buffered,
                     .start_threads = [](int threads, const std::string& /*name*/)
                         -> Result<std::unique_ptr<Executor>> {
                       return std::unique_ptr<Executor>(std::make_unique<TestExecutor>(threads));
                     }},
                    kAnyStore));
    return std::unique_ptr<StoreReads>(new StoreReads(std::move(parts), memory, block_bytes));
  }

  void Start(std::size_t slot, const Place& place) override {
    requests_.push_back({.extent = {ObjectId{place.file}, {place.offset, block_bytes_}},
                         .buffer = memory_.subspan(slot * block_bytes_, block_bytes_),
                         .done = [this, slot](const Result<std::span<std::byte>>& result) {
                           answers_.Put(slot, result.status());
                         }});
  }

  Status Wait(std::size_t /*in_flight*/, Slots& finished) override {
    if (!requests_.empty()) parts_.store->Read(std::exchange(requests_, {}), {});
    return answers_.TakeAll(finished);
  }

  [[nodiscard]] std::string name() const {
    const StoreStats stats = parts_.store->stats();
    return stats.name + stats.note;
  }

 private:
  StoreReads(StoreParts parts, std::span<std::byte> memory, std::uint64_t block_bytes)
      : memory_(memory), block_bytes_(block_bytes), parts_(std::move(parts)) {}

  const std::span<std::byte> memory_;
  const std::uint64_t block_bytes_;
  std::vector<ReadRequest> requests_;
  Answers answers_;
  StoreParts parts_;  // Last: it answers into the fields above.
};

// No code of the project's stores: it shows what they cost.
class RingReads final : public AsyncReads {
 public:
  RingReads(const ReadFiles& files, std::span<std::byte> memory, std::uint64_t block_bytes)
      : files_(files), memory_(memory), block_bytes_(block_bytes) {}
  RingReads(const RingReads&) = delete;
  RingReads& operator=(const RingReads&) = delete;
  ~RingReads() override {
    if (made_) io_uring_queue_exit(&ring_);
  }

  // On the thread that reads: the ring belongs to it.
  Status Make(int depth, bool buffered, bool fixed) {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const int flags = O_RDONLY | O_CLOEXEC | (buffered ? 0 : O_DIRECT);
      UniqueFd fd(::open(files_.info(i).path.c_str(), flags));
      if (!fd) return ErrnoStatus(errno, "open").WithContext(files_.info(i).path);
      if (buffered) ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
      fds_.push_back(std::move(fd));
    }
    int error = EINVAL;
    for (const unsigned flags :
         {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_COOP_TASKRUN, 0U}) {
      error = -io_uring_queue_init(static_cast<unsigned>(depth), &ring_, flags);
      if (error != EINVAL) break;
    }
    if (error != 0) return ErrnoStatus(error, "io_uring_queue_init");
    made_ = true;
    return fixed ? Register(static_cast<std::size_t>(depth)) : Status();
  }

  void Start(std::size_t slot, const Place& place) override {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    std::byte* const target = memory_.data() + slot * block_bytes_;
    const auto bytes = static_cast<unsigned>(block_bytes_);
    if (fixed_) {
      io_uring_prep_read_fixed(entry, static_cast<int>(place.file), target, bytes, place.offset,
                               static_cast<int>(slot));
      io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    } else {
      io_uring_prep_read(entry, fds_[place.file].get(), target, bytes, place.offset);
    }
    entry->user_data = slot;
  }

  Status Wait(std::size_t in_flight, Slots& finished) override {
    const std::size_t answers =
        std::clamp<std::size_t>(in_flight / kInFlightPerAnswer, 1, kAnswersMax);
    Status status;
    while (finished.empty()) {
      const int result = io_uring_submit_and_wait(&ring_, static_cast<unsigned>(answers));
      if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) {
        return ErrnoStatus(-result, "io_uring_enter");
      }
      unsigned head = 0;
      io_uring_cqe* answer = nullptr;
      io_uring_for_each_cqe(&ring_, head, answer) {
        finished.push_back(answer->user_data);
        if (answer->res < 0) {
          status = ErrnoStatus(-answer->res, "read");
        } else if (static_cast<std::uint64_t>(answer->res) != block_bytes_) {
          status = DataLoss("read: got {} of {} bytes", answer->res, block_bytes_);
        }
      }
      io_uring_cq_advance(&ring_, static_cast<unsigned>(finished.size()));
    }
    return status;
  }

 private:
  Status Register(std::size_t depth) {
    std::vector<int> fds;
    for (const UniqueFd& fd : fds_) fds.push_back(fd.get());
    int result = io_uring_register_files(&ring_, fds.data(), static_cast<unsigned>(fds.size()));
    if (result != 0) return ErrnoStatus(-result, "io_uring_register_files");
    std::vector<iovec> buffers;
    for (std::size_t slot = 0; slot < depth; ++slot) {
      buffers.push_back({memory_.data() + slot * block_bytes_, block_bytes_});
    }
    result =
        io_uring_register_buffers(&ring_, buffers.data(), static_cast<unsigned>(buffers.size()));
    if (result != 0) return ErrnoStatus(-result, "io_uring_register_buffers");
    fixed_ = true;
    return Status();
  }

  const ReadFiles& files_;
  const std::span<std::byte> memory_;
  const std::uint64_t block_bytes_;
  std::vector<UniqueFd> fds_;
  io_uring ring_ = {};
  bool made_ = false;
  bool fixed_ = false;
};

// Counts from when the first `depth` reads have finished: until then not all were in flight. Counts
// whole batches of completions, so that none is partly in the time measured.
class Meter {
 public:
  Meter(int depth, std::int64_t duration_ns)
      : depth_(static_cast<std::uint64_t>(depth)), duration_ns_(duration_ns) {}

  void Finished(std::uint64_t reads) {
    const std::int64_t now_ns = clock_.NowNanos();
    tally_.operations_all += reads;
    if (begin_ns_.has_value()) {
      if (done_) return;
      tally_.operations += reads;
      tally_.elapsed_ns = std::max<std::int64_t>(now_ns - *begin_ns_, 1);
    } else if (tally_.operations_all >= depth_) {
      begin_ns_ = now_ns;
    }
    done_ = tally_.elapsed_ns >= duration_ns_ || now_ns - start_ns_ >= kDurationMaxNs;
  }

  [[nodiscard]] bool done() const { return done_; }
  [[nodiscard]] const Tally& tally() const { return tally_; }

 private:
  const std::uint64_t depth_;
  const std::int64_t duration_ns_;
  const MonotonicClock clock_;
  const std::int64_t start_ns_ = clock_.NowNanos();
  std::optional<std::int64_t> begin_ns_;
  bool done_ = false;
  Tally tally_;
};

Result<Tally> KeepReading(AsyncReads& reads, Walk walk, int depth, std::int64_t duration_ns) {
  Slots free;
  for (int slot = depth; slot > 0; --slot) free.push_back(static_cast<std::size_t>(slot - 1));
  Meter meter(depth, duration_ns);
  Status status;
  std::size_t in_flight = 0;
  while (true) {
    for (const std::size_t slot : free) {
      const std::optional<Place> place =
          status.ok() && !meter.done() ? walk.Next() : std::optional<Place>();
      if (!place.has_value()) break;
      reads.Start(slot, *place);
      ++in_flight;
    }
    if (in_flight == 0) break;
    free.clear();
    const Status waited = reads.Wait(in_flight, free);
    if (!waited.ok()) status = waited;
    if (free.empty()) break;  // The ring is broken.
    in_flight -= free.size();
    meter.Finished(free.size());
  }
  if (!status.ok()) return status;
  return meter.tally();
}

}  // namespace

Result<DeviceReads> DeviceReads::Make(const ReadFiles& files, std::uint64_t bytes, bool buffered) {
  HEADRACE_ASSIGN_OR_RETURN(BlockMemory memory,
                            BlockMemory::Make(bytes, BlockMemory::Pages::kEngine));
  return DeviceReads(files, buffered, std::move(memory));
}

Result<Reading> DeviceReads::Measure(DeviceMethod method, const Load& load, Places& places,
                                     std::int64_t duration_ns) {
  HEADRACE_RETURN_IF_ERROR(files_.MakeCold());
  if (method == DeviceMethod::kSmall && !small_memory_.has_value()) {
    HEADRACE_ASSIGN_OR_RETURN(
        BlockMemory small, BlockMemory::Make(memory_.bytes().size(), BlockMemory::Pages::kSmall));
    small_memory_.emplace(std::move(small));
  }
  const BlockMemory& memory = method == DeviceMethod::kSmall ? *small_memory_ : memory_;
  const std::uint64_t thread_bytes = load.block_bytes * static_cast<std::uint64_t>(load.depth);
  Mutex mutex;
  const auto read = [&](int thread) -> Result<Tally> {
    const Walk walk = places.Begin(thread, load.threads, buffered_);
    const std::span<std::byte> mine =
        memory.bytes().subspan(static_cast<std::size_t>(thread) * thread_bytes, thread_bytes);
    if (method == DeviceMethod::kStore) {
      HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<StoreReads> reads,
                                StoreReads::Open(files_, buffered_, mine, load.block_bytes));
      {
        MutexLock lock(mutex);
        store_name_ = reads->name();
      }
      return KeepReading(*reads, walk, load.depth, duration_ns);
    }
    RingReads reads(files_, mine, load.block_bytes);
    HEADRACE_RETURN_IF_ERROR(reads.Make(load.depth, buffered_, method == DeviceMethod::kFixed));
    return KeepReading(reads, walk, load.depth, duration_ns);
  };
  Result<Reading> reading = MeasureThreads(load, read);
  if (!reading.ok()) return reading;
  places.Skip(reading.value().operations / static_cast<std::uint64_t>(load.threads));
  // Direct reads leave the page cache empty: what they found there was not cold.
  if (!buffered_) HEADRACE_RETURN_IF_ERROR(files_.CheckCold());
  return reading;
}

}  // namespace headrace
