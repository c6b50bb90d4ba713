#pragma once

#include <cstdint>

namespace headrace {

// How often a node uses a sample if every epoch assigns it to one of `nodes` nodes at random: the
// binomial distribution that frequency placement exploits (Dryden et al., SC'21, section 3). Pure.

// The probability that a node uses a sample more than (1 + delta) times the mean, epochs / nodes.
// `epochs` and `nodes` at least 1, `delta` at least 0. Relative error below 1e-9.
double FrequentShare(std::uint64_t epochs, std::uint64_t nodes, double delta);

// Lemma 3.1: one of at least 2 nodes uses a sample in `uses` of `epochs` epochs. Then some other
// node uses it at most `some_at_most` times, and some other at least `some_at_least` times.
struct UsesElsewhere {
  std::uint64_t some_at_most = 0;
  std::uint64_t some_at_least = 0;
};
UsesElsewhere BoundElsewhere(std::uint64_t epochs, std::uint64_t nodes, std::uint64_t uses);

}  // namespace headrace
