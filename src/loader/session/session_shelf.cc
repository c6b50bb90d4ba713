#include "loader/session/session_shelf.h"

#include "base/status.h"
#include "loader/session/engine_run.h"
#include "loader/session/session_tiers.h"

namespace headrace {
namespace {

Status NoRun() { return {StatusCode::kUnavailable, "this node has no run now"}; }

}  // namespace

void SessionShelf::Take(SampleId sample, TakenEntry done) {
  for (const std::unique_ptr<Tier>& tier : tiers_.tiers()) {
    if (Tier::EntryRef entry = tier->Find(sample)) return done(std::move(entry));
  }
  std::shared_ptr<EngineRun> run;
  {
    MutexLock lock(mutex_);
    run = run_;
    if (run == nullptr && expected_ && waiting_.size() < kWaitingMax) {
      waiting_.emplace_back(sample, std::move(done));
      return;
    }
  }
  if (run == nullptr) return done(NoRun());
  run->Bring(sample, std::move(done));
}

void SessionShelf::Expect() {
  MutexLock lock(mutex_);
  expected_ = true;
}

void SessionShelf::Begin(const std::shared_ptr<EngineRun>& run) {
  std::vector<std::pair<SampleId, TakenEntry>> waiting;
  {
    MutexLock lock(mutex_);
    expected_ = false;
    run_ = run;
    waiting.swap(waiting_);
  }
  for (auto& [sample, done] : waiting) run->Bring(sample, std::move(done));
}

void SessionShelf::End() {
  std::shared_ptr<EngineRun> run;  // Ends without the lock.
  std::vector<std::pair<SampleId, TakenEntry>> waiting;
  {
    MutexLock lock(mutex_);
    expected_ = false;
    run.swap(run_);
    waiting.swap(waiting_);
  }
  for (auto& [sample, done] : waiting) done(NoRun());
}

}  // namespace headrace
