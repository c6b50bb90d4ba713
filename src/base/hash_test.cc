#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/hash/xxh3.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

// Index files contain both hashes: a change here breaks every existing index.
TEST(HashTest, IsXxh3) {
  const std::string_view text = "headrace";
  EXPECT_EQ(Hash64({}), 0x2d06800538d394c2u);  // XXH3_64bits of nothing, as xxHash documents it
  Hasher128 whole;
  whole.Add(std::as_bytes(std::span(text)));
  Hasher128 parts;
  parts.Add(std::as_bytes(std::span(text.substr(0, 3))));
  parts.Add(std::as_bytes(std::span(text.substr(3))));
  EXPECT_EQ(whole.Digest(), parts.Digest());
  EXPECT_EQ(HexDigest(Hasher128().Digest()), "99aa06d3014798d86001c324468d497f");
}

TEST(HashTest, BytesInPiecesHashAsInOne) {
  std::string text;  // Longer than XXH3's inner buffers, so that all of its paths are taken.
  for (int i = 0; i < 3000; ++i) text.push_back(static_cast<char>(i * 7));
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  Hasher64 parts;
  parts.Add(bytes.first(1));
  parts.Add(bytes.subspan(1, 1500));
  parts.Add({});
  parts.Add(bytes.subspan(1501));
  EXPECT_EQ(parts.Digest(), Hash64(bytes));
  EXPECT_EQ(Hasher64().Digest(), Hash64({}));
}

// Of lengths on both sides of each limit inside XXH3, at every alignment to 8.
TEST(HashTest, EveryWayToComputeItGivesTheSame) {
  std::vector<std::byte> bytes(20'000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i + i / 251);
  const std::span<const internal::Xxh3> ways = internal::SupportedXxh3();
  for (const std::size_t size :
       std::initializer_list<std::size_t>{0, 1, 16, 17, 128, 129, 240, 241, 255, 256, 257, 1023,
                                          1024, 1025, 4095, 4096, 4097, 16'384, 19'990}) {
    const std::span<const std::byte> part = std::span(bytes).subspan(size % 8, size);
    for (const internal::Xxh3& way : ways) {
      EXPECT_EQ(way.hash(part.data(), size), XXH3_64bits(part.data(), size)) << way.name << size;
      XXH3_state_t* const state = XXH3_createState();
      XXH3_64bits_reset(state);
      way.update(state, part.data(), size / 3);
      way.update(state, part.data() + size / 3, size - size / 3);
      EXPECT_EQ(XXH3_64bits_digest(state), XXH3_64bits(part.data(), size)) << way.name << size;
      XXH3_freeState(state);
    }
  }
}

TEST(HashTest, TextIsHashedWithItsLength) {
  Hasher128 one;
  one.AddText("ab");
  one.AddText("c");
  Hasher128 other;
  other.AddText("a");
  other.AddText("bc");
  EXPECT_NE(one.Digest(), other.Digest());
}

}  // namespace
}  // namespace headrace
