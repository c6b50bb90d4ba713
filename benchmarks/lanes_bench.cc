// Ranks of one node that train in step, by each policy: lanes_bench FOLDER --policy NAME.
//
// `lanes_bench FOLDER --make` first writes the data, FOLDER/stored/N/samples for N of 0 to 31: the
// samples of one rank are --heavy times as large as the others'. What is read is
// FOLDER/read/N/samples: whoever calls lets these be the same, or something slower. Then a thread a
// rank takes its batches; when the last one has its own, all train, for --train-ms. Prints JSON: of
// each iteration of the last epoch how long it took, and whether ranks differed by more than a
// tenth of the training in when their batch was done. Both need the same --ranks, --batch, --bytes
// (of a sample), --heavy and --steps (of an epoch). With --hits a tier in memory keeps this share
// of the samples, and epochs are shuffled. lanes_read.py and papers/lobster_real.py call it.

#include <algorithm>
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
#include "headrace/papers.h"
#include "loader/batch_queue.h"
#include "loader/session/session.h"
#include "loader/session/session_reports.h"

namespace headrace {
namespace {

constexpr std::uint32_t kHeavyRank = 1;
constexpr std::uint32_t kFiles = 32;
constexpr std::uint64_t kSlot = 1 << 19;  // bytes of a file for each sample: _slow_files/served.py
constexpr std::size_t kWarmUp = 10;       // iterations of a single epoch that are not counted
constexpr double kTheta = 0.1;

struct Arguments {
  std::string folder;
  std::string policy = "shared_deadline";
  std::uint32_t ranks = 4;
  std::uint64_t batch = 16;
  std::uint64_t bytes = 100'000;
  std::uint64_t heavy = 4;
  std::uint64_t steps = 120;
  std::uint64_t epochs = 1;
  double hits = 0;
  std::uint32_t prefetch = 4;
  int threads = 0;  // that decode; 0: as a loader chooses
  double train_ms = 60;
  bool make = false;

  [[nodiscard]] std::uint64_t samples() const { return ranks * batch * steps; }
  // Iterations before those that count.
  [[nodiscard]] std::uint64_t warm_up() const {
    return epochs == 1 ? kWarmUp : (epochs - 1) * steps;
  }
};

// Step by step round the files, so that the samples of a rank lie in all of them.
Status Make(const Arguments& arguments) {
  IndexContents contents;
  contents.sample_count = arguments.samples();
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
    const std::uint64_t times = id % arguments.ranks == kHeavyRank ? arguments.heavy : 1;
    const std::uint64_t size =
        times * (arguments.bytes * 9 / 10 + random.Below(arguments.bytes / 5));
    bytes.resize(size);
    for (std::uint64_t at = 0; at + 8 <= size; at += 8) {
      const std::uint64_t word = random.Next32();
      std::memcpy(bytes.data() + at, &word, sizeof(word));
    }
    const auto file = static_cast<std::uint32_t>(id / arguments.ranks % kFiles);
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
  explicit Trainer(const Arguments& arguments)
      : train_ns_(static_cast<std::int64_t>(arguments.train_ms * double(kNsPerMs))),
        warm_up_(arguments.warm_up()),
        done_ns_(arguments.ranks) {}

  void Took(std::uint32_t rank, const Batch& batch) { done_ns_[rank] = batch.times.done_ns; }

  // On whichever thread came last.
  void Train() {
    std::vector<std::int64_t> late(done_ns_.size());
    for (std::size_t rank = 0; rank < late.size(); ++rank) {
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
      if (step_ns.size() > warm_up_) imbalanced_steps += imbalanced;
    }
    last_ns_ = now_ns;
  }

  std::vector<std::int64_t> step_ns;
  std::uint64_t imbalanced_steps = 0;

 private:
  const std::int64_t train_ns_;
  const std::uint64_t warm_up_;
  MonotonicClock clock_;
  Mutex mutex_;
  CondVar gpu_;                        // Nobody notifies: it is busy for as long as it is.
  std::vector<std::int64_t> done_ns_;  // by rank
  std::int64_t began_ns_ = 0;
  std::int64_t last_ns_ = 0;
};

Status Run(const Arguments& arguments) {
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<const Index> index,
                            Index::Open(arguments.folder + "/index.hri"));
  LoaderOptions options;
  options.job = {.batch_size = arguments.batch,
                 .world_size = arguments.ranks,
                 .ranks = arguments.ranks,
                 .shuffle = arguments.hits > 0,
                 .epochs = arguments.epochs};
  options.schedule = arguments.policy;
  options.prefetch = arguments.prefetch;
  options.threads = arguments.threads;
  options.memory_bytes = 64 * kMiB;  // a rank: for the large batches too
  if (arguments.hits > 0) {
    const auto of_rank =
        static_cast<double>(arguments.samples() * arguments.bytes) / arguments.ranks;
    options.tiers = {
        .tiers = {{.capacity_bytes = static_cast<std::uint64_t>(arguments.hits * of_rank)}},
        .placement = "pinned"};
  }
  HEADRACE_ASSIGN_OR_RETURN(LoaderConfig config, ResolveConfig(index, options));
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Session> job,
                            Session::Open(index, std::move(config)));
  std::vector<std::unique_ptr<BatchQueue>> queues;
  std::vector<BatchSink*> sinks;
  for (std::uint32_t rank = 0; rank < arguments.ranks; ++rank) {
    sinks.push_back(queues.emplace_back(std::make_unique<BatchQueue>()).get());
  }
  HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<SessionRun> run, job->Start({}, sinks));
  Trainer trainer(arguments);
  std::barrier all(arguments.ranks, [&trainer]() noexcept { trainer.Train(); });
  std::vector<Status> statuses(arguments.ranks);
  {
    std::vector<std::jthread> ranks;
    for (std::uint32_t rank = 0; rank < arguments.ranks; ++rank) {
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
  const std::size_t first = arguments.warm_up();
  for (std::size_t i = first; i < trainer.step_ns.size(); ++i) {
    std::printf("%s%.3f", i == first ? "" : ", ", double(trainer.step_ns[i]) / double(kNsPerMs));
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
      if (name == "--train-ms") arguments.train_ms = std::stod(value);
      if (name == "--ranks") arguments.ranks = static_cast<std::uint32_t>(std::stoul(value));
      if (name == "--batch") arguments.batch = std::stoull(value);
      if (name == "--bytes") arguments.bytes = std::stoull(value);
      if (name == "--heavy") arguments.heavy = std::stoull(value);
      if (name == "--epochs") arguments.epochs = std::stoull(value);
      if (name == "--hits") arguments.hits = std::stod(value);
      if (name == "--threads") arguments.threads = std::stoi(value);
      if (name == "--prefetch") arguments.prefetch = static_cast<std::uint32_t>(std::stoul(value));
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
  headrace::RegisterPapers();
  const auto arguments = headrace::Parse(count, values);
  if (!arguments.has_value()) {
    std::fprintf(stderr, "usage: lanes_bench FOLDER --make | --policy NAME [--steps N] ...\n");
    return 2;
  }
  const headrace::Status status =
      arguments->make ? headrace::Make(*arguments) : headrace::Run(*arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "lanes_bench: %s\n", status.ToString().c_str());
  return 1;
}
