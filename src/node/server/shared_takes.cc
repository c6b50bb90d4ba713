#include "node/server/shared_takes.h"

#include <algorithm>

namespace headrace {

SharedTakes::Batches SharedTakes::Took(std::uint32_t rank, std::shared_ptr<const Batch> batch,
                                       const Ranks& ranks) {
  if (!ranks.contains(rank)) return {};
  Shared& shared = shared_[{batch->epoch, batch->step}];
  shared.batch = std::move(batch);
  shared.takers.insert(rank);
  return Left(ranks);
}

SharedTakes::Batches SharedTakes::Left(const Ranks& ranks) {
  Batches taken;
  for (auto each = shared_.begin(); each != shared_.end();) {
    const Ranks& takers = each->second.takers;
    if (!std::includes(takers.begin(), takers.end(), ranks.begin(), ranks.end())) {
      ++each;
      continue;
    }
    taken.push_back(std::move(each->second.batch));
    each = shared_.erase(each);
  }
  return taken;
}

}  // namespace headrace
