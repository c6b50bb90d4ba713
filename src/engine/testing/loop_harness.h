#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/units.h"
#include "codec/bytes_codec.h"
#include "engine/batch/stored_fields.h"
#include "engine/loop/inbox.h"
#include "engine/loop/loop_context.h"
#include "engine/step/step_work.h"
#include "engine/tiers/entry_form.h"
#include "fetch/fetcher.h"
#include "fetch/sources.h"
#include "fetch/verifier.h"
#include "index/testing/table_index.h"
#include "tier/testing/manual_executor.h"

namespace headrace {

// Storage that answers inside Read(), or when told; the bytes are those of an index.
struct FakeStorage final : FetchSource {
  explicit FakeStorage(const TableIndex& of) : index(of) {}

  [[nodiscard]] std::size_t BufferBytes(const Fetch& fetch) const override { return fetch.bytes(); }
  void Read(std::span<Fetch* const> fetches, const std::stop_token& /*stop*/,
            const Done& done) override {
    for (Fetch* const fetch : fetches) {
      read.push_back(fetch->extent().range);
      if (fetch->past_share) read_past_share.push_back(fetch->extent().range);
      if (holds) {
        held.emplace_back(fetch, &done);
      } else {
        Answer(*fetch, done);
      }
    }
  }
  ReadNowAnswer ReadNow(const Fetch& fetch, std::span<std::byte> dst) override {
    if (!cached) return ReadNowAnswer::kNotHeld;
    Fill(fetch.extent().range, dst);
    return ReadNowAnswer::kRead;
  }
  void ReadAllNow(std::span<NowRead> reads) override {
    for (NowRead& now : reads) {
      if (now.dst.empty()) continue;
      now.answer = cached && !lacks.contains(now.extent.range.offset) ? ReadNowAnswer::kRead
                                                                      : ReadNowAnswer::kNotHeld;
      if (now.answer == ReadNowAnswer::kRead) Fill(now.extent.range, now.dst);
    }
  }
  bool HoldsNow(const Extent& /*extent*/) override { return cached; }
  bool MayReadNow() override { return may_read_now; }
  [[nodiscard]] bool shares() const override { return shared; }

  void AnswerHeld() {
    for (const auto& [fetch, done] : std::exchange(held, {})) Answer(*fetch, *done);
  }
  void Answer(Fetch& fetch, const Done& done) const {
    const ByteRange range = fetch.extent().range;
    const bool fails = std::ranges::any_of(broken, [&](std::uint64_t offset) {
      return offset >= range.offset && offset < range.end();
    });
    if (fails) return done(fetch, Status(StatusCode::kUnavailable, "broken"));
    Fill(range, fetch.memory());
    done(fetch, fetch.memory().first(range.size));
  }
  void Fill(ByteRange range, std::span<std::byte> dst) const {
    std::ranges::copy(std::as_bytes(std::span(index.objects[0])).subspan(range.offset, range.size),
                      dst.begin());
  }

  const TableIndex& index;
  std::set<std::uint64_t> broken;  // offsets: reads that cover one fail
  bool holds = false;              // until AnswerHeld()
  bool may_read_now = false;
  bool cached = false;
  bool shared = false;            // with other jobs
  std::set<std::uint64_t> lacks;  // offsets: reads that begin there are not cached
  std::vector<ByteRange> read;
  std::vector<ByteRange> read_past_share;
  std::vector<std::pair<Fetch*, const Done*>> held;
};

// Other nodes that answer inside Read(); the bytes are those of an index.
struct FakeNodes final : FetchSource {
  explicit FakeNodes(const TableIndex& of) : index(of) {}

  [[nodiscard]] std::size_t BufferBytes(const Fetch& fetch) const override { return fetch.bytes(); }
  void Read(std::span<Fetch* const> fetches, const std::stop_token& /*stop*/,
            const Done& done) override {
    for (Fetch* const fetch : fetches) {
      const auto& from = fetch->Reads<SampleAtNode>();
      asked.emplace_back(from.nodes.first, Raw(from.sample));
      if (lost.contains(Raw(from.sample))) {
        done(*fetch, Status(StatusCode::kNotFound, "the node does not have it"));
        continue;
      }
      const std::string bytes = index.Payload(0, from.sample);
      std::ranges::copy(std::as_bytes(std::span(bytes)), fetch->memory().begin());
      done(*fetch, fetch->memory().first(bytes.size()));
    }
  }

  const TableIndex& index;
  std::set<std::uint64_t> lost;
  std::vector<std::pair<NodeNumber, std::uint64_t>> asked;
};

// What a component of the engine needs to run alone: an index of samples of 100 bytes in one
// object, 'a', 'b', ..., with checksums; an executor that runs tasks when told; a loop that does
// what comes to it and nothing else.
struct LoopHarness {
  static constexpr std::uint64_t kSampleBytes = 100;

