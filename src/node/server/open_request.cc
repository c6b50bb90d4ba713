#include "node/server/open_request.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/format/errors.h"
#include "headrace/members.h"
#include "plan/order_factory.h"

namespace headrace {
namespace {

// A value that differs, by the name that people know.
struct Difference {
  std::string name;
  std::string first;
  std::string other;
};

// Options that are called otherwise where people set them; "": may differ.
constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kKnownAs = {
    {{"fingerprint", "dataset"},
     {"local_ranks", "local ranks"},
     {"lanes", "positions on a node"},
     {"name", "order"},
     {"parameters", "order parameters"},
     {"memory_bytes", "memory"},
     {"worker_results", "Python workers"},
     {"batches_behind", "Python workers"},
     {"shared_batches", "Python workers"},
     {"horizon_epochs", "horizon"},
     {"ask", "Node.ask"},
     {"rank", ""},
     {"local_rank", ""},
     {"process", ""},
     {"lane", ""},
     {"index_path", ""}}};

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
    const bool transformed = field.image.has_value() || field.sound.has_value();
    text += field.name + (transformed ? " (transformed)" : "");
  }
  return "[" + text + "]";
}

std::string Shown(const std::vector<TierSpec>& tiers) {
  std::string text;
  for (const TierSpec& tier : tiers) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} of {} bytes, {} threads", tier.path.empty() ? "memory" : tier.path,
                        tier.capacity_bytes, tier.threads);
  }
  return "[" + text + "]";
}

std::string Shown(const std::string& text) { return text; }

std::string Shown(const std::shared_ptr<const MixtureOptions>& mixture) {
  if (mixture == nullptr) return "not given";
  std::string text;
  for (const MixtureStage& stage : mixture->stages) {
    text += fmt::format("{}from sample {} on", text.empty() ? "" : "; ", stage.begin);
    for (std::size_t i = 0; i < std::min(stage.weights.size(), mixture->sources.size()); ++i) {
      text +=
          fmt::format("{} {} {}", i == 0 ? "" : ",", mixture->sources[i].name, stage.weights[i]);
    }
  }
  for (const MixtureSource& source : mixture->sources) {
    text += fmt::format("; {} of {} samples", source.name, source.samples);
    if (source.passes_max.has_value()) text += fmt::format(", {} passes", *source.passes_max);
  }
  return text + fmt::format("; end {}, epochs of {}", static_cast<int>(mixture->end),
                            mixture->epoch_samples);
}

template <typename T>
requires std::is_arithmetic_v<T> || std::is_enum_v<T> std::string Shown(T value) {
  return std::to_string(static_cast<std::conditional_t<std::is_enum_v<T>, int, T>>(value));
}

template <typename T>
concept IsShown = requires(const T& value) {
  Shown(value);
};

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <typename T>
inline constexpr bool kIsVector = false;
template <typename T>
inline constexpr bool kIsVector<std::vector<T>> = true;

std::string GivenOrNot(bool given) { return given ? "given" : "not given"; }

// The first option that differs. Numbers that only look alike are compared by Comparable().
template <typename T>
void Compare(std::string_view name, const T& first, const T& other,
             std::optional<Difference>& found) {
  if constexpr (Described<T>) {
    if (std::is_same_v<T, FileRemedies>) return;
    const auto compare = [&](std::string_view of, const auto& member, const auto& others) {
      if (!found.has_value()) Compare(of, member, others, found);
    };
    ForEachMember(compare, first, other);
  } else if constexpr (IsShown<T>) {
    const auto known = std::find_if(kKnownAs.begin(), kKnownAs.end(),
                                    [&](const auto& each) { return each.first == name; });
    if (known != kKnownAs.end()) name = known->second;
    if (name.empty()) return;
    if (Shown(first) != Shown(other)) {
      found = {.name = std::string(name), .first = Shown(first), .other = Shown(other)};
    }
  } else if constexpr (std::is_same_v<T, SampleTable>) {
    if (TableHash(first) == TableHash(other)) return;
    const auto shown = [](const SampleTable& table) {
      return table == nullptr ? "not given" : fmt::format("a table of {} numbers", table->size());
    };
    found = {.name = std::string(name), .first = shown(first), .other = shown(other)};
  } else if constexpr (kIsOptional<T>) {
    if (first.has_value() && other.has_value()) return Compare(name, *first, *other, found);
    if (first.has_value() == other.has_value()) return;
    found = {.name = std::string(name),
             .first = GivenOrNot(first.has_value()),
             .other = GivenOrNot(other.has_value())};
  }
  if constexpr (kIsVector<T>) {
    if (!found.has_value() && first.size() != other.size()) {
      found = {.name = std::string(name),
               .first = fmt::format("of {} entries", first.size()),
               .other = fmt::format("of {} entries", other.size())};
    }
    for (std::size_t i = 0; i < first.size() && !found.has_value(); ++i) {
      Compare(name, first[i], other[i], found);
    }
  }
}

