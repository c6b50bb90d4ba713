#include "papers/redox/redox_order.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "papers/redox/testing/any_redox.h"
#include "plan/testing/odd_blocks.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<std::uint64_t>;

std::vector<Step> Pull(const RedoxOrderOptions& options, Position start = {}) {
  auto order = MakeRedoxOrder(options, start);
  EXPECT_TRUE(order.ok()) << order.status().ToString();
  std::vector<Step> steps;
  while (auto step = order.value()->Next()) steps.push_back(*std::move(step));
  return steps;
}

// Memory of a stream, from its steps: by read, the samples not named yet.
class Memory {
 public:
  explicit Memory(const BlockMap& blocks) : blocks_(blocks) {}

  void Run(const Step& step) {
    for (const BlockRead& read : step.reads) Add(read);
    peak_ = std::max(peak_, units_);
    for (const Delivery& each : step.deliveries) {
      if (each.block_read != kNoBlockRead) Remove(each.block_read, each.sample);
    }
    for (const Release& each : step.releases) Remove(each.block_read, each.sample);
  }

  [[nodiscard]] const std::map<std::uint64_t, std::set<std::uint64_t>>& held() const {
    return held_;
  }
  // The most units after the reads of a step and before its deliveries.
  [[nodiscard]] std::uint64_t peak() const { return peak_; }

 private:
  void Add(const BlockRead& read) {
    ASSERT_EQ(read.number, next_++);
    bool is_block = false;
    for (std::uint64_t i = 0; i < blocks_.block_count() && !is_block; ++i) {
      is_block = blocks_.block(i).first == read.first && blocks_.block(i).count == read.count;
    }
    ASSERT_TRUE(is_block);
    ASSERT_TRUE(std::ranges::is_sorted(read.kept));
    ASSERT_TRUE(read.kept.empty() || read.kept.size() < read.count);
    for (std::uint32_t i = 0; i < read.count; ++i) {
      if (!read.kept.empty() && !std::ranges::binary_search(read.kept, i)) continue;
      held_[read.number].insert(Raw(read.first) + i);
      units_ += UnitsOf(Raw(read.first) + i);
    }
  }
  void Remove(std::uint64_t number, SampleId sample) {
    ASSERT_EQ(held_[number].erase(Raw(sample)), 1U) << Raw(sample) << " of read " << number;
    if (held_[number].empty()) held_.erase(number);
    units_ -= UnitsOf(Raw(sample));
  }
  [[nodiscard]] std::uint64_t UnitsOf(std::uint64_t sample) const {
    std::array<std::uint32_t, 1> units{};
    blocks_.Charges(SampleId{sample}, units);
    return units[0];
  }

  const BlockMap& blocks_;
  std::map<std::uint64_t, std::set<std::uint64_t>> held_;
  std::uint64_t next_ = 0;
  std::uint64_t units_ = 0;
  std::uint64_t peak_ = 0;
};

#ifdef NDEBUG
constexpr std::uint64_t kOrderRuns = 300;
#else
constexpr std::uint64_t kOrderRuns = 100;
#endif

// Samples of each global batch, by epoch and step, in order of rank, then slot.
using Batches = std::map<std::pair<std::uint64_t, std::uint64_t>, Ids>;
Batches GlobalBatches(RedoxOrderOptions options, bool check) {
  Batches batches;
  for (std::uint32_t rank = 0; rank < options.job.world_size; ++rank) {
    options.job.rank = rank;
    Memory memory(*options.blocks);
    for (const Step& step : Pull(options)) {
      if (check) memory.Run(step);
      if (check && step.ends_epoch) {
        EXPECT_TRUE(memory.held().empty());
      }
      EXPECT_EQ(step.deliveries.size(), RowsOfStep(options.job, step.step));
      for (std::uint32_t slot = 0; slot < step.deliveries.size(); ++slot) {
        EXPECT_EQ(step.deliveries[slot].rank, rank);
        EXPECT_EQ(step.deliveries[slot].slot, slot);
        batches[{step.epoch, step.step}].push_back(Raw(step.deliveries[slot].sample));
      }
    }
  }
  return batches;
}

