#include "codec/tiff/tiff_deflate.h"

#include <cstring>
#include <utility>

#include <tiff.h>

#include "base/coding/decompress.h"
#include "base/format/errors.h"

namespace headrace {
namespace {

void SwapBytes(std::span<std::uint8_t> samples) {
  for (std::size_t i = 0; i + 1 < samples.size(); i += 2) std::swap(samples[i], samples[i + 1]);
}

// Each sample is the difference from the one `step` before it; neither need be aligned.
template <typename Sample>
void AddDifferences(std::span<std::uint8_t> row, std::size_t step) {
  for (std::size_t i = step; i < row.size() / sizeof(Sample); ++i) {
    Sample before = 0;
    Sample value = 0;
    std::memcpy(&before, row.data() + (i - step) * sizeof(Sample), sizeof(Sample));
    std::memcpy(&value, row.data() + i * sizeof(Sample), sizeof(Sample));
    value = static_cast<Sample>(value + before);
    std::memcpy(row.data() + i * sizeof(Sample), &value, sizeof(Sample));
  }
}

}  // namespace

Status DecodeDeflateCell(std::span<const std::byte> stored, const DeflateCell& cell,
                         std::span<std::uint8_t> rows) {
  const bool differs = cell.predictor == PREDICTOR_HORIZONTAL;
  if (!differs && cell.predictor != PREDICTOR_NONE) {
    return DataLoss("predictor {} is not decoded; save the image without one", cell.predictor);
  }
  if (differs && cell.bits != 8 && cell.bits != 16) {
    return DataLoss(
        "differences of samples of {} bits are not decoded; save the image without a predictor",
        cell.bits);
  }
  HEADRACE_RETURN_IF_ERROR(
      DecompressBeginning(stored, std::as_writable_bytes(rows), cell.rest_bytes_max));
  if (cell.bits == 16 && cell.is_swapped) SwapBytes(rows);
  if (!differs) return {};
  for (std::size_t at = 0; at < rows.size(); at += cell.row_bytes) {
    const std::span<std::uint8_t> row = rows.subspan(at, cell.row_bytes);
    if (cell.bits == 8) AddDifferences<std::uint8_t>(row, cell.step);
    if (cell.bits == 16) AddDifferences<std::uint16_t>(row, cell.step);
  }
  return {};
}

}  // namespace headrace
