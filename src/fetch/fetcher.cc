#include "fetch/fetcher.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {
namespace {

// Takes memory for those of `group` that have none, for all of them or for none.
template <typename Acquire>
bool AcquireAll(std::span<Fetch* const> group, Acquire acquire) {
  if (group.empty()) return true;
  Fetch& first = *group.front();
  if (!first.memory().empty()) return AcquireAll(group.subspan(1), acquire);
  std::optional<Buffer> buffer = acquire(first);
  if (!buffer.has_value()) return false;
  first.buffer = *std::move(buffer);
  if (AcquireAll(group.subspan(1), acquire)) return true;
  first.buffer.Reset();
  return false;
}

}  // namespace

bool Fetcher::AcquireWithin(std::span<Fetch* const> group, BufferPool& pool,
                            const MemoryTerms& terms) {
  if (terms.keep_bytes > 0) {
    std::uint64_t bytes = terms.keep_bytes;
    for (const Fetch* const fetch : group) {
      if (!fetch->memory().empty()) continue;
      bytes += BufferPool::ChargedBytes(BufferBytes(*fetch));
    }
    const BufferStats stats = pool.stats();
    if (stats.used_bytes > 0 && stats.used_bytes + bytes > stats.capacity_bytes) return false;
  }
  if (terms.any) {
    return AcquireAll(group, [&](const Fetch& of) { return pool.Acquire(BufferBytes(of)); });
  }
  // What the first takes is no reason for the others of its group to wait.
  bool first = true;
  return AcquireAll(group, [&](const Fetch& of) {
    const std::size_t bytes = BufferBytes(of);
    return std::exchange(first, false) ? pool.AcquireReady(bytes) : pool.Acquire(bytes);
  });
}

Fetcher::Memory Fetcher::Acquire(std::span<Fetch* const> group, BufferPool& pool,
                                 const MemoryTerms& terms) {
  if (AcquireWithin(group, pool, terms)) return Memory::kTaken;
  if (pool.in_use()) return Memory::kWait;
  // Other threads may have given it all back after the first attempt.
  const auto within = [&](const Fetch& of) { return pool.Acquire(BufferBytes(of)); };
  if (AcquireAll(group, within)) return Memory::kTaken;
  const bool taken =
      AcquireAll(group, [&](const Fetch& of) { return pool.AcquireBeyond(BufferBytes(of)); });
  return taken ? Memory::kTaken : Memory::kNone;
}

void Fetcher::Count(const Fetch& fetch) {
  ++stats_.in_flight;
  if (fetch.at_node()) ++at_nodes_;
}

void Fetcher::Begin(const Fetch& fetch, bool first) {
  Count(fetch);
  if (!fetch.in_storage() || !first) return;
  ++stats_.reads;
  stats_.read_bytes += fetch.bytes();
}

void Fetcher::Start(Fetch& fetch, bool first) {
  Begin(fetch, first);
  lined_up_.push_back(&fetch);
}

void Fetcher::Flush() {
  if (lined_up_.empty()) return;
  options_.beginning(lined_up_.size());
  std::vector<Fetch*> all;
  all.swap(lined_up_);  // A source that answers inside Read() may lead to a new read.
  for (std::span<Fetch*> rest = all; !rest.empty();) {
    const std::size_t kind = rest.front()->from.index();
    const auto of_source = [kind](const Fetch* each) { return each->from.index() == kind; };
    auto others = std::find_if_not(rest.begin(), rest.end(), of_source);
    if (others != rest.end()) others = std::stable_partition(others, rest.end(), of_source);
    const auto count = static_cast<std::size_t>(others - rest.begin());
    SourceOf(*rest.front()).Read(rest.first(count), options_.stop, options_.ended);
    rest = rest.subspan(count);
  }
  all.clear();
  if (lined_up_.empty()) lined_up_.swap(all);  // Its memory is used again.
}

void Fetcher::Refuse(Fetch& fetch) {
  Count(fetch);
  options_.beginning(1);
  options_.ended(
      fetch, ResourceExhausted("reading {}: the system has no memory", FormatBytes(fetch.bytes())));
}

bool Fetcher::ReadNow(Fetch& fetch, std::span<std::byte> to) const {
  if (options_.stop.stop_requested()) return false;
  const ReadNowAnswer answer = SourceOf(fetch).ReadNow(fetch, to);
  fetch.not_held = answer == ReadNowAnswer::kNotHeld;
  return answer == ReadNowAnswer::kRead;
}

void Fetcher::Read(std::span<Fetch* const> fetches) const {
  SourceOf(*fetches.front()).Read(fetches, options_.stop, options_.ended);
}

}  // namespace headrace
