// Policies of Lobster in virtual time: shares that move slowly and never make it worse, a schedule
// that is followed, and ranks' work levelled by the order itself.

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "base/prng.h"
#include "engine/testing/lane_training.h"
#include "gtest/gtest.h"
#include "papers/lobster/decode_limit.h"
#include "papers/lobster/lobster_policy.h"
#include "papers/lobster/make_schedule.h"
#include "papers/lobster/schedule_policy.h"
#include "papers/lobster/testing/schedule_bytes.h"
#include "plan/batch_order.h"
#include "plan/order_factory.h"

namespace headrace {
namespace {

constexpr LaneBudget kBudget{.reads = 64, .decodes = kCores};
#ifdef NDEBUG
constexpr std::uint64_t kSeeds = 8;
#else
constexpr std::uint64_t kSeeds = 2;  // Slow builds look for other mistakes.
#endif
constexpr bool kManySeeds = kSeeds >= 8;

// Keeps what another policy said.
class Recording final : public LanePolicy {
 public:
  explicit Recording(LanePolicy& policy) : policy_(policy) {}
  Status Split(Position at, std::span<const LaneWork> work, std::span<LaneShare> shares) override {
    Status status = policy_.Split(at, work, shares);
    said.emplace_back(shares.begin(), shares.end());
    return status;
  }
  std::vector<std::vector<LaneShare>> said;

 private:
  LanePolicy& policy_;
};

std::int64_t Total(const Training& training) {
  std::int64_t total = 0;
  for (const std::int64_t ns : training.step_ns) total += ns;
  return total;
}

class LobsterTest : public ::testing::TestWithParam<Skew> {};

TEST_P(LobsterTest, NeverTakesLongerThanSharesInProportion) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    ProportionalLanePolicy proportional(kBudget);
    LobsterLanePolicy lobster({.budget = kBudget});
    const std::int64_t without = Total(TrainSkewed(seed, GetParam(), &proportional));
    const std::int64_t with = Total(TrainSkewed(seed, GetParam(), &lobster));
    // Steps end at the end of a read: half a millisecond of noise is in each.
    EXPECT_LE(with, without + without / 50) << "seed " << seed;
  }
}

// Its first read takes the longest: until then it is not known how long.
TEST(LobsterLanePolicyTest, ALaneThatHasShownNothingYetIsNotTakenForFast) {
  std::vector<LaneWork> work(4, {.queued_bytes = {.storage = 1'600'000},
                                 .queued_samples = 16,
                                 .step_samples = 16,
                                 .step_bytes = 1'600'000,
                                 .read_ns_per_byte = {.storage = 1000},
                                 .decode_ns_per_byte = 1000});
  work[1] = {.queued_bytes = {.storage = 6'400'000},
             .queued_samples = 16,
             .step_samples = 16,
             .step_bytes = 6'400'000};
  LobsterLanePolicy lobster({.budget = kBudget});
  std::vector<LaneShare> shares(work.size());
  ASSERT_TRUE(lobster.Split({}, work, shares).ok());
  for (const std::size_t lane : {0U, 2U, 3U}) {
    EXPECT_GT(shares[1].reads, 2 * shares[lane].reads);
    EXPECT_GT(shares[1].decodes, 2 * shares[lane].decodes);
  }
}

// Four lanes with steps of equal bytes, of which a tier has these shares.
std::vector<LaneWork> WithHits(const std::array<double, 4>& hits) {
  std::vector<LaneWork> work;
  for (const double share : hits) {
    LaneWork lane{.queued_samples = 64,
                  .step_samples = 64,
                  .step_bytes = 6'400'000,
                  .read_ns_per_byte = {.tier = 1, .storage = 100},
                  .decode_ns_per_byte = 1,
                  .step_ns = 10 * kMs};
    lane.step_reads.tier = static_cast<std::uint64_t>(share * 6'400'000);
    lane.step_reads.storage = lane.step_bytes - lane.step_reads.tier;
    lane.queued_bytes = lane.step_reads;
    work.push_back(lane);
  }
  return work;
}

