#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/status.h"
#include "plan/mixture/split_tree.h"

namespace headrace {

struct MixtureSource {
  std::string name;           // unique
  std::uint64_t samples = 0;  // at least 1
  // The source ends after so many passes over its samples; the others then share its weight.
  // std::nullopt: it has no end.
  std::optional<std::uint64_t> passes_max;
};

// From position `begin` on, until the next stage begins, these weights are in force.
struct MixtureStage {
  std::uint64_t begin = 0;
  std::vector<double> weights;  // of each source, in any unit; 0: it is not drawn
};

// When a mixture ends, beside where all its sources have ended. A source that has no passes_max
// has one pass here.
enum class MixtureEnd : std::uint8_t {
  kNever,  // goes on as long as a source does
  kFirst,  // with the first source that has had its passes
  kAll,    // when the last source has had its passes; the others go on until then
};

struct MixtureOptions {
  std::vector<MixtureSource> sources;  // at most 2^20
  // By `begin`; the first begins at 0. A change of weights in a run is one stage more.
  std::vector<MixtureStage> stages;
  MixtureEnd end = MixtureEnd::kNever;
};

// Which source has each position of a mixture, and its how-manieth draw that is: a pure function of
// the options, in closed form, so that any position may be entered at once. Each source draws from
// its own sequence: its k-th draw is the same sample whatever the other sources do.
//
// In each section, from one change of the weights (a stage, a source that ends) to the next, every
// source is less than 2 draws from its share (SplitTree).
//
// Memory: 56 bytes a source and section. Thread safety: const methods from any thread.
class Mixture {
 public:
  // Errors: InvalidArgument  no source or stage; a source without samples; stages that do not
  //                          ascend from 0; a number of weights other than the sources'; a weight
  //                          that is negative or not finite; a stage in which no source is left to
  //                          draw, or whose weights are all 0; an end that never comes
  static Result<Mixture> Make(MixtureOptions options);

  [[nodiscard]] std::span<const MixtureSource> sources() const { return options_.sources; }

  // Positions, if it ends.
  [[nodiscard]] std::optional<std::uint64_t> length() const { return length_; }

  // `position` must be below length().
  [[nodiscard]] Draw At(std::uint64_t position) const;
  // The draws at `first` and the positions after it, which must exist; fewer than 2^32.
  void Draws(std::uint64_t first, std::span<Draw> draws) const;

  // Draws of each source before `position`, which is at most length(). Takes O(sources).
  [[nodiscard]] std::vector<std::uint64_t> CountsBefore(std::uint64_t position) const;

  // Where a source has a draw; std::nullopt: nowhere below length().
  [[nodiscard]] std::optional<std::uint64_t> PositionOf(Draw draw) const;

 private:
  struct Section {
    std::uint64_t begin = 0;
    std::vector<std::uint64_t> before;  // draws of each source before `begin`
    SplitTree tree;
  };

  explicit Mixture(MixtureOptions options) : options_(std::move(options)) {}

  [[nodiscard]] Status MakeSections();
  [[nodiscard]] std::optional<std::uint64_t> LimitOf(std::size_t source) const;
  [[nodiscard]] Result<Section> SectionFrom(std::uint64_t begin, std::vector<std::uint64_t> before,
                                            const MixtureStage& stage) const;
  // Where the first source ends in a section; and where `kAll` ends, if that is in it.
  [[nodiscard]] std::uint64_t FirstEnd(const Section& section) const;
  [[nodiscard]] std::uint64_t LastEnd(const Section& section) const;
  [[nodiscard]] const Section& SectionOf(std::uint64_t position) const;

  MixtureOptions options_;
  std::vector<Section> sections_;
  std::optional<std::uint64_t> length_;
};

// Weights of a SplitTree in the proportion of these: the largest power of two that fits times
// each, rounded, and at least 1 for one that is not 0. One must not be 0; none is negative.
std::vector<std::uint64_t> WholeWeights(std::span<const double> weights);

}  // namespace headrace
