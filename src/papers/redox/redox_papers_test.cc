// The papers' examples of their protocol, step by step, and their figures, from the `redox` order.

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "papers/redox/redox_order.h"
#include "papers/redox/redox_sizes.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;
using Ids = std::vector<std::uint64_t>;
using Kept = std::vector<std::uint32_t>;

// An epoch that answers one request a step: the sample of each, and the reads that it took.
struct Told {
  Ids answers;
  std::vector<std::pair<std::uint64_t, BlockRead>> reads;  // with the request that they were for
  std::map<std::string, double> counters;
};

Told Tell(RedoxOrderOptions options) {
  options.job.sample_count = options.blocks->sample_count();
  options.job.epochs = 1;
  auto order = MakeRedoxOrder(options, {});
  EXPECT_TRUE(order.ok()) << order.status().ToString();
  Told told;
  while (auto step = order.value()->Next()) {
    for (BlockRead& read : step->reads) told.reads.emplace_back(step->step, std::move(read));
    for (const Delivery& delivery : step->deliveries) told.answers.push_back(Raw(delivery.sample));
  }
  told.counters = order.value()->counters();
  return told;
}

std::shared_ptr<const std::vector<SampleId>> Trace(const Ids& ids) {
  std::vector<SampleId> trace;
  for (const std::uint64_t id : ids) trace.push_back(SampleId{id});
  return std::make_shared<const std::vector<SampleId>>(std::move(trace));
}

// Letters for files first, first + 1, ...
template <std::size_t kCount>
std::array<std::uint64_t, kCount> Files(std::uint64_t first) {
  std::array<std::uint64_t, kCount> files{};
  std::iota(files.begin(), files.end(), first);
  return files;
}

// Details that the texts leave open take the simplest value: of equal chunks the first.
RedoxOrderOptions Example(std::uint64_t samples, std::uint64_t chunk, std::uint32_t chunks,
                          const Ids& trace) {
  RedoxOrderOptions options;
  options.blocks = MakeUniformBlocks(samples, chunk);
  options.chunks_per_virtual = chunks;
  options.ties = RedoxOrderOptions::Ties::kFirst;
  options.trace = Trace(trace);
  return options;
}

TEST(RedoxPapersTest, BrandSection33AnswersFromAnyChunkAndRefillsTheFullerOne) {
  // Chunks c f q, x p b, y e o; b is used up.
  const auto [c, f, q, x, p, b, y, e, o] = Files<9>(0);
  const Told told = Tell(Example(9, 3, 3, {p, o, e, c, q, f, x, y}));
  EXPECT_EQ(told.answers[0], f);  // For p: any file of its slot.
  EXPECT_EQ(told.answers[1], q);  // For o: what is in its slot, without a read.
  EXPECT_EQ(told.answers[2], e);
  ASSERT_GE(told.reads.size(), 2U);
  EXPECT_EQ(told.reads[0].first, 0U);
  EXPECT_EQ(Raw(told.reads[0].second.first), c);
  EXPECT_THAT(told.reads[0].second.kept, ElementsAre());  // All of it: a fill rate of 1.
  // For e: chunk x p b would fill one slot of three, y e o fills two. c stays.
  EXPECT_EQ(told.reads[1].first, 2U);
  EXPECT_EQ(Raw(told.reads[1].second.first), y);
  EXPECT_THAT(told.reads[1].second.kept, ElementsAre(1, 2));
  EXPECT_EQ(told.answers[3], c);
  EXPECT_THAT(told.answers, ::testing::UnorderedElementsAre(c, f, q, x, p, y, e, o));
}

// Node 0 asks at even positions, node 1 at odd ones. The first virtual chunk is node 0's: its
// requests only fill the gaps of the example, which is about the second chunk, node 1's.
Ids Between(const Ids& even, const Ids& odd) {
  Ids all;
  for (std::size_t i = 0; i < even.size(); ++i) {
    all.push_back(even[i]);
    all.push_back(odd[i]);
  }
  return all;
}

Ids EvenAnswers(const Told& told) {
  Ids all;
  for (std::size_t i = 0; i < told.answers.size(); i += 2) all.push_back(told.answers[i]);
  return all;
}

