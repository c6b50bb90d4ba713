#include "papers/lobster/schedule_file.h"

#include <string>
#include <vector>

#include "base/hash.h"
#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "papers/lobster/testing/schedule_bytes.h"

namespace headrace {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Bytes = std::vector<std::byte>;

ScheduleHeader Header() {
  return {.dataset = {11, 12},
          .plan = {13, 14},
          .seed = 15,
          .world_size = 16,
          .first_rank = 4,
          .lanes = 3,
          .loading_threads = 20,
          .decode_threads = 10,
          .start = {.epoch = 2, .step = 5}};
}

// Possible contents of a schedule: threads that stay for some steps, ops of every kind.
std::vector<ScheduledStep> RandomSteps(const ScheduleHeader& header, std::uint64_t seed,
                                       int count) {
  Prng random(seed, 0, RandomStream::kOrder);
  std::vector<ScheduledStep> steps;
  Position at = header.start;
  for (int i = 0; i < count; ++i) {
    ScheduledStep step{.at = at};
    if (i > 0 && random.Below(3) > 0) {
      step.lanes = steps.back().lanes;
    } else {
      for (std::uint32_t lane = 0; lane < header.lanes; ++lane) {
        step.lanes.push_back({.loading = static_cast<std::uint32_t>(
                                  1 + random.Below(header.loading_threads / header.lanes)),
                              .decode = static_cast<std::uint32_t>(
                                  random.Below(header.decode_threads / header.lanes + 1))});
      }
    }
    for (std::uint64_t op = random.Below(20); op > 0; --op) {
      const auto block = static_cast<std::uint32_t>(
          random.Below(2) == 0 ? random.Below(100) : random.Below(0xffff'ffff));
      const auto tier = static_cast<TierNumber>(random.Below(kTiersMax - 1));
      const CacheOp sorts[] = {
          {.block = block, .to = tier},
          {.block = block, .to = tier, .ahead = true},
          {.block = block, .from = tier},
          {.block = block, .from = tier, .to = static_cast<TierNumber>(tier + 1)},
      };
      step.ops.push_back(sorts[random.Below(4)]);
    }
    steps.push_back(std::move(step));
    at = random.Below(4) == 0 ? Position{.epoch = at.epoch + 1, .step = 0}
                              : Position{.epoch = at.epoch, .step = at.step + 1};
  }
  return steps;
}

Bytes FileOf(const ScheduleHeader& header, const std::vector<ScheduledStep>& steps) {
  Bytes file;
  auto writer = ScheduleWriter::Make(header, Into(file));
  EXPECT_TRUE(writer.ok()) << writer.status().ToString();
  for (const ScheduledStep& step : steps) {
    const Status added = writer.value().Add(step);
    EXPECT_TRUE(added.ok()) << added.ToString();
  }
  EXPECT_TRUE(writer.value().Finish().ok());
  return file;
}

// All steps, or the first error.
Result<std::vector<ScheduledStep>> ReadSteps(std::span<const std::byte> file) {
  HEADRACE_ASSIGN_OR_RETURN(ScheduleReader reader,
                            ScheduleReader::Open({.bytes = file, .name = "a.schedule"}));
  std::vector<ScheduledStep> steps;
  ScheduledStep step;
  while (true) {
    HEADRACE_ASSIGN_OR_RETURN(const bool more, reader.Next(step));
    if (!more) return steps;
    steps.push_back(step);
  }
}

// As ReadSteps(). VerifySchedule() reports the same.
Result<std::vector<ScheduledStep>> Read(std::span<const std::byte> file) {
  const Result<ScheduleHeader> verified = VerifySchedule({.bytes = file, .name = "a.schedule"});
  auto read = ReadSteps(file);
  EXPECT_EQ(verified.status().ToString(), read.status().ToString());
  return read;
}

std::string ErrorOf(std::span<const std::byte> file) {
  const Status status = Read(file).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  return std::string(status.message());
}

TEST(ScheduleFileTest, ReadsWhatWasWritten) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto steps = RandomSteps(Header(), seed, static_cast<int>(seed));
    const Bytes file = FileOf(Header(), steps);
    const auto reader = ScheduleReader::Open({.bytes = file, .name = "a.schedule"});
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    EXPECT_EQ(reader.value().header(), Header());
    const auto read = Read(file);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read.value(), steps);
  }
}

