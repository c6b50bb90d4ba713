// What the framing of the order `redox` changes, in virtual time: three nodes with real engines,
// whose links send what waits for a request before what goes ahead, as peer/grpc/ does.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/units.h"
#include "codec/bytes_codec.h"
#include "engine/engine.h"
#include "engine/testing/lane_world.h"
#include "gtest/gtest.h"
#include "index/testing/table_index.h"
#include "papers/redox/redox_order.h"
#include "plan/block_map.h"
#include "sim/sim_executor.h"
#include "sim/sim_loop.h"
#include "sim/sim_store.h"
#include "store/memory_store.h"

namespace headrace {
namespace {

using Framing = RedoxOrderOptions::Framing;

constexpr std::uint32_t kFramingNodes = 3;
constexpr std::uint64_t kFramedSampleBytes = 4096;
constexpr std::uint64_t kFramedSamples = std::uint64_t{kFramingNodes} * 20 * 64;
constexpr std::uint64_t kFramedBatch = 32;
constexpr std::uint64_t kMessageBytes = 256 * kKiB;
constexpr std::int64_t kHopNs = 100'000;
constexpr std::uint64_t kFramingEventsMax = 10'000'000;  // A run beyond is stuck in a circle.

// What a home has ready for a node, sent by one link: messages one after the other.
class Link {
 public:
  Link(SimLoop& loop, double bytes_per_ns) : loop_(loop), bytes_per_ns_(bytes_per_ns) {}

  void Send(std::uint64_t bytes, bool ahead, std::function<void()> came) {
    (ahead ? ahead_ : first_).push_back({bytes, std::move(came)});
    if (!std::exchange(busy_, true)) Next();
  }

 private:
  struct Part {
    std::uint64_t left = 0;
    std::function<void()> came;
  };

  void Next() {
    std::deque<Part>& parts = first_.empty() ? ahead_ : first_;
    if (parts.empty()) {
      busy_ = false;
      return;
    }
    const std::uint64_t bytes = std::min(parts.front().left, kMessageBytes);
    loop_.After(static_cast<std::int64_t>(static_cast<double>(bytes) / bytes_per_ns_),
                [this, &parts, bytes] {
                  parts.front().left -= bytes;
                  if (parts.front().left == 0) {
                    loop_.After(kHopNs, std::move(parts.front().came));
                    parts.pop_front();
                  }
                  Next();
                });
  }

  SimLoop& loop_;
  const double bytes_per_ns_;
  std::deque<Part> first_;
  std::deque<Part> ahead_;
  bool busy_ = false;
};

// What a run came to.
struct Found {
  double answer_ms = 0;  // from when its home has an answer until it has come, on average
  double wait_ms = 0;    // of a batch, on average
  double epoch_ms = 0;
  std::uint64_t answers = 0;
  std::uint64_t parcels = 0;
  std::vector<std::vector<std::uint64_t>> samples;  // of each node
};

class FramingWorld {
 public:
  FramingWorld(Framing framing, double bytes_per_s, std::int64_t train_ns)
      : framing_(framing), train_ns_(train_ns) {
    index_.samples = kFramedSamples;
    index_.objects.emplace_back(kFramedSamples * kFramedSampleBytes, 'x');
    TableIndex::Column& column = index_.columns.emplace_back();
    column.info = {.name = "bytes", .kind = FieldKind::kArray};
    for (std::uint64_t id = 0; id < kFramedSamples; ++id) {
      column.extents.push_back({ObjectId{0}, {id * kFramedSampleBytes, kFramedSampleBytes}});
    }
    index_.infos = {column.info};
    schema_ = {{.name = "bytes",
                .codec = MakeArrayCodec(kFramedSampleBytes),
                .shape = {kFramedSampleBytes},
                .row_bytes = kFramedSampleBytes}};
    bytes_ = std::make_unique<MemoryStore>(
        std::unordered_map<ObjectId, std::string>{{ObjectId{0}, index_.objects[0]}});
    const std::shared_ptr<const Index> index(std::shared_ptr<void>(), &index_);
    blocks_ = MakeIndexBlocks(index, 64).value();
    for (std::uint32_t node = 0; node < kFramingNodes; ++node) {
      FindAnswers(node);
      links_.push_back(std::make_unique<Link>(loop_, bytes_per_s / 1e9));
    }
    for (std::uint32_t node = 0; node < kFramingNodes; ++node) {
      nodes_.push_back(std::make_unique<Node>(*this, node));
    }
  }

