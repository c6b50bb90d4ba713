#include "peer/grpc/parcel_takers.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "peer/grpc/peer_wire.h"
#include "peer/grpc/proto/peers.grpc.pb.h"

namespace headrace {

// One call of Takes(). Kept until it has ended, as in PlanTeller.
class ParcelTakers::Call final : public grpc::ClientUnaryReactor {
 public:
  Call(ParcelTakers& takers, std::shared_ptr<NodeLink> link, const Run& run)
      : takers_(takers), link_(std::move(link)), run_(run) {
    context_.AddMetadata(kPeerTokenKey, link_->options().token);
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(kCallMs));
    question_.set_node(run.node);
    question_.set_process(run.process);
    question_.set_round(run.round);
  }

  // Without the lock: it may end on this thread.
  void Begin() {
    link_->stub().async()->Takes(&context_, &question_, &reply_, this);
    StartCall();
    MutexLock lock(takers_.mutex_);
    EndUse();
  }
  void Cancel() { context_.TryCancel(); }
  // The call may be gone when this returns.
  void OnDone(const grpc::Status& status) override {
    MutexLock lock(takers_.mutex_);
    const bool silent = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    const bool unheard = status.error_code() == grpc::StatusCode::UNAVAILABLE;
    // Who refuses the call is another process, at the same address.
    takers_.OnEnd(*this, status.ok() ? reply_.takes() : silent || unheard, !unheard);
    EndUse();
  }

  // Under the lock.
  [[nodiscard]] const Run& run() const { return run_; }
  [[nodiscard]] const NodeLink* link() const { return link_.get(); }
  [[nodiscard]] bool ended() const { return users_ == 0; }

 private:
  void EndUse() {
    if (--users_ == 0) takers_.ended_.NotifyAll();
  }

  ParcelTakers& takers_;
  const std::shared_ptr<NodeLink> link_;
  const Run run_;
  grpc::ClientContext context_;
  peers::v1::TakesQuestion question_;
  peers::v1::TakesReply reply_;
  int users_ = 2;  // Begin() and gRPC
};

ParcelTakers::ParcelTakers() = default;

ParcelTakers::~ParcelTakers() { HEADRACE_CHECK(calls_.empty()); }

bool ParcelTakers::Any(const Run& run, const std::vector<std::shared_ptr<NodeLink>>& links) {
  MutexLock lock(mutex_);
  if (run != run_) {
    run_ = run;
    takers_.clear();
    for (const std::shared_ptr<NodeLink>& link : links) {
      if (link != nullptr) takers_.push_back({.link = link});
    }
  }
  return std::ranges::any_of(takers_, [](const Taker& taker) { return !taker.gone; });
}

void ParcelTakers::OnEnd(const Call& call, bool takes, bool listens) {
  if (call.run() != run_) return;  // About a run before.
  const auto of_node = std::ranges::find_if(
      takers_, [&call](const Taker& taker) { return taker.link.get() == call.link(); });
  if (of_node == takers_.end()) return;  // Close().
  of_node->asking = false;
  of_node->failures = listens ? 0 : of_node->failures + 1;
  of_node->gone = !takes || of_node->failures >= kFailuresMax;
}

void ParcelTakers::Sweep(std::int64_t now_ns) {
  Calls ended;
  std::vector<Call*> begun;
  {
    MutexLock lock(mutex_);
    TakeEnded(ended);
    for (Taker& taker : takers_) {
      if (closing_ || taker.gone || taker.asking || now_ns < taker.next_ns) continue;
      taker.asking = true;
      taker.next_ns = now_ns + kAskEveryNs;
      calls_.push_back(std::make_unique<Call>(*this, taker.link, run_));
      begun.push_back(calls_.back().get());
    }
  }
  for (Call* const call : begun) call->Begin();
}

void ParcelTakers::TakeEnded(Calls& to) {
  for (auto each = calls_.begin(); each != calls_.end();) {
    const auto here = each++;
    if ((*here)->ended()) to.splice(to.end(), calls_, here);
  }
}

void ParcelTakers::Close() {
  Calls ended;
  MutexLock lock(mutex_);
  closing_ = true;
  takers_.clear();
  for (const std::unique_ptr<Call>& call : calls_) {
    if (!call->ended()) call->Cancel();
  }
  const auto all_ended = [this] {
    mutex_.AssertHeld();
    return std::ranges::all_of(calls_, [](const auto& call) { return call->ended(); });
  };
  while (!all_ended()) ended_.Wait(mutex_);
  TakeEnded(ended);
}

}  // namespace headrace
