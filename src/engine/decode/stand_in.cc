#include "engine/decode/stand_in.h"

#include <fmt/core.h>

#include <string>
#include <string_view>

#include "base/prng.h"
#include "base/units.h"

namespace headrace {

bool IsErrorOfSample(StatusCode code) {
  switch (code) {
    case StatusCode::kDataLoss:
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kOutOfRange:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kUnavailable:  // What storage still says after every retry.
      return true;
    default:
      return false;
  }
}

SampleId DrawStandIn(std::uint64_t seed, std::uint64_t epoch, SampleId wanted, std::uint32_t draws,
                     std::uint64_t sample_count) {
  Prng prng(seed, epoch, RandomStream::kSubstitute, Raw(wanted));
  std::uint64_t drawn = 0;
  for (std::uint32_t i = 0; i <= draws; ++i) drawn = prng.Below(sample_count - 1);
  return SampleId{drawn < Raw(wanted) ? drawn : drawn + 1};
}

Status WithoutStandIn(const Status& last, SampleId wanted, std::uint32_t draws,
                      std::uint64_t sample_count) {
  return Status(
      last.code(),
      std::string(last.message()) +
          fmt::format("; this is the last of {} drawn to replace sample {} of {}, the most that "
                      "on_error=\"substitute\" draws, and all failed: run `headrace verify "
                      "--decode` on the "
                      "dataset, which lists what is damaged, and leave that out with skip=",
                      Counted(draws, "sample"), Raw(wanted), sample_count));
}

Status WithRemedy(const Status& status) {
  const bool of_bytes =
      status.code() == StatusCode::kDataLoss || status.code() == StatusCode::kInvalidArgument;
  if (!of_bytes || status.message().find("; ") != std::string_view::npos) return status;
  return Status(status.code(),
                std::string(status.message()) +
                    "; leave the sample out with skip= (`headrace verify --decode` finds all that "
                    "fail), or let another take its place with on_error=\"substitute\"");
}

}  // namespace headrace
