#include "codec/bytes_codec.h"

#include <cstring>
#include <string>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {
namespace {

void CopyBytes(std::span<const std::byte> from, std::span<std::byte> to) {
  HEADRACE_CHECK(from.size() == to.size());
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

class BytesCodec final : public FieldCodec {
 public:
  [[nodiscard]] std::uint64_t RowBytes(std::uint64_t encoded_bytes) const override {
    return encoded_bytes;
  }

  [[nodiscard]] bool is_copy() const override { return true; }

  Status DecodeWithin(std::span<const std::byte> encoded, const SampleKey& /*key*/,
                      std::span<std::byte> row, ScratchLimit& limit) const override {
    limit.bytes_needed = 0;
    CopyBytes(encoded, row);
    return {};
  }
};

class ArrayCodec final : public FieldCodec {
 public:
  explicit ArrayCodec(std::uint64_t row_bytes) : row_bytes_(row_bytes) {}

  [[nodiscard]] std::uint64_t RowBytes(std::uint64_t /*encoded_bytes*/) const override {
    return row_bytes_;
  }

  [[nodiscard]] bool is_copy() const override { return true; }

  Status DecodeWithin(std::span<const std::byte> encoded, const SampleKey& /*key*/,
                      std::span<std::byte> row, ScratchLimit& limit) const override {
    limit.bytes_needed = 0;
    HEADRACE_CHECK(row.size() == row_bytes_);
    if (encoded.size() != row_bytes_) {
      return DataLoss("decoding array: got {}, its shape and dtype need {}",
                      Counted(encoded.size(), "byte"), row_bytes_);
    }
    CopyBytes(encoded, row);
    return {};
  }

 private:
  const std::uint64_t row_bytes_;
};

}  // namespace

std::unique_ptr<FieldCodec> MakeBytesCodec() { return std::make_unique<BytesCodec>(); }

std::unique_ptr<FieldCodec> MakeArrayCodec(std::uint64_t row_bytes) {
  return std::make_unique<ArrayCodec>(row_bytes);
}

}  // namespace headrace
