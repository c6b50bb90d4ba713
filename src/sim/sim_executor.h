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
  // `cost_ns` is asked once a task, when it starts; not negative.
  SimExecutor(SimLoop& loop, int cores, std::function<std::int64_t()> cost_ns);
  ~SimExecutor() override;

  void Submit(std::uint64_t deadline, Task task) override;
  [[nodiscard]] int concurrency() const override { return cores_; }

 private:
  void StartTasks();

  SimLoop& loop_;
  const int cores_;
  const std::function<std::int64_t()> cost_ns_;
  int busy_ = 0;
  std::uint64_t next_number_ = 0;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Task> waiting_;  // by deadline, then number
};

}  // namespace headrace
