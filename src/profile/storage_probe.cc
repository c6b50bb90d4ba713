#include "profile/storage_probe.h"

#include <algorithm>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>

#include "base/clock.h"
#include "base/format/errors.h"
#include "base/mutex.h"
#include "loader/machine/machine.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

// Beyond this many places repeats among random ones are rare: no permutation is kept.
constexpr std::uint64_t kPermutedMax = 1 << 20;
constexpr std::uint64_t kFetchedAtOnce = 16;

// The field whose samples are read: the first image, else the first that lies in files.
std::optional<std::size_t> FieldToRead(const Index& index) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < index.fields().size(); ++i) {
    const FieldInfo& field = index.fields()[i];
    if (field.is_inline) continue;
    if (field.kind == FieldKind::kImage) return i;
    if (!found.has_value()) found = i;
  }
  return found;
}

}  // namespace

// What to read, in a random order, for ever.
class StorageProbe::Places {
 public:
  using At = std::function<Result<Extent>(std::uint64_t place)>;

  Places(std::uint64_t count, std::uint64_t seed, At at)
      : count_(count), random_(seed, 0, RandomStream::kOrder), at_(std::move(at)) {
    if (count <= kPermutedMax) permutation_.emplace(count, seed, 0, RandomStream::kOrder);
  }

  Result<Extent> Next() {
    return at_(permutation_.has_value() ? permutation_->At(next_++ % count_)
                                        : random_.Below(count_));
  }

 private:
  const std::uint64_t count_;
  Prng random_;
  const At at_;
  std::optional<Permutation> permutation_;
  std::uint64_t next_ = 0;
};

// One slice: a fixed number of reads in flight, each followed by the next at once.
class StorageProbe::Reads {
 public:
  Reads(ByteStore& store, Places& places, std::vector<ProbeBuffer>& buffers,
        const SliceLimits& limits)
      : store_(store), places_(places), buffers_(buffers), limits_(limits) {}

  Result<StorageSlice> Run(int users) {
    const std::int64_t device_bytes = DeviceReadBytes();
    users_ = static_cast<std::uint64_t>(users);
    for (std::size_t i = 0; i < users_; ++i) idle_.push_back(i);
    start_ns_ = clock_.NowNanos();
    while (true) {
      if (status_.ok() && !counted_enough_) Begin();
      if (in_flight_ == 0) break;
      Reap();
    }
    if (!status_.ok()) return status_;
    StorageSlice result{.slice = Counted(), .read_bytes = all_bytes_};
    if (device_bytes >= 0) result.device_bytes = DeviceReadBytes() - device_bytes;
    return result;
  }

 private:
  struct Answer {
    std::size_t buffer;
    Result<std::span<std::byte>> data;
  };

  // Reads into every buffer that is idle.
  void Begin() {
    std::vector<ReadRequest> requests;
    for (const std::size_t i : std::exchange(idle_, {})) {
      Result<Extent> extent = places_.Next();
      if (!extent.ok()) {
        status_ = extent.status();
        break;
      }
      const std::size_t bytes = store_.BufferBytes(extent.value().range);
      const std::span<std::byte> buffer = buffers_[i].AtLeast(std::max<std::size_t>(bytes, 1));
      if (buffer.empty()) {
        status_ =
            ResourceExhausted("measuring storage: no memory for a read of {}", FormatBytes(bytes));
        break;
      }
      requests.push_back({.extent = extent.value(),
                          .buffer = buffer,
                          .done = [this, i](Result<std::span<std::byte>> data) {
                            MutexLock lock(mutex_);
                            answers_.push_back({i, std::move(data)});
                            changed_.NotifyOne();
                          }});
    }
    in_flight_ += requests.size();
    store_.Read(std::move(requests), stop_.get_token());
  }

  void Reap() {
    std::vector<Answer> answers;
    {
      MutexLock lock(mutex_);
      if (answers_.empty()) changed_.WaitFor(mutex_, kAskEveryNs);
      answers.swap(answers_);
    }
    const std::int64_t now_ns = clock_.NowNanos();
    for (const Answer& answer : answers) {
      --in_flight_;
      idle_.push_back(answer.buffer);
      if (answer.data.ok()) {
        all_bytes_ += answer.data.value().size();
        if (!counted_enough_) Count(answer.data.value().size(), now_ns);
      } else if (status_.ok()) {
        status_ = answer.data.status();
      }
    }
    if (now_ns - asked_ns_ < kAskEveryNs) return;
    asked_ns_ = now_ns;
    if (limits_.keep_going == nullptr || limits_.keep_going()) return;
    stop_.request_stop();
    status_ = StoppedMeasuring();
  }

  void Count(std::uint64_t bytes, std::int64_t now_ns) {
    ++answered_;
    const bool too_long = now_ns - start_ns_ >= limits_.duration_max_ns;
    if (answered_ <= users_ && !too_long) {  // Until then not all of them were in flight.
      begin_ns_ = now_ns;
      return;
    }
    ++operations_;
    bytes_ += bytes;
    last_ns_ = now_ns;
    counted_enough_ =
        too_long || (now_ns - begin_ns_ >= limits_.duration_ns && operations_ >= users_);
  }

  [[nodiscard]] Slice Counted() const {
    const bool from_start = answered_ == operations_;  // nothing was left out: too slow for that
    const std::int64_t elapsed_ns = last_ns_ - (from_start ? start_ns_ : begin_ns_);
    const double seconds = 1e-9 * static_cast<double>(std::max<std::int64_t>(elapsed_ns, 1));
    return {.rate = static_cast<double>(bytes_) / seconds,
            .operations_rate = static_cast<double>(operations_) / seconds,
            .operations = operations_,
            .bytes = bytes_};
  }

