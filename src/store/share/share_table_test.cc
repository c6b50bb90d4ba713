#include "store/share/share_table.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr ObjectId kObject{7};
constexpr std::int64_t kWaitMaxNs = 100;

std::uint64_t Exact(ByteRange range) { return range.size; }

Extent At(std::uint64_t offset, std::uint64_t size) { return {kObject, {offset, size}}; }

class ShareTableTest : public testing::Test {
 protected:
  // Takes a range, and has read what is new. Returns the bytes that were read; nothing: no room.
  std::optional<std::uint64_t> Use(ShareTable::Job job, const Extent& extent,
                                   std::uint64_t gap_bytes = 0) {
    const std::vector<SharePiece> pieces = table_.Take(job, extent, gap_bytes, now_ns_);
    if (pieces.empty()) return std::nullopt;
    std::uint64_t read = 0;
    for (const SharePiece& piece : pieces) {
      if (!piece.is_new) continue;
      read += piece.range.size;
      table_.Held(piece.entry);
    }
    return read;
  }

  ShareTable table_{{.capacity_bytes = 100, .wait_max_ns = kWaitMaxNs}};
  std::int64_t now_ns_ = 0;
};

TEST_F(ShareTableTest, WhatOneJobReadAnotherHas) {
  const ShareTable::Job a = *table_.Join("data", Exact);
  const ShareTable::Job b = *table_.Join("data", Exact);
  const ShareTable::Job other = *table_.Join("other", Exact);
  EXPECT_EQ(Use(a, At(0, 30)), 30U);
  EXPECT_EQ(Use(b, At(0, 30)), 0U);
  EXPECT_EQ(Use(b, At(10, 10)), 0U);
  EXPECT_EQ(Use(b, At(20, 20)), 10U) << "the rest of it";
  EXPECT_EQ(Use(other, At(0, 30)), 30U);
}

TEST_F(ShareTableTest, SmallHeldRangesBetweenAbsentOnesAreReadAgain) {
  const ShareTable::Job a = *table_.Join("data", Exact);
  Use(a, At(10, 5));
  Use(a, At(40, 20));
  EXPECT_EQ(Use(a, At(0, 70), /*gap_bytes=*/6), 40U + 10U) << "[0, 40) and [60, 70)";
  EXPECT_EQ(table_.used_bytes(), 70U);
  EXPECT_THAT(table_.Find(a, At(0, 70)), SizeIs(3));
}

TEST_F(ShareTableTest, ARangeThatIsBeingReadIsAPieceUntilItTakesTooLong) {
  const ShareTable::Job a = *table_.Join("data", Exact);
  const ShareTable::Job b = *table_.Join("data", Exact);
  const std::vector<SharePiece> read = table_.Take(a, At(0, 30), 0, now_ns_);
  ASSERT_THAT(read, SizeIs(1));
  EXPECT_TRUE(read[0].is_new);
  const std::vector<SharePiece> waits = table_.Take(b, At(0, 30), 0, kWaitMaxNs);
  ASSERT_THAT(waits, SizeIs(1));
  EXPECT_FALSE(waits[0].is_new);
  EXPECT_EQ(waits[0].entry, read[0].entry);
  EXPECT_THAT(table_.Take(b, At(0, 30), 0, kWaitMaxNs + 1), IsEmpty());
  table_.Drop(read[0].entry);
  EXPECT_EQ(table_.used_bytes(), 0U);
  EXPECT_EQ(Use(b, At(0, 30)), 30U);
}

TEST_F(ShareTableTest, WhatAllHaveUsedGoesFirst) {
  const ShareTable::Job a = *table_.Join("data", Exact);
  const ShareTable::Job b = *table_.Join("data", Exact);
  Use(a, At(0, 30));
  Use(a, At(30, 30));
  Use(a, At(60, 30));
  Use(b, At(30, 30));
  EXPECT_EQ(Use(b, At(100, 20)), 20U);
  EXPECT_THAT(table_.Find(a, At(30, 30)), IsEmpty());
  EXPECT_THAT(table_.Find(a, At(0, 30)), SizeIs(1));
}

