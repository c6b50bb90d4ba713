#include "node/links/link_probe.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/format/errors.h"
#include "base/memory/buffer_pool.h"
#include "base/mutex.h"
#include "base/prng.h"
#include "fetch/fetch.h"
#include "fetch/held_samples.h"
#include "peer/grpc/peer_node.h"
#include "tier/ram_tier.h"

namespace headrace {
namespace {

constexpr std::size_t kSizes = std::size(LinkProbe::kSampleBytes);
// Of each size so many: more than a processor's cache takes of the large ones.
constexpr std::array<std::uint64_t, kSizes> kSamples = {512, 64, 32};
constexpr std::uint64_t kUnitBytes = 4096;

std::uint64_t FirstOf(std::size_t size) {
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < size; ++i) first += kSamples[i];
  return first;
}

// Samples in a tier in memory, as a node has them.
class MadeSamples final : public HeldSamples {
 public:
  static Result<std::unique_ptr<MadeSamples>> Make() {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < kSizes; ++i) bytes += kSamples[i] * LinkProbe::kSampleBytes[i];
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<RamTier> tier, RamTier::Make(bytes, kUnitBytes));
    Prng random(/*seed=*/1, 0, RandomStream::kOrder);
    for (std::size_t i = 0; i < kSizes; ++i) {
      std::string content(LinkProbe::kSampleBytes[i], '\0');
      for (char& each : content) each = static_cast<char>(random.Below(256));
      for (std::uint64_t n = 0; n < kSamples[i]; ++n) {
        Status inserted;
        tier->Insert(SampleId{FirstOf(i) + n}, {std::as_bytes(std::span(content))},
                     [&](Status status) { inserted = std::move(status); });
        HEADRACE_RETURN_IF_ERROR(inserted);
      }
    }
    return std::unique_ptr<MadeSamples>(new MadeSamples(std::move(tier)));
  }

  void Take(SampleId sample, std::uint64_t /*deadline*/, TakenEntry done) override {
    if (Tier::EntryRef entry = tier_->Find(sample)) return done(std::move(entry));
    done(NotFound("sample {}: nodes that measure links have no such sample", Raw(sample)));
  }

 private:
  explicit MadeSamples(std::unique_ptr<RamTier> tier) : tier_(std::move(tier)) {}

  const std::unique_ptr<RamTier> tier_;
};

