#include "peer/leased_samples.h"

#include <utility>

namespace headrace {
namespace {

Status GivesNothing() { return {StatusCode::kUnavailable, "this node gives nothing now"}; }

}  // namespace

// Null: nothing is given.
std::pair<HeldSamples*, std::shared_ptr<LeasedSamples::Lease>> LeasedSamples::Enter() {
  MutexLock lock(mutex_);
  if (held_ == nullptr) return {nullptr, nullptr};
  ++in_use_;
  return {held_, std::make_shared<Lease>(*this)};
}

void LeasedSamples::Take(SampleId sample, std::uint64_t deadline, Done done) {
  auto entered = Enter();
  if (entered.first == nullptr) return done(GivesNothing(), nullptr);
  entered.first->Take(
      sample, deadline,
      [done = std::move(done), lease = std::move(entered.second)](
          Result<Tier::EntryRef> entry) mutable { done(std::move(entry), std::move(lease)); });
}

void LeasedSamples::TakeParcel(NodeNumber to, const ParcelPart& part, TakenParcel done) {
  auto entered = Enter();
  if (entered.first == nullptr) return done(GivesNothing());
  entered.first->TakeParcel(to, part,
                            [done = std::move(done),
                             lease = std::move(entered.second)](Result<OwnedBytes> bytes) mutable {
                              lease.reset();  // The bytes belong to nobody else.
                              done(std::move(bytes));
                            });
}

void LeasedSamples::Give(HeldSamples* held) {
  MutexLock lock(mutex_);
  held_ = held;
  withdraws_ = true;
  while (in_use_ > 0) left_.Wait(mutex_);
  withdraws_ = false;
}

void LeasedSamples::Leave() {
  MutexLock lock(mutex_);
  if (--in_use_ == 0) left_.NotifyAll();
}

}  // namespace headrace
