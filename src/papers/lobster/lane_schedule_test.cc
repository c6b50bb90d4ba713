#include "loader/session/lane_schedule.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/registry/testing/scoped_entry.h"
#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "headrace/index_writer.h"
#include "headrace/papers.h"
#include "loader/batch_queue.h"
#include "loader/session/session.h"
#include "loader/session/session_reports.h"
#include "papers/lobster/testing/schedule_bytes.h"

namespace headrace {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::uint32_t kRanks = 4;
constexpr std::uint64_t kSamples = 160;
constexpr std::uint64_t kBatch = 5;
constexpr std::uint64_t kSteps = kSamples / kRanks / kBatch;  // of an epoch

// Samples of sizes that differ, in one file.
class LaneScheduleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    RegisterPapers();
    std::string folder = ::testing::TempDir() + "headrace-schedule-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    IndexContents contents;
    contents.sample_count = kSamples;
    contents.root = folder_;
    contents.fields.resize(1);
    contents.fields[0].info = {.name = "bytes", .kind = FieldKind::kBytes};
    std::string all;
    for (std::uint64_t id = 0; id < kSamples; ++id) {
      const std::uint64_t bytes = (id % 7 == 0 ? 5 : 1) * (1000 + 10 * id);
      contents.fields[0].extents.push_back({ObjectId{0}, {all.size(), bytes}});
      all.append(bytes, static_cast<char>('a' + id % 26));
    }
    std::ofstream(folder_ + "/all", std::ios::binary) << all;
    contents.objects.push_back({.name = "all", .size = all.size(), .mtime_ns = 0});
    ASSERT_TRUE(WriteIndex(contents, folder_ + "/index.hri").ok());
    auto index = Index::Open(folder_ + "/index.hri");
    ASSERT_TRUE(index.ok()) << index.status().ToString();
    index_ = index.value();
  }

  void TearDown() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }

  [[nodiscard]] static LoaderOptions Options(bool tiers = true) {
    LoaderOptions options;
    options.job = {.batch_size = kBatch, .world_size = kRanks, .ranks = kRanks, .seed = 5};
    options.job.epochs = 3;
    options.threads = 2;
    options.io = "threads";
    if (tiers) {
      options.tiers.tiers = {{.capacity_bytes = 40'000}};
      options.tiers.horizon_epochs = 3;
      options.memory_bytes = 4 * kMiB;
    }
    return options;
  }

  [[nodiscard]] std::string path() const { return folder_ + "/plan.schedule"; }

  void Plan(const LoaderOptions& options, std::uint64_t steps = 3 * kSteps) {
    const auto written = WriteSchedule(index_, options, {.path = path(), .steps = steps});
    ASSERT_TRUE(written.ok()) << written.status().ToString();
    ASSERT_EQ(written.value(), steps);
  }

  // Every lane takes its batches, one after the other. How the run ended, and its samples.
  Status Run(Session& job, Position start, std::vector<std::uint64_t>* ids = nullptr) {
    std::vector<std::unique_ptr<BatchQueue>> queues;
    std::vector<BatchSink*> sinks;
    for (std::uint32_t lane = 0; lane < job.config().options.job.ranks; ++lane) {
      sinks.push_back(queues.emplace_back(std::make_unique<BatchQueue>()).get());
    }
    HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<SessionRun> run, job.Start(start, sinks));
    for (;;) {
      for (std::uint32_t lane = 0; lane < job.config().options.job.ranks; ++lane) {
        if (!queues[lane]->ready()) run->OnWaiting(lane);
        const Result<TakenBatch> taken = queues[lane]->Take(-1);
        if (!taken.ok()) {
          job.Stop();
          return taken.status();
        }
        if (taken.value().ended) {
          job.Stop();
          return Status();
        }
        for (const SampleId id : taken.value().batch->samples) {
          if (ids != nullptr) ids->push_back(Raw(id));
        }
        run->OnTaken(lane, *taken.value().batch, taken.value().batch->times.handed_ns);
      }
    }
  }

  std::unique_ptr<Session> Open(LoaderOptions options, const std::string& schedule) {
    auto job = TryOpen(std::move(options), schedule);
    EXPECT_TRUE(job.ok()) << job.status().ToString();
    return job.ok() ? std::move(job).value() : nullptr;
  }

  [[nodiscard]] std::string Refusal(LoaderOptions options, const std::string& schedule) const {
    return std::string(TryOpen(std::move(options), schedule).status().message());
  }

  [[nodiscard]] Result<std::unique_ptr<Session>> TryOpen(LoaderOptions options,
                                                         const std::string& schedule) const {
    options.schedule = schedule;
    HEADRACE_ASSIGN_OR_RETURN(LoaderConfig config, ResolveConfig(index_, options));
    return Session::Open(index_, std::move(config));
  }

  [[nodiscard]] std::vector<std::byte> ReadPlan() const {
    std::vector<std::byte> bytes(std::filesystem::file_size(path()));
    std::ifstream(path(), std::ios::binary)
        .read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return bytes;
  }

  void WritePlan(const std::vector<std::byte>& bytes) const {
    std::ofstream(path(), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

  std::string folder_;
  std::shared_ptr<const Index> index_;
};

TEST_F(LaneScheduleTest, WhateverThePolicyBatchesAreTheSame) {
  std::vector<std::uint64_t> before;
  for (const LanePolicyFactory* each : LanePolicies().rows()) {
    const std::string_view name = each->name();
    const auto job = Open(Options(), std::string(name));
    ASSERT_NE(job, nullptr);
    std::vector<std::uint64_t> ids;
    ASSERT_TRUE(Run(*job, {}, &ids).ok());
    EXPECT_EQ(ids.size(), 3 * kSamples);
    EXPECT_EQ(job->reports().stats(0).value().schedule.name, name);
    if (!before.empty()) {
      EXPECT_EQ(ids, before) << name;
    }
    before = ids;
  }
}

// A new policy is one file, such as this, and one row of LanePolicies().
class LastLaneFirst final : public LanePolicy {
 public:
  static inline int asked = 0;  // by the engine's thread, before batches are handed over
  Status Split(Position /*at*/, std::span<const LaneWork> work,
               std::span<LaneShare> shares) override {
    ++asked;
    for (LaneShare& share : shares) share = {.reads = 1, .decodes = 1};
    shares.back() = {.reads = static_cast<std::uint32_t>(work.size()), .decodes = 2};
    return Status();
  }
};

TEST_F(LaneScheduleTest, APolicyOfATestIsAskedForEveryStep) {
  const LanePolicyFactory factory("last_lane_first",
                                  [](const LanePolicyRequest&) -> LanePolicyFactory::MakePolicy {
                                    return [] { return std::make_unique<LastLaneFirst>(); };
                                  });
  const ScopedEntry<LanePolicyFactory> added(LanePolicies(), factory);
  std::vector<std::uint64_t> ids;
  std::vector<std::uint64_t> without;
  ASSERT_TRUE(Run(*Open(Options(), "last_lane_first"), {}, &ids).ok());
  EXPECT_EQ(LastLaneFirst::asked, 3 * kSteps);
  ASSERT_TRUE(Run(*Open(Options(), LanePolicies().default_name()), {}, &without).ok());
  EXPECT_EQ(ids, without);
}

TEST_F(LaneScheduleTest, ANameThatIsNoneListsThoseThereAre) {
  EXPECT_EQ(
      Refusal(Options(), "lobsters"),
      "schedule: got 'lobsters', must be one of 'shared_deadline', 'fixed', "
      "'lobster', 'lobster_search', 'proportional', or a file that `headrace plan --schedule` "
      "wrote; there is none of that name");
  EXPECT_THAT(Refusal(Options(), folder_), HasSubstr("must be a file"));
  EXPECT_THAT(Refusal(Options(), folder_ + "/all"),
              HasSubstr("/all, byte 0: not a schedule; give"));
}

TEST_F(LaneScheduleTest, ASchedulesSharesAndOpsAreFollowedToItsEndAndBeyond) {
  Plan(Options(), /*steps=*/2 * kSteps + 3);
  const auto job = Open(Options(), path());
  ASSERT_NE(job, nullptr);
  std::vector<std::uint64_t> ids;
  const Status ended = Run(*job, {}, &ids);
  EXPECT_TRUE(ended.ok()) << ended.ToString();
  EXPECT_EQ(ids.size(), 3 * kSamples);
  EXPECT_EQ(job->reports().stats(0).value().schedule.planned_steps, 2 * kSteps + 3);
  EXPECT_GT(job->reports().stats(0).value().engine.tiers.uses.at(0).samples, 0);
  // Again, with what tiers hold now, and from the middle, past the end: as planned all the same.
  for (const Position start : {Position{}, Position{.epoch = 1, .step = 2},
                               Position{.epoch = 2, .step = 5}, Position{.epoch = 0, .step = 7}}) {
    const Status again = Run(*job, start);
    EXPECT_TRUE(again.ok()) << again.ToString();
  }
}

TEST_F(LaneScheduleTest, AScheduleForAnotherJobIsRefusedByWhatDiffers) {
  Plan(Options());
  const auto refusal = [&](const std::function<void(LoaderOptions&)>& change) {
    LoaderOptions options = Options();
    change(options);
    return Refusal(options, path());
  };
  EXPECT_EQ(refusal([](LoaderOptions&) {}), "");
  EXPECT_THAT(refusal([](LoaderOptions& each) { each.job.seed = 6; }),
              HasSubstr("it was planned for something else: seed 5, the run has 6; plan again"));
  EXPECT_THAT(refusal([](LoaderOptions& each) { each.job.world_size = 8; }),
              HasSubstr("world size 4, the run has 8"));
  EXPECT_THAT(refusal([](LoaderOptions& each) {
                each.job.ranks = 2;
                each.job.rank = 2;
              }),
              HasSubstr("first rank 0, the run has 2; ranks of the node 4, the run has 2"));
  EXPECT_THAT(refusal([](LoaderOptions& each) { each.job.batch_size = 4; }),
              ContainsRegex("another order .*: digest [0-9]+, the run has [0-9]+; plan again"));
  EXPECT_THAT(refusal([](LoaderOptions& each) { each.tiers.placement = "lru"; }),
              HasSubstr("other tiers"));
  EXPECT_THAT(refusal([](LoaderOptions& each) { each.tiers.tiers.clear(); }),
              HasSubstr("other tiers"));
  EXPECT_EQ(refusal([](LoaderOptions& each) { each.threads = 1; }), "") << "threads may differ";
}

TEST_F(LaneScheduleTest, DamageAnywhereIsFoundBeforeARunBegins) {
  Plan(Options());
  const std::vector<std::byte> right = ReadPlan();
  const auto refusal = [&](const std::vector<std::byte>& bytes) {
    WritePlan(bytes);
    return Refusal(Options(), path());
  };
  const std::string where = "reading schedule " + path() + ", byte ";
  std::vector<std::byte> flipped = right;
  flipped[right.size() / 2] ^= std::byte{1};
  EXPECT_THAT(refusal(flipped), StartsWith(where));
  EXPECT_THAT(refusal(flipped), EndsWith("is wrong; copy the file again, or make it again"));
  std::vector<std::byte> cut(right.begin(), right.end() - 1);
  EXPECT_EQ(refusal(cut), where + std::to_string(cut.size()) + ": cut off after " +
                              std::to_string(3 * kSteps) +
                              " steps; copy the file again, or make it again");
  std::vector<std::byte> longer = right;
  longer.resize(right.size() + 7);
  EXPECT_EQ(refusal(longer), where + std::to_string(right.size()) +
                                 ": 7 bytes after the end; copy the file again, or make it "
                                 "again");
  EXPECT_EQ(refusal(right), "");
}

// The file is right in itself and its header is the job's: but an eviction is not the placement's.
TEST_F(LaneScheduleTest, OpsThatAreNotThePlacementsEndTheRunAtTheirStep) {
  Plan(Options());
  const std::vector<std::byte> bytes = ReadPlan();
  ScheduleReader reader = ScheduleReader::Open({.bytes = bytes, .name = path()}).value();
  std::vector<std::byte> changed;
  ScheduleWriter writer = ScheduleWriter::Make(reader.header(), Into(changed)).value();
  ScheduledStep step;
  while (reader.Next(step).value()) {
    if (step.at == Position{.epoch = 1, .step = 3}) step.ops.push_back({.block = 1, .to = 0});
    ASSERT_TRUE(writer.Add(step).ok());
  }
  ASSERT_TRUE(writer.Finish().ok());
  WritePlan(changed);
  const auto job = Open(Options(), path());
  ASSERT_NE(job, nullptr);
  std::vector<std::uint64_t> ids;
  const Status ended = Run(*job, {}, &ids);
  EXPECT_EQ(ended.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(ended.message()),
              HasSubstr("following schedule " + path() +
                        ": step 3 of epoch 1: the operations of the tiers differ from op "));
  EXPECT_THAT(std::string(ended.message()),
              HasSubstr("the schedule has block 1 into tier 0, the run's placement nothing; "));
  EXPECT_LE(ids.size(), kSamples + 3 * kBatch * kRanks);
}

TEST_F(LaneScheduleTest, AFileThatIsNoScheduleIsNotReplaced) {
  const auto status = WriteSchedule(index_, Options(), {.path = folder_ + "/all"}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is no schedule, so it is not replaced"));
  Plan(Options());
  Plan(Options());  // One that is.
}

TEST_F(LaneScheduleTest, AFileThatIsCutBetweenRunsIsNamed) {
  Plan(Options());
  const auto job = Open(Options(), path());
  ASSERT_NE(job, nullptr);
  std::filesystem::resize_file(path(), 0);
  EXPECT_FALSE(Run(*job, {}).ok()) << "it is read as zeros";
  EXPECT_EQ(Run(*job, {}).ToString(), "DataLoss: schedule " + path() +
                                          ": the file was cut while it was in use; write it again");
}

TEST_F(LaneScheduleTest, AListHasNoScheduleOfItsOwnAndIsOfOneRank) {
  LoaderOptions options = Options();
  options.job.world_size = options.job.ranks = 1;
  Plan(options);
  const ListOrderOptions list = {.ids = {SampleId{1}}, .batch_ends = {1}};
  BatchQueue queue;
  const auto refused = [&](Session& job) {
    return job.StartList(list, &queue).status().ToString();
  };
  EXPECT_EQ(refused(*Open(options, path())),
            "InvalidArgument: schedule " + path() +
                ": a sampler says what comes when, and a schedule file is for the job's own order; "
                "leave one of them out");
  EXPECT_EQ(refused(*Open(Options(), "lobster")),
            "InvalidArgument: a list of samples for 4 ranks of a node: each rank has a sampler of "
            "its own; write Job(node=False)");
}

TEST_F(LaneScheduleTest, WhatPreprocessingTakesIsLearnedAndTakenAlong) {
  const auto job = Open(Options(/*tiers=*/false), "lobster");
  ASSERT_NE(job, nullptr);
  ASSERT_TRUE(Run(*job, {}).ok());
  const std::vector<PreprocessRow> rows = job->reports().decode_times();
  ASSERT_FALSE(rows.empty());
  LoaderOptions options = Options(/*tiers=*/false);
  options.preprocess = rows;
  const auto next = Open(options, "lobster");
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->reports().decode_times(), rows);
  options.preprocess[0].seconds = -1;
  EXPECT_NE(Refusal(options, "lobster"), "");
}

}  // namespace
}  // namespace headrace
