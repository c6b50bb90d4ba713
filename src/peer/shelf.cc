#include "peer/shelf.h"

#include <utility>

namespace headrace {

void Shelf::Take(SampleId sample, Done done) {
  HeldSamples* held = nullptr;
  {
    MutexLock lock(mutex_);
    held = held_;
    if (held != nullptr) ++in_use_;
  }
  if (held == nullptr) {
    return done(Status(StatusCode::kUnavailable, "this node gives nothing now"), nullptr);
  }
  auto lease = std::make_shared<Lease>(*this);
  held->Take(sample, [done = std::move(done), lease](Result<Tier::EntryRef> entry) mutable {
    done(std::move(entry), std::move(lease));
  });
}

void Shelf::Give(HeldSamples* held) {
  MutexLock lock(mutex_);
  held_ = held;
  withdraws_ = true;
  while (in_use_ > 0) left_.Wait(mutex_);
  withdraws_ = false;
}

void Shelf::Leave() {
  MutexLock lock(mutex_);
  if (--in_use_ == 0) left_.NotifyAll();
}

}  // namespace headrace