  Found Run() {
    for (const auto& node : nodes_) node->Consume();
    EXPECT_TRUE(loop_.RunUntilIdle(kFramingEventsMax));
    for (const auto& node : nodes_) {
      EXPECT_TRUE(node->sink.end.has_value() && node->sink.end->ok());
      found_.samples.push_back(node->samples);
      found_.parcels += node->engine->stats().blocks.parcels;
      node->engine->Stop();
    }
    EXPECT_TRUE(loop_.RunUntilIdle(kFramingEventsMax));
    for (const auto& node : nodes_) node->engine->Close();
    found_.answer_ms = static_cast<double>(answer_ns_) / static_cast<double>(found_.answers) / 1e6;
    found_.wait_ms = static_cast<double>(wait_ns_) * kFramedBatch / kFramedSamples / 1e6;
    found_.epoch_ms = static_cast<double>(end_ns_) / 1e6;
    return found_;
  }

 private:
  [[nodiscard]] RedoxOrderOptions OptionsOf(std::uint32_t node, Framing framing) const {
    RedoxOrderOptions options;
    options.nodes = kFramingNodes;
    options.job = {.sample_count = kFramedSamples,
                   .batch_size = kFramedBatch,
                   .world_size = kFramingNodes,
                   .rank = node,
                   .exchange = true,
                   .seed = 5,
                   .epochs = 1};
    options.blocks = blocks_;
    options.prefetch = 200;
    options.framing = framing;
    return options;
  }

  // The answers that a home sends, by node and in the order of its parcels.
  void FindAnswers(std::uint32_t home) {
    const auto order = MakeRedoxOrder(OptionsOf(home, Framing::kSplit), {}).value();
    while (const auto step = order->Next()) {
      for (const Parcel& each : step->parcels) {
        if (!each.ahead) answers_[{home, each.node}].push_back(each.samples.front().sample);
      }
    }
    const auto own = MakeRedoxOrder(OptionsOf(home, framing_), {}).value();
    while (const auto step = own->Next()) {
      for (const Parcel& each : step->parcels) {
        sent_[{home, each.node}].push_back(each);
      }
    }
  }

  // Whether a part of a parcel has its answer.
  [[nodiscard]] bool HasAnswer(std::uint32_t home, std::uint32_t node,
                               const ParcelPart& part) const {
    const std::vector<Parcel>& sent = sent_.at({home, node});
    const Parcel& parcel = sent.at(part.parcel);
    if (parcel.ahead) return false;
    const auto number = std::count_if(sent.begin(), sent.begin() + static_cast<int>(part.parcel),
                                      [](const Parcel& each) { return !each.ahead; });
    const SampleId answer = answers_.at({home, node}).at(static_cast<std::size_t>(number));
    const auto samples = std::span(parcel.samples).subspan(part.first, part.count);
    return std::ranges::any_of(samples, [&](const Release& r) { return r.sample == answer; });
  }

  class Parcels final : public FetchSource {
   public:
    Parcels(FramingWorld& world, std::uint32_t to) : world_(world), to_(to) {}
    [[nodiscard]] std::size_t BufferBytes(const Fetch& fetch) const override {
      return fetch.bytes();
    }
    void Read(std::span<Fetch* const> fetches, const std::stop_token& /*stop*/,
              const Done& done) override {
      for (Fetch* const fetch : fetches) {
        world_.loop_.After(kHopNs, [this, fetch, &done] { Ask(*fetch, done); });
      }
    }

   private:
    void Ask(Fetch& fetch, const Done& done) {
      const auto& from = fetch.Reads<PartAtNode>();
      world_.nodes_[from.node]->engine->TakeParcel(
          to_, from.part, [this, &fetch, &from, &done](Result<OwnedBytes> bytes) {
            ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
            const bool counts = world_.HasAnswer(from.node, to_, from.part);
            const std::int64_t ready_ns = world_.loop_.now_ns();
            auto came = std::make_shared<OwnedBytes>(std::move(bytes).value());
            const bool ahead = came->ahead;
            world_.links_[from.node]->Send(
                came->size, ahead, [this, &fetch, &done, came, counts, ready_ns] {
                  std::ranges::copy(came->bytes(), fetch.memory().begin());
                  if (counts) {
                    world_.answer_ns_ += world_.loop_.now_ns() - ready_ns;
                    ++world_.found_.answers;
                  }
                  done(fetch, fetch.memory().first(came->size));
                });
          });
    }

