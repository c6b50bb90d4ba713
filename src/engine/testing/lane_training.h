#pragma once

// Ranks that train in step on one simulated node: 8 lanes, 32 cores.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "base/units.h"
#include "codec/bytes_codec.h"
#include "engine/engine.h"
#include "engine/lanes/lane_policy.h"
#include "engine/testing/lane_world.h"
#include "gtest/gtest.h"
#include "index/testing/table_index.h"
#include "plan/exact_order.h"
#include "sim/sim_executor.h"
#include "sim/sim_loop.h"
#include "sim/sim_store.h"
#include "store/memory_store.h"

namespace headrace {

inline constexpr std::uint64_t kEventsMax = 20'000'000;

inline std::vector<std::unique_ptr<Order>> OrdersOf(OrderOptions options) {
  std::vector<std::unique_ptr<Order>> orders;
  for (std::uint32_t rank = 0; rank < options.world_size; ++rank) {
    options.rank = rank;
    orders.push_back(MakeExactOrder(options, {}).value());
  }
  return orders;
}

// Samples of one field, of the sizes given, in one object; of random bytes where it is to be seen
// which they are.
class LaneDataset {
 public:
  LaneDataset(const std::vector<std::uint64_t>& sizes, Prng* random) {
    index.samples = sizes.size();
    index.columns.resize(1);
    index.infos = {{.name = "bytes", .kind = FieldKind::kBytes}};
    std::string bytes;
    for (const std::uint64_t size : sizes) {
      index.columns[0].extents.push_back({ObjectId{0}, {bytes.size(), size}});
      for (std::uint64_t i = 0; i < size; ++i) {
        bytes.push_back(random == nullptr ? '.' : static_cast<char>(random->Below(256)));
      }
      bytes.append(8, '-');  // Not next to the next: a read of its own, if gaps are not read.
    }
    index.objects = {std::move(bytes)};
    schema = {{.name = "bytes", .codec = MakeBytesCodec(), .ragged = true}};
    store = std::make_unique<MemoryStore>(
        std::unordered_map<ObjectId, std::string>{{ObjectId{0}, index.objects[0]}});
  }

  TableIndex index;
  std::vector<BatchField> schema;
  std::unique_ptr<MemoryStore> store;
};

// Ranks that train in step: none goes on before all have their batch.
struct Training {
  std::vector<std::int64_t> step_ns;  // each iteration, from one barrier to the next
  // Shares of iterations in which ranks differ by more than a tenth of a step: in how long after
  // the step before began their batch was done, and in what their engine's lanes were busy for.
  double imbalanced = 0;
  double busy_imbalanced = 0;
};

inline constexpr std::uint32_t kLanes = 8;
inline constexpr int kCores = 32;
inline constexpr std::uint64_t kBatch = 16;
inline constexpr std::uint64_t kSteps = 60;
inline constexpr std::uint64_t kWarmUp = 8;  // steps that are not counted
inline constexpr double kTheta = 0.1;

// What a node trains with.
struct LaneJob {
  std::vector<std::uint64_t> sizes;  // of the samples
  bool alike_to_read = false;        // whatever their size; only decoding takes longer
  std::int64_t train_ns = 15 * kMs;  // of a step
  std::unique_ptr<Order> order;      // of kLanes ranks, at least kSteps steps
  LanePolicy* policy = nullptr;      // null: shared deadlines
};

class LaneTrainer {
 public:
  LaneTrainer(std::uint64_t seed, LaneJob job)
      : random_(seed, 0, RandomStream::kOrder, 0x10b5),
        job_(std::move(job)),
        data_(std::make_unique<LaneDataset>(job_.sizes, nullptr)) {}

  Training Run() {
    // 1 MB/s a read: a sample of 1,000 bytes takes a millisecond, and then 1.5 to decode.
    SimStore store(loop_, *data_->store, [this](const Extent& extent) {
      const auto bytes = static_cast<std::int64_t>(extent.range.size);
      const std::int64_t read_ns = job_.alike_to_read ? kMs : 1000 * bytes;
      return SimRead{.delay_ns = read_ns + static_cast<std::int64_t>(random_.Below(kMs / 2))};
    });
    SimExecutor executor(
        loop_, kCores, [](std::uint64_t bytes) { return static_cast<std::int64_t>(bytes) * 1500; });
    Engine::Parts parts{.index = &data_->index,
                        .schema = data_->schema,
                        .store = &store,
                        .executor = &executor,
                        .clock = &loop_.clock(),
                        .staging = BufferPool::Make(64 * kMiB),
                        .policy = job_.policy};
    sinks_.resize(kLanes);
    for (SimSink& sink : sinks_) {
      parts.lanes.push_back({.sink = &sink, .batch_memory = BufferPool::Make(16 * kMiB)});
    }
    EngineOptions options;
    options.decode_task_bytes = 1;
    options.batches_max = 4;
    options.coalesce_gap_bytes = 0;
    Engine engine(parts, options, std::move(job_.order));
    engine.Start();
    Step(engine);
    EXPECT_TRUE(loop_.RunUntilIdle(kEventsMax));
    engine.Stop();
    EXPECT_TRUE(loop_.RunUntilIdle(kEventsMax));
    engine.Close();
    EXPECT_EQ(result_.step_ns.size(), kSteps);
    result_.imbalanced = static_cast<double>(imbalanced_) / static_cast<double>(kSteps - kWarmUp);
    result_.busy_imbalanced =
        static_cast<double>(busy_imbalanced_) / static_cast<double>(kSteps - kWarmUp);
    return result_;
  }