// All but what may differ.
std::vector<std::byte> Comparable(OpenSession open) {
  open.options.job.rank = 0;
  open.process = 0;
  open.local_rank = 0;
  open.lane = 0;
  open.index_path.clear();  // One index may lie in several places.
  open.options.remedies = {};
  return Encode(ClientMessage(std::move(open)));
}

}  // namespace

Status CheckOpen(const OpenSession& open) {
  constexpr std::uint32_t kLocalRanksMax = 1024;
  if (open.local_ranks < 1 || open.local_ranks > kLocalRanksMax ||
      open.local_rank >= open.local_ranks || open.process < open.local_rank) {
    return InvalidArgument(
        "rank {} is local rank {} of {}: must be below the number of ranks on the node, which must "
        "be in [1, {}], and not above the rank",
        open.process, open.local_rank, open.local_ranks, kLocalRanksMax);
  }
  if (open.lanes < 1 || open.lanes > open.local_ranks || open.local_ranks % open.lanes != 0 ||
      open.lane >= open.lanes) {
    return InvalidArgument(
        "rank {} has position {} of {} on a node of {} ranks: each position must have as many "
        "ranks",
        open.process, open.lane, open.lanes, open.local_ranks);
  }
  const OrderOptions& job = open.options.job;
  if (job.rank < open.lane || job.rank >= job.world_size ||
      job.world_size - job.rank < open.lanes - open.lane) {
    return InvalidArgument(
        "position {} of {} is number {} of {} on its node: the positions of a node must be "
        "neighbours, in the order of their local ranks",
        job.rank, job.world_size, open.lane, open.lanes);
  }
  return Status();
}

Status CompareOpen(const OpenSession& first, const OpenSession& other) {
  const std::uint32_t first_rank = first.process;
  const std::uint32_t rank = other.process;
  const std::string doing =
      fmt::format("rank {} joins job '{}' of rank {}", rank, other.job, first_rank);
  std::optional<Difference> found;
  Compare("", first, other, found);
  if (found.has_value()) {
    return FailedPrecondition(
        "{}: {} is {} on rank {} and {} on rank {}; ranks of a node must make equal loaders, in "
        "the same order",
        doing, found->name, found->first, first_rank, found->other, rank);
  }
  if (Comparable(first) != Comparable(other)) {
    return Status(StatusCode::kFailedPrecondition,
                  doing +
                      ": a number of a transform or of a profile differs; ranks of a node must "
                      "make equal loaders, in the same order");
  }
  if (other.options.job.rank - other.lane != first.options.job.rank - first.lane) {
    return FailedPrecondition(
        "{}: its local rank {} belongs to rank {}; the ranks of a node must be neighbours, in the "
        "order of their local ranks",
        doing, other.local_rank, first.process - first.local_rank + other.local_rank);
  }
  return Status();
}

OpenSession ForOtherNodes(OpenSession open) {
  open.job.clear();
  open.process = 0;
  open.local_rank = 0;
  open.lane = 0;
  open.index_path.clear();
  open.options.job.rank = 0;
  open.options.threads = 0;
  open.options.remedies = {};
  open.options.nodes.reset();
  open.options.model.reset();
  open.options.preprocess.clear();
  for (TierSpec& tier : open.options.tiers.tiers) {
    if (!tier.path.empty()) tier.path = "a folder";
    tier.threads = 0;
  }
  return open;
}

Status CompareNodes(const OpenSession& own, const OpenSession& other) {
  std::optional<Difference> found;
  Compare("", own, other, found);
  if (found.has_value()) {
    return FailedPrecondition(
        "{} is {} here and {} there; all nodes must make equal loaders, in the same order",
        found->name, found->first, found->other);
  }
  if (Encode(ClientMessage(own)) != Encode(ClientMessage(other))) {
    return Status(StatusCode::kFailedPrecondition,
                  "a number of a transform differs; all nodes must make equal loaders, in the "
                  "same order");
  }
  return Status();
}

}  // namespace headrace