TEST(LobsterLanePolicyTest, ALanesMissesInThisStepDecideItsReads) {
  for (const auto search :
       {LobsterOptions::Search::kMakespan, LobsterOptions::Search::kBinarySearch}) {
    LobsterLanePolicy lobster({.budget = kBudget, .search = search});
    std::vector<LaneShare> shares(4);
    for (const std::size_t slow : {0U, 3U, 1U}) {  // Each step another lane.
      std::array<double, 4> hits = {0.9, 0.9, 0.9, 0.9};
      hits[slow] = 0.2;
      ASSERT_TRUE(lobster.Split({}, WithHits(hits), shares).ok());
      for (std::size_t lane = 0; lane < 4; ++lane) {
        if (lane == slow) continue;
        EXPECT_GT(shares[slow].reads, 4 * shares[lane].reads);
      }
    }
    EXPECT_EQ(lobster.counts().stragglers, 3U);
  }
}

// A lane takes 1.3 ms to decode with its 8 threads and, one read after the other, 131 ms to load:
// a fifth of its bytes at 1 ns, the others at 250. Of training's 22.6 ms 21.3 are left, which 6.2
// reads need.
TEST(LobsterLanePolicyTest, ThePapersOwnSharesLeaveReadsThatNoLaneNeeds) {
  std::vector<LaneWork> work(4, {.queued_bytes = {.tier = 131'072, .storage = 524'288},
                                 .queued_samples = 64,
                                 .step_samples = 64,
                                 .step_bytes = 655'360,
                                 .read_ns_per_byte = {.tier = 1, .storage = 250},
                                 .decode_ns_per_byte = 16,
                                 .step_ns = 22'600'000});
  work[2].queued_bytes = {.tier = 655'360};  // All hits: one read is enough.
  for (LaneWork& lane : work) lane.step_reads = lane.queued_bytes;
  std::vector<LaneShare> shares(4);
  LobsterLanePolicy paper({.budget = kBudget, .search = LobsterOptions::Search::kBinarySearch});
  ASSERT_TRUE(paper.Split({}, work, shares).ok());
  EXPECT_EQ(shares[0].reads, 6U);
  EXPECT_EQ(shares[2].reads, 1U);
  LobsterLanePolicy exact({.budget = kBudget});
  ASSERT_TRUE(exact.Split({}, work, shares).ok());
  EXPECT_EQ(shares[0].reads + shares[1].reads + shares[2].reads + shares[3].reads, kBudget.reads);
  EXPECT_GT(shares[0].reads, 15U);
}

TEST(LobsterLanePolicyTest, SharesStayWhileOthersPromiseLittle) {
  LobsterLanePolicy lobster({.budget = kBudget});
  std::vector<LaneShare> shares(4);
  ASSERT_TRUE(lobster.Split({}, WithHits({0.2, 0.6, 0.6, 0.6}), shares).ok());
  const std::uint32_t reads = shares[0].reads;
  ASSERT_TRUE(lobster.Split({}, WithHits({0.21, 0.6, 0.61, 0.6}), shares).ok());
  EXPECT_EQ(shares[0].reads, reads);
  EXPECT_EQ(lobster.counts().corrections, 0U);
}

// Nothing is known of another node's rate: reads are shared by bytes until something is, and not
// for ever.
TEST(LobsterLanePolicyTest, WithoutTheRateOfASourceReadsAreSharedByBytes) {
  LobsterLanePolicy lobster({.budget = kBudget});
  std::vector<LaneShare> shares(4);
  std::vector<LaneWork> work = WithHits({0.2, 0.2, 0.2, 0.2});
  for (std::size_t lane = 1; lane < 4; ++lane) {
    work[lane].queued_bytes = {.node = work[lane].queued_bytes.storage};
  }
  ASSERT_TRUE(lobster.Split({}, work, shares).ok());
  EXPECT_LE(shares[0].reads, kBudget.reads / 4 + 4);
  work[2].read_ns_per_byte.node = 10;
  ASSERT_TRUE(lobster.Split({}, work, shares).ok());
  EXPECT_GT(shares[0].reads, 4 * shares[1].reads);
}

TEST(LobsterLanePolicyTest, ThreadsThatDecodeNothingRead) {
  DecodeTimes times(/*transform=*/0, PreprocessModel());
  for (int threads = 1; threads <= kCores; ++threads) {
    times.OnDecoded({.bytes = 100'000, .threads = threads, .nanoseconds = 10'000});
  }
  DecodeLimit limit({.budget = kBudget, .period = 1, .begin = 0}, times);
  LobsterLanePolicy lobster({.budget = kBudget, .decode_limit = &limit});
  std::vector<LaneShare> shares(4);
  const auto sums = [&] {
    std::uint32_t reads = 0;
    std::uint32_t decodes = 0;
    for (const LaneShare& share : shares) {
      reads += share.reads;
      decodes += share.decodes;
    }
    return std::pair(reads, decodes);
  };
  for (int step = 0; step < 2 * kCores; ++step) {
    ASSERT_TRUE(lobster.Split({}, WithHits({0.2, 0.6, 0.6, 0.6}), shares).ok());
    EXPECT_EQ(sums().first + sums().second, kBudget.reads + kBudget.decodes);
  }
  EXPECT_EQ(sums().second, 4U);                             // A lane has one.
  std::vector<LaneWork> decoding = WithHits({1, 1, 1, 1});  // Little is to be read now.
  for (LaneWork& lane : decoding) lane.step_ns = kMs / 10;
  for (int step = 0; step < 2 * kCores; ++step) {
    ASSERT_TRUE(lobster.Split({}, decoding, shares).ok());
    EXPECT_EQ(sums().first + sums().second, kBudget.reads + kBudget.decodes);
  }
  EXPECT_GT(sums().second, 8U);
}

TEST_P(LobsterTest, SharesMoveSeldomAndAreTheSameInEveryRun) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    LobsterLanePolicy lobster({.budget = kBudget});
    Recording first(lobster);
    TrainSkewed(seed, GetParam(), &first);
    LobsterLanePolicy again({.budget = kBudget});
    Recording second(again);
    TrainSkewed(seed, GetParam(), &second);
    ASSERT_EQ(first.said.size(), kSteps);
    std::uint64_t changes = 0;
    for (std::size_t step = 0; step < kSteps; ++step) {
      std::uint32_t reads = 0;
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        ASSERT_EQ(first.said[step][lane].reads, second.said[step][lane].reads);
        ASSERT_EQ(first.said[step][lane].decodes, second.said[step][lane].decodes);
        reads += first.said[step][lane].reads;
        changes +=
            step > 2 * kWarmUp && first.said[step][lane].reads != first.said[step - 1][lane].reads;
      }
      ASSERT_EQ(reads, kBudget.reads);
    }
    EXPECT_LE(changes, kLanes * (kSteps - 2 * kWarmUp) / 4) << "seed " << seed;
    EXPECT_EQ(lobster.counts().corrections, again.counts().corrections);
  }
}