// Reads of node 1's chunks: sample `from` and on.
std::vector<Kept> KeptOf(const Told& told, std::uint64_t from) {
  std::vector<Kept> all;
  for (const auto& [request, read] : told.reads) {
    if (Raw(read.first) >= from) all.push_back(read.kept);
  }
  return all;
}

TEST(RedoxPapersTest, BrandSection34SendsAheadWhatIsThereAndNeverTwiceForOneSlot) {
  // Chunks g r h, a n k, i s m.
  const auto [g, r, h, a, n, k, i, s, m] = Files<9>(9);
  // Node 1 has used r before.
  RedoxOrderOptions options =
      Example(18, 3, 3, Between({0, i, r, m, k, a, 6, 7, 8}, {n, 1, 2, 3, 4, 5, g, h, s}));
  options.nodes = 2;
  options.prefetch = 5;
  const Told told = Tell(options);
  const Ids answers = EvenAnswers(told);
  EXPECT_EQ(Ids(answers.begin() + 1, answers.begin() + 6), (Ids{g, n, h, k, a}));
  // With g: h for m, but no sample for r (its slot is empty), k and a (in conflict with m and i).
  // So when r is requested, all three slots are free: Brand's figure 7, right.
  EXPECT_EQ(KeptOf(told, 9)[0], Kept{});
  EXPECT_EQ(KeptOf(told, 9)[1], Kept{});
  // Without it, h is still in its slot: figure 7, left.
  options.prefetch = 0;
  EXPECT_EQ(KeptOf(Tell(options), 9)[1], (Kept{0, 1}));
}

TEST(RedoxPapersTest, BrandSection34AsksTheOtherNodeForThreeOfFive) {
  // As above, without requests for node 0's chunk, which would be counted, too.
  const auto [g, r, h, a, n, k, i, s, m] = Files<9>(9);
  RedoxOrderOptions options =
      Example(18, 3, 3, Between({0, i, r, m, k, a, 6, 7, 8}, {n, n, n, n, n, n, g, h, s}));
  options.nodes = 2;
  options.prefetch = 5;
  const Told told = Tell(options);
  EXPECT_EQ(told.counters.at("remote_requests"), 3);  // i, r, k
  EXPECT_EQ(told.counters.at("prefetched"), 2);       // for m, a
  EXPECT_EQ(told.counters.at("remote_reads"), 5);
  EXPECT_EQ(told.counters.at("remote_bytes"), 5);
  EXPECT_EQ(told.counters.at("peak_remote_bytes"), 2);
}

TEST(RedoxPapersTest, RedoxSection37AnswersTwoReadsFromTheChunkOfTheFirst) {
  // Reads 1, 2, 3 are for files 0, 10, 15; the files that 2 and 3 get would be reads 17 and 7.
  const Told told = Tell(
      Example(20, 4, 5, {0, 10, 15, 5, 6, 9, 3, 1, 4, 7, 8, 11, 12, 13, 14, 16, 2, 17, 18, 19}));
  EXPECT_EQ(Ids(told.answers.begin(), told.answers.begin() + 4), (Ids{0, 2, 3, 1}));
  ASSERT_GE(told.reads.size(), 2U);
  EXPECT_EQ(told.reads[0].first, 0U);
  EXPECT_EQ(told.reads[1].first, 4U);  // Read 5 finds its slot used.
  EXPECT_EQ(told.answers[6] % 4, 3U);  // Later read 7 gets another file of that slot,
  EXPECT_NE(told.answers[6], 3U);
  EXPECT_EQ(told.answers[16] % 4, 2U);  // and so does read 17.
  EXPECT_NE(told.answers[16], 2U);
}