TEST_F(ShareTableTest, NobodyTakesWhatAnothersQuotaHolds) {
  const ShareTable::Job a = *table_.Join("data", Exact);
  const ShareTable::Job b = *table_.Join("data", Exact);
  EXPECT_EQ(table_.quota(), 50U);
  for (std::uint64_t at = 0; at < 100; at += 10) EXPECT_EQ(Use(a, At(at, 10)), 10U);
  for (std::uint64_t at = 100; at < 150; at += 10) EXPECT_EQ(Use(b, At(at, 10)), 10U);
  EXPECT_EQ(table_.BytesOf(a), 50U);
  EXPECT_EQ(table_.BytesOf(b), 50U);
  EXPECT_THAT(table_.Find(a, At(0, 50)), IsEmpty()) << "its oldest have gone";
  for (std::uint32_t i = 1; i < ShareTable::kOwnEvery; ++i) {
    EXPECT_EQ(Use(b, At(150 + 10 * i, 10)), std::nullopt);
  }
  EXPECT_EQ(Use(b, At(300, 10)), 10U);
  EXPECT_THAT(table_.Find(b, At(100, 10)), IsEmpty()) << "once in a while its own oldest goes";
  EXPECT_EQ(table_.BytesOf(a), 50U);
}

TEST_F(ShareTableTest, AJobWithoutCompanionsTakesOnlyWhatNobodyWants) {
  const ShareTable::Job a = *table_.Join("data", Exact);
  ASSERT_TRUE(table_.Join("data", Exact).has_value());
  const ShareTable::Job alone = *table_.Join("other", Exact);
  EXPECT_EQ(table_.quota(), 50U) << "its companions' alone";
  EXPECT_EQ(Use(alone, At(0, 30)), 30U);
  for (std::uint64_t at = 0; at < 100; at += 10) Use(a, At(at, 10));
  EXPECT_THAT(table_.Find(alone, At(0, 30)), IsEmpty());
  EXPECT_EQ(Use(alone, At(0, 10)), std::nullopt);
  EXPECT_EQ(table_.BytesOf(a), 100U);
}

TEST_F(ShareTableTest, AJobThatEndsLeavesItsRangesToTheOthers) {
  const ShareTable::Job a = *table_.Join("data", Exact);
  const ShareTable::Job b = *table_.Join("data", Exact);
  const ShareTable::Job c = *table_.Join("data", Exact);
  Use(a, At(0, 40));
  Use(b, At(40, 40));
  Use(c, At(40, 40));
  table_.Leave(a);
  EXPECT_EQ(Use(b, At(0, 40)), 0U);
  EXPECT_EQ(Use(b, At(100, 60)), 60U) << "what b and c have used goes before what c wants";
  EXPECT_EQ(Use(c, At(0, 40)), 0U);
  table_.Leave(b);
  table_.Leave(c);
  const ShareTable::Job next = *table_.Join("data", Exact);
  EXPECT_EQ(Use(next, At(0, 40)), 0U) << "held until its memory is needed";
}

TEST_F(ShareTableTest, AReadOutlivesItsJob) {
  const ShareTable::Job a = *table_.Join("data", Exact);
  const ShareTable::Job b = *table_.Join("data", Exact);
  const std::vector<SharePiece> read = table_.Take(a, At(0, 30), 0, now_ns_);
  table_.Leave(a);
  EXPECT_THAT(table_.Take(b, At(0, 30), 0, now_ns_), SizeIs(1));
  table_.Held(read[0].entry);
  EXPECT_EQ(Use(b, At(0, 30)), 0U);
}

TEST_F(ShareTableTest, TooManyJobsDoNotShare) {
  std::vector<ShareTable::Job> jobs;
  for (std::uint32_t i = 0; i < kShareJobsMax; ++i) jobs.push_back(*table_.Join("data", Exact));
  EXPECT_FALSE(table_.Join("data", Exact).has_value());
  table_.Leave(jobs[13]);
  EXPECT_EQ(table_.Join("data", Exact), jobs[13]);
}