TEST(RedoxOrderTest, EverySampleOnceAnEpochLessTheDropSetPlusThePadSetOnAnyNumberOfRanks) {
  for (std::uint64_t seed = 0; seed < kOrderRuns; ++seed) {
    const RedoxOrderOptions options = AnyRedox(seed);
    const OrderOptions& job = options.job;
    const std::uint64_t steps = StepsPerEpoch(job).value();
    std::map<std::uint64_t, std::map<std::uint64_t, int>> times;  // by epoch, sample
    std::uint64_t asked = 0;
    for (const auto& [position, ids] : GlobalBatches(options, true)) {
      const auto [epoch, step] = position;
      asked += epoch == 0 ? ids.size() : 0;
      auto& seen = times[epoch];
      const bool last = step + 1 == steps;
      std::map<std::uint64_t, int> here;
      for (const std::uint64_t id : ids) ++here[id];
      for (const auto& [id, count] : here) {
        ASSERT_EQ(seen[id], 0) << "seed " << seed;
        seen[id] = 1;
        if (!last || job.drop_last) {
          ASSERT_EQ(count, 1) << "seed " << seed;
        }
      }
    }
    ASSERT_EQ(times.size(), 2U);
    const std::uint64_t global = job.batch_size * job.world_size;
    const std::uint64_t distinct = job.drop_last ? steps * global : job.sample_count;
    const std::uint64_t whole = job.sample_count + job.world_size - 1;
    ASSERT_EQ(asked, job.drop_last ? distinct : whole / job.world_size * job.world_size);
    for (const auto& [epoch, seen] : times) {
      ASSERT_EQ(seen.size(), distinct) << "seed " << seed;
    }
  }
}

TEST(RedoxOrderTest, EntersAtEveryStepWithWhatIsResidentThen) {
  for (std::uint64_t seed = 0; seed < kOrderRuns; seed += 3) {
    RedoxOrderOptions options = AnyRedox(seed);
    if (options.job.sample_count > 128) continue;  // Each step is entered: quadratic time.
    options.job.rank = options.job.world_size - 1;
    const std::vector<Step> whole = Pull(options);
    Memory memory(*options.blocks);
    std::map<std::uint64_t, BlockRead> reads;
    for (std::size_t at = 0; at < whole.size(); ++at) {
      const std::vector<Step> rest = Pull(options, {whole[at].epoch, whole[at].step});
      ASSERT_EQ(rest.size(), whole.size() - at);
      // The reads that are repeated: each read with remaining samples, in order, and only these.
      std::size_t again = 0;
      Memory from_here(*options.blocks);
      for (const auto& [number, left] : memory.held()) {
        const BlockRead& read = rest[0].reads.at(again);
        ASSERT_TRUE(read.again);
        ASSERT_EQ(read.first, reads.at(number).first);
        ASSERT_EQ(read.kept.empty() ? read.count : read.kept.size(), left.size());
        ++again;
      }
      ASSERT_EQ(rest[0].reads.size(), again + whole[at].reads.size());
      for (std::size_t i = 0; i < rest.size(); ++i) {
        from_here.Run(rest[i]);
        ASSERT_EQ(rest[i].epoch, whole[at + i].epoch);
        ASSERT_EQ(rest[i].step, whole[at + i].step);
        ASSERT_EQ(rest[i].deliveries.size(), whole[at + i].deliveries.size());
        for (std::size_t row = 0; row < rest[i].deliveries.size(); ++row) {
          ASSERT_EQ(rest[i].deliveries[row].sample, whole[at + i].deliveries[row].sample);
        }
        ASSERT_EQ(rest[i].releases.size(), whole[at + i].releases.size());
      }
      ASSERT_TRUE(from_here.held().empty());
      memory.Run(whole[at]);
      for (const BlockRead& read : whole[at].reads) reads[read.number] = read;
    }
  }
}