INSTANTIATE_TEST_SUITE_P(Skews, LobsterTest,
                         ::testing::Values(Skew{}, Skew{.in_decoding = true},
                                           Skew{.train_ns = 9 * kMs},
                                           Skew{.in_decoding = true, .train_ns = 9 * kMs}));

// A schedule whose threads are made up, of so many steps of the skewed job.
std::vector<std::byte> MakeFile(std::uint64_t steps, const ThreadsOfLanes& threads) {
  LaneJob job = SkewedJob(0, {}, nullptr);
  std::vector<std::byte> file;
  const auto made =
      MakeSchedule({.header = {.world_size = kLanes,
                               .lanes = kLanes,
                               .loading_threads = kBudget.reads,
                               .decode_threads = kBudget.decodes},
                    .order = job.order.get(),
                    .sample_bytes = [&](SampleId sample) { return job.sizes[Raw(sample)]; },
                    .threads = threads,
                    .steps_max = steps},
                   Into(file));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return file;
}

TEST(SchedulePolicyTest, TheSharesThatTheEngineSeesAreTheFiles) {
  Prng random(3, 0, RandomStream::kOrder);
  std::vector<std::vector<LaneThreads>> planned;
  const std::vector<std::byte> file =
      MakeFile(kSteps - 10, [&](std::span<const LaneDemand> demand) {
        std::vector<LaneThreads> threads(demand.size());
        for (LaneThreads& each : threads) {
          each = {.loading = 1 + static_cast<std::uint32_t>(random.Below(8)),
                  .decode = static_cast<std::uint32_t>(random.Below(5))};
        }
        planned.push_back(threads);
        return threads;
      });
  auto policy = SchedulePolicy::Open(
      {.file = {file, "a.schedule"}, .correct = false},
      std::make_unique<LobsterLanePolicy>(LobsterLanePolicy::Options{.budget = kBudget}));
  ASSERT_TRUE(policy.ok()) << policy.status().ToString();
  Recording recording(*policy.value());
  TrainSkewed(0, {}, &recording);
  ASSERT_EQ(recording.said.size(), kSteps);
  for (std::size_t step = 0; step < planned.size(); ++step) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      ASSERT_EQ(recording.said[step][lane].reads, planned[step][lane].loading);
      ASSERT_EQ(recording.said[step][lane].decodes, std::max(1U, planned[step][lane].decode));
    }
  }
  EXPECT_EQ(policy.value()->counts().planned, kSteps - 10);
}

