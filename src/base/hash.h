#pragma once

// Checksums and fingerprints: XXH3 (xxHash 0.8), part of the formats in docs/.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace headrace {

// XXH3-64 of `bytes`, seed 0.
std::uint64_t Hash64(std::span<const std::byte> bytes);

// A number with its bits mixed: the finalizer of SplitMix64 (Steele, Lea, Flood 2014). One to one.
constexpr std::uint64_t Mix64(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

// XXH3-64 of the bytes added so far: Hash64() for bytes that are not contiguous. Not thread-safe.
class Hasher64 {
 public:
  Hasher64();
  ~Hasher64();
  Hasher64(const Hasher64&) = delete;
  Hasher64& operator=(const Hasher64&) = delete;

  void Add(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t Digest() const;

 private:
  void* state_;  // XXH3_state_t
};

// XXH3-128 of the bytes added so far, seed 0. For fingerprints. Not thread-safe.
class Hasher128 {
 public:
  Hasher128();
  ~Hasher128();
  Hasher128(const Hasher128&) = delete;
  Hasher128& operator=(const Hasher128&) = delete;

  void Add(std::span<const std::byte> bytes);
  void AddText(const std::string& text);  // its length as 8 bytes little-endian, then its bytes
  void AddNumber(std::uint64_t number);   // 8 bytes, little-endian

  // High then low half.
  [[nodiscard]] std::array<std::uint64_t, 2> Digest() const;

 private:
  void* state_;  // XXH3_state_t
};

// 32 lower-case hexadecimal digits.
std::string HexDigest(const std::array<std::uint64_t, 2>& digest);

}  // namespace headrace
