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
  std::optional<Buffer> buffer = acquire(first.source->BufferBytes(first));
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
      bytes += BufferPool::ChargedBytes(fetch->source->BufferBytes(*fetch));
    }
    const BufferPool::Stats stats = pool.stats();
    if (stats.used_bytes > 0 && stats.used_bytes + bytes > stats.capacity_bytes) return false;
  }
  if (terms.any) {
    return AcquireAll(group, [&pool](std::uint64_t bytes) { return pool.Acquire(bytes); });
  }
  // What the first takes is no reason for the others of its group to wait.
  bool first = true;
  return AcquireAll(group, [&](std::uint64_t bytes) {
    return std::exchange(first, false) ? pool.AcquireReady(bytes) : pool.Acquire(bytes);
  });
}

Fetcher::Memory Fetcher::Acquire(std::span<Fetch* const> group, BufferPool& pool,
                                 const MemoryTerms& terms) {
  if (AcquireWithin(group, pool, terms)) return Memory::kTaken;
  if (pool.in_use()) return Memory::kWait;
  // Other threads may have given it all back after the first attempt.
  const auto within = [&pool](std::uint64_t bytes) { return pool.Acquire(bytes); };
  if (AcquireAll(group, within)) return Memory::kTaken;
  const bool taken =
      AcquireAll(group, [&pool](std::uint64_t bytes) { return pool.AcquireBeyond(bytes); });
  return taken ? Memory::kTaken : Memory::kNone;
}

void Fetcher::Count(const Fetch& fetch) {
  ++stats_.in_flight;
  if (fetch.node != kNoNode) ++at_nodes_;
}

void Fetcher::Begin(const Fetch& fetch, bool first) {
  Count(fetch);
  if (fetch.entry != nullptr || fetch.node != kNoNode || !first) return;
  ++stats_.reads;
  stats_.read_bytes += fetch.extent.range.size;
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
    FetchSource* const source = rest.front()->source;
    const auto of_source = [source](const Fetch* each) { return each->source == source; };
    auto others = std::find_if_not(rest.begin(), rest.end(), of_source);
    if (others != rest.end()) others = std::stable_partition(others, rest.end(), of_source);
    const auto count = static_cast<std::size_t>(others - rest.begin());
    source->Read(rest.first(count), options_.stop, options_.ended);
    rest = rest.subspan(count);
  }
  all.clear();
  if (lined_up_.empty()) lined_up_.swap(all);  // Its memory is used again.
}

void Fetcher::Refuse(Fetch& fetch) {
  Count(fetch);
  options_.beginning(1);
  options_.ended(fetch, ResourceExhausted("reading {}: the system has no memory",
                                          FormatBytes(fetch.extent.range.size)));
}

bool Fetcher::ReadNow(Fetch& fetch, std::span<std::byte> to) const {
  if (options_.stop.stop_requested()) return false;
  const ReadNowAnswer answer = fetch.source->ReadNow(fetch, to);
  fetch.not_held = answer == ReadNowAnswer::kNotHeld;
  return answer == ReadNowAnswer::kRead;
}

void Fetcher::Read(std::span<Fetch* const> fetches) const {
  fetches.front()->source->Read(fetches, options_.stop, options_.ended);
}

}  // namespace headrace
