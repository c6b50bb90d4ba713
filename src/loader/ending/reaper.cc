#include "loader/ending/reaper.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <list>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/process_id.h"

namespace headrace {
namespace {

std::filesystem::path Absolute(const std::string& folder) {
  std::error_code no_working_directory;
  return std::filesystem::absolute(folder, no_working_directory).lexically_normal();
}

// An object that is being destroyed, and the thread that does it.
class Ending {
 public:
  Ending(std::shared_ptr<void> what, const std::vector<std::string>& folders)
      : what_(std::move(what)) {
    for (const std::string& folder : folders) folders_.push_back(Absolute(folder));
  }

  [[nodiscard]] bool Holds(const std::filesystem::path& folder) const {
    return std::find(folders_.begin(), folders_.end(), folder) != folders_.end();
  }

  // Errors, as an exception: std::system_error  no thread
  void Start() {
    thread_ = std::jthread([this] {
      pthread_setname_np(pthread_self(), "headrace-end");
      what_.reset();
      MutexLock lock(mutex_);
      done_ = true;
      changed_.NotifyAll();
    });
  }
  void DestroyHere() { what_.reset(); }

  bool Wait(std::int64_t timeout_ns) {
    const MonotonicClock clock;
    const std::int64_t begin_ns = clock.NowNanos();
    MutexLock lock(mutex_);
    while (!done_) {
      const std::int64_t left_ns = timeout_ns - (clock.NowNanos() - begin_ns);
      if (left_ns <= 0) return false;
      static_cast<void>(changed_.WaitFor(mutex_, left_ns));
    }
    return true;
  }

 private:
  std::shared_ptr<void> what_;  // used only by the thread, once it runs
  std::vector<std::filesystem::path> folders_;
  Mutex mutex_;
  CondVar changed_;
  bool done_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // Last: joined before the rest goes.
};

class Reaper {
 public:
  // Never destroyed. Takes no lock: another thread may hold it when this process is forked.
  static Reaper& OfProcess() {
    static std::atomic<Reaper*> newest = nullptr;
    Reaper* reaper = newest;
    while (reaper == nullptr || reaper->pid_ != ProcessId()) {
      auto* fresh = new Reaper();
      if (newest.compare_exchange_strong(reaper, fresh)) return *fresh;
      delete fresh;
    }
    return *reaper;
  }

  void Add(std::unique_ptr<Ending> ending) {
    MutexLock lock(mutex_);
    endings_.push_back(std::move(ending));
  }

  bool Holds(const std::filesystem::path& folder) {
    Reap();
    MutexLock lock(mutex_);
    return std::any_of(endings_.begin(), endings_.end(),
                       [&](const auto& each) { return each->Holds(folder); });
  }

  std::size_t Reap() {
    std::list<std::unique_ptr<Ending>> done;  // Outlives the lock: their threads are joined.
    MutexLock lock(mutex_);
    for (auto it = endings_.begin(); it != endings_.end();) {
      const auto next = std::next(it);
      if ((*it)->Wait(0)) done.splice(done.end(), endings_, it);
      it = next;
    }
    return endings_.size();
  }

 private:
  Reaper() = default;

  const pid_t pid_ = ProcessId();
  Mutex mutex_;
  std::list<std::unique_ptr<Ending>> endings_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace

bool DestroyWithin(std::shared_ptr<void> what, std::int64_t timeout_ns,
                   const std::vector<std::string>& folders) {
  Reaper::OfProcess().Reap();
  auto ending = std::make_unique<Ending>(std::move(what), folders);
  try {
    ending->Start();
  } catch (const std::system_error&) {  // std::thread reports it only so.
    ending->DestroyHere();
    return true;
  }
  if (ending->Wait(timeout_ns)) return true;
  Reaper::OfProcess().Add(std::move(ending));
  return false;
}

bool ReaperHolds(const std::string& folder) { return Reaper::OfProcess().Holds(Absolute(folder)); }

std::size_t ReaperObjectCount() { return Reaper::OfProcess().Reap(); }

}  // namespace headrace
