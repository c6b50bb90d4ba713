#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device_reads.h"
#include "memory_reads.h"
#include "places.h"
#include "read_files.h"
#include "rounds.h"
#include "store/testing/temp_files.h"
#include "store/uring_file_store.h"

namespace headrace {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kBlock = 4096;
constexpr std::int64_t kShortNs = 1;

// A cell whose readings are given, in MB/s; the last is repeated.
Cell CellOf(const std::string& name, std::vector<double> rates) {
  auto next = std::make_shared<std::size_t>(0);
  return {name, [rates = std::move(rates), next]() -> Result<Reading> {
            const std::size_t i = std::min((*next)++, rates.size() - 1);
            return Reading{.bytes_per_second = rates[i] * 1e6};
          }};
}

Cell Measured(std::vector<double> rates, const Protocol& protocol) {
  std::vector<Row> rows(1);
  rows[0].cells.push_back(CellOf("ring", std::move(rates)));
  MeasureRows(rows, protocol, [](int /*round*/) {});
  return rows[0].cells[0];
}

TEST(RooflineTest, ACellSettlesWhenItsLastFiveReadingsAgree) {
  const Protocol protocol;
  const Cell cell = Measured({10, 200, 100, 104, 96, 105, 100, 1}, protocol);
  const Figure figure = FigureOf(cell, protocol);
  EXPECT_EQ(cell.readings.size(), 7U);
  EXPECT_EQ(figure.state, CellState::kSettled);
  EXPECT_DOUBLE_EQ(figure.median.bytes_per_second, 100e6);
  EXPECT_DOUBLE_EQ(figure.range, 0.09);
}

TEST(RooflineTest, ACellThatNeverSettlesHasNoFigure) {
  const Protocol protocol{.rounds = 6};
  std::vector<Row> rows(1);
  rows[0].phase = "cold";
  rows[0].cells.push_back(CellOf("ring", {100, 100, 100, 100, 111, 100}));
  MeasureRows(rows, protocol, [](int /*round*/) {});
  EXPECT_EQ(rows[0].cells[0].readings.size(), 6U);
  EXPECT_EQ(FigureOf(rows[0].cells[0], protocol).state, CellState::kDiscarded);
  EXPECT_THAT(TableOf(rows, protocol), HasSubstr("discarded (11 %)"));
  EXPECT_THAT(JsonOf(rows, protocol), HasSubstr(R"("state": "discarded", "range": 0.1100)"));
}

TEST(RooflineTest, OneRoundGivesOneReading) {
  const Protocol protocol{.rounds = 1};
  const Cell cell = Measured({70, 80}, protocol);
  EXPECT_EQ(cell.readings.size(), 1U);
  EXPECT_EQ(FigureOf(cell, protocol).state, CellState::kReading);
  EXPECT_DOUBLE_EQ(FigureOf(cell, protocol).median.bytes_per_second, 70e6);
}

TEST(RooflineTest, AFailedCellSaysWhyAndIsNotMeasuredAgain) {
  const Protocol protocol;
  int calls = 0;
  std::vector<Row> rows(1);
  rows[0].cells.push_back({"ring", [&calls]() -> Result<Reading> {
                             ++calls;
                             return Status(StatusCode::kDataLoss, "a \"cause\"");
                           }});
  MeasureRows(rows, protocol, [](int /*round*/) {});
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(JsonOf(rows, protocol), HasSubstr(R"({"state": "failed", "reason": "a \"cause\""})"));
}

TEST(RooflineTest, TheStoresShareIsOfTheSameRounds) {
  std::vector<Row> rows(1);
  rows[0].bare = "ring";
  rows[0].cells = {CellOf("store", {90, 45, 180}), CellOf("ring", {100, 50, 200})};
  MeasureRows(rows, {.rounds = 3}, [](int /*round*/) {});
  EXPECT_DOUBLE_EQ(StoreShare(rows[0]).value_or(0), 0.9);
}

class RooflineFilesTest : public testing::Test {
 protected:
  std::unique_ptr<ReadFiles> Open(const std::vector<std::uint64_t>& sizes) {
    std::vector<std::string> paths;
    for (const std::uint64_t size : sizes) {
      paths.push_back(folder_.folder() + "/" + std::to_string(paths.size()));
      EXPECT_TRUE(MakeRandomFile(paths.back(), size).ok());
    }
    Result<std::unique_ptr<ReadFiles>> files = ReadFiles::Open(paths);
    EXPECT_TRUE(files.ok());
    return std::move(files).value();
  }

  // A file system in memory cannot drop pages.
  static bool CannotBeCold(const ReadFiles& files) { return !files.MakeCold().ok(); }

