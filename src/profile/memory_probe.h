#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codec/image/image_codec.h"
#include "engine/batch/row_rooms.h"
#include "headrace/batch.h"
#include "headrace/index.h"
#include "headrace/status.h"
#include "profile/slice.h"
#include "profile/storage_probe.h"

namespace headrace {

// Copies memory far larger than the processor's caches, in pieces of 1 MiB. Bytes are counted once,
// not as read and written.
//
// Errors: ResourceExhausted  no memory, no threads; Cancelled
Result<Slice> MeasureCopy(int threads, const SliceLimits& limits);

struct DecodeProbeOptions {
  std::optional<ImageTransform> image;  // for a field of images; std::nullopt: samples are copied
  std::uint64_t samples_max = 256;
  std::uint64_t bytes_max = 32 * kMiB;
};

// Decodes stored samples from memory into rows, as a loader's threads do. Rates are in stored
// bytes.
//
// Thread safety: one call at a time.
class DecodeProbe {
 public:
  // Reads some samples of the field that `storage` reads. Leaves out samples that do not decode.
  //
  // Errors: those of reading, of decoding if no sample decodes, of MakeImageCodec(); Cancelled
  static Result<std::unique_ptr<DecodeProbe>> Make(const Index& index, StorageProbe& storage,
                                                   const DecodeProbeOptions& options,
                                                   const std::function<bool()>& keep_going);

  // Errors: ResourceExhausted  no threads; Cancelled
  Result<Slice> Run(int threads, const SliceLimits& limits);

  [[nodiscard]] bool is_copy() const { return IsCopy(field_); }
  [[nodiscard]] std::uint64_t sample_count() const { return samples_.size(); }
  [[nodiscard]] double mean_bytes() const;  // stored, of a sample

 private:
  struct Sample {
    std::string stored;
    std::uint64_t content_bytes = 0;  // ContentBytes()
  };

  DecodeProbe(BatchField field, std::vector<Sample> samples);

  // Decodes one sample into `row`, which grows if needed.
  Status Decode(std::size_t sample, ProbeBuffer& row) const;

  const BatchField field_;
  std::vector<Sample> samples_;
};

}  // namespace headrace
