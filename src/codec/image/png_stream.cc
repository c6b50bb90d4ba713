#include "codec/image/png_stream.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace headrace {
namespace {

constexpr std::size_t kSignatureBytes = 8;
constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kNameBytes = 4;
constexpr std::size_t kFrameBytes = 12;  // of a chunk: length, name, checksum

// Bit 5 of the first letter of its name: lower case.
bool IsAncillary(std::byte first_letter) { return (first_letter & std::byte{0x20}) != std::byte{}; }

}  // namespace

PngStream::PngStream(std::span<const std::byte> encoded)
    : encoded_(encoded), run_end_(std::min(encoded.size(), kSignatureBytes)) {}

bool PngStream::Read(std::span<std::byte> dst) {
  while (!dst.empty()) {
    if (at_ == run_end_) BeginRun();
    const std::size_t count = std::min(dst.size(), run_end_ - at_);
    if (count == 0) return false;
    std::memcpy(dst.data(), encoded_.data() + at_, count);
    at_ += count;
    dst = dst.subspan(count);
  }
  return true;
}

// Called at the beginning of a chunk. The run is the next chunk that is not ancillary. From the
// image data on, or from such a chunk that is truncated, it is the rest of the file. It is empty at
// a truncated ancillary chunk, and if too little is left for any chunk.
void PngStream::BeginRun() {
  for (;;) {
    run_end_ = at_;
    if (encoded_.size() - at_ < kFrameBytes) return;
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < kLengthBytes; ++i) {
      length = length << 8 | std::to_integer<std::uint64_t>(encoded_[at_ + i]);
    }
    const std::byte* const name = encoded_.data() + at_ + kLengthBytes;
    const bool cut_off = length > encoded_.size() - at_ - kFrameBytes;
    if (!IsAncillary(name[0])) {
      const bool is_data = std::memcmp(name, "IDAT", kNameBytes) == 0;
      run_end_ = is_data || cut_off ? encoded_.size() : at_ + kFrameBytes + length;
      return;
    }
    if (cut_off) return;
    at_ += kFrameBytes + length;
  }
}

}  // namespace headrace