// The same, as slowly and as plainly as can be: every byte is looked at, and every list is sorted
// anew.
class SlowTable {
 public:
  struct Entry {
    std::string dataset;
    std::uint64_t object = 0;
    ByteRange range;
    std::set<int> used;
    int owner = -1;
    std::int64_t since_ns = 0;
    bool held = false;
    std::uint64_t moved = 0;  // when it came into the state below
    std::string state;        // "unwanted", "ownerless", a job's number
    bool protects = false;
  };

  explicit SlowTable(std::uint64_t capacity) : capacity_(capacity) {}

  void Join(int job, const std::string& dataset) {
    jobs_[job] = dataset;
    Settle(/*by_age=*/true);
  }
  void Leave(int job) {
    jobs_.erase(job);
    refusals_.erase(job);
    for (auto& [id, entry] : entries_) {
      entry.used.erase(job);
      if (entry.owner == job) entry.owner = -1;
    }
    Settle(/*by_age=*/false);
  }
  void Held(std::uint64_t id) {
    if (!entries_.contains(id)) return;
    entries_[id].held = true;
    Settle(false);
  }
  void Drop(std::uint64_t id) { entries_.erase(id); }

  // The ranges to be read; nothing: none, past the share.
  std::optional<std::vector<ByteRange>> Take(int job, const Extent& extent, std::uint64_t gap,
                                             std::int64_t now_ns) {
    const std::string dataset = jobs_.at(job);
    bool late = false;
    std::vector<std::uint64_t> known;
    for (auto& [id, entry] : entries_) entry.protects = false;
    for (std::uint64_t byte = extent.range.offset; byte < extent.range.end(); ++byte) {
      const std::uint64_t id = Of(dataset, Raw(extent.object), byte);
      if (id == 0 || (!known.empty() && known.back() == id)) continue;
      known.push_back(id);
      Entry& entry = entries_[id];
      entry.used.insert(job);
      entry.protects = true;
      late = late || (!entry.held && now_ns - entry.since_ns > kWaitMaxNs);
      Settle(false);
    }
    if (late) return std::nullopt;
    // Byte by byte: absent ranges, then those near each other joined.
    std::vector<ByteRange> absent;
    for (std::uint64_t byte = extent.range.offset; byte < extent.range.end(); ++byte) {
      if (Of(dataset, Raw(extent.object), byte) != 0) continue;
      if (!absent.empty() && absent.back().end() == byte) {
        ++absent.back().size;
      } else {
        absent.push_back({byte, 1});
      }
    }
    std::set<std::uint64_t> replaced;
    std::vector<ByteRange> joined;
    for (const ByteRange& range : absent) {
      std::set<std::uint64_t> between;
      bool held = true;
      for (std::uint64_t byte = joined.empty() ? range.offset : joined.back().end();
           byte < range.offset; ++byte) {
        between.insert(Of(dataset, Raw(extent.object), byte));
        held = held && entries_[*between.rbegin()].held;
      }
      for (const std::uint64_t id : between) held = held && entries_[id].held;
      if (!joined.empty() && held && range.offset - joined.back().end() < gap) {
        joined.back().size = range.end() - joined.back().offset;
        replaced.insert(between.begin(), between.end());
      } else {
        joined.push_back(range);
      }
    }
    if (joined.empty()) return joined;
    std::uint64_t bytes = 0;
    for (const ByteRange& range : joined) bytes += range.size;
    for (const std::uint64_t id : replaced) entries_[id].protects = false;
    if (!MakeRoom(job, bytes)) return std::nullopt;
    for (const std::uint64_t id : replaced) entries_.erase(id);
    return joined;
  }
  void Add(int job, std::uint64_t id, std::uint64_t object, ByteRange range, std::int64_t now_ns) {
    entries_[id] = {.dataset = jobs_.at(job),
                    .object = object,
                    .range = range,
                    .used = {job},
                    .owner = job,
                    .since_ns = now_ns};
  }

