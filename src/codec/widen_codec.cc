#include "codec/widen_codec.h"

#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <string>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {
namespace {

// The bits of an IEEE half.
struct Half {
  std::uint16_t bits;
};

float Widened(Half half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (half.bits >> 10) & 0x1fU;
  const std::uint32_t fraction = half.bits & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal: a multiple of 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xffU : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

template <typename T>
T Widened(T value) {
  return value;
}

// Neither side needs to be aligned: stored bytes lie anywhere.
template <typename From, typename To>
[[gnu::always_inline]] inline void WidenAll(const std::byte* from, std::byte* to,
                                            std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    From value{};
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): a number of 8 bits, not a character
    const auto wide = static_cast<To>(Widened(value));
    std::memcpy(to + i * sizeof(To), &wide, sizeof(To));
  }
}

using Loop = void (*)(const std::byte*, std::byte*, std::uint64_t);

template <typename From, typename To>
void Widen(const std::byte* from, std::byte* to, std::uint64_t count) {
  WidenAll<From, To>(from, to, count);
}

// The same, by instructions that some processors have: a fifth quicker for tokens.
#if defined(__x86_64__)
template <typename From, typename To>
[[gnu::target("avx2")]] void WidenByAvx2(const std::byte* from, std::byte* to,
                                         std::uint64_t count) {
  WidenAll<From, To>(from, to, count);
}

template <typename From, typename To>
Loop BestLoop() {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  return has_avx2 ? &WidenByAvx2<From, To> : &Widen<From, To>;
}
#else
template <typename From, typename To>
Loop BestLoop() {
  return &Widen<From, To>;
}
#endif

using Kind = NumberType::Kind;

struct Row {
  NumberType from;
  NumberType to;
  Loop loop;  // of any processor
  Loop (*best)();
};

template <typename From, typename To>
constexpr Row RowOf(Kind from, Kind to) {
  return {{from, sizeof(From)}, {to, sizeof(To)}, &Widen<From, To>, &BestLoop<From, To>};
}

constexpr Kind kU = Kind::kUnsigned;
constexpr Kind kS = Kind::kSigned;
constexpr Kind kF = Kind::kFloat;
constexpr std::array kRows = {
    RowOf<std::uint8_t, std::uint16_t>(kU, kU),
    RowOf<std::uint8_t, std::uint32_t>(kU, kU),
    RowOf<std::uint16_t, std::uint32_t>(kU, kU),
    RowOf<std::uint8_t, std::int16_t>(kU, kS),
    RowOf<std::uint8_t, std::int32_t>(kU, kS),
    RowOf<std::uint8_t, std::int64_t>(kU, kS),
    RowOf<std::uint16_t, std::int32_t>(kU, kS),
    RowOf<std::uint16_t, std::int64_t>(kU, kS),
    RowOf<std::uint32_t, std::int64_t>(kU, kS),
    RowOf<std::int8_t, std::int16_t>(kS, kS),
    RowOf<std::int8_t, std::int32_t>(kS, kS),
    RowOf<std::int8_t, std::int64_t>(kS, kS),
    RowOf<std::int16_t, std::int32_t>(kS, kS),
    RowOf<std::int16_t, std::int64_t>(kS, kS),
    RowOf<std::int32_t, std::int64_t>(kS, kS),
    RowOf<Half, float>(kF, kF),
    RowOf<Half, double>(kF, kF),
    RowOf<float, double>(kF, kF),
};

class WidenCodec final : public FieldCodec {
 public:
  WidenCodec(const Row& row, std::optional<std::uint64_t> count, WidenBy by)
      : row_(row), loop_(by == WidenBy::kBest ? row.best() : row.loop), count_(count) {}

  [[nodiscard]] std::uint64_t RowBytes(std::uint64_t encoded_bytes) const override {
    return count_.value_or(encoded_bytes / row_.from.bytes) * row_.to.bytes;
  }

  [[nodiscard]] bool costs_a_copy() const override { return true; }

  Status DecodeWithin(std::span<const std::byte> encoded, const SampleKey& /*key*/,
                      std::span<std::byte> row, ScratchLimit& limit) const override {
    limit.bytes_needed = 0;
    const std::uint64_t count = count_.value_or(encoded.size() / row_.from.bytes);
    HEADRACE_CHECK(row.size() == count * row_.to.bytes);
    if (encoded.size() != count * row_.from.bytes) {
      return DataLoss("decoding array: got {}, its shape and dtype need {}",
                      Counted(encoded.size(), "byte"), count * row_.from.bytes);
    }
    loop_(encoded.data(), row.data(), count);
    return {};
  }

 private:
  const Row row_;
  const Loop loop_;
  const std::optional<std::uint64_t> count_;
};

std::string Name(NumberType type) {
  const char* const kind = type.kind == kU ? "unsigned" : type.kind == kS ? "signed" : "float";
  return fmt::format("{} of {}", kind, Counted(type.bytes, "byte"));
}

}  // namespace

Result<std::unique_ptr<FieldCodec>> MakeWidenCodec(NumberType from, NumberType to,
                                                   std::optional<std::uint64_t> count, WidenBy by) {
  for (const Row& row : kRows) {
    if (row.from == from && row.to == to) {
      return std::unique_ptr<FieldCodec>(std::make_unique<WidenCodec>(row, count, by));
    }
  }
  return InvalidArgument(
      "widening {} to {}: no such conversion; choose a dtype that holds all values", Name(from),
      Name(to));
}

}  // namespace headrace
