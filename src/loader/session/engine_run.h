#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/gate.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "loader/session/session.h"

namespace headrace {

// The engine of one run. After Close() it ignores events, keeps its last statistics, and may
// outlive the session.
//
// Thread safety: every method may be called from any thread; Close() by one thread at a time.
// Shutdown: call Close() until it returns true. The destructor calls Close(-1).
class EngineRun final : public SessionRun {
 public:
  using TakenHook =
      std::function<void(std::uint32_t lane, const Batch& batch, std::int64_t taken_ns)>;

  EngineRun(const Engine::Parts& parts, const EngineOptions& options, std::unique_ptr<Order> order,
            std::unique_ptr<TierCache> tiers, TakenHook on_taken)
      : on_taken_(std::move(on_taken)),
        clock_(*parts.clock),
        start_ns_(clock_.NowNanos()),
        engine_(std::make_unique<Engine>(parts, options, std::move(order), std::move(tiers))) {
    engine_->Start();
  }
  ~EngineRun() override { Close(-1); }
  EngineRun(const EngineRun&) = delete;
  EngineRun& operator=(const EngineRun&) = delete;

  void OnTaken(std::uint32_t lane, const Batch& batch, std::int64_t taken_ns) override {
    Inside([&] {
      engine_->OnTaken(lane, taken_ns);
      on_taken_(lane, batch, taken_ns);
    });
  }
  void OnWaiting(std::uint32_t lane) override {
    Inside([&] { engine_->OnWaiting(lane); });
  }
  void Leave(std::uint32_t lane) override {
    Inside([&] { engine_->Leave(lane); });
  }

  // As Engine::Bring(). Unavailable: the run has ended.
  void Bring(SampleId sample, std::uint64_t deadline, TakenEntry done) {
    const bool ran = Inside([&] { engine_->Bring(sample, deadline, std::move(done)); });
    if (!ran) done(Status(StatusCode::kUnavailable, "the run of this node has ended"));
  }

  // As Engine::TakeParcel(). Unavailable: the run has ended.
  void TakeParcel(NodeNumber to, const ParcelPart& part, TakenParcel done) {
    const bool ran = Inside([&] { engine_->TakeParcel(to, part, std::move(done)); });
    if (!ran) done(Status(StatusCode::kUnavailable, "the run of this node has ended"));
  }
  // As Engine::owes().
  [[nodiscard]] bool owes() {
    bool owes = false;
    Inside([&] { owes = engine_->owes(); });
    return owes;
  }

  // Stops delivery to the sinks, then waits up to `timeout_ns` for calls in progress and
  // outstanding work (negative: no limit). Returns false if some are still outstanding: call it
  // again.
  bool Close(std::int64_t timeout_ns) {
    if (closed()) return true;
    engine_->Stop();
    const std::int64_t begin_ns = clock_.NowNanos();
    if (!gate_.Close(clock_, timeout_ns)) return false;
    const std::int64_t waited_ns = clock_.NowNanos() - begin_ns;
    if (timeout_ns >= 0) timeout_ns = std::max<std::int64_t>(0, timeout_ns - waited_ns);
    if (!engine_->Close(timeout_ns)) return false;
    MutexLock lock(stats_mutex_);
    last_stats_ = engine_->stats();
    running_ns_ = clock_.NowNanos() - start_ns_;
    engine_.reset();  // The parts it refers to may be destroyed before this object.
    return true;
  }

  [[nodiscard]] EngineStats stats() {
    MutexLock lock(stats_mutex_);
    return engine_ == nullptr ? last_stats_ : engine_->stats();
  }

  [[nodiscard]] std::int64_t running_ns() {
    MutexLock lock(stats_mutex_);
    return engine_ == nullptr ? running_ns_ : clock_.NowNanos() - start_ns_;
  }

 private:
  // Runs `work` unless the run is closed; returns whether it ran.
  template <typename Work>
  bool Inside(Work work) {
    if (!gate_.TryEnter()) return false;
    work();
    gate_.Leave();
    return true;
  }
  [[nodiscard]] bool closed() {
    MutexLock lock(stats_mutex_);
    return engine_ == nullptr;
  }

  const TakenHook on_taken_;
  const Clock& clock_;
  const std::int64_t start_ns_;
  Gate gate_;

  Mutex stats_mutex_;
  // Null once closed. Read inside the gate, by Close(), or under stats_mutex_; reset under it.
  std::unique_ptr<Engine> engine_;
  EngineStats last_stats_ HEADRACE_GUARDED_BY(stats_mutex_);
  std::int64_t running_ns_ HEADRACE_GUARDED_BY(stats_mutex_) = 0;
};

}  // namespace headrace
