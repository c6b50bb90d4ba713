#include "base/coding/coding.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "base/check.h"
#include "base/format/errors.h"

namespace headrace {
namespace {

struct CodingRow {
  std::string_view name;
  std::uint64_t ratio_max;  // decoded bytes of one encoded byte
};

// By number of the coding. Deflate: 258 bytes from two bits. Zstd: a block of 128 KiB from more
// than two bytes. Snappy: 64 bytes from three.
constexpr std::array<CodingRow, 6> kCodings = {{{"stored", 1},
                                                {"zstd", 65'536},
                                                {"zlib", 1032},
                                                {"deflate", 1032},
                                                {"snappy", 22},
                                                {"gzip", 1032}}};
static_assert(kCodings.size() == static_cast<std::size_t>(kCodingLast) + 1);

const CodingRow& Row(Coding coding) {
  const auto number = static_cast<std::size_t>(coding);
  HEADRACE_CHECK(number < kCodings.size());
  return kCodings[number];
}

}  // namespace

std::string_view CodingName(Coding coding) { return Row(coding).name; }

Result<Coding> CodingOf(std::string_view name) {
  std::string names;
  for (std::size_t i = 0; i < kCodings.size(); ++i) {
    if (kCodings[i].name == name) return static_cast<Coding>(i);
    names.append(i == 0 ? "" : ", ").append(kCodings[i].name);
  }
  return InvalidArgument("coding '{}': there are {}", name, names);
}

std::uint64_t DecodedBytesMax(Coding coding, std::uint64_t encoded_bytes) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 63;
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(encoded_bytes, Row(coding).ratio_max, &bytes)) return kMost;
  return std::min(bytes, kMost);
}

}  // namespace headrace
