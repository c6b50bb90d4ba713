#pragma once

// Strips and tiles of a TIFF by Deflate. libtiff does not decode them: with libdeflate it reports
// success for those that decode to more than their rows, and leaves rows that it did not write.

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/status.h"

namespace headrace {

// How a strip or tile stores its samples.
struct DeflateCell {
  std::uint64_t row_bytes = 0;
  std::uint64_t rest_bytes_max = 0;  // may follow the rows: writers fill up the last strip
  unsigned bits = 8;                 // of a sample
  unsigned step = 1;                 // samples from one to the next of the same colour
  unsigned predictor = 1;            // PREDICTOR_*
  bool is_swapped = false;           // samples of 16 bits: in the order of other machines
};

// Fills all of `rows` from `stored`: samples as they were before they were compressed, in the order
// of this machine.
//
// Errors: DataLoss           damaged, truncated, of fewer rows, of a predictor that is not decoded
//         ResourceExhausted  out of memory
Status DecodeDeflateCell(std::span<const std::byte> stored, const DeflateCell& cell,
                         std::span<std::uint8_t> rows);

}  // namespace headrace
