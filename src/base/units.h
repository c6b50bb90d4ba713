#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headrace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;
constexpr std::uint64_t kGiB = 1024 * kMiB;

constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::int64_t kNsPerSecond = 1'000'000'000;

// `value` rounded up to a multiple of `unit`, which must not be 0.
constexpr std::uint64_t RoundUp(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// For messages: "512 bytes", "1.5 KiB", "256.0 MiB".
std::string FormatBytes(std::uint64_t bytes);

// For messages: "1 file", "1200 files". `one` is the singular, whose plural ends in s.
std::string Counted(std::uint64_t count, std::string_view one);

}  // namespace headrace
