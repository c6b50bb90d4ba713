#include "plan/placement/counted/frequency_theory.h"

#include <math.h>

#include <cmath>
#include <cstdint>

#include "base/check.h"

namespace headrace {
namespace {

// log(n!). Not lgamma(), which writes a global.
double LogFactorial(double n) {
  int sign = 0;
  return ::lgamma_r(n + 1, &sign);
}

}  // namespace

double FrequentShare(std::uint64_t epochs, std::uint64_t nodes, double delta) {
  HEADRACE_CHECK(epochs >= 1 && nodes >= 1 && delta >= 0);
  const auto trials = static_cast<double>(epochs);
  const double limit = (1 + delta) * trials / static_cast<double>(nodes);
  // Strictly more than `limit`, also where it is a whole number: rounding must not hide one.
  const double least = std::floor(limit + 1e-9 * (1 + limit)) + 1;
  if (least > trials) return 0;
  if (nodes == 1) return 1;
  const double p = 1 / static_cast<double>(nodes);
  const double log_ways = LogFactorial(trials) - LogFactorial(least) - LogFactorial(trials - least);
  double term = std::exp(log_ways + least * std::log(p) + (trials - least) * std::log1p(-p));
  double sum = 0;
  for (auto uses = static_cast<std::uint64_t>(least); uses <= epochs; ++uses) {
    sum += term;
    const auto done = static_cast<double>(uses);
    term *= (trials - done) / (done + 1) * p / (1 - p);
  }
  return sum;
}

UsesElsewhere BoundElsewhere(std::uint64_t epochs, std::uint64_t nodes, std::uint64_t uses) {
  HEADRACE_CHECK(nodes >= 2 && uses <= epochs);
  const std::uint64_t left = epochs - uses;
  return {.some_at_most = (left + nodes - 2) / (nodes - 1), .some_at_least = left / (nodes - 1)};
}

}  // namespace headrace