// Compares the rest of an epoch with that of a stream that enters at `at`, first of all what it
// reads again.
void CheckEntering(const RedoxOrderOptions& options, std::uint64_t at) {
  auto whole = MakeRedoxOrder(options, {}).value();
  auto entered = MakeRedoxOrder(options, {.epoch = 0, .step = at}).value();
  std::map<std::uint64_t, std::pair<SampleId, std::set<std::uint64_t>>> held;  // by read
  std::optional<Step> step = whole->Next();
  for (; step->step != at; step = whole->Next()) {
    for (const BlockRead& read : step->reads) {
      held[read.number].first = read.first;
      for (const std::uint32_t each : read.kept) {
        held[read.number].second.insert(Raw(read.first) + each);
      }
      for (std::uint32_t i = 0; read.kept.empty() && i < read.count; ++i) {
        held[read.number].second.insert(Raw(read.first) + i);
      }
    }
    for (const Delivery& each : step->deliveries) {
      held[each.block_read].second.erase(Raw(each.sample));
    }
  }
  std::erase_if(held, [](const auto& each) { return each.second.second.empty(); });
  std::optional<Step> first = entered->Next();
  ASSERT_EQ(first->reads.size(), held.size() + step->reads.size());
  std::size_t again = 0;
  for (const auto& [number, left] : held) {
    const BlockRead& read = first->reads[again++];
    ASSERT_TRUE(read.again);
    ASSERT_EQ(read.first, left.first);
    ASSERT_EQ(read.kept.empty() ? read.count : read.kept.size(), left.second.size());
  }
  const std::uint64_t numbered = held.size();
  for (; step.has_value() && step->epoch == 0; step = whole->Next(), first = entered->Next()) {
    ASSERT_EQ(first->deliveries.size(), step->deliveries.size());
    for (std::size_t row = 0; row < step->deliveries.size(); ++row) {
      ASSERT_EQ(first->deliveries[row].sample, step->deliveries[row].sample);
    }
  }
  ASSERT_EQ(entered->counters()["read_again"], static_cast<double>(numbered));
}

// Requests are served out of sequence then: a million at a time, by ranges of 4,096 slots.
TEST(RedoxOrderTest, EntersFarInsideALongEpoch) {
  RedoxOrderOptions options;
  options.job = {.sample_count = 1'100'000, .batch_size = 1000, .seed = 3, .epochs = 1};
  options.blocks = MakeUniformBlocks(options.job.sample_count, 50);
#ifdef NDEBUG
  CheckEntering(options, 1070);
#endif  // Slow builds look for other mistakes: one of the mappings is enough.
  options.mapping = RedoxOrderOptions::Mapping::kInterleaved;
  options.slot_classes = 16;
  CheckEntering(options, 1070);
}