TEST(RedoxPapersTest, RedoxSection37RemembersWhatItSentInTheWindowBefore) {
  // Node 1's files 12..23, four to a chunk. Node 0's reads 10, 12, 15, 16, 17, 19, 20 have the
  // offsets 3, 0, 3, 3, 1, 0, 2.
  RedoxOrderOptions options = Example(24, 4, 3,
                                      Between({23, 12, 19, 15, 13, 16, 14, 7, 8, 9, 10, 11},
                                              {0, 1, 2, 3, 4, 5, 6, 20, 17, 21, 18, 22}));
  options.nodes = 2;
  options.prefetch = 5;
  const Told told = Tell(options);
  const Ids answers = EvenAnswers(told);
  EXPECT_EQ(Ids(answers.begin(), answers.begin() + 7), (Ids{15, 12, 19, 23, 13, 16, 14}));
  const std::vector<Kept> kept = KeptOf(told, 12);
  ASSERT_GE(kept.size(), 3U);
  EXPECT_EQ(kept[0], Kept{});           // Read 10. Sent along: for reads 12 and 17.
  EXPECT_EQ(kept[1], (Kept{0, 1, 3}));  // Read 15; 2 is still there. Sent along: 19 and 20.
  EXPECT_EQ(kept[2], (Kept{0, 2, 3}));  // Read 16, in conflict with 10, then with 15.
}

TEST(RedoxPapersTest, RedoxSection36SendsNothingTwiceAndNothingInConflictWithTheWindowBefore) {
  // Windows [(a), b, c, c', d], then [(b), c, c', d, c'']. Node 1 has used what was in b's slot.
  constexpr std::uint64_t kA = 12, kB = 17, kC = 14, kC1 = 18, kC2 = 22, kD = 15, kUsed = 13;
  RedoxOrderOptions options = Example(
      24, 4, 3,
      Between({0, kA, kB, kC, kC1, kD, kC2}, {kUsed, kUsed, kUsed, kUsed, kUsed, kUsed, kUsed}));
  options.nodes = 2;
  options.prefetch = 5;
  const Told told = Tell(options);
  EXPECT_EQ(EvenAnswers(told), (Ids{0, kA, kB, kC, kC1, kD, kC2}));
  // With a: c and d. With b nothing, although a sample is there for c'' (and for c') by then.
  EXPECT_EQ(KeptOf(told, 12)[1], (Kept{1, 2}));
  EXPECT_EQ(told.counters.at("prefetched"), 2);
  EXPECT_EQ(told.counters.at("remote_requests"), 4);  // a, b, c', c''
}

// The possible outputs of one virtual chunk, over every order of requests; and how many of these
// give each, with each of the seeds.
std::map<Ids, std::uint64_t> Outcomes(std::uint64_t slots, std::uint32_t chunks,
                                      RedoxOrderOptions::Ties ties, std::uint64_t seeds) {
  std::map<Ids, std::uint64_t> outcomes;
  Ids trace(slots * chunks);
  std::iota(trace.begin(), trace.end(), 0U);
  do {
    RedoxOrderOptions options = Example(trace.size(), slots, chunks, trace);
    options.ties = ties;
    for (options.job.seed = 0; options.job.seed < seeds; ++options.job.seed) {
      ++outcomes[Tell(options).answers];
    }
  } while (std::ranges::next_permutation(trace).found);
  return outcomes;
}

TEST(RedoxPapersTest, FirstTiesReachOneOrderInSFactorialToTheKAndRandomTiesMore) {
  using Ties = RedoxOrderOptions::Ties;
  const auto factorial = [](std::uint64_t n) {
    std::uint64_t product = 1;
    for (std::uint64_t i = 2; i <= n; ++i) product *= i;
    return product;
  };
  for (const auto& [slots, chunks] :
       std::vector<std::pair<std::uint64_t, std::uint32_t>>{{2, 2}, {3, 2}, {2, 3}}) {
    std::uint64_t expected = factorial(slots * chunks);
    for (std::uint64_t i = 0; i < slots; ++i) expected /= factorial(chunks);
    const auto first = Outcomes(slots, chunks, Ties::kFirst, 1);
    EXPECT_EQ(first.size(), expected) << slots << " " << chunks;
    // Uniform: as many orders of requests give each of them.
    for (const auto& [ids, times] : first) {
      EXPECT_EQ(times, factorial(slots * chunks) / expected);
    }
    const auto random = Outcomes(slots, chunks, Ties::kRandom, 8);
    EXPECT_GT(random.size(), first.size());
    for (const auto& [ids, times] : first) EXPECT_TRUE(random.contains(ids));
  }
}

