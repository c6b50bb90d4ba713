#include "base/testing/test_executor.h"

#include <utility>

namespace headrace {

TestExecutor::TestExecutor(int threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

TestExecutor::~TestExecutor() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
    changed_.NotifyAll();
  }
  threads_.clear();  // Joins while everything that the threads use still exists.
}

void TestExecutor::Submit(std::uint64_t /*deadline*/, Task task) {
  MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.NotifyAll();
}

void TestExecutor::Work() {
  for (;;) {
    Task task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !closing_) changed_.Wait(mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace headrace
