#pragma once

// model/ predicts how long operations take: a read from each source, a decode with n threads. Pure
// arithmetic over measurements (`headrace profile`). The planner and the engine choose sources with
// it; `headrace plan` predicts with it. docs/model.md has the equations. Its functions are pure,
// for any thread.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "headrace/members.h"
#include "headrace/status.h"

namespace headrace {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// A rate in bytes a second over a number of users (threads, readers). Linear between the measured
// points, constant beyond them (Boehringer 2020, eq. 4.1).
//
// Thread safety: thread-compatible: const calls may be concurrent.
class Curve {
 public:
  struct Point {
    double users = 0;
    double rate = 0;  // of all users together

    friend bool operator==(const Point&, const Point&) = default;
  };

  Curve() = default;  // no limit

  // Errors: InvalidArgument  no point, users not ascending from above 0, a rate not above 0 and
  //                          finite; the message names the point
  static Result<Curve> Make(std::vector<Point> points);

  // `users` must be above 0.
  [[nodiscard]] double Rate(double users) const;      // of all together
  [[nodiscard]] double RateEach(double users) const;  // of one of them: Rate / users
  [[nodiscard]] std::span<const Point> points() const { return points_; }

 private:
  std::vector<Point> points_;  // empty: no limit
};

// A rate by size of the reads (or writes) and by their users: a curve for each measured size.
//
// Between two sizes the *time of a read* is linear in its size, because latency and bandwidth are;
// so the rate of a size in between is never outside the two measured ones. Below the smallest size
// a read takes as long as the smallest; above the largest the rate is constant. A single measured
// size says nothing about others: its rate holds for all.
//
// Thread safety: thread-compatible: const calls may be concurrent.
class SizedRates {
 public:
  struct Size {
    std::uint64_t bytes = 0;  // of one read
    Curve rate;
  };

  SizedRates() = default;  // no limit

  // Errors: InvalidArgument  no size, sizes not ascending from above 0
  static Result<SizedRates> Make(std::vector<Size> sizes);
  static SizedRates OfAnySize(Curve rate);

  // Bytes a second of all users together, in reads of `bytes`. Both must be above 0.
  [[nodiscard]] double Rate(double bytes, double users) const;
  [[nodiscard]] std::span<const Size> sizes() const { return sizes_; }

 private:
  std::vector<Size> sizes_;  // empty: no limit
};

HEADRACE_MEMBERS(Curve::Point, users, rate)
HEADRACE_MEMBERS(SizedRates::Size, bytes, rate)

// The rates of storage.
struct StorageModel {
  SizedRates rate;               // t: over reads in flight
  double rate_max = kUnlimited;  // b_fs, bytes a second: one worker's link to it
  bool shared = true;            // by the nodes of a job; else each has its own, as fast as this
};
HEADRACE_MEMBERS(StorageModel, rate, rate_max, shared)

// The rate at which one node reads from others.
struct LinkModel {
  SizedRates rate;   // b_c: over samples requested and not received yet
  double asked = 1;  // number of these
};
HEADRACE_MEMBERS(LinkModel, rate, asked)

struct TierModel {
  SizedRates read;     // r_j: over threads
  SizedRates write;    // w_j: over threads
  double threads = 1;  // p_j
};
HEADRACE_MEMBERS(TierModel, read, write, threads)

// A machine as `headrace profile` measured it, in NoPFS's terms (Dryden et al. 2021, section 4).
struct MachineModel {
  StorageModel storage;
  double readers = 1;                   // reads of one node that storage serves at once
  std::vector<TierModel> tiers;         // fastest first
  TierModel staging;                    // w_0, p_0
  std::optional<LinkModel> link;        // nothing: no other node, or it was not measured
  Curve decode;                         // stored bytes a second over threads
  Curve copy;                           // bytes a second over threads, from memory to memory
  double preprocess_rate = kUnlimited;  // beta: stored bytes a second
};
HEADRACE_MEMBERS(MachineModel, storage, readers, tiers, staging, link, decode, copy,
                 preprocess_rate)

// A mean of measured preprocessing times, as a machine profile keeps it.
struct PreprocessRow {
  std::uint64_t transform = 0;  // hash of the transform
  double bytes = 0;             // mean size of the samples, as stored
  int threads = 1;              // that preprocessed concurrently
  std::uint64_t count = 1;      // observations, up to the window
  double seconds = 0;           // of one sample

  friend bool operator==(const PreprocessRow&, const PreprocessRow&) = default;
};
HEADRACE_MEMBERS(PreprocessRow, transform, bytes, threads, count, seconds)

// Errors: InvalidArgument  a count (readers, threads, asked) not above 0, a rate not above 0; the
//                          message names it
Status CheckModel(const MachineModel& model);

// A source of a sample's bytes. Among equals the first kind is preferred.
struct Source {
  enum class Kind : std::uint8_t {
    kTier,     // of this node
    kPeer,     // a tier of another node
    kStorage,  // the dataset itself
  };

  Kind kind = Kind::kStorage;
  std::size_t tier = 0;  // position in MachineModel::tiers; not for storage

  friend bool operator==(const Source&, const Source&) = default;
};

// Seconds that one reader waits for a read of `bytes` (Dryden et al. 2021, section 4). Infinite if
// the model does not have the source. `nodes`: gamma, those that read storage at the same time,
// this one included, each as much as this one; it counts where storage is shared.
double SecondsFromStorage(const MachineModel& model, double bytes, double nodes = 1);
double SecondsFromTier(const MachineModel& model, std::size_t tier, double bytes);
double SecondsFromPeer(const MachineModel& model, std::size_t tier, double bytes);
double SecondsFrom(const MachineModel& model, Source source, double bytes);
// Seconds to preprocess `bytes` and store them in staging memory.
double SecondsToStage(const MachineModel& model, double bytes);

struct RankedSource {
  Source source;
  double seconds = 0;
};

// `candidates`, fastest first for a read of `bytes`, storage for `nodes` nodes. Equally fast
// sources are ordered: this node, peers, storage; faster tiers first. Sources that the model does
// not have come last.
std::vector<RankedSource> RankSources(const MachineModel& model, double bytes,
                                      std::span<const Source> candidates, double nodes = 1);

}  // namespace headrace
