#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "codec/codec.h"
#include "headrace/status.h"

namespace headrace {

// A type of numbers as they are stored: little-endian, two's complement, IEEE.
struct NumberType {
  enum class Kind : std::uint8_t { kUnsigned, kSigned, kFloat };

  Kind kind = Kind::kUnsigned;
  std::uint64_t bytes = 1;

  bool operator==(const NumberType&) const = default;
};

// The instructions to use: the best that this processor has, or those that every one has, for
// tests.
enum class WidenBy : std::uint8_t { kBest, kAny };

// Arrays whose rows have a wider type: `count` numbers of type `from`, or any number without it,
// become as many of type `to`, with the same values. A NaN stays a NaN.
//
// Errors: InvalidArgument  there is no such conversion: `to` is not wider, or cannot hold all
//                          values of `from`
// Decode() of another number of bytes is DataLoss.
Result<std::unique_ptr<FieldCodec>> MakeWidenCodec(NumberType from, NumberType to,
                                                   std::optional<std::uint64_t> count,
                                                   WidenBy by = WidenBy::kBest);

}  // namespace headrace