TEST(RedoxOrderTest, EntersAnEpochOfVirtualChunksWiderThanARangeOfSlots) {
  RedoxOrderOptions options;
  options.job = {.sample_count = 150'000, .batch_size = 1000, .seed = 4, .epochs = 1};
  options.blocks = MakeUniformBlocks(options.job.sample_count, 9'000);
  options.chunks_per_virtual = 3;
  for (const std::uint64_t at : {1U, 40U, 149U}) CheckEntering(options, at);
}

TEST(RedoxOrderTest, NeverHoldsMoreThanItsBoundOrItsBudget) {
  bool budget_mattered = false;
  for (std::uint64_t seed = 0; seed < kOrderRuns; ++seed) {
    RedoxOrderOptions options = AnyRedox(seed);
    options.job.batch_size = 1;  // So that what a step holds is what the planner holds.
    options.job.world_size = 1;
    Memory memory(*options.blocks);
    auto order = MakeRedoxOrder(options, {}).value();
    while (const auto step = order->Next()) memory.Run(*step);
    const std::uint64_t bound = RedoxResidentUnits(options).value();
    ASSERT_LE(memory.peak(), bound) << "seed " << seed;
    ASSERT_LE(bound, options.blocks->total_units());
    if (options.memory_units != 0) {
      ASSERT_LE(bound, options.memory_units);
    }
    const auto counters = order->counters();
    ASSERT_EQ(counters.at("peak_resident_bytes"), memory.peak() * OddBlocks::kUnitBytes);
    if (options.remote_units != 0) {
      ASSERT_LE(counters.at("peak_remote_bytes"), options.remote_units * OddBlocks::kUnitBytes);
    }
    options.memory_units = 0;
    budget_mattered = budget_mattered || RedoxResidentUnits(options).value() > bound;
  }
  EXPECT_TRUE(budget_mattered);
}

TEST(RedoxOrderTest, GlobalBatchesDoNotDependOnTheWorldSize) {
  const auto global = [](std::uint32_t world) {
    RedoxOrderOptions options;
    options.job = {
        .sample_count = 960, .batch_size = 96 / world, .world_size = world, .seed = 5, .epochs = 2};
    options.blocks = MakeUniformBlocks(960, 16);
    options.chunks_per_virtual = 4;
    options.nodes = 3;
    options.prefetch = 20;
    auto batches = GlobalBatches(options, false);
    for (auto& [position, ids] : batches) std::ranges::sort(ids);
    return batches;
  };
  EXPECT_EQ(global(8), global(3));
  EXPECT_EQ(global(8), global(16));
}

TEST(RedoxOrderTest, ARankIsGivenThePositionsThatExactGivesIt) {
  RedoxOrderOptions options;
  options.job = {.sample_count = 23, .batch_size = 3, .seed = 1, .epochs = 1};
  options.blocks = MakeUniformBlocks(23, 5);
  options.job.batch_size = 6;
  const std::vector<Step> one = Pull(options);
  options.job.batch_size = 3;
  options.job.world_size = 2;
  for (const std::uint32_t rank : {0U, 1U}) {
    options.job.rank = rank;
    const std::vector<Step> mine = Pull(options);
    ASSERT_EQ(mine.size(), one.size());
    for (std::size_t t = 0; t + 1 < mine.size(); ++t) {
      for (std::uint32_t slot = 0; slot < 3; ++slot) {
        EXPECT_EQ(mine[t].deliveries[slot].sample, one[t].deliveries[slot * 2 + rank].sample);
      }
    }
    // 23 samples on 2 ranks: position 23 repeats the final batch from its beginning, position 18.
    EXPECT_EQ(mine.back().deliveries.size(), 3U);
    if (rank == 0) continue;
    EXPECT_EQ(mine.back().deliveries[2].sample, one.back().deliveries[0].sample);
    EXPECT_EQ(mine.back().deliveries[2].block_read, kNoBlockRead);
  }
}

TEST(RedoxOrderTest, ThePadSetRepeatsTheFinalBatchFromItsBeginning) {
  RedoxOrderOptions options;
  options.job = {.sample_count = 6, .batch_size = 1, .world_size = 4, .seed = 1, .epochs = 1};
  options.blocks = MakeUniformBlocks(6, 2);
  std::vector<Delivery> last;
  for (options.job.rank = 0; options.job.rank < 4; ++options.job.rank) {
    last.push_back(Pull(options).back().deliveries.at(0));
  }
  EXPECT_NE(last[0].sample, last[1].sample);
  EXPECT_EQ(last[2].sample, last[0].sample);
  EXPECT_EQ(last[3].sample, last[1].sample);
  EXPECT_EQ(last[3].block_read, kNoBlockRead);
}

TEST(RedoxOrderTest, ATraceIsDeliveredWholeInAnotherOrder) {
  for (std::uint64_t seed = 0; seed < kOrderRuns; ++seed) {
    RedoxOrderOptions options = AnyRedox(seed);
    Prng prng(seed, 1, RandomStream::kOrder, 99);
    std::vector<SampleId> trace(prng.Below(2 * options.job.sample_count) + 1);
    for (SampleId& id : trace) id = SampleId{prng.Below(options.job.sample_count)};
    options.trace = std::make_shared<const std::vector<SampleId>>(trace);
    options.job.drop_last = false;
    options.job.world_size = 1;
    options.job.rank = 0;
    std::multiset<std::uint64_t> asked;
    for (const SampleId id : trace) asked.insert(Raw(id));
    std::map<std::uint64_t, std::multiset<std::uint64_t>> given;
    std::map<std::uint64_t, std::set<std::uint64_t>> kept;
    Memory memory(*options.blocks);
    auto order = MakeRedoxOrder(options, {}).value();
    std::size_t direct = 0;
    while (const auto step = order->Next()) {
      memory.Run(*step);
      for (const Delivery& each : step->deliveries) {
        given[step->epoch].insert(Raw(each.sample));
        if (each.block_read == kNoBlockRead) {
          ++direct;
        } else {
          ASSERT_TRUE(kept[step->epoch].insert(Raw(each.sample)).second);
        }
      }
    }
    ASSERT_TRUE(memory.held().empty());
    ASSERT_EQ(given.size(), 2U);
    for (const auto& [epoch, ids] : given) ASSERT_EQ(ids, asked);
    ASSERT_EQ(direct, 2 * (asked.size() - std::set(asked.begin(), asked.end()).size()));
    ASSERT_EQ(order->counters().at("direct_reads"), direct);
  }
}

// The whole stream of a step, as tests/python/redox/redox_model.py writes it.
std::string Line(const Step& step, const BlockMap& blocks) {
  std::string line = std::to_string(step.epoch) + "." + std::to_string(step.step);
  const auto add = [&](std::uint64_t first, const char* between, std::uint64_t second) {
    line += " " + std::to_string(first) + between + std::to_string(second);
  };
  for (const BlockRead& read : step.reads) {
    std::uint64_t chunk = 0;
    while (blocks.block(chunk).first != read.first) ++chunk;
    add(read.number, ":", chunk);
    Ids kept(read.kept.begin(), read.kept.end());
    if (kept.empty()) {
      kept.resize(read.count);
      std::iota(kept.begin(), kept.end(), 0U);
    }
    const char* before = read.again ? "!" : ":";
    for (const std::uint64_t each : kept) {
      line += std::exchange(before, ",") + std::to_string(each);
    }
  }
  for (const Delivery& each : step.deliveries) {
    if (each.block_read == kNoBlockRead) {
      line += " " + std::to_string(Raw(each.sample)) + "/-1";
    } else {
      add(Raw(each.sample), "/", each.block_read);
    }
  }
  for (const Release& each : step.releases) add(Raw(each.sample), "-", each.block_read);
  return line;
}

std::vector<std::string> Lines(const RedoxOrderOptions& options, Position start) {
  std::vector<std::string> lines;
  for (const Step& step : Pull(options, start)) lines.push_back(Line(step, *options.blocks));
  return lines;
}

// FNV-1a, 64 bits, of all lines, each ended by a line feed.
std::uint64_t Hash(const std::vector<std::string>& lines) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const std::string& line : lines) {
    for (const char letter : line + "\n") {
      hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3;
    }
  }
  return hash;
}