// Two slots, three chunks. As many orders of requests have each sequence of slots; it and the ties
// determine the output. So outputs are not equally likely if some sequences meet more ties.
TEST(RedoxPapersTest, RandomTiesDoNotReachAllOrdersEquallyOften) {
  const auto outputs = [](const Ids& trace) {
    RedoxOrderOptions options = Example(6, 2, 3, trace);
    options.ties = RedoxOrderOptions::Ties::kRandom;
    std::map<Ids, int> times;
    for (options.job.seed = 0; options.job.seed < 1200; ++options.job.seed) {
      ++times[Tell(options).answers];
    }
    return times;
  };
  const auto in_turn = outputs({0, 1, 2, 3, 4, 5});
  EXPECT_EQ(in_turn.size(), 6U);  // One of three, then one of two.
  for (const auto& [ids, times] : in_turn) EXPECT_NEAR(times, 200, 60);
  // First all of one slot: chunks that were read for it tie again for the other.
  const auto one_slot_first = outputs({0, 2, 4, 1, 3, 5});
  EXPECT_EQ(one_slot_first.size(), 12U);
  for (const auto& [ids, times] : one_slot_first) EXPECT_NEAR(times, 100, 45);
}

// Mean position in the epoch, from 0 to 1, of the n-th chunk of each virtual chunk.
std::vector<double> MeanPositions(RedoxOrderOptions::Ties ties) {
  constexpr std::uint64_t kSamples = std::uint64_t{64} * 10 * 40;
  RedoxOrderOptions options;
  options.job.seed = 3;
  options.blocks = MakeUniformBlocks(kSamples, 64);
  options.ties = ties;
  const Ids answers = Tell(options).answers;
  std::vector<double> sums(10);
  for (std::size_t g = 0; g < answers.size(); ++g) {
    sums[answers[g] / 64 % 10] += static_cast<double>(g);
  }
  for (double& sum : sums) sum /= static_cast<double>(kSamples) * kSamples / 10;
  return sums;
}

TEST(RedoxPapersTest, FirstTiesBringTheFirstChunkFourTenthsOfAnEpochTooEarly) {
  const std::vector<double> first = MeanPositions(RedoxOrderOptions::Ties::kFirst);
  EXPECT_NEAR(0.5 - first[0], 0.4, 0.05);
  EXPECT_GT(first[9], 0.55);
  for (const double mean : MeanPositions(RedoxOrderOptions::Ties::kRandom)) {
    EXPECT_NEAR(mean, 0.5, 0.1);
  }
}

// Redox, table 6, with the chunks of a virtual chunk and the window that fit its numbers. The sizes
// scale, so debug builds use a tenth.
#ifdef NDEBUG
constexpr std::uint64_t kScale = 1;
#else
constexpr std::uint64_t kScale = 10;
#endif
constexpr double kSamples = 1'280'640.0 / kScale;

// The counters of an epoch of three nodes.
std::map<std::string, double> CountEpoch(std::uint64_t samples, std::uint64_t chunk,
                                         RedoxOrderOptions options) {
  options.blocks = MakeUniformBlocks(samples, chunk);
  options.job = {.sample_count = samples, .batch_size = 256, .seed = 1, .epochs = 1};
  options.nodes = 3;
  auto order = MakeRedoxOrder(options, {});
  EXPECT_TRUE(order.ok());
  while (order.value()->Next().has_value()) {
  }
  return order.value()->counters();
}

std::map<std::string, double> TableSix(RedoxOrderOptions::Refill refill, std::uint32_t prefetch) {
  RedoxOrderOptions options;
  options.refill = refill;
  options.prefetch = prefetch;
  return CountEpoch(static_cast<std::uint64_t>(kSamples), 64, options);
}

auto Within(double part, double of) { return AllOf(Ge(of * (1 - part)), Le(of * (1 + part))); }

TEST(RedoxPapersTest, TableSixWithoutPrefetch) {
  for (const auto& [refill, loads] : std::vector<std::pair<RedoxOrderOptions::Refill, double>>{
           {RedoxOrderOptions::Refill::kRandom, 9.55},
           {RedoxOrderOptions::Refill::kMaxFill, 8.90}}) {
    const auto counters = TableSix(refill, 0);
    EXPECT_THAT(counters.at("loads_per_chunk"), Within(0.02, loads));
    EXPECT_EQ(counters.at("remote_requests"), counters.at("remote_reads"));
    EXPECT_THAT(counters.at("remote_requests"),
                Within(kScale == 1 ? 0.003 : 0.01, kSamples * 2 / 3));
    EXPECT_EQ(counters.at("prefetched"), 0);
    EXPECT_EQ(counters.at("peak_remote_bytes"), 0);
  }
}

