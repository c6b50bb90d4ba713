#include "sim/job/shared_rate.h"

#include <algorithm>

#include "base/check.h"
#include "sim/job/simulated_time.h"

namespace headrace {
namespace {

constexpr double kRateMax = 1e18;  // Bytes a second: "no limit" in arithmetic that stays finite.
constexpr double kNanos = 1e-9;

}  // namespace

SharedRate::SharedRate(SimLoop& loop, std::uint32_t users, EachRate rate)
    : loop_(loop), rate_(std::move(rate)), users_(users) {}

SharedRate::~SharedRate() { HEADRACE_CHECK(active_.empty()); }

void SharedRate::Transfer(std::uint32_t user, double bytes, std::function<void()> done) {
  Advance();
  User& of = users_[user];
  if (of.heap.empty()) {
    active_.insert(std::ranges::lower_bound(active_, user), user);
    of.served = 0;
  }
  of.heap.push_back({.end = of.served + bytes,
                     .number = next_number_++,
                     .bytes = bytes,
                     .begin_ns = loop_.now_ns(),
                     .done = std::move(done)});
  std::ranges::push_heap(of.heap, std::greater<>());
  SetRates();
  Schedule();
}

void SharedRate::Refresh() {
  Advance();
  SetRates();
  Schedule();
}

void SharedRate::Advance() {
  const double seconds = static_cast<double>(loop_.now_ns() - last_ns_) * kNanos;
  last_ns_ = loop_.now_ns();
  if (seconds == 0) return;
  for (const std::uint32_t user : active_) users_[user].served += seconds * users_[user].rate;
}

void SharedRate::SetRates() {
  for (const std::uint32_t user : active_) {
    User& of = users_[user];
    of.rate = std::min(kRateMax, rate_(static_cast<std::uint32_t>(active_.size()), of.heap.size()));
  }
}

// An event that comes too early does nothing but schedule the next one, so a later time needs none.
void SharedRate::Schedule() {
  std::int64_t due_ns = kNever;
  for (const std::uint32_t user : active_) {
    const User& of = users_[user];
    const double left = std::max(0.0, of.heap.front().end - of.served);
    due_ns = std::min(due_ns, loop_.now_ns() + SimulatedNanos(left / of.rate));
  }
  if (due_ns >= due_ns_) return;
  due_ns_ = due_ns;
  loop_.After(due_ns - loop_.now_ns(), [this, number = ++event_] { OnEvent(number); });
}

void SharedRate::OnEvent(std::uint64_t number) {
  if (number != event_) return;
  due_ns_ = kNever;
  Advance();
  std::vector<std::function<void()>> done;
  for (const std::uint32_t user : active_) {
    User& of = users_[user];
    // What a nanosecond brings is within the rounding of times.
    const double reached = of.served + of.rate * kNanos;
    while (!of.heap.empty() && of.heap.front().end <= reached) {
      std::ranges::pop_heap(of.heap, std::greater<>());
      Waiting& ended = of.heap.back();
      bytes_ += ended.bytes;
      seconds_ += static_cast<double>(loop_.now_ns() - ended.begin_ns) * kNanos;
      done.push_back(std::move(ended.done));
      of.heap.pop_back();
    }
  }
  std::erase_if(active_, [this](std::uint32_t user) { return users_[user].heap.empty(); });
  SetRates();
  Schedule();
  for (const std::function<void()>& each : done) each();
}

}  // namespace headrace