// Existing files depend on the format: a change here needs another version.
TEST(ScheduleFileTest, FormatIsFrozen) {
  const Bytes file = FileOf(Header(), RandomSteps(Header(), 1, 40));
  EXPECT_EQ(file.size(), 2738U);
  EXPECT_EQ(Hash64(file), 8085612481221629790U);
}

TEST(ScheduleFileTest, AStepThatChangesNothingTakes16Bytes) {
  std::vector<ScheduledStep> steps(
      1000, ScheduledStep{.lanes = std::vector<LaneThreads>(3, {.loading = 6, .decode = 3})});
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i].at = {.epoch = 2, .step = 5 + i};
  EXPECT_LE(FileOf(Header(), steps).size(), 104 + 1000 * 16U);
}

TEST(ScheduleFileTest, EveryCutIsFound) {
  const Bytes file = FileOf(Header(), RandomSteps(Header(), 2, 12));
  for (std::size_t size = 0; size < file.size(); ++size) {
    const Status status = Read(std::span(file).first(size)).status();
    ASSERT_EQ(status.code(), StatusCode::kDataLoss) << size << " bytes";
    ASSERT_THAT(std::string(status.message()), HasSubstr("reading schedule a.schedule, byte "));
  }
  EXPECT_THAT(ErrorOf(std::span(file).first(file.size() - 1)), HasSubstr("cut off after 12 steps"));
  EXPECT_THAT(ErrorOf(std::span(file).first(50)), HasSubstr("byte 50: cut off inside the header"));
}

TEST(ScheduleFileTest, EveryFlippedBitIsFound) {
  Bytes file = FileOf(Header(), RandomSteps(Header(), 3, 12));
  for (std::size_t at = 0; at < file.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      file[at] ^= static_cast<std::byte>(1U << bit);
      const Status status = Read(file).status();
      const bool is_version = at >= 8 && at < 12;
      ASSERT_EQ(status.code(), is_version ? StatusCode::kFailedPrecondition : StatusCode::kDataLoss)
          << "byte " << at << " bit " << bit;
      file[at] ^= static_cast<std::byte>(1U << bit);
    }
  }
  EXPECT_TRUE(Read(file).ok());
}

TEST(ScheduleFileTest, RecordsLeftOutOrSwappedAreFound) {
  std::vector<ScheduledStep> steps(3);
  for (std::size_t i = 0; i < 3; ++i) {
    steps[i] = {
        .at = {.epoch = 2, .step = 5 + i},
        .lanes = std::vector<LaneThreads>(3, {.loading = static_cast<std::uint32_t>(1 + i)})};
  }
  const Bytes file = FileOf(Header(), steps);
  // Kind, flags, 3 lanes of 2 bytes, number of ops; size and checksum.
  constexpr auto kRecord = static_cast<std::ptrdiff_t>(4 + 2 + 6 + 1 + 8);
  constexpr auto kFirst = static_cast<std::ptrdiff_t>(kScheduleHeaderBytes + 8);
  Bytes left_out = file;
  left_out.erase(left_out.begin() + kFirst + kRecord, left_out.begin() + kFirst + 2 * kRecord);
  EXPECT_THAT(ErrorOf(left_out), HasSubstr("byte 125: checksum of the record after 1 step is"));
  Bytes swapped = file;
  std::swap_ranges(swapped.begin() + kFirst, swapped.begin() + kFirst + kRecord,
                   swapped.begin() + kFirst + kRecord);
  EXPECT_THAT(ErrorOf(swapped), HasSubstr("byte 104: checksum of the record after 0 steps"));
  Bytes longer = file;
  longer.push_back(std::byte{0});
  EXPECT_THAT(ErrorOf(longer), HasSubstr("byte 181: 1 byte after the end"));
}

