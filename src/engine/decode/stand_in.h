#pragma once

#include <cstdint>

#include "headrace/ids.h"
#include "headrace/status.h"

namespace headrace {

// Whether an error is a property of the stored bytes, so that another sample may stand in. Errors
// of this process (memory, descriptors, a stop) must not decide which sample is delivered.
bool IsErrorOfSample(StatusCode code);

// The sample that stands in for `wanted` after `draws` others failed, too: never `wanted` itself.
// Depends on nothing but the arguments, so that every run delivers the same one. `sample_count` is
// at least 2.
SampleId DrawStandIn(std::uint64_t seed, std::uint64_t epoch, SampleId wanted, std::uint32_t draws,
                     std::uint64_t sample_count);

// The error if no sample could stand in: `last`, the error of the last of `draws` samples tried of
// `sample_count`, and what to do.
Status WithoutStandIn(const Status& last, SampleId wanted, std::uint32_t draws,
                      std::uint64_t sample_count);

// An error of a sample's bytes with what to do about it, unless its own message says so.
Status WithRemedy(const Status& status);

}  // namespace headrace