  ByteStore& store_;
  Places& places_;
  std::vector<ProbeBuffer>& buffers_;
  const SliceLimits& limits_;
  const MonotonicClock clock_;
  std::stop_source stop_;

  std::uint64_t users_ = 0;
  std::vector<std::size_t> idle_;  // buffers
  std::uint64_t in_flight_ = 0;
  std::uint64_t all_bytes_ = 0;
  Status status_;
  bool counted_enough_ = false;
  std::uint64_t answered_ = 0;
  std::uint64_t operations_ = 0;
  std::uint64_t bytes_ = 0;
  std::int64_t start_ns_ = 0;
  std::int64_t begin_ns_ = 0;
  std::int64_t last_ns_ = 0;
  std::int64_t asked_ns_ = 0;

  Mutex mutex_;
  CondVar changed_;
  std::vector<Answer> answers_ HEADRACE_GUARDED_BY(mutex_);
};

Result<std::unique_ptr<StorageProbe>> StorageProbe::Open(std::shared_ptr<const Index> index) {
  const std::optional<std::size_t> field = FieldToRead(*index);
  if (!field.has_value() || index->sample_count() == 0) {
    return InvalidArgument(
        "measuring storage: the dataset has nothing to read, {} samples whose values all lie in "
        "its index",
        index->sample_count());
  }
  HEADRACE_ASSIGN_OR_RETURN(OpenedStore store,
                            OpenStore(index, {.page_cache = PageCache::kAvoided}));
  std::unique_ptr<StorageProbe> probe(new StorageProbe(std::move(index), std::move(store), *field));
  HEADRACE_RETURN_IF_ERROR(probe->LookAtObjects());
  return probe;
}

StorageProbe::StorageProbe(std::shared_ptr<const Index> index, OpenedStore store, std::size_t field)
    : index_(std::move(index)),
      store_(std::move(store)),
      field_(field),
      reads_ranges_(ReadsRanges(*index_)) {}

StorageProbe::~StorageProbe() = default;

Status StorageProbe::LookAtObjects() {
  if (!reads_ranges_) return {};
  for (std::uint64_t i = 0; i < index_->object_count(); ++i) {
    HEADRACE_ASSIGN_OR_RETURN(const ObjectInfo object, index_->object(ObjectId{i}));
    object_bytes_.push_back(object.size);
    object_bytes_max_ = std::max(object_bytes_max_, object.size);
  }
  return {};
}

Result<StorageSlice> StorageProbe::ReadRanges(const Load& load, const SliceLimits& limits) {
  if (load.bytes == 0 || load.bytes > object_bytes_max_) {
    return InvalidArgument(
        "measuring reads of {}: must be from 1 byte to {}, the largest file that ranges are read "
        "of",
        FormatBytes(load.bytes), FormatBytes(object_bytes_max_));
  }
  std::unique_ptr<Places>& places = places_[load.bytes];
  if (places == nullptr) {
    std::vector<std::uint64_t> ends;  // of each object's ranges
    std::uint64_t count = 0;
    for (const std::uint64_t bytes : object_bytes_) ends.push_back(count += bytes / load.bytes);
    places = std::make_unique<Places>(
        count, load.bytes,
        [ends = std::move(ends), bytes = load.bytes](std::uint64_t place) -> Result<Extent> {
          const auto end = std::upper_bound(ends.begin(), ends.end(), place);
          const std::uint64_t first = end == ends.begin() ? 0 : *(end - 1);
          return Extent{.object = ObjectId{static_cast<std::uint64_t>(end - ends.begin())},
                        .range = {.offset = (place - first) * bytes, .size = bytes}};
        });
  }
  return Measure(*places, load.users, limits);
}

Result<StorageSlice> StorageProbe::ReadSamples(int users, const SliceLimits& limits) {
  std::unique_ptr<Places>& places = places_[0];
  if (places == nullptr) {
    places = std::make_unique<Places>(
        index_->sample_count(), 0, [this](std::uint64_t place) -> Result<Extent> {
          HEADRACE_ASSIGN_OR_RETURN(Extent extent, index_->extent(field_, SampleId{place}));
          extent.range.size = std::min(extent.range.size, kSampleBytesMax);
          return extent;
        });
  }
  return Measure(*places, users, limits);
}

Result<StorageSlice> StorageProbe::Measure(Places& places, int users, const SliceLimits& limits) {
  if (users < 1) {
    return InvalidArgument("measuring storage with {} reads in flight: must be at least 1", users);
  }
  if (buffers_.size() < static_cast<std::size_t>(users)) {
    buffers_.resize(static_cast<std::size_t>(users));
  }
  Reads reads(store_.store(), places, buffers_, limits);
  return reads.Run(users);
}

Result<std::vector<FetchedSample>> StorageProbe::Fetch(std::uint64_t count, std::uint64_t bytes_max,
                                                       const std::function<bool()>& keep_going) {
  // A read at a time, through the one that measures: of so few the time does not matter.
  std::vector<FetchedSample> samples;
  const std::uint64_t wanted = std::min(count, index_->sample_count());
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < wanted && bytes < bytes_max; ++i) {
    if (i % kFetchedAtOnce == 0 && keep_going && !keep_going()) return StoppedMeasuring();
    const SampleId id{i * (index_->sample_count() / wanted)};
    HEADRACE_ASSIGN_OR_RETURN(const Extent extent, index_->extent(field_, id));
    HEADRACE_ASSIGN_OR_RETURN(std::string data, ReadWhole(store_.store(), extent));
    bytes += data.size();
    samples.push_back({.id = id, .bytes = std::move(data)});
  }
  return samples;
}

}  // namespace headrace
