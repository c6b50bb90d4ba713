#include "loader/session/session_samples.h"

#include <algorithm>
#include <utility>

#include "base/format/errors.h"
#include "headrace/status.h"
#include "loader/session/engine_run.h"
#include "loader/session/session_tiers.h"

namespace headrace {
namespace {

// Of parcels: `round` is asked for, and the newest run here is `newest`.
Status NotInRun(std::uint64_t round, std::uint64_t newest) {
  if (round != newest) {
    return {StatusCode::kUnavailable,
            fmt::format("the other node is in run {}, this one in run {}", round, newest)};
  }
  return {StatusCode::kUnavailable,
          fmt::format("this node has ended run {}, and waits no longer for nodes that are behind",
                      round)};
}

Status NoRun() { return {StatusCode::kUnavailable, "this node has no run now"}; }

}  // namespace

void SessionSamples::Take(SampleId sample, std::uint64_t deadline, TakenEntry done) {
  if (tiers_ != nullptr) {
    for (const std::unique_ptr<Tier>& tier : tiers_->tiers()) {
      if (Tier::EntryRef entry = tier->Find(sample)) return done(std::move(entry));
    }
  }
  if (tiers_ != nullptr && tiers_->guesses()) {
    return done(NotFound("sample {} is not in a tier of this node yet", Raw(sample)));
  }
  std::shared_ptr<EngineRun> run;
  {
    MutexLock lock(mutex_);
    run = run_;
    if (run == nullptr && MayWait(kNoNode)) {
      waiting_.push_back({.request = [sample, deadline, done = std::move(done)](EngineRun* begun) {
        if (begun == nullptr) return done(NoRun());
        begun->Bring(sample, deadline, done);
      }});
      return;
    }
  }
  if (run == nullptr) return done(NoRun());
  run->Bring(sample, deadline, std::move(done));
}

void SessionSamples::TakeParcel(NodeNumber to, const ParcelPart& part, TakenParcel done) {
  std::shared_ptr<EngineRun> run;
  Status refused;
  {
    MutexLock lock(mutex_);
    run = run_;
    if (part.round != round_ || (run == nullptr && !expected_)) {
      refused = NotInRun(part.round, round_);
    } else if (run == nullptr && MayWait(to)) {
      waiting_.push_back(
          {.node = to, .request = [to, part, done = std::move(done)](EngineRun* begun) {
             if (begun == nullptr) return done(NoRun());
             begun->TakeParcel(to, part, done);
           }});
      return;
    } else if (run == nullptr) {
      refused = ResourceExhausted(
          "taking a part of parcel {}: node {} waits for {} other parts before the run begins; "
          "report this defect of headrace",
          part.parcel, to, 2 * kPartsOpenMax);
    }
  }
  if (!refused.ok()) return done(std::move(refused));
  run->TakeParcel(to, part, std::move(done));
}

bool SessionSamples::MayWait(NodeNumber node) const {
  const auto waiting = std::ranges::count(waiting_, node, &Waiting::node);
  return expected_ &&
         static_cast<std::size_t>(waiting) < (node == kNoNode ? kWaitingMax : 2 * kPartsOpenMax);
}

void SessionSamples::Expect(std::uint64_t round) {
  MutexLock lock(mutex_);
  expected_ = true;
  round_ = round;
}

void SessionSamples::Begin(const std::shared_ptr<EngineRun>& run) {
  std::vector<Waiting> waiting;
  {
    MutexLock lock(mutex_);
    expected_ = false;
    run_ = run;
    waiting.swap(waiting_);
  }
  for (const Waiting& each : waiting) each.request(run.get());
}

bool SessionSamples::Owes() {
  std::shared_ptr<EngineRun> run;
  {
    MutexLock lock(mutex_);
    run = run_;
  }
  return run != nullptr && run->owes();
}

void SessionSamples::End() {
  std::shared_ptr<EngineRun> run;  // Ends without the lock.
  std::vector<Waiting> waiting;
  {
    MutexLock lock(mutex_);
    expected_ = false;
    run.swap(run_);
    waiting.swap(waiting_);
  }
  for (const Waiting& each : waiting) each.request(nullptr);
}

}  // namespace headrace
