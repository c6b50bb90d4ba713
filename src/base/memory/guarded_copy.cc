#include "base/memory/guarded_copy.h"

#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/mutex.h"

namespace headrace {
namespace {

// The copy that a thread is in.
struct Landing {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  sigjmp_buf jump{};
};

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): a handler has no other place.
// Of each thread its Landing. No thread_local: access to that may allocate, in a handler, too.
pthread_key_t landing_key;

Mutex guard_mutex;
// Written before the handler is installed, and read by it.
struct sigaction action_before = {};

// All mappings that were ever guarded at one time: an entry is used again, and never freed, as a
// handler may be looking at it.
std::atomic<MappingGuard::Watched*> first_watched = nullptr;
std::atomic<std::size_t> page_bytes = 0;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

// The handler before is installed again, and hears of the signal as if this one had not been there.
void PassOn(int signal, const siginfo_t* info) {
  (void)::sigaction(signal, &action_before, nullptr);
  if (info->si_code <= 0) (void)::raise(signal);  // Sent by a process: it does not come back.
}

// Puts zeros in place of what a guarded mapping has lost. False: `at` is in none.
bool PutZeros(const std::byte* at) {
  for (MappingGuard::Watched* each = first_watched.load(std::memory_order_acquire); each != nullptr;
       each = each->next) {
    const std::byte* const end = each->end.load(std::memory_order_acquire);
    if (at < each->begin.load(std::memory_order_acquire) || at >= end) continue;
    const std::byte* const page = at - reinterpret_cast<std::uintptr_t>(at) % page_bytes.load();
    each->lost.store(true, std::memory_order_release);
    return ::mmap(const_cast<std::byte*>(page), static_cast<std::size_t>(end - page), PROT_READ,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
  }
  return false;
}

void OnBusError(int signal, siginfo_t* info, void* context) {
  auto* const landing = static_cast<Landing*>(::pthread_getspecific(landing_key));
  const auto* const at = static_cast<const std::byte*>(info->si_addr);
  if (landing != nullptr && info->si_code > 0 && at >= landing->begin && at < landing->end) {
    // The jump leaves the mask as it is in the handler.
    (void)::pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
    siglongjmp(landing->jump, 1);
  }
  if (info->si_code > 0 && PutZeros(at)) return;
  PassOn(signal, info);
}

}  // namespace

void InstallCopyGuard() {
  static const bool has_key = ::pthread_key_create(&landing_key, nullptr) == 0;
  HEADRACE_CHECK(has_key);
  struct sigaction now = {};
  HEADRACE_CHECK(::sigaction(SIGBUS, nullptr, &now) == 0);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == OnBusError) return;
  MutexLock lock(guard_mutex);
  HEADRACE_CHECK(::sigaction(SIGBUS, nullptr, &now) == 0);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == OnBusError) return;
  action_before = now;
  struct sigaction ours = {};
  ours.sa_sigaction = OnBusError;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  HEADRACE_CHECK(::sigaction(SIGBUS, &ours, nullptr) == 0);
}

bool GuardedCopy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.empty()) return true;
  Landing landing;
  landing.begin = from.data();
  landing.end = from.data() + from.size();
  if (sigsetjmp(landing.jump, /*savemask=*/0) != 0) {
    (void)::pthread_setspecific(landing_key, nullptr);
    return false;
  }
  if (::pthread_setspecific(landing_key, &landing) != 0) return false;
  // The copy must not move out of the two calls.
  asm volatile("" ::: "memory");
  std::memcpy(to.data(), from.data(), from.size());
  asm volatile("" ::: "memory");
  (void)::pthread_setspecific(landing_key, nullptr);
  return true;
}

namespace {

// An entry that no guard has, or a new one.
MappingGuard::Watched& TakeWatched() HEADRACE_LOCKS_REQUIRED(guard_mutex) {
  MappingGuard::Watched* const first = first_watched.load();
  for (MappingGuard::Watched* each = first; each != nullptr; each = each->next) {
    if (each->end.load() == nullptr) return *each;
  }
  auto* const made = new MappingGuard::Watched{.next = first};
  first_watched.store(made, std::memory_order_release);
  return *made;
}

MappingGuard::Watched& Watch(std::span<const std::byte> mapping) {
  MutexLock lock(guard_mutex);
  page_bytes.store(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  MappingGuard::Watched& watched = TakeWatched();
  watched.lost.store(false);
  watched.begin.store(mapping.data());
  watched.end.store(mapping.data() + mapping.size(), std::memory_order_release);
  return watched;
}

}  // namespace

MappingGuard::MappingGuard(std::span<const std::byte> mapping) : watched_(Watch(mapping)) {
  InstallCopyGuard();
}

MappingGuard::~MappingGuard() {
  MutexLock lock(guard_mutex);
  watched_.end.store(nullptr);
}

bool MappingGuard::has_lost() const { return watched_.lost.load(std::memory_order_acquire); }

}  // namespace headrace
