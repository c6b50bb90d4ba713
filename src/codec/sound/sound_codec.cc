#include "codec/sound/sound_codec.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/prng.h"
#include "base/units.h"
#include "codec/sound/sound_file.h"
#include "codec/sound/sound_header.h"

namespace headrace {
namespace {

// Frames before a cut are decoded in parts of so many numbers.
constexpr std::uint64_t kSkippedNumbers = 4096;

Status CheckTransform(const SoundTransform& transform) {
  if (transform.channels > kSoundChannelsMax) {
    return InvalidArgument("sound transform channels: got {}, must be at most {}",
                           transform.channels, kSoundChannelsMax);
  }
  if (!transform.frames.has_value()) {
    if (!transform.random_begin) return {};
    return InvalidArgument(
        "sound transform random_begin: nothing is cut without a length; give one, or leave "
        "random_begin out");
  }
  if (transform.channels == 0) {
    return InvalidArgument("sound transform channels: got 0, rows of equal length need a number");
  }
  const std::uint64_t frames_max = kSoundBytesMax / (transform.channels * sizeof(float));
  if (*transform.frames == 0 || *transform.frames > frames_max) {
    return InvalidArgument("sound transform frames: got {}, must be in [1, {}] with {}",
                           *transform.frames, frames_max, Counted(transform.channels, "channel"));
  }
  return {};
}

class SoundCodec final : public FieldCodec {
 public:
  explicit SoundCodec(const SoundTransform& transform) : transform_(transform) {}

  [[nodiscard]] std::uint64_t RowBytes(std::uint64_t bytes) const override {
    if (!transform_.frames.has_value()) return bytes;
    return *transform_.frames * transform_.channels * sizeof(float);
  }

  [[nodiscard]] std::uint64_t ScratchBytesMax() const override {
    constexpr std::uint32_t kBlockFramesMax = 65535;  // FLAC's
    constexpr std::uint32_t kChannelsMax = 8;
    return SoundFile::BytesToDecode({.info = {.channels = kChannelsMax},
                                     .is_flac = true,
                                     .block_frames_max = kBlockFramesMax}) +
           kSkippedNumbers * sizeof(float);
  }

  Status DecodeWithin(std::span<const std::byte> encoded, const SampleKey& key,
                      std::span<std::byte> row, ScratchLimit& limit) const override {
    limit.bytes_needed = 0;
    HEADRACE_ASSIGN_OR_RETURN(const SoundHeader header, ReadSoundHeader(encoded, encoded.size()));
    HEADRACE_RETURN_IF_ERROR(Check(header.info, row));
    limit.bytes_needed = SoundFile::BytesToDecode(header) + kSkippedNumbers * sizeof(float);
    if (limit.bytes_needed > limit.bytes_max) {
      return ResourceExhausted("decoding sound of {} takes {} of memory",
                               Counted(header.info.frames, "frame"),
                               FormatBytes(limit.bytes_needed));
    }
    const std::span<float> numbers(reinterpret_cast<float*>(row.data()),
                                   row.size() / sizeof(float));
    if (header.info.frames == 0) {
      std::fill(numbers.begin(), numbers.end(), 0.0F);
      return {};
    }
    HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<SoundFile> file,
                              SoundFile::Open(encoded, header));
    return Fill(*file, header.info, key, numbers);
  }

 private:
  // Whether a sound of `info` can become `row`.
  Status Check(const SoundInfo& info, std::span<std::byte> row) const {
    if (transform_.channels != 0 && info.channels != transform_.channels) {
      return InvalidArgument(
          "decoding sound of {}: the field has {}; write all files with equal channels, or decode "
          "them in a Python transform",
          Counted(info.channels, "channel"), transform_.channels);
    }
    if (transform_.rate != 0 && info.rate != transform_.rate) {
      return InvalidArgument(
          "decoding sound of {} Hz: the field has {} Hz, and headrace does not resample; resample "
          "the files, or decode them in a Python transform",
          info.rate, transform_.rate);
    }
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(row.data()) % alignof(float) == 0;
    const std::uint64_t needed =
        transform_.frames.has_value() ? RowBytes(info.bytes()) : info.bytes();
    if (row.size() != needed || !is_aligned) {
      return DataLoss("decoding sound of {} and {}: {} of float32, the index says {}",
                      Counted(info.frames, "frame"), Counted(info.channels, "channel"),
                      Counted(needed, "byte"), row.size());
    }
    return {};
  }

  Status Fill(SoundFile& file, const SoundInfo& info, const SampleKey& key,
              std::span<float> numbers) const {
    const std::uint64_t frames = transform_.frames.value_or(info.frames);
    std::uint64_t skipped = 0;
    if (transform_.random_begin && info.frames > frames) {
      Prng prng(key.seed, key.epoch, RandomStream::kAugment,
                static_cast<std::uint64_t>(key.sample));
      skipped = prng.Below(info.frames - frames + 1);
    }
    std::vector<float> unused(std::min(kSkippedNumbers, skipped * info.channels) / info.channels *
                              info.channels);
    for (std::uint64_t left = skipped * info.channels; left > 0;) {
      const std::uint64_t part = std::min<std::uint64_t>(left, unused.size());
      HEADRACE_RETURN_IF_ERROR(file.Read(std::span(unused).first(part)));
      left -= part;
    }
    const std::uint64_t there = std::min(frames, info.frames - skipped) * info.channels;
    HEADRACE_RETURN_IF_ERROR(file.Read(numbers.first(there)));
    std::fill(numbers.begin() + static_cast<std::ptrdiff_t>(there), numbers.end(), 0.0F);
    return {};
  }

  const SoundTransform transform_;
};

}  // namespace

Result<std::unique_ptr<FieldCodec>> MakeSoundCodec(const SoundTransform& transform) {
  HEADRACE_RETURN_IF_ERROR(CheckTransform(transform));
  return std::unique_ptr<FieldCodec>(std::make_unique<SoundCodec>(transform));
}

}  // namespace headrace
