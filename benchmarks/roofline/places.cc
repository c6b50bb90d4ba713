#include "places.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/prng.h"

namespace headrace {

std::optional<Place> Walk::Next() {
  if (left_ == 0) return std::nullopt;
  --left_;
  const Place place = places_->At(next_);
  if (++next_ == places_->count()) next_ = 0;
  return place;
}

Places::Places(const ReadFiles& files, std::uint64_t block_bytes, bool random, std::uint64_t seed)
    : block_bytes_(block_bytes) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    ends_.push_back(count += files.info(i).size / block_bytes);
  }
  if (count == 0) return;
  Prng prng(seed, 0, RandomStream::kOrder, block_bytes);
  start_ = prng.Below(count);
  if (!random) return;
  HEADRACE_CHECK(count <= std::numeric_limits<std::uint32_t>::max());
  order_.resize(count);
  std::iota(order_.begin(), order_.end(), 0U);
  for (std::uint64_t i = count; i > 1; --i) std::swap(order_[i - 1], order_[prng.Below(i)]);
}

Walk Places::Begin(int thread, int threads, bool once) const {
  const auto first = count() * static_cast<std::uint64_t>(thread);
  const auto end = first + count();
  const auto parts = static_cast<std::uint64_t>(threads);
  Walk walk;
  walk.places_ = this;
  walk.next_ = count() == 0 ? 0 : (start_ + first / parts) % count();
  walk.left_ = once ? end / parts - first / parts : std::numeric_limits<std::uint64_t>::max();
  if (count() == 0) walk.left_ = 0;
  return walk;
}

void Places::Skip(std::uint64_t blocks) {
  if (count() != 0) start_ = (start_ + blocks) % count();
}

Place Places::At(std::uint64_t number) const {
  const std::uint64_t block = order_.empty() ? number : order_[number];
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), block);
  const std::uint64_t first = end == ends_.begin() ? 0 : *std::prev(end);
  return {static_cast<std::size_t>(end - ends_.begin()), (block - first) * block_bytes_};
}

}  // namespace headrace