TEST(ScheduleFileTest, WhatIsRightInItsChecksumsMayStillBeWrong) {
  const Bytes file = FileOf(Header(), RandomSteps(Header(), 4, 3));
  const auto with = [&](std::size_t at, unsigned value) {
    Bytes changed = file;
    changed[at] = static_cast<std::byte>(value);
    Reseal(changed);
    return changed;
  };
  EXPECT_THAT(ErrorOf(with(12, 1)), HasSubstr("reserved bytes of the header are not 0"));
  EXPECT_THAT(ErrorOf(with(64, 0)), HasSubstr("lanes: got 0"));
  EXPECT_THAT(ErrorOf(with(64, 17)), HasSubstr("world_size: got 16, must be in [17"));
  EXPECT_THAT(ErrorOf(with(60, 14)), HasSubstr("first_rank: got 14, must be in [0, 13]"));
  EXPECT_THAT(ErrorOf(with(68, 2)), HasSubstr("loading_threads: got 2, must be in [3, 65536]"));
  EXPECT_THAT(ErrorOf(with(108, 9)), HasSubstr("byte 104: schedule record after 0 steps"));
  EXPECT_THAT(ErrorOf(with(109, 1)), HasSubstr("malformed"));  // as the step before: there is none
  EXPECT_THAT(ErrorOf(with(109, 4)), HasSubstr("malformed"));
  EXPECT_THAT(ErrorOf(with(110, 0)), HasSubstr("a lane has 0 loading threads, must have 1"));
  EXPECT_THAT(ErrorOf(with(110, 100)), HasSubstr("there are 20 and 10"));
  EXPECT_THAT(ErrorOf(with(116, 0x7f)), HasSubstr("malformed"));  // more ops than bytes
  const std::size_t steps = file.size() - 9;                      // of the end record
  EXPECT_THAT(ErrorOf(with(steps, 4)), HasSubstr("it says 4 steps, the file has 3; copy"));
}

TEST(ScheduleFileTest, ARecordThatIsTooLargeIsTold) {
  Bytes file = FileOf(Header(), RandomSteps(Header(), 1, 1));
  file[107] = std::byte{0x40};  // the highest byte of its length
  EXPECT_THAT(ErrorOf(file), StartsWith("reading schedule a.schedule, byte 104: a record of 1073"));
  EXPECT_THAT(ErrorOf(file),
              EndsWith(" bytes, at most 67108864; copy the file again, or make it again"));
}

TEST(ScheduleFileTest, ARunThatBeginsBeforeItIsTold) {
  const Bytes file = FileOf(Header(), {});
  const auto reader = ScheduleReader::Open({.bytes = file, .name = "a.schedule"}).value();
  EXPECT_TRUE(reader.CheckStart({.epoch = 2, .step = 5}).ok());
  EXPECT_EQ(reader.CheckStart({.epoch = 2, .step = 4}).ToString(),
            "FailedPrecondition: following schedule a.schedule: it begins at step 5 of epoch 2, "
            "after the run's start at step 4 of epoch 2: start the run later, or make a schedule "
            "that begins earlier");
}

