#include "plan/quality/tallies.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

namespace headrace::quality {

void Tallies::Count(const std::string& name, std::string id, bool ratio, double value,
                    const Null& null) {
  if (null.sd == 0 && null.mean == 0) return;
  Tally& tally = tallies_[name];
  tally.id = std::move(id);
  tally.ratio = ratio;
  tally.epochs += 1;
  tally.sum += value;
  tally.mean += null.mean;
  tally.variance += null.sd * null.sd;
  tally.third += null.skew * null.sd * null.sd * null.sd;
}

void Tallies::Worst(const std::string& name, std::string id, double groups, double value,
                    bool two_sided) {
  auto [at, fresh] = extremes_.try_emplace(name, Extreme{.id = std::move(id),
                                                         .groups = groups,
                                                         .least = value,
                                                         .most = value,
                                                         .two_sided = two_sided});
  if (fresh) return;
  at->second.least = std::min(at->second.least, value);
  at->second.most = std::max(at->second.most, value);
}

double Tallies::CountTests(std::uint64_t epochs) const {
  return static_cast<double>(tallies_.size()) +
         static_cast<double>(epochs) * static_cast<double>(extremes_.size());
}

std::vector<QualityTest> Tallies::Tests(double tail) const {
  std::vector<QualityTest> tests;
  for (const auto& [name, tally] : tallies_) tests.push_back(Test(name, tally, tail));
  for (const auto& [name, extreme] : extremes_) tests.push_back(Test(name, extreme, tail));
  return tests;
}

QualityTest Tallies::Test(const std::string& name, const Tally& tally, double tail) {
  const double z = NormalQuantile(tail / 2);
  const double sd = std::sqrt(tally.variance);
  const Null null{.mean = tally.mean, .sd = sd, .skew = sd > 0 ? tally.third / (sd * sd * sd) : 0};
  const double scale = tally.ratio ? tally.mean : tally.epochs;
  QualityTest test{.id = tally.id,
                   .name = name,
                   .value = tally.sum / scale,
                   .expected = tally.mean / scale,
                   .low = ValueAt(-z, null) / scale,
                   .high = ValueAt(z, null) / scale,
                   .z = ZScore(tally.sum, null)};
  test.within = std::abs(test.z) <= z;
  return test;
}

QualityTest Tallies::Test(const std::string& name, const Extreme& extreme, double tail) {
  const double low = extreme.two_sided ? BridgeLower(tail) : 0;
  const double high = BridgeUpper(tail, extreme.groups);
  const bool is_low = extreme.least < low;
  const double value = is_low ? extreme.least : extreme.most;
  const double chance = 2 * extreme.groups * std::exp(-2 * value * value);
  const double tail_chance = std::clamp(chance / 2, std::numeric_limits<double>::min(), 0.5);
  return {.id = extreme.id,
          .name = name,
          .value = value,
          .expected = BridgeUpper(std::numbers::ln2, extreme.groups),
          .low = low,
          .high = high,
          .z = NormalQuantile(tail_chance),
          .within = !is_low && value <= high};
}

}  // namespace headrace::quality