TEST(RedoxPapersTest, TableSixWithPrefetch) {
  constexpr double kTolerance = kScale == 1 ? 0.03 : 0.2;
  struct Row {
    RedoxOrderOptions::Refill refill;
    double loads;
    double remote_requests;
  };
  for (const Row& row : {Row{RedoxOrderOptions::Refill::kRandom, 6.65, 0.46e5},
                         Row{RedoxOrderOptions::Refill::kMaxFill, 6.30, 0.41e5}}) {
    const auto counters = TableSix(row.refill, 5600 / kScale);
    EXPECT_THAT(counters.at("loads_per_chunk"), Within(kTolerance, row.loads));
    EXPECT_THAT(counters.at("remote_requests"), Within(kTolerance, row.remote_requests / kScale));
    EXPECT_EQ(counters.at("remote_requests") + counters.at("prefetched"),
              counters.at("remote_reads"));
    EXPECT_EQ(counters.at("remote_bytes"), counters.at("remote_reads"));
  }
}

// A tenth of the paper's samples has the same figures within 0.7 %.
constexpr std::uint64_t kTenth = 128'064;

TEST(RedoxPapersTest, FigureSixLoadsOfAChunkGrowAsTheRootOfItsSamples) {
  for (const auto& [chunk, loads] : std::vector<std::pair<std::uint64_t, double>>{{2, 1.36},
                                                                                  {4, 1.99},
                                                                                  {8, 2.87},
                                                                                  {16, 4.19},
                                                                                  {32, 6.11},
                                                                                  {64, 8.91},
                                                                                  {128, 12.9},
                                                                                  {256, 18.6}}) {
    EXPECT_THAT(CountEpoch(kTenth, chunk, {}).at("loads_per_chunk"), Within(0.01, loads)) << chunk;
    if (chunk <= kNeighboursMax) {
      EXPECT_EQ(RedoxLoads(chunk), loads);
    }
  }
}

TEST(RedoxPapersTest, FewerSlotClassesTakeFewerLoadsDownToOneAChunk) {
  for (const auto& [classes, loads] : std::vector<std::pair<std::uint32_t, double>>{
           {64, 8.92}, {32, 5.33}, {16, 3.49}, {8, 2.53}, {4, 1.96}, {2, 1.81}, {1, 1.00}}) {
    RedoxOrderOptions options;
    options.slot_classes = classes;
    EXPECT_THAT(CountEpoch(kTenth, 64, options).at("loads_per_chunk"), Within(0.01, loads))
        << classes;
  }
}

// Figure 5: remote memory grows until its limit is 1.5 GB. The window that fits table 6 uses less;
// the one that uses 1.5 GB has far fewer remote requests.
TEST(RedoxPapersTest, FigureFiveSaturatesBelowItsLimitUnlessTableSixIsMissed) {
  constexpr double kFileBytes = 135e9 / 1'280'640;
  constexpr double kUsed = 1.5e9 / kFileBytes / 10;
  RedoxOrderOptions options;
  options.prefetch = 560;
  options.remote_units = static_cast<std::uint64_t>(1e9 / kFileBytes / 10);
  EXPECT_EQ(CountEpoch(kTenth, 64, options).at("peak_remote_bytes"),
            static_cast<double>(options.remote_units));
  options.remote_units = static_cast<std::uint64_t>(kUsed);
  const auto narrow = CountEpoch(kTenth, 64, options);
  EXPECT_LT(narrow.at("peak_remote_bytes"), 0.8 * kUsed);
  options.remote_units = 0;
  options.prefetch = 800;
  const auto wide = CountEpoch(kTenth, 64, options);
  EXPECT_THAT(wide.at("peak_remote_bytes"), Within(0.05, kUsed));
  EXPECT_LT(wide.at("remote_requests"), 0.8 * narrow.at("remote_requests"));
}

}  // namespace
}  // namespace headrace
