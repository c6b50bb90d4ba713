#include "fetch/coalesce.h"

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

struct Piece {
  Extent extent;
  bool alone = false;
  int sample = 0;  // 0: of one of its own
};

struct Read {
  Extent extent;
  std::vector<Piece> pieces;
};

std::vector<Read> Reads(std::vector<Piece>& pieces, const CoalesceLimits& limits) {
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return LiesBefore(a.extent, b.extent); });
  std::vector<Read> reads;
  Coalesce(
      std::span<Piece>(pieces), limits,
      [](const Piece& piece) -> const Extent& { return piece.extent; },
      [](const Piece& piece) { return piece.alone; },
      [](const Piece& a, const Piece& b) { return a.sample != 0 && a.sample == b.sample; },
      [&reads](const Extent& extent, std::span<Piece> together) {
        reads.push_back({extent, {together.begin(), together.end()}});
      });
  return reads;
}

Piece At(std::uint64_t object, std::uint64_t offset, std::uint64_t size, bool alone = false) {
  return {{ObjectId{object}, {offset, size}}, alone};
}

TEST(CoalesceTest, NeighboursAreOneReadAndFarOnesAreNot) {
  std::vector<Piece> pieces = {At(1, 100, 10), At(1, 0, 50), At(1, 200, 5), At(2, 205, 5)};
  const std::vector<Read> reads = Reads(pieces, {.gap_bytes = 50, .bytes_max = 1000});
  ASSERT_EQ(reads.size(), 3U);
  EXPECT_EQ(reads[0].extent, (Extent{ObjectId{1}, {0, 110}}));
  EXPECT_EQ(reads[1].extent, (Extent{ObjectId{1}, {200, 5}}));
  EXPECT_EQ(reads[2].extent, (Extent{ObjectId{2}, {205, 5}}));
}

TEST(CoalesceTest, APieceInsideAnotherDoesNotShortenTheRead) {
  std::vector<Piece> pieces = {At(1, 0, 100), At(1, 10, 5), At(1, 100, 5)};
  const std::vector<Read> reads = Reads(pieces, {.gap_bytes = 0, .bytes_max = 1000});
  ASSERT_EQ(reads.size(), 1U);
  EXPECT_EQ(reads[0].extent.range, (ByteRange{0, 105}));
}

TEST(CoalesceTest, APieceLargerThanTheLimitIsReadWhole) {
  std::vector<Piece> pieces = {At(1, 0, 500), At(1, 500, 5)};
  const std::vector<Read> reads = Reads(pieces, {.gap_bytes = 10, .bytes_max = 100});
  ASSERT_EQ(reads.size(), 2U);
  EXPECT_EQ(reads[0].extent.range.size, 500U);
}

TEST(CoalesceTest, AReadIsNotLargerThanSoManyTimesItsPieces) {
  std::vector<Piece> pieces = {At(1, 0, 10), At(1, 20, 10), At(1, 90, 100), At(1, 100, 10)};
  // [0, 30) has 20 wanted bytes, [0, 190) has 120, and 110 are not too many for 190.
  std::vector<Read> reads = Reads(pieces, {.gap_bytes = 60, .bytes_max = 1000, .growth_max = 2});
  ASSERT_EQ(reads.size(), 1U);
  EXPECT_EQ(reads[0].extent.range, (ByteRange{0, 190}));
  pieces[2].extent.range.size = 40;
  reads = Reads(pieces, {.gap_bytes = 60, .bytes_max = 1000, .growth_max = 2});
  ASSERT_EQ(reads.size(), 2U);
  EXPECT_EQ(reads[0].extent.range, (ByteRange{0, 30}));
  EXPECT_EQ(reads[1].extent.range, (ByteRange{90, 40}));
}

// The bytes that are wanted of a range, counted one by one.
std::uint64_t WantedOf(std::span<const Piece> pieces) {
  std::set<std::uint64_t> bytes;
  for (const Piece& piece : pieces) {
    const ByteRange range = piece.extent.range;
    for (std::uint64_t at = range.offset; at < range.end(); ++at) bytes.insert(at);
  }
  return bytes.size();
}

