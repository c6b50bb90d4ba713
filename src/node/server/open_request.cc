#include "node/server/open_request.h"

#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace headrace {
namespace {

using NamedValues = std::vector<std::pair<std::string_view, std::string>>;

std::string Shown(const OrderParameters& parameters) {
  std::string text;
  for (const auto& [name, value] : parameters) {
    if (!text.empty()) text += ", ";
    text += name + "=";
    text += std::holds_alternative<std::string>(value)
                ? "'" + std::get<std::string>(value) + "'"
                : std::to_string(std::get<std::int64_t>(value));
  }
  return "{" + text + "}";
}

std::string Shown(const std::vector<LoaderField>& fields) {
  std::string text;
  for (const LoaderField& field : fields) {
    if (!text.empty()) text += ", ";
    text += field.name + (field.image.has_value() ? " (transformed)" : "");
  }
  return "[" + text + "]";
}

std::string Shown(const TiersSpec& spec) {
  std::string text;
  for (const TierSpec& tier : spec.tiers) {
    if (!text.empty()) text += ", ";
    text += (tier.path.empty() ? "memory" : tier.path) + " of " +
            std::to_string(tier.capacity_bytes) + " bytes, " + std::to_string(tier.threads) +
            " threads";
  }
  return "[" + text + "]";
}

// What people set, by the names that they know.
NamedValues ValuesOf(const OpenJob& open) {
  const LoaderOptions& options = open.options;
  const auto number = [](auto value) { return std::to_string(value); };
  return {{"dataset", open.fingerprint},
          {"local ranks", number(open.local_ranks)},
          {"world_size", number(options.job.world_size)},
          {"batch_size", number(options.job.batch_size)},
          {"order", options.order.name},
          {"order parameters", Shown(options.order.parameters)},
          {"seed", number(options.job.seed)},
          {"shuffle", number(options.job.shuffle)},
          {"drop_last", number(options.job.drop_last)},
          {"epochs", number(options.job.epochs)},
          {"fields", Shown(options.fields)},
          {"memory", number(options.memory_bytes)},
          {"prefetch", number(options.batches_ahead)},
          {"threads", number(options.threads)},
          {"io", options.io},
          {"on_error", number(static_cast<int>(options.on_error))},
          {"verify", number(options.verify)},
          {"Python workers", number(options.worker_results)},
          {"tiers", Shown(options.tiers)},
          {"placement", options.tiers.placement},
          {"horizon", number(options.tiers.horizon_epochs)},
          {"schedule", options.schedule}};
}

// All but what may differ.
std::vector<std::byte> Comparable(OpenJob open) {
  open.options.job.rank = 0;
  open.local_rank = 0;
  open.index_path.clear();  // One index may lie in several places.
  open.options.remedies = {};
  return Encode(ClientMessage(std::move(open)));
}

}  // namespace

Status CheckOpen(const OpenJob& open) {
  constexpr std::uint32_t kLocalRanksMax = 1024;
  if (open.local_ranks < 1 || open.local_ranks > kLocalRanksMax ||
      open.local_rank >= open.local_ranks) {
    return Status(StatusCode::kInvalidArgument,
                  "local rank " + std::to_string(open.local_rank) + " of " +
                      std::to_string(open.local_ranks) + ": must be below the number of ranks on " +
                      "the node, which must be in [1, " + std::to_string(kLocalRanksMax) + "]");
  }
  const OrderOptions& job = open.options.job;
  if (job.rank < open.local_rank || job.rank >= job.world_size ||
      job.world_size - job.rank < open.local_ranks - open.local_rank) {
    return Status(
        StatusCode::kInvalidArgument,
        "rank " + std::to_string(job.rank) + " of " + std::to_string(job.world_size) +
            " is local rank " + std::to_string(open.local_rank) + " of " +
            std::to_string(open.local_ranks) +
            ": the ranks of a node must be neighbours, in the order of their local ranks");
  }
  return Status();
}

Status CompareOpen(const OpenJob& first, const OpenJob& other) {
  const std::string doing = "rank " + std::to_string(other.options.job.rank) + " joins job '" +
                            other.job + "' of rank " + std::to_string(first.options.job.rank);
  const NamedValues of_first = ValuesOf(first);
  const NamedValues of_other = ValuesOf(other);
  for (std::size_t i = 0; i < of_first.size(); ++i) {
    if (of_first[i].second == of_other[i].second) continue;
    return Status(StatusCode::kFailedPrecondition,
                  doing + ": " + std::string(of_first[i].first) + " is " + of_first[i].second +
                      " there and " + of_other[i].second +
                      " here; ranks of a node must make equal loaders, in the same order");
  }
  if (Comparable(first) != Comparable(other)) {
    return Status(StatusCode::kFailedPrecondition,
                  doing +
                      ": a transform, a cost table or a profile differs; ranks of a node must "
                      "make equal loaders, in the same order");
  }
  if (other.options.job.rank - other.local_rank != first.options.job.rank - first.local_rank) {
    return Status(StatusCode::kFailedPrecondition,
                  doing + ": local rank " + std::to_string(other.local_rank) + " there would be " +
                      "rank " +
                      std::to_string(first.options.job.rank - first.local_rank + other.local_rank) +
                      "; the ranks of a node must be neighbours");
  }
  return Status();
}

}  // namespace headrace
