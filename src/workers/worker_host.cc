#include "workers/worker_host.h"

#include <algorithm>
#include <utility>

#include "base/units.h"

namespace headrace {
namespace {

// Longest time that a wait for reads delays who overtakes it.
constexpr std::int64_t kSliceNs = 5 * kNsPerMs;

}  // namespace

WorkerHost::WorkerHost(std::shared_ptr<WorkerPool> pool, std::shared_ptr<BatchSource> loader)
    : now_{.pool = std::move(pool), .loader = std::move(loader)} {}

WorkerHost::Lease WorkerHost::lease() const {
  MutexLock lock(mutex_);
  return now_;
}

Status WorkerHost::CheckNewestLocked(const Lease& prepared) const {
  if (now_.number == prepared.number) return Status();
  return {StatusCode::kCancelled,
          now_.pool == nullptr
              ? "starting a run: the loader was closed"
              : "starting a run: another thread stopped it, or started another, before it began"};
}

Status WorkerHost::CheckNewest(const Lease& prepared) const {
  MutexLock lock(mutex_);
  return CheckNewestLocked(prepared);
}

// The run before is asked to end before anyone can overtake this: a newer one is never asked to.
WorkerHost::Lease WorkerHost::Replace(const std::function<void(Lease&)>& change) {
  Lease before;  // Outlives the lock: it may be the last reference.
  MutexLock changing(changing_);
  {
    MutexLock lock(mutex_);
    ++now_.number;
    before = now_;
    change(now_);
  }
  if (before.pool != nullptr) {
    before.pool->Halt([&] {
      if (before.loader != nullptr) static_cast<void>(before.loader->Stop(0));
    });
  }
  return before;
}

WorkerHost::Lease WorkerHost::Prepare() {
  return Replace([](Lease&) {});
}

Result<bool> WorkerHost::AwaitRunBefore(const Lease& prepared, std::int64_t timeout_ns) {
  for (std::int64_t left_ns = timeout_ns;; left_ns -= kSliceNs) {
    MutexLock changing(changing_);
    HEADRACE_RETURN_IF_ERROR(CheckNewest(prepared));
    if (prepared.loader->Stop(std::min(left_ns, kSliceNs))) return true;
    if (left_ns <= kSliceNs) return false;
  }
}

// One thread at a time: what was overtaken has let go of the loader before the next run starts.
Status WorkerHost::Start(const Lease& prepared, const std::function<Status(BatchSource&)>& start) {
  MutexLock starting(starting_);
  HEADRACE_RETURN_IF_ERROR(CheckNewest(prepared));
  HEADRACE_RETURN_IF_ERROR(start(*prepared.loader));
  {
    MutexLock lock(mutex_);
    Status newest = CheckNewestLocked(prepared);
    if (newest.ok()) {
      prepared.pool->Begin(
          [loader = prepared.loader](std::int64_t timeout_ns) { return loader->Next(timeout_ns); });
      return newest;
    }
  }
  static_cast<void>(prepared.loader->Stop(0));  // Who overtook this may have come too early for it.
  return CheckNewest(prepared);
}

void WorkerHost::Stop(std::int64_t timeout_ns) {
  const Lease before = Replace([](Lease&) {});
  if (before.pool == nullptr || before.loader == nullptr) return;
  static_cast<void>(AwaitRunBefore(before, before.loader->LeftOf(timeout_ns)));
}

void WorkerHost::Attach(std::shared_ptr<BatchSource> loader) {
  Replace([&](Lease& now) {
    if (now.pool != nullptr) now.loader = std::move(loader);
  });
}

void WorkerHost::Close() {
  Replace([](Lease& now) {
    now.pool = nullptr;
    now.loader = nullptr;
  });
}

}  // namespace headrace