 private:
  // Every lane takes its batch; when the last one has it, all train.
  void Step(Engine& engine) {
    if (result_.step_ns.size() == kSteps) return;
    waiting_ = kLanes;
    busy_.clear();
    late_.clear();
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) Take(engine, lane);
  }

  void Take(Engine& engine, std::uint32_t lane) {
    SimSink& sink = sinks_[lane];
    if (sink.ready.empty()) {
      sink.wake = [this, &engine, lane] {
        loop_.After(0, [this, &engine, lane] { Take(engine, lane); });
      };
      engine.OnWaiting(lane);
      return;
    }
    const BatchTimes& times = sink.ready.front()->times;
    busy_.push_back(times.busy_ns);
    late_.push_back(std::max<std::int64_t>(0, times.done_ns - began_ns_));
    sink.ready.pop_front();
    engine.OnTaken(lane);
    if (--waiting_ > 0) return;
    imbalanced_ += IsImbalanced(late_);
    busy_imbalanced_ += IsImbalanced(busy_);
    began_ns_ = loop_.now_ns();
    loop_.After(job_.train_ns, [this, &engine] {
      result_.step_ns.push_back(loop_.now_ns() - last_ns_);
      last_ns_ = loop_.now_ns();
      Step(engine);
    });
  }

  [[nodiscard]] bool IsImbalanced(const std::vector<std::int64_t>& ns) const {
    if (result_.step_ns.size() < kWarmUp) return false;
    const auto [least, most] = std::minmax_element(ns.begin(), ns.end());
    return static_cast<double>(*most - *least) > kTheta * static_cast<double>(job_.train_ns);
  }

  Prng random_;
  LaneJob job_;
  std::unique_ptr<LaneDataset> data_;
  SimLoop loop_;
  std::deque<SimSink> sinks_;
  std::uint32_t waiting_ = 0;
  std::vector<std::int64_t> busy_;
  std::vector<std::int64_t> late_;
  std::uint64_t imbalanced_ = 0;
  std::uint64_t busy_imbalanced_ = 0;
  std::int64_t began_ns_ = 0;  // the step in progress
  std::int64_t last_ns_ = 0;
  Training result_;
};

inline double Quantile(std::vector<std::int64_t> values, double q) {
  std::sort(values.begin(), values.end());
  return static_cast<double>(values[static_cast<std::size_t>(q * double(values.size() - 1))]);
}

// Of several seeds.
struct Verdict {
  double imbalanced = 0;  // means over seeds
  double busy_imbalanced = 0;
  double p50_ns = 0;
  double p99_ns = 0;
};

// Trains a job of each of `seeds` seeds.
inline Verdict TrainAll(std::uint64_t seeds,
                        const std::function<Training(std::uint64_t seed)>& train) {
  Verdict verdict;
  std::vector<std::int64_t> steps;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const Training training = train(seed);
    verdict.imbalanced += training.imbalanced / static_cast<double>(seeds);
    verdict.busy_imbalanced += training.busy_imbalanced / static_cast<double>(seeds);
    steps.insert(steps.end(), training.step_ns.begin() + kWarmUp, training.step_ns.end());
  }
  verdict.p50_ns = Quantile(steps, 0.5);
  verdict.p99_ns = Quantile(steps, 0.99);
  return verdict;
}

inline void Show(const std::string& name, const Verdict& verdict) {
  std::printf(
      "%-16s imbalanced %5.1f %% (busy %5.1f %%), step p50 %6.2f ms, p99 %6.2f ms, "
      "p99/p50 %.3f\n",
      name.c_str(), 100 * verdict.imbalanced, 100 * verdict.busy_imbalanced, verdict.p50_ns / kMs,
      verdict.p99_ns / kMs, verdict.p99_ns / verdict.p50_ns);
}

// One lane's samples are four times as large as the others'.
struct Skew {
  bool in_decoding = false;  // and only decoding takes longer for that, not reading
  // Of a step. All cores together decode one in 8.25 ms, those of a fixed share the large samples
  // in 24.
  std::int64_t train_ns = 15 * kMs;
};

inline LaneJob SkewedJob(std::uint64_t seed, Skew skew, LanePolicy* policy) {
  Prng random(seed, 1, RandomStream::kOrder, 0x10b5);
  const auto heavy = static_cast<std::uint32_t>(random.Below(kLanes));
  LaneJob job{.alike_to_read = skew.in_decoding, .train_ns = skew.train_ns, .policy = policy};
  job.sizes.resize(kLanes * kBatch * kSteps);
  for (std::size_t i = 0; i < job.sizes.size(); ++i) {
    job.sizes[i] = (i % kLanes == heavy ? 4 : 1) * (900 + random.Below(200));
  }
  job.order = std::make_unique<MergedOrder>(OrdersOf({.sample_count = job.sizes.size(),
                                                      .batch_size = kBatch,
                                                      .world_size = kLanes,
                                                      .shuffle = false,
                                                      .epochs = 1}));
  return job;
}

inline Training TrainSkewed(std::uint64_t seed, Skew skew, LanePolicy* policy) {
  return LaneTrainer(seed, SkewedJob(seed, skew, policy)).Run();
}

}  // namespace headrace