  TempFiles folder_;
};

using At = std::pair<std::size_t, std::uint64_t>;

std::vector<At> AllOf(const Places& places, int threads) {
  std::vector<At> blocks;
  for (int thread = 0; thread < threads; ++thread) {
    Walk walk = places.Begin(thread, threads, /*once=*/true);
    while (const std::optional<Place> place = walk.Next()) {
      blocks.emplace_back(place->file, place->offset);
    }
  }
  return blocks;
}

TEST_F(RooflineFilesTest, WalksOfAllThreadsReadEachWholeBlockOnce) {
  const auto files = Open({3 * kBlock + 5, 100, 0, 4 * kBlock});
  const std::set<At> all = {{0, 0},      {0, kBlock},     {0, 2 * kBlock}, {3, 0},
                            {3, kBlock}, {3, 2 * kBlock}, {3, 3 * kBlock}};
  for (const bool random : {false, true}) {
    for (const int threads : {1, 2, 3}) {
      const Places places(*files, kBlock, random, /*seed=*/7);
      const std::vector<At> blocks = AllOf(places, threads);
      EXPECT_EQ(blocks.size(), all.size());
      EXPECT_EQ(std::set<At>(blocks.begin(), blocks.end()), all);
    }
  }
}

TEST_F(RooflineFilesTest, AWalkContinuesWhereThePreviousOneEnded) {
  const auto files = Open({16 * kBlock});
  Places places(*files, kBlock, /*random=*/false, /*seed=*/1);
  const std::vector<At> before = AllOf(places, 1);
  places.Skip(15);
  EXPECT_EQ(AllOf(places, 1).front(), before.back());
}

TEST_F(RooflineFilesTest, AFileWithOnePageInThePageCacheIsNotCold) {
  const auto files = Open({64 * kBlock});
  if (CannotBeCold(*files)) GTEST_SKIP() << "pages cannot be dropped here";
  const int fd = ::open(files->info(0).path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
  char byte = 0;
  ASSERT_EQ(::pread(fd, &byte, 1, 9 * kBlock), 1);
  ::close(fd);
  EXPECT_EQ(files->CheckCold().message(),
            "reading cold: the page cache holds 1 of the files' 64 pages");
  EXPECT_FALSE(files->CheckWarm().ok());
  EXPECT_TRUE(files->MakeWarm().ok());
  EXPECT_TRUE(files->MakeCold().ok());
}

TEST_F(RooflineFilesTest, EveryMethodReadsTheDeviceAndLeavesThePageCacheEmpty) {
  const auto files = Open({256 * kBlock});
  if (CannotBeCold(*files)) GTEST_SKIP() << "pages cannot be dropped here";
  if (const Status status = UringFileStore::Probe(); !status.ok()) {
    GTEST_SKIP() << status.ToString();
  }
  const Load load{.block_bytes = 4 * kBlock, .depth = 3, .threads = 2};
  Result<DeviceReads> reads = DeviceReads::Make(*files, 24 * kBlock, /*buffered=*/false);
  ASSERT_TRUE(reads.ok());
  for (const DeviceMethod method :
       {DeviceMethod::kStore, DeviceMethod::kRing, DeviceMethod::kFixed, DeviceMethod::kSmall}) {
    Places places(*files, load.block_bytes, /*random=*/true, /*seed=*/7);
    const Result<Reading> reading = reads.value().Measure(method, load, places, kShortNs);
    ASSERT_TRUE(reading.ok()) << reading.status().ToString();
    EXPECT_GT(reading.value().bytes_per_second, 0);
    EXPECT_GE(reading.value().operations, 6U);
    EXPECT_TRUE(files->CheckCold().ok());
  }
}

TEST_F(RooflineFilesTest, WarmReadsNeedWarmFiles) {
  const auto files = Open({64 * kBlock});
  if (CannotBeCold(*files)) GTEST_SKIP() << "pages cannot be dropped here";
  const Load load{.block_bytes = kBlock, .depth = 0, .threads = 2};
  Result<MemoryReads> reads = MemoryReads::Make(*files, load.threads, load.block_bytes);
  ASSERT_TRUE(reads.ok());
  ASSERT_TRUE(files->CheckCold().ok());
  Places places(*files, kBlock, /*random=*/true, /*seed=*/7);
  const auto measure = [&](CacheMethod method) {
    return reads.value().MeasureCache(method, load, places, kShortNs);
  };
  EXPECT_EQ(measure(CacheMethod::kGather).status().message(),
            "reading warm: the page cache holds 0 of the files' 64 pages; take smaller files");
  ASSERT_TRUE(files->MakeWarm().ok());
  for (const CacheMethod method :
       {CacheMethod::kStore, CacheMethod::kPread, CacheMethod::kGather}) {
    const Result<Reading> reading = measure(method);
    ASSERT_TRUE(reading.ok()) << reading.status().ToString();
    EXPECT_GT(reading.value().bytes_per_second, 0);
  }
}

TEST_F(RooflineFilesTest, CopiesNeedNoFiles) {
  const auto files = Open({});
  Result<MemoryReads> reads = MemoryReads::Make(*files, 1, kBlock);
  ASSERT_TRUE(reads.ok());
  for (const CopyMethod method :
       {CopyMethod::kCopy, CopyMethod::kChecksum, CopyMethod::kCopyChecksum}) {
    const Result<Reading> reading =
        reads.value().MeasureCopy(method, {kBlock, 0, 1}, /*seed=*/7, kShortNs);
    ASSERT_TRUE(reading.ok());
    EXPECT_GT(reading.value().bytes_per_second, 0);
  }
}

}  // namespace
}  // namespace headrace
