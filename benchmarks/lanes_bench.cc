// Ranks of one node that train in step, by each policy: lanes_bench FOLDER --policy NAME [--steps
// N].
//
// `lanes_bench FOLDER --make [--steps N]` first writes the data, FOLDER/stored/N/samples for N of 0
// to 31: 4 ranks, of which one's samples are four times as large. What is read is
// FOLDER/read/N/samples: whoever calls lets these be the same, or something slower. Then 4 threads
// take their batches, one a rank; when the last one has its own, all train, for a time. Prints
// JSON: of each iteration how long it took, and whether ranks differed by more than a tenth of the
// training in when their batch was done. lanes_read.py calls it.

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/prng.h"
#include "base/units.h"
#include "headrace/index.h"
#include "headrace/index_writer.h"
#include "loader/batch_queue.h"
#include "loader/session/session.h"
#include "loader/session/session_reports.h"

namespace headrace {
namespace {

constexpr std::uint32_t kRanks = 4;
constexpr std::uint32_t kHeavy = 1;
constexpr std::uint64_t kBatch = 16;
constexpr std::uint64_t kBytes = 100'000;
constexpr std::uint32_t kFiles = 32;
constexpr std::uint64_t kSlot = 1 << 19;  // bytes of a file for each sample: _slow_files/served.py
constexpr std::size_t kWarmUp = 10;       // iterations that are not counted
constexpr double kTheta = 0.1;

struct Arguments {
  std::string folder;
  std::string policy = "shared_deadline";
  std::uint64_t steps = 120;
  std::int64_t train_ms = 60;
  bool make = false;
};

// Step by step round the files, so that the samples of a rank lie in all of them.
Status Make(const Arguments& arguments) {
  IndexContents contents;
  contents.sample_count = kRanks * kBatch * arguments.steps;
  contents.root = arguments.folder + "/read";
  contents.fields.resize(1);
  contents.fields[0].info = {.name = "bytes", .kind = FieldKind::kBytes};
  Prng random(1, 0, RandomStream::kPack);
  std::vector<std::ofstream> files;
  for (std::uint32_t i = 0; i < kFiles; ++i) {
    const std::string name = std::to_string(i) + "/samples";
    std::filesystem::create_directories(arguments.folder + "/stored/" + std::to_string(i));
    contents.objects.push_back({.name = name, .size = 0, .mtime_ns = 0});
    files.emplace_back(arguments.folder + "/stored/" + name, std::ios::binary);
  }
  std::string bytes;
  for (std::uint64_t id = 0; id < contents.sample_count; ++id) {
    const std::uint64_t size =
        (id % kRanks == kHeavy ? 4 : 1) * (kBytes * 9 / 10 + random.Below(kBytes / 5));
    bytes.resize(size);
    for (std::uint64_t at = 0; at + 8 <= size; at += 8) {
      const std::uint64_t word = random.Next32();
      std::memcpy(bytes.data() + at, &word, sizeof(word));
    }
    const auto file = static_cast<std::uint32_t>(id / kRanks % kFiles);
    const std::uint64_t offset = (contents.objects[file].size + kSlot - 1) / kSlot * kSlot;
    files[file].seekp(static_cast<std::streamoff>(offset));
    files[file].write(bytes.data(), static_cast<std::streamsize>(size));
    contents.fields[0].extents.push_back({ObjectId{file}, {offset, size}});
    contents.objects[file].size = offset + size;
  }
  for (std::ofstream& file : files) {
    file.close();
    if (!file) return {StatusCode::kUnavailable, "writing " + arguments.folder + "/stored"};
  }
  return WriteIndex(contents, arguments.folder + "/index.hri");
}

// What happens when all ranks have their batch: one training step.
class Trainer {
 public:
  explicit Trainer(std::int64_t train_ns) : train_ns_(train_ns) {}

  void Took(std::uint32_t rank, const Batch& batch) { done_ns_[rank] = batch.times.done_ns; }

  // On whichever thread came last.
  void Train() {
    std::array<std::int64_t, kRanks> late{};
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      late[rank] = std::max<std::int64_t>(0, done_ns_[rank] - began_ns_);
    }
    const auto [least, most] = std::minmax_element(late.begin(), late.end());
    const bool imbalanced = static_cast<double>(*most - *least) > kTheta * double(train_ns_);
    began_ns_ = clock_.NowNanos();
    {
      MutexLock lock(mutex_);
      while (clock_.NowNanos() < began_ns_ + train_ns_) {
        (void)gpu_.WaitFor(mutex_, began_ns_ + train_ns_ - clock_.NowNanos());
      }
    }
    const std::int64_t now_ns = clock_.NowNanos();
    if (last_ns_ != 0) {
      step_ns.push_back(now_ns - last_ns_);
      if (step_ns.size() > kWarmUp) imbalanced_steps += imbalanced;
    }
    last_ns_ = now_ns;
  }