  [[nodiscard]] std::uint64_t used() const {
    std::uint64_t bytes = 0;
    for (const auto& [id, entry] : entries_) bytes += entry.range.size;
    return bytes;
  }
  [[nodiscard]] std::uint64_t BytesOf(int job) const {
    std::uint64_t bytes = 0;
    for (const auto& [id, entry] : entries_) {
      if (entry.owner == job && (!entry.held || Wanted(entry))) bytes += entry.range.size;
    }
    return bytes;
  }
  [[nodiscard]] std::uint64_t quota() const {
    std::uint64_t sharing = 0;
    for (const auto& [job, dataset] : jobs_) sharing += Readers(dataset) > 1 ? 1 : 0;
    return capacity_ / std::max<std::uint64_t>(sharing, 1);
  }
  [[nodiscard]] std::set<std::uint64_t> ids() const {
    std::set<std::uint64_t> ids;
    for (const auto& [id, entry] : entries_) ids.insert(id);
    return ids;
  }

 private:
  [[nodiscard]] std::uint64_t Readers(const std::string& dataset) const {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(jobs_, [&](const auto& each) { return each.second == dataset; }));
  }
  [[nodiscard]] bool Wanted(const Entry& entry) const {
    return std::ranges::any_of(jobs_, [&](const auto& each) {
      return each.second == entry.dataset && !entry.used.contains(each.first);
    });
  }
  [[nodiscard]] std::uint64_t Of(const std::string& dataset, std::uint64_t object,
                                 std::uint64_t byte) const {
    for (const auto& [id, entry] : entries_) {
      if (entry.dataset == dataset && entry.object == object && entry.range.offset <= byte &&
          byte < entry.range.end()) {
        return id;
      }
    }
    return 0;
  }
  // Entries whose state has changed go to the end of their list: those that were in a list before
  // by their age in it, others by number.
  void Settle(bool by_age) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> changed;
    for (auto& [id, entry] : entries_) {
      if (!entry.held) continue;
      const std::string state = !Wanted(entry)      ? "unwanted"
                                : entry.owner == -1 ? "ownerless"
                                                    : std::to_string(entry.owner);
      if (state == entry.state) continue;
      entry.state = state;
      changed.emplace_back(by_age ? entry.moved : 0, id);
    }
    std::ranges::sort(changed);
    for (const auto& [age, id] : changed) entries_[id].moved = ++moves_;
  }
  std::uint64_t Oldest(const std::string& state) const {
    std::uint64_t oldest = 0;
    for (const auto& [id, entry] : entries_) {
      if (!entry.held || entry.state != state || entry.protects) continue;
      if (oldest == 0 || entry.moved < entries_.at(oldest).moved) oldest = id;
    }
    return oldest;
  }
  bool MakeRoom(int job, std::uint64_t bytes) {
    if (bytes > capacity_) return false;
    if (used() + bytes <= capacity_) return true;
    const bool wanted = Readers(jobs_.at(job)) > 1;
    const bool own = wanted && refusals_[job] + 1 == static_cast<int>(ShareTable::kOwnEvery);
    while (used() + bytes > capacity_) {
      std::uint64_t victim = Oldest("unwanted");
      if (victim == 0 && wanted) victim = Oldest("ownerless");
      if (victim == 0 && wanted && BytesOf(job) + bytes <= quota()) {
        std::uint64_t most = 0;
        for (const auto& [other, dataset] : jobs_) {
          const std::uint64_t oldest = Oldest(std::to_string(other));
          if (other == job || oldest == 0 || BytesOf(other) < most) continue;
          if (BytesOf(other) < quota() + entries_.at(oldest).range.size) continue;
          most = BytesOf(other);
          victim = oldest;
        }
      }
      if (victim == 0 && own) victim = Oldest(std::to_string(job));
      if (victim == 0) {
        refusals_[job] = (refusals_[job] + 1) % static_cast<int>(ShareTable::kOwnEvery);
        return false;
      }
      entries_.erase(victim);
    }
    if (own) refusals_[job] = 0;
    return true;
  }

  const std::uint64_t capacity_;
  std::map<int, std::string> jobs_;
  std::map<int, int> refusals_;
  std::map<std::uint64_t, Entry> entries_;
  std::uint64_t moves_ = 0;
};

