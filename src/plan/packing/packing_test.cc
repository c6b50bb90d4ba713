#include "plan/packing/packing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using Lengths = std::vector<std::uint32_t>;

Prng Order(std::uint64_t seed) { return Prng(seed, 0, RandomStream::kOrder); }

PackedRows Packed(const Lengths& lengths, const PackingOptions& options, std::uint64_t seed = 1) {
  return PackDocuments(lengths, options, Order(seed)).value();
}

// Rows without gaps, and every token of every document exactly once, but for those that `options`
// leave out.
void ExpectWhole(const Lengths& lengths, const PackingOptions& options, const PackedRows& packed) {
  std::vector<std::vector<PackedPiece>> of_document(lengths.size());
  std::uint64_t tokens = 0;
  for (std::uint64_t number = 0; number < packed.row_count(); ++number) {
    std::uint32_t at = 0;
    std::uint32_t document = 0;
    for (const PackedPiece& piece : packed.row(number)) {
      ASSERT_EQ(piece.at, at);
      ASSERT_GT(piece.tokens, 0U);
      ASSERT_GE(piece.document, document);  // as they were given
      document = piece.document;
      at += piece.tokens;
      of_document[piece.document].push_back(piece);
    }
    ASSERT_GT(at, 0U);
    ASSERT_LE(at, options.row_tokens);
    tokens += at;
  }
  ASSERT_EQ(packed.tokens, tokens);
  std::uint64_t left_out = 0;
  std::uint64_t cut = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<PackedPiece>& pieces = of_document[i];
    std::sort(pieces.begin(), pieces.end(),
              [](const PackedPiece& a, const PackedPiece& b) { return a.begin < b.begin; });
    const bool is_longer =
        lengths[i] > options.row_tokens && options.kind != PackingKind::kConcatenate;
    std::uint32_t expected = lengths[i];
    if (is_longer && options.longer == LongDocuments::kCut) {
      expected = options.row_tokens;
      cut += lengths[i] - expected;
    }
    if (is_longer && options.longer == LongDocuments::kLeaveOut) expected = 0;
    if (expected == 0) ++left_out;
    std::uint32_t end = 0;
    for (const PackedPiece& piece : pieces) {
      ASSERT_EQ(piece.begin, end);
      end += piece.tokens;
    }
    ASSERT_EQ(end, expected);
    if (lengths[i] <= options.row_tokens && options.kind != PackingKind::kConcatenate) {
      ASSERT_LE(pieces.size(), 1U);  // whole
    }
  }
  ASSERT_EQ(packed.left_out, left_out);
  ASSERT_EQ(packed.cut_tokens, cut);
}

TEST(PackingTest, EveryTokenComesOnce) {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    Prng prng = Order(seed);
    PackingOptions options;
    options.row_tokens = static_cast<std::uint32_t>(1 + prng.Below(seed % 3 == 0 ? 10 : 300));
    options.kind = static_cast<PackingKind>(prng.Below(3));
    options.longer = static_cast<LongDocuments>(prng.Below(3));
    Lengths lengths(prng.Below(60));
    for (std::uint32_t& length : lengths) {
      length = static_cast<std::uint32_t>(prng.Below(options.row_tokens * (seed % 2 + 1) + 1));
    }
    const PackedRows packed = Packed(lengths, options, seed);
    ExpectWhole(lengths, options, packed);
    if (options.kind == PackingKind::kConcatenate) {
      const std::uint64_t tokens = std::accumulate(lengths.begin(), lengths.end(), 0ULL);
      ASSERT_EQ(packed.row_count(), (tokens + options.row_tokens - 1) / options.row_tokens);
    }
  }
}

// Best fit by looking at every row.
std::uint64_t SlowBestFitRows(Lengths lengths, std::uint32_t room) {
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  std::vector<std::uint32_t> free;
  for (const std::uint32_t length : lengths) {
    if (length == 0) continue;
    std::size_t best = free.size();
    for (std::size_t row = 0; row < free.size(); ++row) {
      if (free[row] >= length && (best == free.size() || free[row] < free[best])) best = row;
    }
    if (best == free.size()) free.push_back(room);
    free[best] -= length;
  }
  return free.size();
}

std::uint64_t FirstFitDecreasingRows(Lengths lengths, std::uint32_t room) {
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  std::vector<std::uint32_t> free;
  for (const std::uint32_t length : lengths) {
    auto row =
        std::find_if(free.begin(), free.end(), [&](std::uint32_t left) { return left >= length; });
    if (row == free.end()) row = free.insert(free.end(), room);
    *row -= length;
  }
  return free.size();
}

