#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/order_options.h"
#include "headrace/status.h"
#include "plan/mixture/split_tree.h"

namespace headrace {

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
  //                          draw, or whose weights are all 0; an end that never comes;
  //                          epoch_samples of a mixture that ends, other than its length, or none
  //                          of one that does not; more than 2^38 samples an epoch
  static Result<Mixture> Make(MixtureOptions options);

  [[nodiscard]] std::span<const MixtureSource> sources() const { return options_.sources; }

  // Positions of an epoch. Of a mixture that ends all of them: in the next epoch every source goes
  // on where it was. Of one that goes on for ever, epoch e has [e * epoch_samples, ...).
  [[nodiscard]] std::uint64_t epoch_samples() const { return options_.epoch_samples; }
  // Sum of the sources' samples.
  [[nodiscard]] std::uint64_t sample_count() const;
  // XXH3-64 of the options, as 16 hexadecimal digits: what states keep of a mixture.
  [[nodiscard]] std::string Hash() const;

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
  [[nodiscard]] Status SetEpoch();
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