TEST(CoalesceTest, ASampleIsNotDividedIfOnlyGapsAllowThat) {
  const auto of_sample = [](int sample, std::uint64_t offset, std::uint64_t size) {
    Piece piece = At(1, offset, size);
    piece.sample = sample;
    return piece;
  };
  std::vector<Piece> pieces = {of_sample(1, 0, 10),   of_sample(1, 100, 5),  of_sample(2, 200, 10),
                               of_sample(2, 250, 90), of_sample(3, 1000, 5), of_sample(3, 1200, 5)};
  const CoalesceLimits limits = {.gap_bytes = 100, .bytes_max = 120, .growth_max = 2};
  const std::vector<Read> reads = Reads(pieces, limits);
  ASSERT_EQ(reads.size(), 4U);
  EXPECT_EQ(reads[0].extent.range, (ByteRange{0, 105}));
  EXPECT_EQ(reads[1].extent.range, (ByteRange{200, 140}));
  EXPECT_EQ(reads[2].extent.range, (ByteRange{1000, 5}));
}

// A slow model: a read takes the next piece exactly if it is then within all limits.
TEST(CoalesceTest, ReadsAreThoseOfASlowModel) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Prng prng(seed, 1, RandomStream::kSubstitute, 0);
    const CoalesceLimits limits{
        .gap_bytes = prng.Below(80), .bytes_max = 1 + prng.Below(400), .growth_max = prng.Below(4)};
    std::vector<Piece> pieces(1 + prng.Below(30));
    for (Piece& piece : pieces) {
      piece = At(prng.Below(2), prng.Below(600), prng.Below(40), prng.Below(8) == 0);
      piece.sample = static_cast<int>(prng.Below(3));
    }
    const std::vector<Read> reads = Reads(pieces, limits);
    std::vector<Read> model;
    for (const Piece& piece : pieces) {
      if (!model.empty()) {
        Read joined = model.back();
        const bool one = piece.sample != 0 && piece.sample == joined.pieces.back().sample;
        joined.pieces.push_back(piece);
        ByteRange& range = joined.extent.range;
        const ByteRange next = piece.extent.range;
        const bool near = piece.extent.object == joined.extent.object &&
                          next.offset <= range.end() + limits.gap_bytes;
        range.size = std::max(range.end(), next.end()) - range.offset;
        const bool grows =
            limits.growth_max != 0 && range.size > limits.growth_max * WantedOf(joined.pieces);
        const bool alone = joined.pieces.front().alone || piece.alone;
        if (near && !alone && (one || (range.size <= limits.bytes_max && !grows))) {
          model.back() = joined;
          continue;
        }
      }
      model.push_back({piece.extent, {piece}});
    }
    ASSERT_EQ(reads.size(), model.size()) << "seed " << seed;
    for (std::size_t i = 0; i < reads.size(); ++i) {
      ASSERT_EQ(reads[i].extent, model[i].extent) << "seed " << seed;
      ASSERT_EQ(reads[i].pieces.size(), model[i].pieces.size()) << "seed " << seed;
    }
  }
}

// Whatever the pieces: each is in one read, which covers it and no more than it may.
TEST(CoalesceTest, EveryPieceIsInOneReadWithinTheLimits) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Prng prng(seed, 0, RandomStream::kSubstitute, 0);
    const CoalesceLimits limits{.gap_bytes = prng.Below(40), .bytes_max = 1 + prng.Below(200)};
    std::vector<Piece> pieces(1 + prng.Below(40));
    for (Piece& piece : pieces) {
      piece = At(prng.Below(3), prng.Below(1000), prng.Below(60), prng.Below(8) == 0);
    }
    const std::vector<Read> reads = Reads(pieces, limits);
    std::size_t count = 0;
    for (const Read& read : reads) {
      std::uint64_t begin = ~std::uint64_t{0};
      std::uint64_t end = 0;
      for (const Piece& piece : read.pieces) {
        ASSERT_EQ(piece.extent, pieces[count++].extent) << "seed " << seed;
        ASSERT_EQ(piece.extent.object, read.extent.object);
        if (piece.extent.range.offset > end && end > 0) {
          ASSERT_LE(piece.extent.range.offset - end, limits.gap_bytes) << "seed " << seed;
        }
        begin = std::min(begin, piece.extent.range.offset);
        end = std::max(end, piece.extent.range.end());
      }
      ASSERT_EQ(read.extent.range, (ByteRange{begin, end - begin})) << "seed " << seed;
      if (read.pieces.size() == 1) continue;
      ASSERT_LE(read.extent.range.size, limits.bytes_max) << "seed " << seed;
      for (const Piece& piece : read.pieces) ASSERT_FALSE(piece.alone) << "seed " << seed;
    }
    ASSERT_EQ(count, pieces.size()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace headrace
