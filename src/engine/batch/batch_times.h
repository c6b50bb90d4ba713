#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/members.h"

namespace headrace {

// What a consumer that had to wait for a batch was waiting for.
enum class StallCause : std::uint8_t {
  kStorage = 0,   // bytes of the batch were not read yet
  kDecode = 1,    // they were, and not decoded yet
  kConsumer = 2,  // the consumer itself held the memory to read ahead into
  kRanks = 3,     // another rank of the node held its own, so that the plan could not go on
};
inline constexpr std::size_t kStallCauses = 4;
inline constexpr std::array<std::string_view, kStallCauses> kStallCauseNames = {
    "storage", "decode", "consumer", "ranks"};

// Nanoseconds by StallCause.
using StallTimes = std::array<std::int64_t, kStallCauses>;

// A corrupt sample and what was delivered in its place.
struct Substitution {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint32_t slot = 0;
  SampleId wanted{};
  SampleId given{};
  std::string reason;
};
HEADRACE_MEMBERS(Substitution, epoch, step, slot, wanted, given, reason)
// In lists of statistics.
inline constexpr std::size_t kSubstitutionsListed = 10000;

// When a batch went through the engine; nanoseconds of its clock.
struct BatchTimes {
  std::int64_t admitted_ns = 0;
  std::int64_t read_ns = 0;  // all of its bytes were there
  std::int64_t done_ns = 0;  // and decoded
  // Load and decode, as Lobster compares it between ranks: from when it was admitted, or its lane's
  // batch before was done, whichever came later.
  std::int64_t busy_ns = 0;
  std::int64_t handed_ns = 0;
  StallTimes stall_ns{};           // waited for it
  std::uint64_t sample_bytes = 0;  // stored, of the samples decoded
};
HEADRACE_MEMBERS(BatchTimes, admitted_ns, read_ns, done_ns, busy_ns, handed_ns, stall_ns,
                 sample_bytes)

}  // namespace headrace