// It says how many decode threads the step has by the file; after its end, what follows says it.
TEST(SchedulePolicyTest, TheNumberOfDecodeThreadsIsTheStepsInTheFile) {
  std::uint32_t step = 0;
  const std::vector<std::byte> file = MakeFile(3, [&](std::span<const LaneDemand> demand) {
    ++step;
    return std::vector<LaneThreads>(demand.size(), {.loading = 1, .decode = step});
  });
  auto policy = SchedulePolicy::Open({.file = {file, "a.schedule"}},
                                     std::make_unique<FixedLanePolicy>(kBudget));
  const std::vector<LaneWork> work(kLanes);
  std::vector<LaneShare> shares(kLanes);
  EXPECT_EQ(policy.value()->counts().decodes, 0U);
  for (const std::uint32_t expected : {1U, 2U, 3U, 0U}) {
    const std::uint64_t at = policy.value()->counts().planned;
    ASSERT_TRUE(policy.value()->Split({.step = at}, work, shares).ok());
    EXPECT_EQ(policy.value()->counts().decodes, expected * kLanes);
  }
}

// All lanes get as much, though one has four times as much to read.
TEST(SchedulePolicyTest, APlanThatIsWrongIsCorrected) {
  const std::vector<std::byte> file = MakeFile(kSteps, [](std::span<const LaneDemand> demand) {
    return std::vector<LaneThreads>(demand.size(), {.loading = 8, .decode = 4});
  });
  const auto train = [&](bool correct, std::uint64_t* corrections) {
    auto policy = SchedulePolicy::Open(
        {.file = {file, "a.schedule"},
         .correct = correct,
         .corrector = {.period = 4, .moves_max = 4}},
        std::make_unique<LobsterLanePolicy>(LobsterLanePolicy::Options{.budget = kBudget}));
    Recording recording(*policy.value());
    const Training training = TrainSkewed(0, {.train_ns = 9 * kMs}, &recording);
    for (const std::vector<LaneShare>& step : recording.said) {
      std::uint32_t reads = 0;
      for (const LaneShare& share : step) reads += share.reads;
      EXPECT_EQ(reads, kBudget.reads);
    }
    *corrections = policy.value()->counts().corrections;
    return Total(training);
  };
  std::uint64_t with = 0;
  std::uint64_t without = 0;
  const std::int64_t corrected = train(true, &with);
  EXPECT_LE(corrected, train(false, &without));
  EXPECT_GT(with, 0);
  EXPECT_EQ(without, 0);
}