class ShareTablePropertyTest : public testing::TestWithParam<std::uint64_t> {};

TEST_P(ShareTablePropertyTest, DoesWhatTheSlowOneDoes) {
  Prng random(GetParam(), 0, RandomStream::kOrder, 0);
  const std::uint64_t capacity = 40 + random.Below(120);
  ShareTable table({.capacity_bytes = capacity, .wait_max_ns = kWaitMaxNs});
  SlowTable slow(capacity);
  std::vector<ShareTable::Job> jobs;
  std::vector<ShareEntry> reading;
  std::set<std::uint64_t> known;
  std::int64_t now_ns = 0;
  for (int round = 0; round < 600; ++round) {
    now_ns += static_cast<std::int64_t>(random.Below(20));
    const std::uint64_t what = random.Below(20);
    if (what == 0 && jobs.size() < 5) {
      const std::string dataset = random.Below(3) == 0 ? "other" : "data";
      jobs.push_back(*table.Join(dataset, Exact));
      slow.Join(static_cast<int>(jobs.back()), dataset);
    } else if (what == 1 && !jobs.empty()) {
      const std::size_t at = random.Below(jobs.size());
      table.Leave(jobs[at]);
      slow.Leave(static_cast<int>(jobs[at]));
      jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (what < 10 && !reading.empty()) {
      const std::size_t at = random.Below(reading.size());
      const ShareEntry entry = reading[at];
      reading.erase(reading.begin() + static_cast<std::ptrdiff_t>(at));
      if (random.Below(5) == 0) {
        table.Drop(entry);
        slow.Drop(static_cast<std::uint64_t>(entry));
      } else {
        table.Held(entry);
        slow.Held(static_cast<std::uint64_t>(entry));
      }
    } else if (!jobs.empty()) {
      const ShareTable::Job job = jobs[random.Below(jobs.size())];
      const Extent extent{ObjectId{random.Below(2)}, {random.Below(100), 1 + random.Below(40)}};
      const std::uint64_t gap = random.Below(8);
      const auto expected = slow.Take(static_cast<int>(job), extent, gap, now_ns);
      const std::vector<SharePiece> pieces = table.Take(job, extent, gap, now_ns);
      ASSERT_EQ(pieces.empty(), !expected.has_value()) << "round " << round;
      std::vector<ByteRange> read;
      std::uint64_t at = extent.range.offset;
      for (const SharePiece& piece : pieces) {
        ASSERT_LE(piece.range.offset, at);
        ASSERT_GT(piece.range.end(), at);
        at = piece.range.end();
        if (!piece.is_new) continue;
        read.push_back(piece.range);
        reading.push_back(piece.entry);
        slow.Add(static_cast<int>(job), static_cast<std::uint64_t>(piece.entry), Raw(extent.object),
                 piece.range, now_ns);
        known.insert(static_cast<std::uint64_t>(piece.entry));
      }
      if (!pieces.empty()) {
        ASSERT_GE(at, extent.range.end());
        ASSERT_EQ(read, *expected) << "round " << round;
      }
    }
    for (const ShareEntry gone : table.TakeGone()) known.erase(static_cast<std::uint64_t>(gone));
    ASSERT_EQ(known, slow.ids()) << "round " << round;
    ASSERT_EQ(table.used_bytes(), slow.used());
    ASSERT_LE(table.used_bytes(), capacity);
    ASSERT_EQ(table.quota(), slow.quota());
    for (const ShareTable::Job job : jobs) {
      ASSERT_EQ(table.BytesOf(job), slow.BytesOf(static_cast<int>(job))) << "round " << round;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ShareTablePropertyTest, testing::Range<std::uint64_t>(0, 60));

}  // namespace
}  // namespace headrace
