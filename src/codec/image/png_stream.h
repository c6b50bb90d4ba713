#pragma once

#include <cstddef>
#include <span>

namespace headrace {

// The bytes of a PNG without its ancillary chunks before the image data: profiles, texts, EXIF.
// Pixels do not depend on them, as colour profiles are ignored and alpha is dropped. A decoder that
// reads them needs memory for their decompressed contents, whose size is not in their headers.
//
// Thread safety: thread-compatible: const calls may be concurrent.
// Ownership: the caller owns the encoded bytes, which must outlive it.
class PngStream {
 public:
  PngStream() = default;
  explicit PngStream(std::span<const std::byte> encoded);

  // Copies the next bytes to all of `dst`. Returns false if fewer are left, or at a truncated
  // ancillary chunk; `dst` is then unspecified.
  bool Read(std::span<std::byte> dst);

 private:
  void BeginRun();

  std::span<const std::byte> encoded_;
  std::size_t at_ = 0;
  std::size_t run_end_ = 0;  // all of [at_, run_end_) can be returned
};

}  // namespace headrace
