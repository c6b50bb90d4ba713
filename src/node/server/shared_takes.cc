#include "node/server/shared_takes.h"

#include <algorithm>

namespace headrace {

SharedTakes::Batches SharedTakes::Took(std::uint32_t rank, std::shared_ptr<const Batch> batch,
                                       const Ranks& ranks) {
  if (!ranks.contains(rank)) return {};
  Shared& shared = shared_[{batch->epoch, batch->step}];
  shared.batch = std::move(batch);
  shared.taken_by.insert(rank);
  return Left(ranks);
}

SharedTakes::Batches SharedTakes::Left(const Ranks& ranks) {
  Batches taken;
  for (auto each = shared_.begin(); each != shared_.end();) {
    const Ranks& taken_by = each->second.taken_by;
    if (!std::includes(taken_by.begin(), taken_by.end(), ranks.begin(), ranks.end())) {
      ++each;
      continue;
    }
    taken.push_back(std::move(each->second.batch));
    each = shared_.erase(each);
  }
  return taken;
}

}  // namespace headrace
