#include "store/rowgroups/reader_pool.h"

#include <utility>

namespace headrace {
namespace {

struct Newest {
  Mutex mutex;
  std::weak_ptr<ReaderPool> pool HEADRACE_GUARDED_BY(mutex);
};

Newest& TheNewest() {
  static auto* const newest = new Newest;  // lives as long as threads that use it
  return *newest;
}

}  // namespace

std::shared_ptr<ReaderPool> ReaderPool::Shared(const std::vector<std::string>& command) {
  Newest& newest = TheNewest();
  MutexLock lock(newest.mutex);
  std::shared_ptr<ReaderPool> pool = newest.pool.lock();
  if (pool == nullptr || pool->process_ != ProcessId() || pool->command_ != command) {
    pool = std::make_shared<ReaderPool>(command);
    newest.pool = pool;
  }
  return pool;
}

Result<std::unique_ptr<ReaderProcess>> ReaderPool::Take() {
  {
    MutexLock lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<ReaderProcess> reader = std::move(idle_.back());
      idle_.pop_back();
      return reader;
    }
  }
  return ReaderProcess::Start(command_);
}

void ReaderPool::Give(std::unique_ptr<ReaderProcess> reader) {
  if (!reader->usable()) return;
  MutexLock lock(mutex_);
  if (idle_.size() < kIdleMax) idle_.push_back(std::move(reader));
}

std::vector<pid_t> ReaderPool::idle() const {
  MutexLock lock(mutex_);
  std::vector<pid_t> pids;
  pids.reserve(idle_.size());
  for (const std::unique_ptr<ReaderProcess>& each : idle_) pids.push_back(each->pid());
  return pids;
}

}  // namespace headrace
