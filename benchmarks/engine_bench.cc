// What the engine itself costs: engine_bench [seconds a point [position of the only shape]]
//
// Runs the real engine over data in memory, without decoding: a store that points its answers at
// the bytes, the codec for raw bytes, an executor that runs tasks on the calling thread. So all of
// it is one thread, whose processor time is the engine's work plus one copy of every sample; a bare
// loop of the same copies is measured beside it, alternating, and taken off. What is left is fitted
// to reads and samples over several shapes, with single reads (order `exact`) and with blocks
// (`epoch`, where samples are copied once more, into the pool). One line of JSON a shape, then the
// fit.
//
// Goal: at most 5 us a read or batch, and 0.15 us a sample.

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/units.h"
#include "codec/bytes_codec.h"
#include "engine/engine.h"
#include "engine/testing/block_plan.h"
#include "index/testing/table_index.h"
#include "plan/block_map.h"
#include "plan/epoch/epoch_order.h"
#include "plan/exact_order.h"

namespace headrace {
namespace {

constexpr double kGoalUsPerReadOrBatch = 5.0;
constexpr double kGoalUsPerSample = 0.15;

std::int64_t ThreadNanos() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

// Runs every task where the benchmark says.
class InlineExecutor final : public Executor {
 public:
  void Submit(std::uint64_t /*deadline*/, Task task) override { tasks_.push_back(std::move(task)); }
  [[nodiscard]] int concurrency() const override { return 1; }
  bool RunOne() {
    if (tasks_.empty()) return false;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
    return true;
  }

 private:
  std::deque<Task> tasks_;
};

// Answers with the bytes where they lie, so that the copy into the batch is the only one. Answers
// come when the executor's thread gets round to them, as a device's do.
class PointingStore final : public ByteStore {
 public:
  PointingStore(TableIndex& index, InlineExecutor& executor) : index_(index), executor_(executor) {}

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override { return range.size; }
  void Read(std::vector<ReadRequest> requests, std::stop_token /*stop*/) override {
    for (ReadRequest& request : requests) {
      auto shared = std::make_shared<ReadRequest>(std::move(request));
      executor_.Submit(0, [this, shared = std::move(shared)] {
        const Extent& extent = shared->extent;
        std::string& object = index_.objects[Raw(extent.object)];
        shared->done(std::as_writable_bytes(std::span(object))
                         .subspan(extent.range.offset, extent.range.size));
      });
    }
  }
  [[nodiscard]] StoreStats stats() const override { return {}; }

