#include "base/hash.h"

#include <string_view>

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
