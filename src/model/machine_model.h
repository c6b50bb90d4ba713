#pragma once

// model/ says how long things take: a read from each source, a decode with n threads. Pure
// arithmetic over measurements (`headrace profile`); the planner names sources with it, the engine
// prefers by it, `headrace plan` predicts with it.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"

namespace headrace {

// A rate in bytes a second over a number of users (threads, readers). Linear between the measured
// points, constant beyond them (Boehringer 2020, eq. 4.1).
class Curve {
 public:
  struct Point {
    double users = 0;
    double rate = 0;  // of all users together
  };

  Curve() = default;  // no limit

  // Errors: InvalidArgument  no point, users not ascending from above 0, a rate not above 0 and
  //                          finite
  static Result<Curve> Make(std::vector<Point> points);

  [[nodiscard]] double Rate(double users) const;      // of all together
  [[nodiscard]] double RateEach(double users) const;  // of one of them: Rate / users
  [[nodiscard]] std::span<const Point> points() const { return points_; }

 private:
  std::vector<Point> points_;  // empty: no limit
};

// Storage, measured by size of reads: linear in log(size) between sizes, constant beyond.
struct StorageModel {
  struct Size {
    std::uint64_t read_bytes = 0;
    Curve rate;  // over reads in flight
  };
  std::vector<Size> sizes;                                    // ascending
  double rate_max = std::numeric_limits<double>::infinity();  // b_fs: one reader's link to it

  [[nodiscard]] double Rate(double read_bytes, double readers) const;
};

struct TierModel {
  Curve read;          // r_j over threads
  Curve write;         // w_j over threads
  double threads = 1;  // p_j
};

// A machine as `headrace profile` measured it, in NoPFS's terms (Dryden et al. 2021, section 4).
struct MachineModel {
  StorageModel storage;          // t
  double readers = 1;            // gamma: that share the storage
  std::vector<TierModel> tiers;  // fastest first
  TierModel staging;             // w_0, p_0
  double peer_rate = 0;          // b_c in bytes a second; 0: there are no peers
  Curve decode;                  // stored bytes a second over threads
  double preprocess_rate = std::numeric_limits<double>::infinity();  // beta
};

// Seconds that one reader waits for a read of `bytes` (checklist 1.6; Dryden et al. 2021, section
// 4), `tier` a position in model.tiers. Infinite where the model knows no such source.
double SecondsFromStorage(const MachineModel& model, double bytes);
double SecondsFromTier(const MachineModel& model, std::size_t tier, double bytes);
double SecondsFromPeer(const MachineModel& model, std::size_t tier, double bytes);
// Seconds to preprocess and store `bytes` into staging memory.
double SecondsToStage(const MachineModel& model, double bytes);

}  // namespace headrace