 private:
  TableIndex& index_;
  InlineExecutor& executor_;
};

class CountingSink final : public BatchSink {
 public:
  void OnBatch(std::shared_ptr<Batch> batch) override { batches.push_back(std::move(batch)); }
  void OnEnd(Status status) override {
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    ended = true;
  }
  std::vector<std::shared_ptr<Batch>> batches;
  bool ended = false;
};

struct Shape {
  std::uint64_t sample_bytes;
  std::uint64_t samples;  // of the dataset
  std::uint64_t batch_size;
  bool shuffle;                     // else neighbours are one read
  std::uint64_t block_samples = 0;  // of order `epoch` with a pool of an eighth; 0: order `exact`
};

// Bytes of a cell, as MakeIndexBlocks() chooses it.
std::uint64_t UnitBytes(const Shape& shape) {
  return std::bit_floor(std::clamp<std::uint64_t>(shape.sample_bytes / 8, 64, 4096));
}

std::uint64_t CellsOf(const Shape& shape) {
  return (shape.sample_bytes - 1) / UnitBytes(shape) + 1;
}

// The plan of one epoch, made beforehand: planning is measured elsewhere.
std::vector<Step> MakeSteps(const Shape& shape) {
  const OrderOptions job{.sample_count = shape.samples,
                         .batch_size = shape.batch_size,
                         .shuffle = shape.shuffle,
                         .epochs = 1};
  auto order =
      shape.block_samples == 0
          ? MakeExactOrder(job, {})
          : MakeEpochOrder({.job = job,
                            .blocks = MakeUniformBlocks(shape.samples, shape.block_samples),
                            .pool_units = shape.samples / 8},
                           {});
  std::vector<Step> steps;
  while (std::optional<Step> step = order.value()->Next()) steps.push_back(*std::move(step));
  return steps;
}

// What a pool of an eighth takes, as OrderFactory::ResidentUnits() has it for samples of one unit.
std::uint64_t ResidentSamples(const Shape& shape) {
  std::uint64_t resident = 0;
  std::uint64_t most = 0;
  for (const Step& step : MakeSteps(shape)) {
    for (const BlockRead& read : step.reads) {
      resident += read.kept.empty() ? read.count : read.kept.size();
    }
    most = std::max(most, resident);  // Above what the planner counts, by one step at most.
    for (const Delivery& delivery : step.deliveries)
      resident -= delivery.block_read != kNoBlockRead;
    resident -= step.releases.size();
  }
  return most;
}

struct Cost {
  double reads = 0;
  double batches = 0;
  double samples = 0;
  double engine_us = 0;  // processor time, copies included
  double copy_us = 0;    // of the bare loop
};

void FillIndex(const Shape& shape, TableIndex& index) {
  index.samples = shape.samples;
  index.objects.emplace_back(shape.samples * shape.sample_bytes, 'x');
  TableIndex::Column& column = index.columns.emplace_back();
  column.info = {.name = "data", .kind = FieldKind::kBytes};
  for (std::uint64_t i = 0; i < shape.samples; ++i) {
    column.extents.push_back(
        {.object = ObjectId{0}, .range = {i * shape.sample_bytes, shape.sample_bytes}});
  }
  index.infos.push_back(column.info);
}

struct Memory {
  std::shared_ptr<BufferPool> staging;
  std::shared_ptr<BufferPool> batches;
  std::shared_ptr<CellPool> residents;
};

// One epoch through the engine.
void RunEngine(const Shape& shape, TableIndex& index, const Memory& memory, Cost& cost) {
  const std::vector<BatchField> schema = {{.name = "data",
                                           .index_field = 0,
                                           .codec = MakeArrayCodec(shape.sample_bytes),
                                           .shape = {shape.sample_bytes},
                                           .row_bytes = shape.sample_bytes}};
  InlineExecutor executor;
  PointingStore store(index, executor);
  CountingSink sink;
  const MonotonicClock clock;
  Engine engine({.index = &index,
                 .schema = schema,
                 .store = &store,
                 .executor = &executor,
                 .clock = &clock,
                 .lanes = {{.sink = &sink, .batch_memory = memory.batches}},
                 .staging = memory.staging,
                 .residents = memory.residents},
                {.batches_max = 4}, std::make_unique<ListedSteps>(MakeSteps(shape)));
  const std::int64_t begin_ns = ThreadNanos();
  engine.Start();
  while (!sink.ended) {
    if (!executor.RunOne()) break;
    for (std::shared_ptr<Batch>& batch : std::exchange(sink.batches, {})) {
      batch.reset();
      engine.OnTaken();
    }
  }
  cost.engine_us += static_cast<double>(ThreadNanos() - begin_ns) / 1e3;
  engine.Stop();
  while (executor.RunOne()) {
  }
  engine.Close();
  const EngineStats stats = engine.stats();
  cost.reads += static_cast<double>(stats.reads);
  cost.batches += static_cast<double>(stats.lanes[0].batches);
  cost.samples += static_cast<double>(stats.lanes[0].samples);
}

// The same copies, and nothing else: blocks to places of a pool, these to rows.
void RunBareLoop(const Shape& shape, const TableIndex& index, const Memory& memory, Cost& cost) {
  const std::vector<Step> steps = MakeSteps(shape);
  // As many batches at a time as the engine has in work, so that the caches see the same.
  std::vector<Buffer> batches;
  for (int i = 0; i < 4; ++i) {
    batches.push_back(memory.batches->Acquire(shape.batch_size * shape.sample_bytes).value());
  }
  std::vector<std::uint32_t> units(memory.residents->capacity_units() / CellsOf(shape),
                                   static_cast<std::uint32_t>(CellsOf(shape)));
  std::vector<CellRun> places(units.size());
  HEADRACE_CHECK(memory.residents->Take(units, places));
  const std::vector<CellRun> all = places;
  std::vector<std::byte*> free;
  for (const CellRun place : all) {
    const auto view = memory.residents->View(place, 0, shape.sample_bytes);
    free.push_back(const_cast<std::byte*>(view.value().data()));
  }
  std::vector<std::byte*> place_of(shape.samples);
  std::size_t next = 0;
  const std::int64_t begin_ns = ThreadNanos();
  for (const Step& step : steps) {
    std::byte* out = batches[next++ % batches.size()].bytes().data();
    const auto stored = [&](SampleId sample) {
      const ByteRange range = index.columns[0].extents[Raw(sample)].range;
      return index.objects[0].data() + range.offset;
    };
    auto delivery = step.deliveries.begin();
    const auto deliver = [&] {
      std::byte*& place = place_of[Raw(delivery->sample)];
      std::memcpy(
          out, place == nullptr ? stored(delivery->sample) : reinterpret_cast<const char*>(place),
          shape.sample_bytes);
      if (place != nullptr) free.push_back(std::exchange(place, nullptr));
      out += shape.sample_bytes;
      ++delivery;
    };
    const auto deliver_all = [&] {
      while (delivery != step.deliveries.end()) deliver();
    };
    for (const BlockRead& read : step.reads) {
      if (free.size() < read.count) deliver_all();
      HEADRACE_CHECK(free.size() >= read.count);
      for (std::uint32_t i = 0; i < read.count; ++i) {
        const SampleId sample{Raw(read.first) + i};
        std::memcpy(free.back(), stored(sample), shape.sample_bytes);
        place_of[Raw(sample)] = free.back();
        free.pop_back();
      }
    }
    deliver_all();
  }
  cost.copy_us += static_cast<double>(ThreadNanos() - begin_ns) / 1e3;
  for (const CellRun place : all) memory.residents->Release(place);
}

Cost Measure(const Shape& shape, double seconds) {
  TableIndex index;
  FillIndex(shape, index);
  const std::uint64_t batch_bytes = BufferPool::ChargedBytes(shape.batch_size * shape.sample_bytes);
  const Memory memory = {
      .staging = BufferPool::Make(128 * kMiB),
      .batches = BufferPool::Make(6 * batch_bytes),
      .residents =
          CellPool::Make(shape.block_samples == 0 ? 0 : ResidentSamples(shape) * CellsOf(shape),
                         UnitBytes(shape))
              .value()};
  Cost warm_up;
  RunEngine(shape, index, memory, warm_up);
  RunBareLoop(shape, index, memory, warm_up);
  Cost cost;
  while (cost.engine_us < seconds * 1e6) {
    RunEngine(shape, index, memory, cost);
    Cost copies;
    RunBareLoop(shape, index, memory, copies);
    cost.copy_us += copies.copy_us;
  }
  return cost;
}

// Least squares of a * x + b * y = z, each shape weighted by 1 / z: relative errors count.
std::pair<double, double> Fit(const std::vector<std::array<double, 3>>& rows) {
  double xx = 0;
  double xy = 0;
  double yy = 0;
  double xz = 0;
  double yz = 0;
  for (const auto& [x_raw, y_raw, z] : rows) {
    const double weight = 1 / std::max(z, 1e-9);
    const double x = x_raw * weight;
    const double y = y_raw * weight;
    xx += x * x;
    xy += x * y;
    yy += y * y;
    xz += x;
    yz += y;
  }
  const double determinant = xx * yy - xy * xy;
  return {(xz * yy - yz * xy) / determinant, (yz * xx - xz * xy) / determinant};
}

int Main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2.0;
  constexpr std::array<Shape, 11> kShapes = {{
      {.sample_bytes = 65536, .samples = 4096, .batch_size = 64, .shuffle = true},
      {.sample_bytes = 65536, .samples = 4096, .batch_size = 256, .shuffle = true},
      {.sample_bytes = 4096, .samples = 65536, .batch_size = 256, .shuffle = false},
      {.sample_bytes = 1024, .samples = 262144, .batch_size = 1000, .shuffle = false},
      {.sample_bytes = 64, .samples = 1000000, .batch_size = 1000, .shuffle = false},
      {.sample_bytes = 64, .samples = 1000000, .batch_size = 4000, .shuffle = false},
      {.sample_bytes = 65536,
       .samples = 4096,
       .batch_size = 256,
       .shuffle = true,
       .block_samples = 16},
      {.sample_bytes = 4096,
       .samples = 65536,
       .batch_size = 256,
       .shuffle = true,
       .block_samples = 1},
      {.sample_bytes = 4096,
       .samples = 65536,
       .batch_size = 256,
       .shuffle = true,
       .block_samples = 256},
      {.sample_bytes = 64,
       .samples = 1000000,
       .batch_size = 1000,
       .shuffle = true,
       .block_samples = 64},
      {.sample_bytes = 64,
       .samples = 1000000,
       .batch_size = 4000,
       .shuffle = true,
       .block_samples = 4096},
  }};
  std::vector<std::array<double, 3>> rows;
  bool holds = true;
  const std::size_t only = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : kShapes.size();
  for (const Shape& shape : kShapes) {
    if (only < kShapes.size() && &shape != &kShapes[only]) continue;
    const Cost cost = Measure(shape, seconds);
    const double beside_us = cost.engine_us - cost.copy_us;
    const double events = cost.reads + cost.batches;
    const double allowed_us = kGoalUsPerReadOrBatch * events + kGoalUsPerSample * cost.samples;
    holds = holds && beside_us <= allowed_us;
    rows.push_back({events / cost.samples, 1.0, beside_us / cost.samples});
    std::printf(
        "{\"benchmark\": \"engine\", \"sample_bytes\": %llu, \"batch_size\": %llu, "
        "\"block_samples\": %llu, "
        "\"reads_per_batch\": %.1f, \"engine_us_per_batch\": %.2f, \"copy_us_per_batch\": %.2f, "
        "\"beside_us_per_sample\": %.4f, \"share_of_allowed\": %.3f}\n",
        static_cast<unsigned long long>(shape.sample_bytes),
        static_cast<unsigned long long>(shape.batch_size),
        static_cast<unsigned long long>(shape.block_samples), cost.reads / cost.batches,
        cost.engine_us / cost.batches, cost.copy_us / cost.batches, beside_us / cost.samples,
        beside_us / allowed_us);
    std::fflush(stdout);
  }
  const auto [per_event, per_sample] = Fit(rows);
  std::printf(
      "{\"benchmark\": \"engine_fit\", \"us_per_read_or_batch\": %.3f, \"us_per_sample\": %.4f, "
      "\"goal\": [%.1f, %.2f], \"holds\": %s}\n",
      per_event, per_sample, kGoalUsPerReadOrBatch, kGoalUsPerSample, holds ? "true" : "false");
  return 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) { return headrace::Main(argc, argv); }