  std::vector<std::int64_t> step_ns;
  std::uint64_t imbalanced_steps = 0;

 private:
  const std::int64_t train_ns_;
  MonotonicClock clock_;
  Mutex mutex_;
  CondVar gpu_;  // Nobody notifies: it is busy for as long as it is.
  std::array<std::int64_t, kRanks> done_ns_{};
  std::int64_t began_ns_ = 0;
  std::int64_t last_ns_ = 0;
};

Status Run(const Arguments& arguments) {
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<const Index> index,
                            Index::Open(arguments.folder + "/index.hri"));
  LoaderOptions options;
  options.job = {
      .batch_size = kBatch, .world_size = kRanks, .ranks = kRanks, .shuffle = false, .epochs = 1};
  options.schedule = arguments.policy;
  options.prefetch = 4;
  options.memory_bytes = 64 * kMiB;  // a rank: for the large batches too
  HEADRACE_ASSIGN_OR_RETURN(LoaderConfig config, ResolveConfig(index, options));
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Session> job,
                            Session::Open(index, std::move(config)));
  std::vector<std::unique_ptr<BatchQueue>> queues;
  std::vector<BatchSink*> sinks;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    sinks.push_back(queues.emplace_back(std::make_unique<BatchQueue>()).get());
  }
  HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<SessionRun> run, job->Start({}, sinks));
  Trainer trainer(arguments.train_ms * kNsPerMs);
  std::barrier all(kRanks, [&trainer]() noexcept { trainer.Train(); });
  std::vector<Status> statuses(kRanks);
  {
    std::vector<std::jthread> ranks;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        for (;;) {
          if (!queues[rank]->ready()) run->OnWaiting(rank);
          const Result<TakenBatch> taken = queues[rank]->Take(-1);
          if (!taken.ok()) {
            statuses[rank] = taken.status();
            all.arrive_and_drop();  // The others find the same.
            return;
          }
          if (taken.value().ended) return;  // As for all: they have equally many.
          run->OnTaken(rank, *taken.value().batch, MonotonicClock().NowNanos());
          trainer.Took(rank, *taken.value().batch);
          all.arrive_and_wait();
        }
      });
    }
  }
  job->Stop();
  for (const Status& status : statuses) HEADRACE_RETURN_IF_ERROR(status);
  const LoaderStats stats = job->reports().stats(0).value();
  std::printf("{\"policy\": \"%s\", \"imbalanced\": %llu, \"corrections\": %llu, \"step_ms\": [",
              arguments.policy.c_str(), static_cast<unsigned long long>(trainer.imbalanced_steps),
              static_cast<unsigned long long>(stats.schedule.corrections));
  for (std::size_t i = kWarmUp; i < trainer.step_ns.size(); ++i) {
    std::printf("%s%.3f", i == kWarmUp ? "" : ", ", double(trainer.step_ns[i]) / double(kNsPerMs));
  }
  std::printf("], \"store\": \"%s\"}\n", stats.store.name.c_str());
  return Status();
}

std::optional<Arguments> Parse(int count, char** values) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string name = values[i];
    if (name == "--make") {
      arguments.make = true;
    } else if (name.starts_with("--") && i + 1 < count) {
      const std::string value = values[++i];
      if (name == "--policy") arguments.policy = value;
      if (name == "--steps") arguments.steps = std::stoull(value);
      if (name == "--train-ms") arguments.train_ms = std::stoll(value);
    } else {
      arguments.folder = name;
    }
  }
  if (arguments.folder.empty()) return std::nullopt;
  return arguments;
}

}  // namespace
}  // namespace headrace

int main(int count, char** values) {
  const auto arguments = headrace::Parse(count, values);
  if (!arguments.has_value()) {
    std::fprintf(stderr, "usage: lanes_bench FOLDER --make | --policy NAME [--steps N]\n");
    return 2;
  }
  const headrace::Status status =
      arguments->make ? headrace::Make(*arguments) : headrace::Run(*arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "lanes_bench: %s\n", status.ToString().c_str());
  return 1;
}