TEST(PackingTest, BestFitIsWhatLookingAtEveryRowFinds) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Prng prng = Order(seed + 9000);
    const auto room = static_cast<std::uint32_t>(1 + prng.Below(500));
    Lengths lengths(prng.Below(200));
    for (std::uint32_t& length : lengths) {
      length = static_cast<std::uint32_t>(prng.Below(room) + prng.Below(2));
    }
    ASSERT_EQ(Packed(lengths, {.row_tokens = room}).row_count(), SlowBestFitRows(lengths, room));
  }
}

double Normal(Prng& prng) {
  double sum = 0;
  for (int i = 0; i < 12; ++i) sum += prng.Uniform();
  return sum - 6;
}

// Length distributions of the kinds, cut to rows of 8,192.
std::map<std::string, Lengths> RealLengths(std::size_t count) {
  Prng prng = Order(77);
  std::map<std::string, Lengths> found;
  const auto add = [&](const std::string& name, double length) {
    found[name].push_back(static_cast<std::uint32_t>(std::clamp(length, 1.0, 8192.0)));
  };
  for (std::size_t i = 0; i < count; ++i) {
    add("log-normal 1.0", 700 * std::exp(Normal(prng)));
    add("log-normal 1.5", 400 * std::exp(1.5 * Normal(prng)));
    add("code", 60 * std::pow(1 - prng.Uniform(), -1 / 1.1));
    add("chat", 50 + 1450 * prng.Uniform());
  }
  return found;
}

TEST(PackingTest, WasteOfPlannedWindowsIsSmall) {
  constexpr std::uint32_t kRoom = 8192;
  constexpr std::uint64_t kGlobalBatch = 64;
  for (const auto& [name, lengths] : RealLengths(60000)) {
    const double mean = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), 0ULL)) /
                        static_cast<double>(lengths.size());
    for (const auto& [window, limit] : {std::pair<std::uint64_t, double>{1, 0.015}, {4, 0.005}}) {
      const auto documents =
          static_cast<std::size_t>(static_cast<double>(window * kGlobalBatch * kRoom) / mean);
      std::uint64_t rows = 0;
      std::uint64_t tokens = 0;
      std::uint64_t first_fit = 0;
      for (std::size_t begin = 0; begin + documents <= lengths.size(); begin += documents) {
        const Lengths part(lengths.begin() + static_cast<std::ptrdiff_t>(begin),
                           lengths.begin() + static_cast<std::ptrdiff_t>(begin + documents));
        const PackedRows packed = Packed(part, {.row_tokens = kRoom});
        rows += packed.row_count();
        tokens += packed.tokens;
        first_fit += FirstFitDecreasingRows(part, kRoom);
      }
      ASSERT_GT(rows, 0U);
      const double waste = 1 - static_cast<double>(tokens) / static_cast<double>(rows * kRoom);
      EXPECT_LT(waste, limit) << name << ", window of " << window;
      EXPECT_LE(static_cast<double>(rows), 1.01 * static_cast<double>(first_fit)) << name;
      RecordProperty(name + ", " + std::to_string(window), std::to_string(waste));
    }
  }
}

TEST(PackingTest, RowsComeInADrawnOrder) {
  Lengths lengths;
  for (std::uint32_t i = 1; i <= 100; ++i) lengths.push_back(i);
  const PackingOptions options{.row_tokens = 100};
  EXPECT_EQ(Packed(lengths, options, 1).pieces, Packed(lengths, options, 1).pieces);
  EXPECT_NE(Packed(lengths, options, 1).pieces, Packed(lengths, options, 2).pieces);
  // What is concatenated stays as it is.
  const PackingOptions concatenated{.row_tokens = 100, .kind = PackingKind::kConcatenate};
  EXPECT_EQ(Packed(lengths, concatenated, 1).pieces, Packed(lengths, concatenated, 2).pieces);
}

TEST(PackingTest, RefusesRowsWithoutTokens) {
  EXPECT_EQ(PackDocuments({}, {.row_tokens = 0}, Order(1)).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(PackDocuments({}, {.row_tokens = 1U << 25}, Order(1)).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Packed({}, {.row_tokens = 8}).row_count(), 0U);
}

}  // namespace
}  // namespace headrace