// Sample i takes 1 + i mod `most` units.
std::shared_ptr<const BlockMap> Blocks(const std::vector<std::uint32_t>& blocks,
                                       std::uint32_t most) {
  std::vector<std::uint32_t> units(std::accumulate(blocks.begin(), blocks.end(), 0U));
  for (std::uint32_t i = 0; i < units.size(); ++i) units[i] = 1 + i % most;
  return std::make_shared<OddBlocks>(blocks, std::move(units));
}

// Written by tests/python/redox/redox_model.py; tests/python/redox/test_redox.py has the same.
TEST(RedoxOrderTest, OrdersAreFrozen) {
  RedoxOrderOptions options;
  options.job = {.sample_count = 12, .batch_size = 3, .seed = 7, .epochs = 1};
  options.blocks = MakeUniformBlocks(12, 3);
  options.chunks_per_virtual = 2;
  EXPECT_EQ(Lines(options, {}), (std::vector<std::string>{
                                    "0.0 0:1:0,1,2 1:2:0,1,2 3/0 8/1 6/1",
                                    "0.1 2:3:0,1,2 5/0 7/1 11/2",
                                    "0.2 3:0:0,2 0/3 10/2 4/0",
                                    "0.3 4:0:1 9/2 1/4 2/3",
                                }));
  options.job = {.sample_count = 16,
                 .batch_size = 2,
                 .world_size = 2,
                 .rank = 1,
                 .seed = 7,
                 .drop_last = true,
                 .epochs = 2};
  options.blocks = Blocks({3, 5, 1, 4, 3}, 4);
  options.mapping = RedoxOrderOptions::Mapping::kInterleaved;
  options.slot_classes = 2;
  options.nodes = 2;
  options.prefetch = 4;
  options.remote_units = 5;
  options.memory_units = 14;
  EXPECT_EQ(Lines(options, {1, 1}), (std::vector<std::string>{
                                        "1.1 0:3!2,3 1:1!2 2:0:0,1,2 12/0 0/2 11-0 5-1",
                                        "1.2 3:1:0 4:4:0,2 1/2 2/2 3-3 15-4",
                                        "1.3 5:1:3,4 6:4:1 7/5 14/6 6-5 13-4",
                                    }));
}

