#include "sim/published/run.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

namespace headrace {
namespace {

using From = SampleFetch::From;

// A node's staging buffer: fetches what its stream has next, while there is room.
struct Staging {
  struct Entry {
    From from;
    double available = 0;  // when it is fetched, preprocessed and written
  };

  double clock = 0;                              // when its threads have done what they were given
  double used_bytes = 0;                         // given to the threads and not used yet
  std::uint64_t next = 0;                        // place in the stream
  std::deque<Entry> entries;                     // from the next use on
  std::deque<std::pair<double, double>> coming;  // over the network: when it is there, bytes
};

class PublishedRun {
 public:
  PublishedRun(const SimulatedJob& job, const Streams& streams, PublishedPolicy& policy,
               const Preload& preload)
      : job_(job),
        cluster_(job.cluster),
        streams_(streams),
        policy_(policy),
        staging_(cluster_.nodes),
        readers_(cluster_.nodes),
        used_(job.sizes.size()) {
    for (Staging& staging : staging_) staging.clock = preload.seconds;
    result_.seconds = preload.seconds;
    result_.setup_seconds = preload.seconds;
    result_.filled_bytes = preload.storage_bytes;
    result_.copied_bytes = preload.peer_bytes;
    result_.step_seconds.reserve(streams.steps());
  }

  Result<SimulatedRun> Run(const std::function<bool()>& keep_going) && {
    double epoch_begin = 0;
    for (std::uint64_t step = 0; step < streams_.steps(); ++step) {
      if (keep_going && !keep_going()) return SimulationEnded();
      RunStep(step);
      if ((step + 1) % streams_.steps_per_epoch() != 0) continue;
      result_.epoch_seconds.push_back(result_.seconds - epoch_begin);
      epoch_begin = result_.seconds;
    }
    result_.DivideBy(cluster_.nodes);
    result_.samples_used = static_cast<std::uint64_t>(std::ranges::count(used_, true));
    return std::move(result_);
  }

 private:
  void RunStep(std::uint64_t step) {
    const double begin = result_.seconds;
    double end = begin;
    double ends = 0;
    for (std::uint32_t node = 0; node < cluster_.nodes; ++node) {
      double now = begin;
      for (std::uint64_t row = 0; row < job_.batch_size; ++row) {
        now = Use(node, step * job_.batch_size + row, now);
      }
      end = std::max(end, now);
      ends += now;
    }
    result_.barrier_seconds += end * static_cast<double>(cluster_.nodes) - ends;
    const double got = GotBy(end);
    const double allreduce = cluster_.Allreduce(got, end - std::exchange(computed_seconds_, end));
    result_.allreduce_seconds += allreduce;
    end += allreduce;
    result_.step_seconds.push_back(end - begin);
    result_.seconds = end;
  }

  // Bytes that all nodes have got over the network since the call before.
  double GotBy(double seconds) {
    for (Staging& staging : staging_) {
      while (!staging.coming.empty() && staging.coming.front().first <= seconds) {
        got_bytes_ += staging.coming.front().second;
        staging.coming.pop_front();
      }
    }
    return std::exchange(got_bytes_, 0);
  }

  // Returns when the node has computed on the sample, which it needs `now`.
  double Use(std::uint32_t node, std::uint64_t place, double now) {
    Staging& staging = staging_[node];
    Fill(node, now);
    const double filled = policy_.FillTiers(node, std::max(staging.clock, now), readers_);
    result_.filled_bytes += filled;
    got_bytes_ += filled;  // About now.
    const std::uint32_t sample = streams_.Of(node)[place];
    const double bytes = job_.sizes[sample];
    used_[sample] = true;
    const Staging::Entry entry = staging.entries.front();
    staging.entries.pop_front();
    double ready = now;
    if (entry.from == From::kOnDemand) {
      const std::uint32_t readers = readers_.At(node, now);
      const double fetch = cluster_.FromStorage(readers);
      const double wait = cluster_.StorageWait(bytes, readers);
      readers_.Reads(node, now);
      Count(From::kOnDemand, bytes, bytes * fetch + wait);
      got_bytes_ += bytes;
      ready += bytes * (fetch + cluster_.ToStaging()) + wait;
    } else {
      ready = std::max(now, entry.available);
      if (entry.from != From::kNone) staging.used_bytes -= bytes;
    }
    const double compute = cluster_.Compute(bytes);
    result_.stall_seconds += ready - now;
    result_.compute_seconds += compute;
    return ready + compute;
  }

