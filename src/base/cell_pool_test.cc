#include "base/cell_pool.h"

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using testing::HasSubstr;

std::shared_ptr<CellPool> Make(std::uint64_t units, std::uint64_t unit_bytes) {
  return CellPool::Make(units, unit_bytes).value();
}

CellRun TakeOne(CellPool& pool, std::uint32_t units) {
  CellRun run = kNoCells;
  EXPECT_TRUE(pool.Take({&units, 1}, {&run, 1}));
  return run;
}

std::string RandomBytes(Prng& random, std::uint64_t size) {
  std::string bytes;
  while (bytes.size() < size) bytes.push_back(static_cast<char>(random.Next32()));
  return bytes;
}

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string Out(const CellPool& pool, CellRun run, std::uint64_t offset, std::uint64_t size) {
  std::string text(size, '?');
  pool.CopyOut(run, offset, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(CellPoolTest, ASampleTakesWholeCellsAndAtLeastOne) {
  const auto pool = Make(10, 64);
  EXPECT_EQ(pool->Units(0), 1);
  EXPECT_EQ(pool->Units(1), 1);
  EXPECT_EQ(pool->Units(64), 1);
  EXPECT_EQ(pool->Units(65), 2);
  EXPECT_EQ(pool->Units(~std::uint64_t{0}), std::uint64_t{1} << 58);
}

TEST(CellPoolTest, TakesCellsForAllOrForNone) {
  const auto pool = Make(10, 64);
  const std::array<std::uint32_t, 3> fit = {4, 0, 6};
  const std::array<std::uint32_t, 3> too_many = {4, 1, 6};
  std::array<CellRun, 3> runs{};
  EXPECT_FALSE(pool->Take(too_many, runs));
  EXPECT_EQ(pool->stats().used_units, 0);
  EXPECT_TRUE(pool->Take(fit, runs));
  EXPECT_EQ(runs[1], kNoCells);
  EXPECT_EQ(pool->stats().used_units, 10);
  const std::uint32_t one = 1;
  CellRun run = kNoCells;
  EXPECT_FALSE(pool->Take({&one, 1}, {&run, 1}));
  pool->Release(runs[0]);
  EXPECT_EQ(pool->stats().used_units, 6);
  EXPECT_TRUE(pool->Take({&one, 1}, {&run, 1}));
  pool->Release(run);
  pool->Release(runs[2]);
  EXPECT_EQ(pool->stats().used_units, 0);
  EXPECT_EQ(pool->stats().used_units_peak, 10);
  EXPECT_EQ(pool->stats().capacity_units, 10);
  EXPECT_EQ(pool->stats().unit_bytes, 64);
}

TEST(CellPoolTest, EveryLastCellIsOfUseWhateverWasTakenBefore) {
  const auto pool = Make(10, 64);
  std::array<CellRun, 5> twos{};
  for (CellRun& run : twos) run = TakeOne(*pool, 2);
  pool->Release(twos[0]);
  pool->Release(twos[2]);
  pool->Release(twos[4]);
  const CellRun six = TakeOne(*pool, 6);  // There are no six adjacent cells.
  EXPECT_FALSE(pool->View(six, 0, std::uint64_t{6} * 64).has_value());
  Prng random(1, 0, RandomStream::kPack);
  const std::string bytes = RandomBytes(random, std::uint64_t{6} * 64);
  pool->CopyIn(six, 0, Bytes(bytes));
  EXPECT_EQ(Out(*pool, six, 0, std::uint64_t{6} * 64), bytes);
  EXPECT_EQ(Out(*pool, six, 100, 200), bytes.substr(100, 200));
  for (const CellRun run : {six, twos[1], twos[3]}) pool->Release(run);
}

TEST(CellPoolTest, RunsOfOneSizeStayInOnePieceForEver) {
  const auto pool = Make(64, 128);
  Prng random(2, 0, RandomStream::kPack);
  std::vector<CellRun> held;
  for (int i = 0; i < 10'000; ++i) {
    if (held.size() < 21 && random.Below(2) == 0) {
      held.push_back(TakeOne(*pool, 3));
      EXPECT_TRUE(pool->View(held.back(), 0, std::uint64_t{3} * 128).has_value());
    } else if (!held.empty()) {
      std::swap(held[random.Below(held.size())], held.back());
      pool->Release(held.back());
      held.pop_back();
    }
  }
  for (const CellRun run : held) pool->Release(run);
}

// Against a plain model: every run has the bytes that were last written to it.
TEST(CellPoolTest, RunsShareNoBytes) {
  struct Held {
    CellRun run;
    std::string bytes;
  };
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng random(seed, 0, RandomStream::kPack);
    const std::uint64_t unit_bytes = std::uint64_t{64} << random.Below(7);
    const std::uint64_t capacity = 1 + random.Below(100);
    const auto pool = Make(capacity, unit_bytes);
    std::vector<Held> held;
    std::uint64_t used = 0;
    for (int i = 0; i < 300; ++i) {
      const std::uint64_t size = random.Below(1 + random.Below(20) * unit_bytes);
      const auto units = static_cast<std::uint32_t>(pool->Units(size));
      CellRun run = kNoCells;
      const bool taken = pool->Take({&units, 1}, {&run, 1});
      ASSERT_EQ(taken, used + units <= capacity);
      if (taken) {
        used += units;
        Held next{run, RandomBytes(random, size)};
        const std::uint64_t cut = random.Below(size + 1);
        pool->CopyIn(run, cut, Bytes(next.bytes).subspan(cut));
        pool->CopyIn(run, 0, Bytes(next.bytes).first(cut));
        held.push_back(std::move(next));
      }
      while (!held.empty() && (!taken || random.Below(3) == 0)) {
        std::swap(held[random.Below(held.size())], held.back());
        const Held& last = held.back();
        ASSERT_EQ(Out(*pool, last.run, 0, last.bytes.size()), last.bytes);
        const std::uint64_t from = random.Below(last.bytes.size() + 1);
        if (const auto view = pool->View(last.run, from, last.bytes.size() - from)) {
          // 0 bytes may have no memory.
          ASSERT_EQ(std::string_view(reinterpret_cast<const char*>(view->data()), view->size()),
                    std::string_view(last.bytes).substr(from));
        }
        used -= pool->Units(last.bytes.size());
        pool->Release(last.run);
        held.pop_back();
        if (random.Below(2) == 0) break;
      }
      ASSERT_EQ(pool->stats().used_units, used);
    }
    for (const Held& rest : held) pool->Release(rest.run);
  }
}

TEST(CellPoolTest, VisitsThePiecesOfARangeInOrder) {
  const auto pool = Make(3, 8);
  const CellRun first = TakeOne(*pool, 1);
  const CellRun between = TakeOne(*pool, 1);
  pool->Release(first);
  const CellRun split = TakeOne(*pool, 2);
  pool->CopyIn(split, 0, Bytes("0123456789abcdef"));
  std::vector<std::string> pieces;
  pool->VisitBytes(split, 3, 10, [&pieces](std::span<const std::byte> piece) {
    pieces.emplace_back(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  EXPECT_EQ(pieces, (std::vector<std::string>{"34567", "89abc"}));
  pool->Release(split);
  pool->Release(between);
}

TEST(CellPoolTest, RefusesWhatCannotBe) {
  const Status odd = CellPool::Make(10, 96).status();
  EXPECT_EQ(odd.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(odd.message()), HasSubstr("10 cells of 96 bytes"));
  EXPECT_EQ(CellPool::Make(10, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CellPool::Make(0xffff'ffff, 64).status().code(), StatusCode::kInvalidArgument);
  // More than any machine maps.
  EXPECT_EQ(CellPool::Make(0xffff'fffe, std::uint64_t{1} << 30).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(CellPoolTest, WithoutCellsThereIsNothingToHave) {
  const auto pool = Make(0, 64);
  const std::uint32_t one = 1;
  CellRun run = kNoCells;
  EXPECT_FALSE(pool->Take({&one, 1}, {&run, 1}));
  EXPECT_TRUE(pool->Take({}, {}));
}

}  // namespace
}  // namespace headrace