TEST(RedoxOrderTest, LongOrdersAreFrozen) {
  RedoxOrderOptions options;
  options.job = {.sample_count = 1999,
                 .batch_size = 10,
                 .world_size = 4,
                 .rank = 2,
                 .seed = ~std::uint64_t{0} - 2,
                 .epochs = 1};
  options.blocks = MakeUniformBlocks(1999, 64);
  options.nodes = 4;
  options.prefetch = 150;
  options.remote_units = 30;
  EXPECT_EQ(Hash(Lines(options, {})), 0x53a8c900240a6f0f);

  options.job = {.sample_count = 1999, .batch_size = 10, .seed = 9, .epochs = 1};
  options.slot_classes = 16;
  options.nodes = 3;
  options.prefetch = 100;
  options.remote_units = 0;
  EXPECT_EQ(Hash(Lines(options, {})), 0x006a66ca705bf785);

  options = {};
  options.job = {.sample_count = 1999, .batch_size = 17, .seed = 5, .epochs = 2};
  std::vector<std::uint32_t> blocks(31, 64);
  blocks.push_back(15);
  options.blocks = Blocks(blocks, 7);
  options.refill = RedoxOrderOptions::Refill::kRandom;
  options.slot_classes = 8;
  options.memory_units = 300;
  std::vector<SampleId> trace;
  for (std::uint64_t i = 0; i < 1500; ++i) trace.push_back(SampleId{i * i % 1999});
  options.trace = std::make_shared<const std::vector<SampleId>>(std::move(trace));
  EXPECT_EQ(Hash(Lines(options, {0, 20})), 0x315f8409465457a8);
}

TEST(RedoxOrderTest, BadJobsAndTracesAreNamed) {
  RedoxOrderOptions options;
  options.job = {.sample_count = 9, .batch_size = 2, .epochs = 2};
  options.blocks = MakeUniformBlocks(10, 2);
  const auto error = [&](Position start = {}) { return MakeRedoxOrder(options, start).status(); };
  EXPECT_EQ(error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(error().message(),
            "order redox: the blocks hold 10 samples, the job 9; give the blocks of its dataset");
  options.job.sample_count = 10;
  EXPECT_EQ(error({0, 5}).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(error({3, 0}).code(), StatusCode::kOutOfRange);
  options.trace = std::make_shared<const std::vector<SampleId>>(
      std::vector<SampleId>{SampleId{3}, SampleId{10}});
  EXPECT_EQ(error().message(),
            "trace of order redox: names sample 10 at position 1, the dataset has 10");
  options.trace = std::make_shared<const std::vector<SampleId>>();
  EXPECT_THAT(std::string(error().message()), HasSubstr("samples: got 0"));
  options.trace = nullptr;
  options.nodes = 0;
  EXPECT_THAT(std::string(error().message()), HasSubstr("nodes 0"));
  options.nodes = 1;
  options.blocks = MakeUniformBlocks(std::uint64_t{1} << 32, 64);
  options.job.sample_count = std::uint64_t{1} << 32;
  EXPECT_THAT(std::string(error().message()), HasSubstr("must be at most 4294967295"));
}

}  // namespace
}  // namespace headrace
