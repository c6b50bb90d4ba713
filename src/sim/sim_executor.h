#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/executor.h"
#include "sim/sim_loop.h"

namespace headrace {

// Cores in virtual time: a task takes a core for as long as `cost_ns` says, and its effects show
// when that time has passed.
//
// Thread safety: none; a simulation is one thread.
// Shutdown: drained by running the loop; must have no task left when destroyed.
class SimExecutor final : public Executor {
 public:
  // Nanoseconds that a task takes which works on `bytes` bytes; 0: unknown. Not negative.
  using Cost = std::function<std::int64_t(std::uint64_t bytes)>;

  // `cost_ns` is asked once a task, when it starts.
  SimExecutor(SimLoop& loop, int cores, Cost cost_ns);
  ~SimExecutor() override;

  void Submit(std::uint64_t deadline, Task task) override;
  void SubmitSized(std::uint64_t deadline, std::uint64_t bytes, Task task) override;
  [[nodiscard]] int concurrency() const override { return cores_; }
  [[nodiscard]] int busy() const { return busy_; }  // cores that have a task

 private:
  void StartTasks();

  SimLoop& loop_;
  const int cores_;
  const Cost cost_ns_;
  int busy_ = 0;
  std::uint64_t next_number_ = 0;
  struct Waiting {
    std::uint64_t bytes = 0;
    Task task;
  };
  std::map<std::pair<std::uint64_t, std::uint64_t>, Waiting> waiting_;  // by deadline, then number
};

}  // namespace headrace
