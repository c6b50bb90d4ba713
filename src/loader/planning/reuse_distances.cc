#include "loader/planning/reuse_distances.h"

#include <bit>
#include <memory>
#include <optional>
#include <utility>

#include "loader/config/loader_config.h"
#include "loader/config/resolved_order.h"

namespace headrace {

ReuseDistances CountReuse(UseStream& uses, std::uint32_t node, std::uint64_t blocks,
                          std::uint64_t epochs) {
  constexpr std::uint64_t kNever = ~std::uint64_t{0};
  ReuseDistances counts;
  std::vector<std::uint64_t> used_at(blocks, kNever);
  StepUses step;
  while (epochs > 0 && uses.Next(step)) {
    for (const std::uint32_t block : step.OfNode(node)) {
      const std::uint64_t before = std::exchange(used_at.at(block), counts.steps);
      if (before == kNever) {
        ++counts.first;
      } else if (before == counts.steps) {
        ++counts.same_step;
      } else {
        const auto bin = static_cast<std::size_t>(std::bit_width(counts.steps - before)) - 1;
        if (bin >= counts.bins.size()) counts.bins.resize(bin + 1);
        ++counts.bins[bin];
      }
    }
    ++counts.steps;
    if (step.ends_epoch) --epochs;
  }
  return counts;
}

Result<ReuseDistances> CountReuse(const std::shared_ptr<const Index>& index,
                                  const LoaderOptions& options, std::uint64_t epochs) {
  HEADRACE_ASSIGN_OR_RETURN(const LoaderConfig config, ResolveConfig(index, options));
  const ResolvedOrder& order = *config.order;
  HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<const BlockMap> blocks,
                            order.CacheBlocks(index, kUnitBytesMin));  // Sizes do not matter here.
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<UseStream> uses, order.MakeUses(blocks, {}));
  const std::uint32_t node = config.options.job.rank / config.options.job.ranks;
  ReuseDistances counts = CountReuse(*uses, node, blocks->block_count(), epochs);
  counts.of_blocks = order.reads_blocks();
  return counts;
}

}  // namespace headrace
