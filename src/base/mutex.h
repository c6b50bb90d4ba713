#pragma once

// Locks whose use the compiler checks: clang's -Wthread-safety refuses access to a guarded field,
// or a call of an annotated method, without the mutex. Other compilers ignore the annotations.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#if defined(__clang__)
#define HEADRACE_THREAD_ATTRIBUTE_(attribute) __attribute__((attribute))
#else
#define HEADRACE_THREAD_ATTRIBUTE_(attribute)
#endif

// On a field: access it only while holding the mutex.
#define HEADRACE_GUARDED_BY(mutex) HEADRACE_THREAD_ATTRIBUTE_(guarded_by(mutex))
// On a pointer: the same for what it points at.
#define HEADRACE_PT_GUARDED_BY(mutex) HEADRACE_THREAD_ATTRIBUTE_(pt_guarded_by(mutex))
// On a method: the caller holds the mutex; or must not, because the method takes it.
#define HEADRACE_LOCKS_REQUIRED(mutex) HEADRACE_THREAD_ATTRIBUTE_(requires_capability(mutex))
#define HEADRACE_LOCKS_EXCLUDED(mutex) HEADRACE_THREAD_ATTRIBUTE_(locks_excluded(mutex))
// Used by the classes of this header.
#define HEADRACE_ASSERT_CAPABILITY(mutex) HEADRACE_THREAD_ATTRIBUTE_(assert_capability(mutex))
#define HEADRACE_LOCKABLE HEADRACE_THREAD_ATTRIBUTE_(capability("mutex"))
#define HEADRACE_SCOPED_LOCKABLE HEADRACE_THREAD_ATTRIBUTE_(scoped_lockable)
#define HEADRACE_ACQUIRES(...) HEADRACE_THREAD_ATTRIBUTE_(acquire_capability(__VA_ARGS__))
#define HEADRACE_RELEASES(...) HEADRACE_THREAD_ATTRIBUTE_(release_capability(__VA_ARGS__))

namespace headrace {

// std::mutex with annotations. Not recursive. Prefer MutexLock to Lock() and Unlock().
class HEADRACE_LOCKABLE Mutex {
 public:
  void Lock() HEADRACE_ACQUIRES() { mutex_.lock(); }
  // Makes clang assume that the mutex is held, where clang cannot see it. No check at run time.
  void AssertHeld() const HEADRACE_ASSERT_CAPABILITY(this) {}
  void Unlock() HEADRACE_RELEASES() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex, which must outlive it, from construction to destruction.
class HEADRACE_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HEADRACE_ACQUIRES(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() HEADRACE_RELEASES() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A condition variable for Mutex. Thread safety: every method may be called from any thread.
class CondVar {
 public:
  // Releases `mutex`, waits for a notification, and takes `mutex` again. May wake spuriously: call
  // it in a loop on the condition.
  void Wait(Mutex& mutex) HEADRACE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // As Wait(), for at most `timeout_ns`. Returns false after a timeout.
  bool WaitFor(Mutex& mutex, std::int64_t timeout_ns) HEADRACE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const auto status = condition_.wait_for(lock, std::chrono::nanoseconds(timeout_ns));
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace headrace
