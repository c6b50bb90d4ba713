#include "plan/mixture/mixture.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/hash.h"
#include "base/units.h"

namespace headrace {
namespace {

constexpr std::uint64_t kNowhere = SplitTree::kPositionsMax;
constexpr std::size_t kSourcesMax = std::size_t{1} << 20;
// So that positions stay below kNowhere in all of the 2^24 epochs that there may be.
constexpr std::uint64_t kEpochSamplesMax = std::uint64_t{1} << 38;

Status CheckSources(std::span<const MixtureSource> sources) {
  if (sources.empty()) return InvalidArgument("mixture: no source; give at least one");
  if (sources.size() > kSourcesMax) {
    return InvalidArgument("mixture: {} sources, at most {}", sources.size(), kSourcesMax);
  }
  std::set<std::string_view> names;
  for (const MixtureSource& source : sources) {
    if (!names.insert(source.name).second) {
      return InvalidArgument("mixture: two sources have the name '{}'; rename one", source.name);
    }
    if (source.samples == 0) {
      return InvalidArgument("mixture: source '{}' has no samples; leave it out", source.name);
    }
    if (source.passes_max == 0) {
      return InvalidArgument(
          "mixture: source '{}' may have 0 passes; give 1 or more, or leave it "
          "out",
          source.name);
    }
  }
  return Status();
}

Status CheckStage(const MixtureStage& stage, std::span<const MixtureSource> sources) {
  if (stage.weights.size() != sources.size()) {
    return InvalidArgument("mixture: {} for {}; give one for each",
                           Counted(stage.weights.size(), "weight"),
                           Counted(sources.size(), "source"));
  }
  bool any = false;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const double weight = stage.weights[i];
    if (!std::isfinite(weight) || weight < 0) {
      return InvalidArgument("mixture: weight of source '{}' is {}; give a number from 0 on",
                             sources[i].name, weight);
    }
    any = any || weight > 0;
  }
  if (!any) {
    return InvalidArgument("mixture: all weights from position {} on are 0; give one above 0",
                           stage.begin);
  }
  return Status();
}

Status CheckStages(const MixtureOptions& options) {
  if (options.stages.empty()) return InvalidArgument("mixture: no weights");
  for (std::size_t i = 0; i < options.stages.size(); ++i) {
    const MixtureStage& stage = options.stages[i];
    const bool follows = i == 0 ? stage.begin == 0 : stage.begin > options.stages[i - 1].begin;
    if (!follows || stage.begin >= kNowhere) {
      return InvalidArgument("mixture: stage {} begins at position {}; stages ascend, from 0 on", i,
                             stage.begin);
    }
    HEADRACE_RETURN_IF_ERROR(CheckStage(stage, options.sources));
  }
  return Status();
}

}  // namespace

std::vector<std::uint64_t> WholeWeights(std::span<const double> weights) {
  // A sum that is rounded, or overflows, costs a factor of two or so at most.
  double largest = 0;
  for (const double weight : weights) largest = std::max(largest, weight);
  HEADRACE_CHECK(largest > 0);
  int exponent = 0;
  std::frexp(largest, &exponent);  // largest < 2^exponent
  int count_bits = 0;
  while ((std::size_t{1} << count_bits) < weights.size()) ++count_bits;
  const int shift = 60 - count_bits - exponent;
  std::vector<std::uint64_t> whole(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    const double scaled = std::nearbyint(std::ldexp(weights[i], shift));
    whole[i] = std::max(std::uint64_t{1}, static_cast<std::uint64_t>(scaled));
  }
  return whole;
}

Result<Mixture> Mixture::Make(MixtureOptions options) {
  HEADRACE_RETURN_IF_ERROR(CheckSources(options.sources));
  HEADRACE_RETURN_IF_ERROR(CheckStages(options));
  Mixture mixture(std::move(options));
  HEADRACE_RETURN_IF_ERROR(mixture.MakeSections());
  HEADRACE_RETURN_IF_ERROR(mixture.SetEpoch());
  return mixture;
}

