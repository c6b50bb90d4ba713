#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/quality/nulls.h"
#include "plan/quality/report.h"

namespace headrace::quality {

// Statistics by name, over epochs, and the tests of them against their nulls.
//
// Thread safety: none; const methods may be called concurrently.
class Tallies {
 public:
  // Adds the value of an epoch to the sum over epochs. `ratio`: reported as value / expected,
  // otherwise as the mean of the epochs. Does nothing if `null` has neither mean nor deviation: too
  // little data for a result.
  void Count(const std::string& name, std::string id, bool ratio, double value, const Null& null);

  // Adds the largest deviation in an epoch, over `groups`; the worst epoch is tested.
  // `two_sided`: too small a deviation fails, too.
  void Worst(const std::string& name, std::string id, double groups, double value, bool two_sided);

  // How often chance could fail a test in `epochs` epochs: once a sum, once an epoch for the worst.
  [[nodiscard]] double CountTests(std::uint64_t epochs) const;

  // Each fails by chance with probability `tail`.
  [[nodiscard]] std::vector<QualityTest> Tests(double tail) const;

 private:
  struct Tally {
    std::string id;
    bool ratio = false;
    double epochs = 0;
    double sum = 0;
    double mean = 0;
    double variance = 0;
    double third = 0;
  };
  struct Extreme {
    std::string id;
    double groups = 1;
    double least = 0;
    double most = 0;
    bool two_sided = false;
  };

  static QualityTest Test(const std::string& name, const Tally& tally, double tail);
  static QualityTest Test(const std::string& name, const Extreme& extreme, double tail);

  std::map<std::string, Tally> tallies_;
  std::map<std::string, Extreme> extremes_;
};

}  // namespace headrace::quality