  struct FakeClock final : Clock {
    [[nodiscard]] std::int64_t NowNanos() const override { return now_ns; }
    std::int64_t now_ns = 0;
  };

  explicit LoopHarness(std::uint64_t samples = 8) : index(MakeIndex(samples)) {}
  LoopHarness(const LoopHarness&) = delete;
  LoopHarness& operator=(const LoopHarness&) = delete;

  static TableIndex MakeIndex(std::uint64_t samples) {
    TableIndex index;
    index.samples = samples;
    index.objects.resize(1);
    index.columns.resize(1);
    index.infos = {{.name = "bytes", .has_checksums = true}};
    for (std::uint64_t i = 0; i < samples; ++i) {
      const std::string payload(kSampleBytes, static_cast<char>('a' + i));
      index.objects[0] += payload;
      index.columns[0].extents.push_back(ExtentOf(i));
      index.columns[0].checksums.push_back(Hash64(std::as_bytes(std::span(payload))));
    }
    return index;
  }

  static Extent ExtentOf(std::uint64_t sample) {
    return {ObjectId{0}, {sample * kSampleBytes, kSampleBytes}};
  }
  // A part of a step that delivers these samples, whose rows lie in memory of the harness.
  std::unique_ptr<StepWork> MakeWork(const std::vector<std::uint64_t>& samples) {
    auto work = std::make_unique<StepWork>();
    work->batch = std::make_shared<Batch>();
    for (const std::uint64_t sample : samples) {
      work->plan.deliveries.push_back({.sample = SampleId{sample}});
      work->batch->samples.push_back(SampleId{sample});
    }
    rows.push_back(std::make_unique<std::vector<std::byte>>(samples.size() * row_bytes));
    work->batch->fields = {{.packed = *rows.back()}};
    work->samples.resize(samples.size());
    work->samples_left = work->samples_unread = samples.size();
    work->pieces.resize(samples.size());
    return work;
  }
  // The row in `slot`.
  [[nodiscard]] std::string RowOf(const StepWork& work, std::uint32_t slot) const {
    const std::span<std::byte> row = work.batch->row(schema, 0, slot);
    return {reinterpret_cast<const char*>(row.data()), row.size()};
  }
  // Runs all tasks, and what they lead to.
  void Run() { executor.RunAll(); }

  TableIndex index;
  std::uint64_t row_bytes = kSampleBytes;  // that MakeWork() makes
  std::vector<std::unique_ptr<std::vector<std::byte>>> rows;
  std::vector<BatchField> schema = {{.name = "bytes",
                                     .codec = MakeArrayCodec(kSampleBytes),
                                     .shape = {kSampleBytes},
                                     .row_bytes = kSampleBytes}};
  StoredFields fields{index, schema};
  const EntryForm entry_form{fields, nullptr, nullptr};
  Verifier verifier{index, true};
  FakeStorage storage{index};
  TierSource entries;
  FakeNodes nodes{index};
  ManualExecutor executor;
  FakeClock clock;
  std::shared_ptr<BufferPool> staging = BufferPool::Make(64 * kMiB);
  std::stop_source stop;
  Inbox<LoopEvent> inbox{executor, [this](std::span<LoopEvent> events) {
                           std::uint64_t completed = 0;
                           for (LoopEvent& event : events) {
                             completed += event.completes;
                             if (event.fetch != nullptr) {
                               fetcher.Finish(*event.fetch);
                               event.fetch->client->OnFetched(*event.fetch, std::move(event.data));
                             } else if (event.run) {
                               event.run();
                             }
                           }
                           return completed;
                         }};
  Fetcher fetcher{{.sources = {.storage = storage, .entries = entries, .nodes = &nodes},
                   .in_flight_max = 16,
                   .stop = stop.get_token(),
                   .ended =
                       [this](Fetch& fetch, Result<std::span<std::byte>> data) {
                         inbox.Post({.fetch = &fetch, .data = std::move(data)});
                       },
                   .beginning = [this](std::uint64_t reads) { inbox.BeginWork(reads); }}};
  // Of reads that are each alone, and tasks of one row.
  EngineOptions options{.coalesce_gap_bytes = 0, .coalesce_bytes_max = 0, .decode_task_bytes = 0};
  LoopContext loop{.options = options,
                   .inbox = inbox,
                   .executor = executor,
                   .clock = clock,
                   .fetcher = fetcher,
                   .storage = storage,
                   .staging = *staging,
                   .fields = fields,
                   .entry_form = entry_form,
                   .verifier = verifier,
                   .stop = stop.get_token()};
};

}  // namespace headrace