Status Mixture::SetEpoch() {
  std::uint64_t& epoch = options_.epoch_samples;
  if (!length_.has_value() && epoch == 0) {
    return InvalidArgument(
        "mixture: it goes on for ever; say after how many samples an epoch ends, or when the "
        "mixture does");
  }
  if (length_.has_value() && epoch != 0 && epoch != *length_) {
    return InvalidArgument(
        "mixture: an epoch of {} samples, but it ends after {}; leave the number out", epoch,
        *length_);
  }
  epoch = length_.value_or(epoch);
  if (epoch <= kEpochSamplesMax) return Status();
  return InvalidArgument("mixture: an epoch of {} samples, at most 2^38; let it end earlier",
                         epoch);
}

std::uint64_t Mixture::sample_count() const {
  std::uint64_t count = 0;
  for (const MixtureSource& source : options_.sources) count += source.samples;
  return count;
}

std::string Mixture::Hash() const {
  Hasher64 hash;
  const auto add = [&hash](std::uint64_t number) {
    static_assert(std::endian::native == std::endian::little,
                  "hashes are of little-endian numbers");
    hash.Add(std::as_bytes(std::span(&number, 1)));
  };
  add(static_cast<std::uint64_t>(options_.end));
  add(options_.epoch_samples);
  for (const MixtureSource& source : options_.sources) {
    add(source.name.size());
    hash.Add(std::as_bytes(std::span(source.name)));
    add(source.samples);
    add(source.passes_max.value_or(0));
  }
  for (const MixtureStage& stage : options_.stages) {
    add(stage.begin);
    for (const double weight : stage.weights) add(std::bit_cast<std::uint64_t>(weight));
  }
  return fmt::format("{:016x}", hash.Digest());
}

// Draws after which a source has had its passes.
std::optional<std::uint64_t> Mixture::LimitOf(std::size_t source) const {
  const MixtureSource& of = options_.sources[source];
  if (of.passes_max.has_value()) {
    return of.samples > kNowhere / *of.passes_max ? kNowhere : of.samples * *of.passes_max;
  }
  if (options_.end == MixtureEnd::kNever) return std::nullopt;
  return of.samples;
}

Result<Mixture::Section> Mixture::SectionFrom(std::uint64_t begin,
                                              std::vector<std::uint64_t> before,
                                              const MixtureStage& stage) const {
  std::vector<double> weights = stage.weights;
  bool any = false;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const bool ends = options_.sources[i].passes_max.has_value();
    if (ends && before[i] >= *LimitOf(i)) weights[i] = 0;
    any = any || weights[i] > 0;
  }
  if (!any) {
    return InvalidArgument(
        "mixture: at position {} all sources have ended that the stage from {} on draws from, and "
        "others or a later stage have not; give these a weight there",
        begin, stage.begin);
  }
  return Section{
      .begin = begin, .before = std::move(before), .tree = SplitTree(WholeWeights(weights))};
}

std::uint64_t Mixture::FirstEnd(const Section& section) const {
  std::uint64_t end = kNowhere;
  for (std::uint32_t i = 0; i < options_.sources.size(); ++i) {
    const std::optional<std::uint64_t> limit = LimitOf(i);
    const bool counts = options_.end == MixtureEnd::kFirst || options_.sources[i].passes_max;
    if (!counts || !limit.has_value() || section.before[i] >= *limit) continue;
    const std::uint64_t last =
        section.tree.PositionOf({.source = i, .number = *limit - 1 - section.before[i]});
    if (last < kNowhere) end = std::min(end, section.begin + last + 1);
  }
  return end;
}

std::uint64_t Mixture::LastEnd(const Section& section) const {
  if (options_.end != MixtureEnd::kAll) return kNowhere;
  std::uint64_t end = section.begin;
  for (std::uint32_t i = 0; i < options_.sources.size(); ++i) {
    const std::uint64_t limit = *LimitOf(i);
    if (section.before[i] >= limit) continue;
    const std::uint64_t last =
        section.tree.PositionOf({.source = i, .number = limit - 1 - section.before[i]});
    if (last >= kNowhere) return kNowhere;
    end = std::max(end, section.begin + last + 1);
  }
  return end;
}