    FramingWorld& world_;
    const std::uint32_t to_;
  };

  struct Node {
    Node(FramingWorld& of, std::uint32_t its_number) : world(of), parcels(of, its_number) {
      const RedoxOrderOptions options = of.OptionsOf(its_number, of.framing_);
      store = std::make_unique<SimStore>(of.loop_, *of.bytes_, [](const Extent& extent) {
        return SimRead{.delay_ns = 100'000 + static_cast<std::int64_t>(extent.range.size)};
      });
      executor = std::make_unique<SimExecutor>(of.loop_, 2, [](std::uint64_t) { return 5'000; });
      EngineOptions engine_options;
      engine_options.batches_max = 4;
      engine = std::make_unique<Engine>(
          EngineParts{.index = &of.index_,
                      .schema = of.schema_,
                      .store = store.get(),
                      .executor = executor.get(),
                      .clock = &of.loop_.clock(),
                      .lanes = {{.sink = &sink, .batch_memory = BufferPool::Make(64 * kMiB)}},
                      .staging = BufferPool::Make(64 * kMiB),
                      .residents = CellPool::Make(RedoxResidentUnits(options).value(),
                                                  of.blocks_->unit_bytes())
                                       .value(),
                      .parcels = &parcels,
                      .parcel_memory = BufferPool::Make(16 * kMiB),
                      .sent_memory = BufferPool::Make(16 * kMiB)},
          engine_options, MakeRedoxOrder(options, {}).value());
      engine->Start();
    }

    void Consume() {
      if (sink.ready.empty()) {
        if (sink.end.has_value()) return;
        sink.wake = [this] { world.loop_.After(0, [this] { Consume(); }); };
        engine->OnWaiting();
        return;
      }
      const std::shared_ptr<Batch> batch = std::move(sink.ready.front());
      sink.ready.pop_front();
      engine->OnTaken();
      for (const SampleId sample : batch->samples) samples.push_back(Raw(sample));
      world.wait_ns_ += world.loop_.now_ns() - asked_ns;
      world.loop_.After(world.train_ns_, [this] {
        asked_ns = world.end_ns_ = world.loop_.now_ns();
        Consume();
      });
    }

    FramingWorld& world;
    Parcels parcels;
    std::unique_ptr<SimStore> store;
    std::unique_ptr<SimExecutor> executor;
    SimSink sink;
    std::unique_ptr<Engine> engine;
    std::vector<std::uint64_t> samples;
    std::int64_t asked_ns = 0;
  };

  const Framing framing_;
  const std::int64_t train_ns_;
  TableIndex index_;
  std::vector<BatchField> schema_;
  std::unique_ptr<MemoryStore> bytes_;
  std::shared_ptr<const BlockMap> blocks_;
  SimLoop loop_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<SampleId>> answers_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<Parcel>> sent_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::unique_ptr<Node>> nodes_;
  Found found_;
  std::int64_t answer_ns_ = 0;
  std::int64_t wait_ns_ = 0;
  std::int64_t end_ns_ = 0;
};

// The figures of docs/design/homes.md.
TEST(EngineFramingSimTest, AnAnswerThatGoesAloneComesSoonerAndBatchesAreTheSame) {
  // A step needs about 85 KiB of each link.
  for (const double bytes_per_s : {4e6, 16e6, 64e6}) {
    const Found one = FramingWorld(Framing::kOne, bytes_per_s, 10'000'000).Run();
    const Found split = FramingWorld(Framing::kSplit, bytes_per_s, 10'000'000).Run();
    for (const auto& [name, found] : {std::pair("one", &one), std::pair("split", &split)}) {
      std::printf("%5.0f MB/s  %-5s  %6.2f ms an answer  %6.2f ms a wait  %7.0f ms  %lu parcels\n",
                  bytes_per_s / 1e6, name, found->answer_ms, found->wait_ms, found->epoch_ms,
                  static_cast<unsigned long>(found->parcels));
    }
    EXPECT_EQ(one.samples, split.samples);
    EXPECT_EQ(one.answers, split.answers);
    EXPECT_GT(split.parcels, one.parcels);
    EXPECT_LT(split.answer_ms, one.answer_ms);
    EXPECT_NEAR(split.epoch_ms, one.epoch_ms, 0.02 * one.epoch_ms);
  }
}

}  // namespace
}  // namespace headrace
