#include "base/hash.h"

#include "base/hash/xxh3.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>

namespace headrace {
namespace {

XXH3_state_t* State(void* state) { return static_cast<XXH3_state_t*>(state); }

const internal::Xxh3& Fastest() {
  static const internal::Xxh3& fastest = internal::SupportedXxh3().front();
  return fastest;
}

}  // namespace

std::uint64_t Hash64(std::span<const std::byte> bytes) {
  return Fastest().hash(bytes.data(), bytes.size());
}

Hasher64::Hasher64() : state_(XXH3_createState()) { XXH3_64bits_reset(State(state_)); }

Hasher64::~Hasher64() { XXH3_freeState(State(state_)); }

void Hasher64::Add(std::span<const std::byte> bytes) {
  Fastest().update(state_, bytes.data(), bytes.size());
}

std::uint64_t Hasher64::Digest() const { return XXH3_64bits_digest(State(state_)); }

Hasher128::Hasher128() : state_(XXH3_createState()) { XXH3_128bits_reset(State(state_)); }

Hasher128::~Hasher128() { XXH3_freeState(State(state_)); }

void Hasher128::Add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(State(state_), bytes.data(), bytes.size());
}

void Hasher128::AddText(const std::string& text) {
  AddNumber(text.size());
  Add(std::as_bytes(std::span(text)));
}

void Hasher128::AddNumber(std::uint64_t number) {
  std::array<std::byte, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>((number >> (8 * i)) & 0xff);
  }
  Add(bytes);
}

std::array<std::uint64_t, 2> Hasher128::Digest() const {
  const XXH128_hash_t digest = XXH3_128bits_digest(State(state_));
  return {digest.high64, digest.low64};
}

std::string HexDigest(const std::array<std::uint64_t, 2>& digest) {
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx",
                static_cast<unsigned long long>(digest[0]),
                static_cast<unsigned long long>(digest[1]));
  return text.data();
}

}  // namespace headrace