  // Gives the threads of staging what the stream has next: all that there is room for, and one
  // sample in any case.
  void Fill(std::uint32_t node, double now) {
    Staging& staging = staging_[node];
    const std::span<const std::uint32_t> stream = streams_.Of(node);
    while (staging.next < stream.size()) {
      const std::uint32_t sample = stream[staging.next];
      const double bytes = job_.sizes[sample];
      const bool has_room = staging.used_bytes + bytes <= cluster_.staging_bytes;
      if (!staging.entries.empty() && !(has_room && policy_.reads_ahead())) return;
      const double begin = std::max(staging.clock, now);
      const SampleFetch fetch = policy_.FetchOf(node, staging.next, sample, begin);
      ++staging.next;
      if (fetch.from == From::kOnDemand || fetch.from == From::kNone) {
        if (fetch.from == From::kNone) Count(From::kNone, bytes, 0);
        staging.entries.push_back({.from = fetch.from});
        continue;
      }
      const std::uint32_t readers = fetch.readers.value_or(readers_.At(node, begin));
      const double seconds = SecondsOf(fetch, readers);
      const double wait = WaitOf(fetch, bytes, readers);
      Count(fetch.from, bytes, bytes * seconds + wait);
      staging.clock = begin + bytes * cluster_.Staged(seconds) + wait / cluster_.staging_threads;
      staging.used_bytes += bytes;
      staging.entries.push_back({.from = fetch.from, .available = staging.clock});
      if (fetch.from != From::kTier) staging.coming.emplace_back(staging.clock, bytes);
      if (fetch.from != From::kStorage) continue;
      readers_.Reads(node, staging.clock);
      policy_.OnStaged(node, sample, staging.clock);
    }
  }

  // Seconds a byte that a thread takes.
  [[nodiscard]] double SecondsOf(const SampleFetch& fetch, std::uint32_t readers) const {
    if (fetch.from == From::kTier) return cluster_.FromTier(fetch.tier);
    if (fetch.from == From::kPeer) return cluster_.FromPeer(fetch.tier);
    return cluster_.FromStorage(readers);
  }

  // Seconds that it takes one longer, by the latency of storage.
  [[nodiscard]] double WaitOf(const SampleFetch& fetch, double bytes, std::uint32_t readers) const {
    if (fetch.from != From::kStorage) return 0;
    const auto neighbours = static_cast<double>(fetch.neighbours);
    return cluster_.StorageWait(bytes * neighbours, readers) / neighbours;
  }

  void Count(From from, double bytes, double seconds) {
    FetchTotals& totals = result_.fetched[static_cast<std::size_t>(from)];
    ++totals.samples;
    totals.bytes += bytes;
    totals.seconds += seconds;
  }

  const SimulatedJob& job_;
  const Cluster& cluster_;
  const Streams& streams_;
  PublishedPolicy& policy_;
  std::vector<Staging> staging_;
  StorageReaders readers_;
  std::vector<bool> used_;
  double got_bytes_ = 0;         // GotBy()
  double computed_seconds_ = 0;  // when the step before had computed
  SimulatedRun result_;
};

}  // namespace

void SimulatedRun::DivideBy(double workers) {
  for (double* sum : {&compute_seconds, &stall_seconds, &barrier_seconds}) *sum /= workers;
}

Status SimulationEnded() {
  return {StatusCode::kCancelled, "simulating: ended before its last step"};
}

Result<SimulatedRun> RunPublished(const PublishedPolicyRow& row, const SimulatedJob& job,
                                  const std::function<bool()>& keep_going) {
  return RunPublished(row.name, row.make, job, keep_going);
}

Result<SimulatedRun> RunPublished(std::string_view name, const MakePolicy& make,
                                  const SimulatedJob& job,
                                  const std::function<bool()>& keep_going) {
  HEADRACE_ASSIGN_OR_RETURN(Streams streams, Streams::Make(job));
  const std::unique_ptr<PublishedPolicy> policy = make({name, job, streams});
  HEADRACE_ASSIGN_OR_RETURN(const Preload preload, policy->Begin(streams));
  return PublishedRun(job, streams, *policy, preload).Run(keep_going);
}

}  // namespace headrace