double ProcessorSeconds() {
  rusage usage{};
  (void)getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// One slice: keeps samples in flight, and counts those that come.
class Slice {
 public:
  Slice(FetchSource& source, std::vector<NodeNumber> nodes, LinkLoad load, std::size_t size)
      : source_(source),
        nodes_(std::move(nodes)),
        load_(load),
        size_(size),
        fetches_(load.in_flight) {}

  Result<LinkSlice> Run(LinkTime time) {
    const std::uint64_t room = (load_.bytes + kBufferAlignment) * load_.in_flight;
    const std::shared_ptr<BufferPool> pool = BufferPool::Make(room);
    std::vector<Fetch*> next;
    for (Fetch& fetch : fetches_) {
      std::optional<Buffer> buffer = pool->Acquire(load_.bytes);
      if (!buffer.has_value()) {
        return ResourceExhausted("measuring a link: no memory for {} samples of {} bytes",
                                 load_.in_flight, load_.bytes);
      }
      fetch.buffer = *std::move(buffer);
      next.push_back(&fetch);
    }
    const Status status = Count(std::move(next), time);
    HEADRACE_RETURN_IF_ERROR(Drain());
    HEADRACE_RETURN_IF_ERROR(status);
    return slice_;
  }

 private:
  // The first samples of all that are in flight are the start, which is not counted.
  Status Count(std::vector<Fetch*> next, LinkTime time) {
    const std::int64_t start_ns = clock_.NowNanos();
    std::int64_t begin_ns = start_ns;
    std::uint64_t starting = load_.in_flight;
    double cpu = ProcessorSeconds();
    for (;;) {
      Ask(next);
      next = Come();
      HEADRACE_RETURN_IF_ERROR(Error());
      const std::int64_t now_ns = clock_.NowNanos();
      if (starting > 0) {
        starting -= std::min<std::uint64_t>(starting, next.size());
        begin_ns = now_ns;
        cpu = ProcessorSeconds();
        if (now_ns - start_ns < time.duration_max_ns) continue;
        begin_ns = start_ns;  // So slow that there is nothing else to count.
      }
      slice_.operations += next.size();
      slice_.bytes += next.size() * load_.bytes;
      const std::int64_t elapsed_ns = std::max<std::int64_t>(now_ns - begin_ns, 1);
      if (elapsed_ns < time.duration_ns && now_ns - start_ns < time.duration_max_ns) continue;
      slice_.rate = static_cast<double>(slice_.bytes) * 1e9 / static_cast<double>(elapsed_ns);
      slice_.cpu_seconds = ProcessorSeconds() - cpu;
      return Status();
    }
  }

  void Ask(const std::vector<Fetch*>& fetches) {
    for (Fetch* const fetch : fetches) {
      fetch->from =
          SampleAtNode{.nodes = {.first = nodes_[turn_++ % nodes_.size()]},
                       .sample = SampleId{FirstOf(size_) + random_.Below(kSamples[size_])},
                       .bytes = load_.bytes};
    }
    {
      MutexLock lock(mutex_);
      in_flight_ += fetches.size();
    }
    source_.Read(fetches, {}, done_);
  }

  // Waits until some have come.
  std::vector<Fetch*> Come() {
    MutexLock lock(mutex_);
    while (come_.empty() && in_flight_ > 0) changed_.Wait(mutex_);
    return std::exchange(come_, {});
  }

  // Waits until none is in flight: each ends within the group's answer_ns.
  Status Drain() {
    MutexLock lock(mutex_);
    while (in_flight_ > 0) changed_.Wait(mutex_);
    return error_;
  }

  Status Error() {
    MutexLock lock(mutex_);
    return error_;
  }

  void OnDone(Fetch& fetch, const Result<std::span<std::byte>>& data) {
    MutexLock lock(mutex_);
    --in_flight_;
    if (!data.ok() && error_.ok()) {
      error_ = data.status().WithContext(fmt::format("asking node {} for a sample of {} bytes",
                                                     fetch.node().value(), load_.bytes));
    }
    come_.push_back(&fetch);
    changed_.NotifyAll();
  }

  FetchSource& source_;
  const std::vector<NodeNumber> nodes_;
  const LinkLoad load_;
  const std::size_t size_;
  const MonotonicClock clock_;
  const FetchSource::Done done_ = [this](Fetch& fetch, const Result<std::span<std::byte>>& data) {
    OnDone(fetch, data);
  };
  std::vector<Fetch> fetches_;
  std::uint64_t turn_ = 0;
  Prng random_{/*seed=*/2, 0, RandomStream::kOrder};
  LinkSlice slice_;

  Mutex mutex_;
  CondVar changed_;
  std::vector<Fetch*> come_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t in_flight_ HEADRACE_GUARDED_BY(mutex_) = 0;
  Status error_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace

struct LinkProbe::Impl {
  std::unique_ptr<MadeSamples> held;
  std::unique_ptr<PeerNode> peers;
  std::uint64_t round = 0;
  std::vector<NodeNumber> others;
};

Result<std::unique_ptr<LinkProbe>> LinkProbe::Make(const PeerListen& listen) {
  auto impl = std::make_unique<Impl>();
  HEADRACE_ASSIGN_OR_RETURN(impl->held, MadeSamples::Make());
  HEADRACE_ASSIGN_OR_RETURN(impl->peers, PeerNode::Listen(listen));
  return std::unique_ptr<LinkProbe>(new LinkProbe(std::move(impl)));
}

LinkProbe::LinkProbe(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

LinkProbe::~LinkProbe() { impl_->peers->Give(nullptr); }

const std::string& LinkProbe::address() const { return impl_->peers->address(); }

Status LinkProbe::Connect(PeerGroup group) {
  std::vector<NodeNumber> others;
  for (NodeNumber node = 0; node < group.addresses.size(); ++node) {
    if (node != group.node) others.push_back(node);
  }
  HEADRACE_RETURN_IF_ERROR(impl_->peers->Connect(std::move(group)));
  impl_->others = std::move(others);
  impl_->peers->Give(impl_->held.get());
  return Status();
}

Status LinkProbe::Meet(const std::function<bool()>& keep_waiting) {
  constexpr const char* kSays = "links 1";  // another build may have other samples
  HEADRACE_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            impl_->peers->Agree(++impl_->round, kSays, keep_waiting));
  for (std::size_t node = 0; node < all.size(); ++node) {
    if (all[node] == kSays) continue;
    return FailedPrecondition(
        "measuring links: node {} does not measure them, or is another version of headrace: run "
        "the same command with the same version on all nodes",
        node);
  }
  return Status();
}

Result<LinkSlice> LinkProbe::Measure(LinkLoad load, LinkTime time) {
  if (!impl_->peers->connected()) {
    return FailedPrecondition(
        "measuring a link: the other nodes are not known yet; connect them first");
  }
  if (impl_->others.empty()) {
    return InvalidArgument("measuring a link: this is the only node, and there must be another");
  }
  const auto* const found = std::ranges::find(kSampleBytes, load.bytes);
  if (found == std::end(kSampleBytes)) {
    return InvalidArgument("measuring a link: got samples of {} bytes, must be {}, {} or {}",
                           load.bytes, kSampleBytes[0], kSampleBytes[1], kSampleBytes[2]);
  }
  if (load.in_flight < 1 || load.in_flight > kInFlightMax) {
    return InvalidArgument("measuring a link: got {} samples in flight, must be in [1, {}]",
                           load.in_flight, kInFlightMax);
  }
  const auto size = static_cast<std::size_t>(found - std::begin(kSampleBytes));
  return Slice(impl_->peers->source(), impl_->others, load, size).Run(time);
}

}  // namespace headrace
