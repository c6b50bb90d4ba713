#include "base/coding/snappy.h"

#include <cstdint>
#include <cstring>

#include "base/format/errors.h"

namespace headrace::internal {
namespace {

// Literals of up to this many bytes have their length in the tag; others in 1 to 4 bytes behind it.
constexpr std::size_t kLengthInTagMax = 60;

// The size that a block begins with has 7 bits a byte, 32 in all.
constexpr unsigned kSizeBytesMax = 5;

class SnappyBlock {
 public:
  SnappyBlock(std::span<const std::byte> encoded, std::span<std::byte> decoded)
      : encoded_(encoded), decoded_(decoded) {}

  Status Decompress() {
    HEADRACE_RETURN_IF_ERROR(CheckSize());
    while (in_ < encoded_.size()) {
      const auto tag = static_cast<unsigned>(encoded_[in_++]);
      const bool good = (tag & 3U) == 0 ? Literal(tag >> 2) : Copy(tag);
      if (!good) return Damaged();
    }
    if (out_ == decoded_.size()) return Status();
    return DataLoss("it ends after {} of {} decoded bytes", out_, decoded_.size());
  }

 private:
  [[nodiscard]] Status Damaged() const { return DataLoss("damaged at byte {}", in_); }

  Status CheckSize() {
    std::uint64_t size = 0;
    for (unsigned i = 0;; ++i) {
      if (i == kSizeBytesMax || in_ == encoded_.size()) return Damaged();
      const auto byte = static_cast<std::uint64_t>(encoded_[in_++]);
      size |= (byte & 0x7fU) << (7 * i);
      if (byte < 0x80) break;
    }
    if (size == decoded_.size()) return Status();
    return DataLoss("it decodes to {} bytes, the index says {}", size, decoded_.size());
  }

  // Reads `bytes` bytes of a little-endian number; false: they are not there.
  bool Number(std::size_t bytes, std::size_t& number) {
    if (bytes > encoded_.size() - in_) return false;
    number = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      number |= static_cast<std::size_t>(encoded_[in_++]) << (8 * i);
    }
    return true;
  }

  bool Literal(std::size_t length) {
    if (length >= kLengthInTagMax && !Number(length - kLengthInTagMax + 1, length)) return false;
    ++length;
    if (length > encoded_.size() - in_ || length > decoded_.size() - out_) return false;
    std::memcpy(decoded_.data() + out_, encoded_.data() + in_, length);
    in_ += length;
    out_ += length;
    return true;
  }

  bool Copy(unsigned tag) {
    constexpr std::size_t kOffsetBytes[] = {0, 1, 2, 4};
    std::size_t offset = 0;
    if (!Number(kOffsetBytes[tag & 3U], offset)) return false;
    std::size_t length = (tag >> 2) + 1;
    if ((tag & 3U) == 1) {
      length = 4 + ((tag >> 2) & 7U);
      offset |= static_cast<std::size_t>(tag >> 5) << 8;
    }
    if (offset == 0 || offset > out_ || length > decoded_.size() - out_) return false;
    std::byte* const to = decoded_.data() + out_;
    const std::byte* const from = to - offset;
    if (offset >= length) {
      std::memcpy(to, from, length);
    } else {  // What was just written is copied again.
      for (std::size_t i = 0; i < length; ++i) to[i] = from[i];
    }
    out_ += length;
    return true;
  }

  const std::span<const std::byte> encoded_;
  const std::span<std::byte> decoded_;
  std::size_t in_ = 0;
  std::size_t out_ = 0;
};

}  // namespace

Status DecompressSnappy(std::span<const std::byte> encoded, std::span<std::byte> decoded) {
  if (encoded.empty() && decoded.empty()) return Status();
  return SnappyBlock(encoded, decoded).Decompress();
}

}  // namespace headrace::internal