TEST(ScheduleFileTest, AnErrorStays) {
  Bytes file = FileOf(Header(), RandomSteps(Header(), 5, 6));
  file.pop_back();
  auto reader = ScheduleReader::Open({.bytes = file, .name = "a.schedule"});
  ASSERT_TRUE(reader.ok());
  ScheduledStep step;
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(reader.value().Next(step).ok());
  EXPECT_EQ(reader.value().Next(step).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(reader.value().Next(step).status().code(), StatusCode::kDataLoss);
}

TEST(ScheduleFileTest, OtherVersionsAndOtherFilesAreTold) {
  Bytes file = FileOf(Header(), {});
  file[8] = std::byte{2};
  const Status status = ScheduleReader::Open({.bytes = file, .name = "a.schedule"}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "reading schedule a.schedule, byte 8: format version 2, this headrace reads 1: make it "
            "again");
  EXPECT_EQ(ErrorOf({}),
            "reading schedule a.schedule, byte 0: not a schedule; give a file that `headrace plan "
            "--schedule` wrote");
}

TEST(ScheduleWriterTest, RefusesWhatAReaderWould) {
  ScheduleHeader header = Header();
  header.lanes = 0;
  Bytes file;
  EXPECT_EQ(ScheduleWriter::Make(header, Into(file)).status().message(),
            "schedule lanes: got 0, must be in [1, 1024]");
  EXPECT_TRUE(file.empty());
  auto writer = ScheduleWriter::Make(Header(), Into(file));
  const auto error = [&](const ScheduledStep& step) {
    const std::size_t size = file.size();
    const Status status = writer.value().Add(step);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(file.size(), size);
    return std::string(status.message());
  };
  const std::vector<LaneThreads> lanes(3);
  const Position start = Header().start;
  EXPECT_EQ(error({.at = {.epoch = 2, .step = 6}, .lanes = lanes}),
            "schedule step 6 of epoch 2: out of order, the next must be step 5 of epoch 2");
  EXPECT_THAT(error({.at = start, .lanes = {{}, {}}}),
              HasSubstr("threads of 2 lanes, there are 3"));
  EXPECT_THAT(error({.at = start, .lanes = {{}, {.loading = 0}, {}}}),
              HasSubstr("has 0 loading threads, must have 1"));
  EXPECT_THAT(error({.at = start, .lanes = {{.loading = 19}, {}, {}}}),
              HasSubstr("21 loading and 0 decode threads, there are 20 and 10"));
  EXPECT_THAT(error({.at = start, .lanes = {{.decode = 11}, {}, {}}}), HasSubstr("11 decode"));
  const CacheOp wrong[] = {{.block = 7},
                           {.block = 7, .from = 1, .to = 1},
                           {.block = 7, .to = kTiersMax},
                           {.block = 7, .from = 0, .to = 1, .ahead = true},
                           {.block = 7, .from = 0, .ahead = true}};
  for (const CacheOp& op : wrong) {
    EXPECT_THAT(error({.at = start, .lanes = lanes, .ops = {op}}),
                HasSubstr("op 0: block 7 from tier"));
  }
  ASSERT_TRUE(writer.value().Add({.at = start, .lanes = lanes}).ok());
  EXPECT_THAT(error({.at = start, .lanes = lanes}), HasSubstr("or the first of the next epoch"));
  ASSERT_TRUE(writer.value().Add({.at = {.epoch = 3, .step = 0}, .lanes = lanes}).ok());
  ASSERT_TRUE(writer.value().Finish().ok());
  EXPECT_EQ(Read(file).value().size(), 2U);
}

TEST(ScheduleWriterTest, ASinkThatFailsIsNotAskedAgain) {
  int calls = 0;
  auto writer = ScheduleWriter::Make(Header(), [&](std::span<const std::byte>) {
    return ++calls < 2 ? Status() : Status(StatusCode::kResourceExhausted, "disk is full");
  });
  ASSERT_TRUE(writer.ok());
  const ScheduledStep step{.at = Header().start, .lanes = std::vector<LaneThreads>(3)};
  EXPECT_EQ(writer.value().Add(step).message(), "disk is full");
  EXPECT_EQ(writer.value().Finish().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(calls, 2);
  const auto refused = ScheduleWriter::Make(Header(), [](std::span<const std::byte>) {
    return Status(StatusCode::kUnavailable, "gone");
  });
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
}

TEST(ScheduleWriterTest, AStepOfTooManyOpsIsRefused) {
  Bytes file;
  auto writer = ScheduleWriter::Make(Header(), Into(file));
  ScheduledStep step{.at = Header().start, .lanes = std::vector<LaneThreads>(3)};
  step.ops.assign(12'000'000, CacheOp{.block = 0, .to = 0});
  // Far from the one before it, each takes 6 bytes.
  for (std::size_t i = 0; i < step.ops.size(); i += 2) step.ops[i].block = 0xffff'fffe;
  EXPECT_EQ(writer.value().Add(step).code(), StatusCode::kResourceExhausted);
  step.ops.resize(1000);
  EXPECT_TRUE(writer.value().Add(step).ok());
}

}  // namespace
}  // namespace headrace