Status Mixture::MakeSections() {
  std::uint64_t begin = 0;
  std::vector<std::uint64_t> before(options_.sources.size());
  std::size_t stage = 0;
  while (true) {
    HEADRACE_ASSIGN_OR_RETURN(Section section,
                              SectionFrom(begin, std::move(before), options_.stages[stage]));
    sections_.push_back(std::move(section));
    const Section& made = sections_.back();
    const bool is_last_stage = stage + 1 == options_.stages.size();
    const std::uint64_t next_stage = is_last_stage ? kNowhere : options_.stages[stage + 1].begin;
    const std::uint64_t first_end = FirstEnd(made);
    const std::uint64_t last_end = LastEnd(made);
    const std::uint64_t end = std::min({next_stage, first_end, last_end});
    if (end == kNowhere) break;
    if (end == last_end || (options_.end == MixtureEnd::kFirst && end == first_end)) {
      length_ = end;
      break;
    }
    begin = end;
    before = CountsBefore(end);
    const auto has_ended = [&](std::size_t i) {
      return options_.sources[i].passes_max && before[i] >= *LimitOf(i);
    };
    bool all = true;
    for (std::size_t i = 0; i < before.size(); ++i) all = all && has_ended(i);
    if (all) {
      length_ = end;
      break;
    }
    if (end == next_stage) ++stage;
  }
  if (options_.end != MixtureEnd::kNever && !length_.has_value()) {
    return InvalidArgument(
        "mixture: it never ends, as a source that it waits for has weight 0 from position {} on; "
        "give it a weight, or let the mixture go on for ever",
        options_.stages.back().begin);
  }
  return Status();
}

const Mixture::Section& Mixture::SectionOf(std::uint64_t position) const {
  const auto after =
      std::upper_bound(sections_.begin(), sections_.end(), position,
                       [](std::uint64_t at, const Section& section) { return at < section.begin; });
  return *std::prev(after);
}

Draw Mixture::At(std::uint64_t position) const {
  const Section& section = SectionOf(position);
  Draw draw = section.tree.At(position - section.begin);
  draw.number += section.before[draw.source];
  return draw;
}

void Mixture::Draws(std::uint64_t first, std::span<Draw> draws) const {
  const Section* section = &SectionOf(first);
  const Section* const last = &sections_.back();
  while (!draws.empty()) {
    const std::uint64_t room = section == last ? kNowhere : (section + 1)->begin - first;
    const std::span<Draw> part = draws.first(std::min<std::uint64_t>(room, draws.size()));
    section->tree.Draws(first - section->begin, part);
    for (Draw& draw : part) draw.number += section->before[draw.source];
    first += part.size();
    draws = draws.subspan(part.size());
    ++section;
  }
}

std::vector<std::uint64_t> Mixture::CountsBefore(std::uint64_t position) const {
  const Section& section = SectionOf(position);
  std::vector<std::uint64_t> counts(options_.sources.size());
  section.tree.CountsBefore(position - section.begin, counts);
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += section.before[i];
  return counts;
}

std::optional<std::uint64_t> Mixture::PositionOf(Draw draw) const {
  // The last section before which the source has had no more draws than this one's number.
  const auto after = std::upper_bound(sections_.begin(), sections_.end(), draw.number,
                                      [&](std::uint64_t number, const Section& section) {
                                        return number < section.before[draw.source];
                                      });
  const Section& section = *std::prev(after);
  const std::uint64_t in_section = section.tree.PositionOf(
      {.source = draw.source, .number = draw.number - section.before[draw.source]});
  if (in_section >= kNowhere) return std::nullopt;
  const std::uint64_t position = section.begin + in_section;
  if (length_.has_value() && position >= *length_) return std::nullopt;
  return position;
}

}  // namespace headrace
