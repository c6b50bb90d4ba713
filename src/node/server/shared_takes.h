#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "headrace/batch.h"

namespace headrace {

// The batches of one lane that some of its ranks have taken and others have not. The lane has taken
// a batch when all of its ranks have: then the engine continues, so the slowest sets the pace.
//
// Keeps a reference to each such batch; so do the ranks' clients, as they have not taken it.
//
// Thread safety: none.
class SharedTakes {
 public:
  using Ranks = std::set<std::uint32_t>;
  using Batches = std::vector<std::shared_ptr<const Batch>>;

  // `rank` took a batch. Returns it if all of `ranks`, those in the run, have. Ignores a rank that
  // has left the run: whether the lane has taken the batch is up to the others.
  Batches Took(std::uint32_t rank, std::shared_ptr<const Batch> batch, const Ranks& ranks);
  // Only `ranks` are left. Returns the batches that all of these have taken, in order.
  Batches Left(const Ranks& ranks);
  // Whether some rank has taken a batch that another has not.
  [[nodiscard]] bool waits() const { return !shared_.empty(); }
  void Clear() { shared_.clear(); }

 private:
  struct Shared {
    std::shared_ptr<const Batch> batch;
    Ranks taken_by;
  };

  // Of a run, by epoch and step.
  std::map<std::pair<std::uint64_t, std::uint64_t>, Shared> shared_;
};

}  // namespace headrace