TEST(SchedulePolicyTest, StepsThatAreNotTheFilesEndTheRun) {
  std::vector<std::byte> file = MakeFile(kSteps, [](std::span<const LaneDemand> demand) {
    return std::vector<LaneThreads>(demand.size(), {.loading = 1, .decode = 1});
  });
  const auto open = [&](Position start) {
    return SchedulePolicy::Open({.file = {file, "a.schedule"}, .start = start},
                                std::make_unique<FixedLanePolicy>(kBudget));
  };
  const std::vector<LaneWork> work(kLanes);
  std::vector<LaneShare> shares(kLanes);
  auto policy = open({.step = 5});
  ASSERT_TRUE(policy.value()->Split({.step = 5}, work, shares).ok());
  ASSERT_TRUE(policy.value()->Split({.step = 6}, work, shares).ok());
  const Status past = policy.value()->Split({.step = 4}, work, shares);
  EXPECT_EQ(past.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(past.message(),
            "following schedule a.schedule: the run is at step 4 of epoch 0, the schedule goes on "
            "at step 6 of epoch 0; make it again with the options of this run");
  file[file.size() / 2] ^= std::byte{1};
  policy = open({});
  Status damaged;
  for (std::uint64_t step = 0; step < kSteps && damaged.ok(); ++step) {
    damaged = policy.value()->Split({.step = step}, work, shares);
  }
  EXPECT_EQ(damaged.code(), StatusCode::kDataLoss);
}

// A few samples are many times as large as the others: by chance some ranks get more of them. All
// are small beside a batch: of ranks with as much to do none is late for a single one.
LaneJob TailedJob(std::uint64_t seed, bool levelled, std::vector<std::set<std::uint64_t>>* sets) {
  Prng random(seed, 0, RandomStream::kOrder, 0x7a11);
  LaneJob job{.train_ns = 30 * kMs};       // Less than what there is to decode.
  constexpr std::uint64_t kSamples = 256;  // of a rank's batch
  job.sizes.resize(kLanes * kSamples * kSteps);
  std::vector<std::uint32_t> costs;
  for (std::uint64_t& size : job.sizes) {
    size = 225 + random.Below(50);
    if (random.Below(12) == 0) size *= 4 + random.Below(7);
    costs.push_back(static_cast<std::uint32_t>(size));
  }
  OrderRequest request{.job = {.sample_count = job.sizes.size(),
                               .batch_size = kSamples,
                               .world_size = kLanes,
                               .ranks = kLanes,
                               .seed = seed,
                               .epochs = 1}};
  if (levelled) request.costs = std::make_shared<const std::vector<std::uint32_t>>(costs);
  const OrderFactory& factory = levelled ? BatchOrderFactory() : ExactOrderFactory();
  job.order = factory.Make(request, {}).value();
  const std::unique_ptr<Order> order = factory.Make(request, {}).value();
  while (const std::optional<Step> step = order->Next()) {
    std::set<std::uint64_t>& ids = sets->emplace_back();
    for (const Delivery& delivery : step->deliveries) ids.insert(Raw(delivery.sample));
  }
  return job;
}

TEST(BatchOrderTest, LevelledRanksAreLessOftenLateAndGlobalBatchesAreTheSame) {
  // By shares that are fixed it is the ranks' own work that shows; shared deadlines level the rest.
  for (const bool fixed : {true, false}) {
    if (!fixed && !kManySeeds) continue;  // There is little left to level: it takes many seeds.
    std::vector<std::set<std::uint64_t>> exact_sets;
    std::vector<std::set<std::uint64_t>> batch_sets;
    const auto train = [&](bool levelled, std::vector<std::set<std::uint64_t>>* sets) {
      return TrainAll(kSeeds / 2, [&](std::uint64_t seed) {
        FixedLanePolicy policy(kBudget);
        LaneJob job = TailedJob(seed, levelled, sets);
        if (fixed) job.policy = &policy;
        return LaneTrainer(seed, std::move(job)).Run();
      });
    };
    const Verdict exact = train(false, &exact_sets);
    const Verdict batch = train(true, &batch_sets);
    Show(fixed ? "exact, fixed" : "exact, shared", exact);
    Show(fixed ? "batch, fixed" : "batch, shared", batch);
    ASSERT_EQ(exact_sets.size(), kSeeds / 2 * kSteps);
    EXPECT_EQ(exact_sets, batch_sets);
    EXPECT_LE(batch.p50_ns, exact.p50_ns);
    if (fixed) {
      EXPECT_LT(batch.imbalanced, exact.imbalanced / 2);
      EXPECT_LT(batch.busy_imbalanced, exact.busy_imbalanced / 2);
    } else {  // A few steps in a hundred.
      EXPECT_LE(batch.imbalanced, exact.imbalanced + 0.05);
      EXPECT_LT(batch.busy_imbalanced, exact.busy_imbalanced);
    }
  }
}

}  // namespace
}  // namespace headrace
