#pragma once

// The engine as instructions_bench uses it: one thread, no clock, no I/O. All of the program that
// has to follow when the engine's interface moves.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "base/cell_pool.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/executor.h"
#include "codec/bytes_codec.h"
#include "engine/engine.h"
#include "engine/testing/block_plan.h"
#include "index/testing/table_index.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/placement/placement.h"
#include "store/byte_store.h"
#include "tier/ram_tier.h"

namespace headrace {

class MadePlacement final : public Placement {
 public:
  explicit MadePlacement(std::vector<PlacedStep> steps) : steps_(std::move(steps)) {}
  std::optional<PlacedStep> Next() override {
    if (next_ == steps_.size()) return std::nullopt;
    return std::move(steps_[next_++]);
  }
  [[nodiscard]] std::map<std::string, double> counters() const override { return {}; }

 private:
  std::vector<PlacedStep> steps_;
  std::size_t next_ = 0;
};

// What the engine is to run.
struct EngineWork {
  std::uint64_t sample_bytes = 0;
  std::uint64_t samples = 0;         // of the dataset, one after the other in one object
  std::uint64_t batch_bytes = 0;     // of one lane
  std::uint64_t resident_units = 0;  // of block reads, in samples; 0: the plan has none
  std::uint32_t lanes = 1;
  std::vector<Step> steps;  // made before: that is not counted
  // Of one tier in memory that has room for so many samples; 0: no tier.
  std::uint64_t tier_samples = 0;
  std::shared_ptr<const BlockMap> tier_blocks;
  std::vector<PlacedStep> placed;
};

class EngineDriver {
 public:
  explicit EngineDriver(EngineWork work) : sinks_(work.lanes) {
    FillIndex(work);
    schema_ = {{.name = "data",
                .index_field = 0,
                .codec = MakeArrayCodec(work.sample_bytes),
                .shape = {work.sample_bytes},
                .row_bytes = work.sample_bytes}};
    Engine::Parts parts{.index = &index_,
                        .schema = schema_,
                        .store = &device_,
                        .executor = &device_,
                        .clock = &device_,
                        .staging = BufferPool::Make(256 * kMiB)};
    for (Sink& sink : sinks_) {
      const std::uint64_t bytes = kBatchesAhead * BufferPool::ChargedBytes(work.batch_bytes);
      parts.lanes.push_back({.sink = &sink, .batch_memory = BufferPool::Make(bytes)});
    }
    if (work.resident_units > 0) {
      const std::uint64_t cells = (work.sample_bytes - 1) / kCellBytes + 1;
      parts.residents = CellPool::Make(work.resident_units * cells, kCellBytes).value();
    }
    std::unique_ptr<TierCache> tiers;
    if (work.tier_samples > 0) {
      const std::uint64_t cells = (work.sample_bytes - 1) / kCellBytes + 1;
      tier_ = RamTier::Make(work.tier_samples * cells * kCellBytes, kCellBytes).value();
      tiers = std::make_unique<TierCache>(std::vector<Tier*>{tier_.get()}, work.tier_blocks,
                                          std::make_unique<MadePlacement>(std::move(work.placed)),
                                          std::vector<std::vector<std::uint32_t>>(1));
    }
    engine_ = std::make_unique<Engine>(parts, EngineOptions{.batches_max = kBatchesAhead},
                                       std::make_unique<ListedSteps>(std::move(work.steps)),
                                       std::move(tiers));
    engine_->Start();
  }

  ~EngineDriver() {
    engine_->Stop();
    while (device_.RunOne()) {
    }
    engine_->Close();
  }
  EngineDriver(const EngineDriver&) = delete;
  EngineDriver& operator=(const EngineDriver&) = delete;

  // Runs until every lane's consumer took so many batches more. Each takes a batch as soon as it is
  // there, and lets it go.
  void Take(std::uint64_t batches) {
    for (Sink& sink : sinks_) sink.to_take += batches;
    for (;;) {
      std::uint64_t left = 0;
      for (std::uint32_t lane = 0; lane < sinks_.size(); ++lane) {
        TakeReady(lane);
        left += sinks_[lane].to_take;
      }
      if (left == 0) return;
      HEADRACE_CHECK(device_.RunOne());
    }
  }

  // What was delivered, over all lanes, and how: that two builds do the same.
  [[nodiscard]] EngineStats stats() const { return engine_->stats(); }

 private:
  static constexpr std::uint32_t kBatchesAhead = 4;
  static constexpr std::uint64_t kMiB = 1 << 20;
  static constexpr std::uint64_t kCellBytes = 4096;

  struct Sink final : BatchSink {
    void OnBatch(std::shared_ptr<Batch> batch) override { ready.push_back(std::move(batch)); }
    void OnEnd(Status status) override { HEADRACE_CHECK(status.ok()); }
    std::deque<std::shared_ptr<Batch>> ready;
    std::uint64_t to_take = 0;
  };

  // Runs tasks in the order in which they come. When there are none the oldest read is answered,
  // with bytes that are as they are.
  class Device final : public Executor, public ByteStore, public Clock {
   public:
    void Submit(std::uint64_t /*deadline*/, Task task) override {
      tasks_.push_back(std::move(task));
    }
    [[nodiscard]] int concurrency() const override { return 2; }
    [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override { return range.size; }
    void Read(std::vector<ReadRequest> requests, std::stop_token /*stop*/) override {
      for (ReadRequest& request : requests) reads_.push_back(std::move(request));
    }
    [[nodiscard]] StoreStats stats() const override { return {}; }
    [[nodiscard]] std::int64_t NowNanos() const override { return now_ns_; }

    bool RunOne() {
      now_ns_ += 1000;
      if (!tasks_.empty()) {
        const Task task = std::move(tasks_.front());
        tasks_.pop_front();
        task();
        return true;
      }
      if (reads_.empty()) return false;
      const ReadRequest read = std::move(reads_.front());
      reads_.pop_front();
      read.done(read.buffer.first(read.extent.range.size));
      return true;
    }

   private:
    std::deque<Task> tasks_;
    std::deque<ReadRequest> reads_;
    std::int64_t now_ns_ = 0;
  };

  void FillIndex(const EngineWork& work) {
    index_.samples = work.samples;
    index_.objects.resize(1);  // Nobody looks at its bytes.
    TableIndex::Column& column = index_.columns.emplace_back();
    column.info = {.name = "data", .kind = FieldKind::kBytes};
    for (std::uint64_t i = 0; i < work.samples; ++i) {
      column.extents.push_back({ObjectId{0}, {i * work.sample_bytes, work.sample_bytes}});
    }
    index_.infos.push_back(column.info);
  }

  void TakeReady(std::uint32_t lane) {
    Sink& sink = sinks_[lane];
    while (sink.to_take > 0 && !sink.ready.empty()) {
      sink.ready.pop_front();
      --sink.to_take;
      engine_->OnTaken(lane);
      if (sink.ready.empty()) engine_->OnWaiting(lane);
    }
  }

  TableIndex index_;
  std::vector<BatchField> schema_;
  Device device_;
  std::deque<Sink> sinks_;
  std::unique_ptr<RamTier> tier_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace headrace
