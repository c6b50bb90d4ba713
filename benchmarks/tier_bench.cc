// Tiers by themselves. In memory: nanoseconds of CPU time of Find() with the end of its
// reference, of that with CopyOut(), of Insert(). On disk: MB/s of inserts and of reads in random
// order, beside a plain loop of pwrite and pread (O_DIRECT, as many threads, the same sizes, a file
// in the same folder). Rounds alternate; the figures are medians of rounds.
//
//   tier_bench FOLDER [--threads N] [--rounds N] [--disk-mib N] [--ram-mib N]
//
// FOLDER is on the disk to measure; what is made there is removed. Prints JSON.

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/gate.h"
#include "base/prng.h"
#include "base/testing/test_executor.h"
#include "base/units.h"
#include "store/testing/reader.h"
#include "store/testing/temp_files.h"
#include "tier/ram_tier.h"
#include "tier/ssd_tier.h"

namespace headrace {
namespace {

struct Config {
  std::string folder;
  std::map<std::string, std::uint64_t> numbers = {
      {"--threads", 16}, {"--rounds", 5}, {"--disk-mib", 256}, {"--ram-mib", 256}};

  [[nodiscard]] std::uint64_t operator[](const std::string& name) const { return numbers.at(name); }
};

double SecondsOf(const std::function<void()>& run) {
  const MonotonicClock clock;
  const std::int64_t begin = clock.NowNanos();
  run();
  return static_cast<double>(clock.NowNanos() - begin) * 1e-9;
}

double CpuSecondsOf(const std::function<void()>& run) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double begin = now();
  run();
  return now() - begin;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<std::uint64_t> Shuffled(std::uint64_t count, std::uint64_t seed) {
  std::vector<std::uint64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  Prng prng(seed, 0, RandomStream::kOrder);
  for (std::uint64_t i = count; i > 1; --i) std::swap(order[i - 1], order[prng.Below(i)]);
  return order;
}

void BenchRam(const Config& config, std::uint64_t bytes) {
  const std::uint64_t count = config["--ram-mib"] * kMiB / RoundUp(bytes, 4096);
  const std::string content = RandomBytes(1, bytes);
  std::vector<double> insert;
  std::vector<double> find;
  std::vector<double> copy;
  std::string to(bytes, '\0');
  for (std::uint64_t round = 0; round < config["--rounds"]; ++round) {
    const auto tier = RamTier::Make(config["--ram-mib"] * kMiB, 4096).value();
    const std::vector<std::uint64_t> order = Shuffled(count, round);
    const double per_sample = 1e9 / static_cast<double>(count);
    insert.push_back(per_sample * CpuSecondsOf([&] {
                       for (const std::uint64_t i : order) {
                         tier->Insert(SampleId{i}, {std::as_bytes(std::span(content))},
                                      [](const Status& status) { HEADRACE_CHECK(status.ok()); });
                       }
                     }));
    find.push_back(per_sample * CpuSecondsOf([&] {
                     for (const std::uint64_t i : order)
                       HEADRACE_CHECK(static_cast<bool>(tier->Find(SampleId{i})));
                   }));
    copy.push_back(per_sample * CpuSecondsOf([&] {
                     for (const std::uint64_t i : order) {
                       const Tier::EntryRef entry = tier->Find(SampleId{i});
                       tier->CopyOut(entry, 0, std::as_writable_bytes(std::span(to)));
                     }
                   }));
  }
  std::printf(
      "  {\"tier\": \"RAM\", \"bytes\": %llu, \"entries\": %llu, \"find_unpin_ns\": %.0f, "
      "\"find_copy_out_ns\": %.0f, \"insert_ns\": %.0f},\n",
      static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(count), Median(find),
      Median(copy), Median(insert));
}

class DiskRound {
 public:
  DiskRound(const Config& config, std::uint64_t bytes, std::uint64_t round)
      : files_(config.folder),
        threads_(config["--threads"]),
        bytes_(bytes),
        blocks_(RoundUp(bytes, 4096)),
        count_(config["--disk-mib"] * kMiB / blocks_),
        order_(Shuffled(count_, round)),
        content_(RandomBytes(1, bytes)) {
    buffers_.reserve(count_);
    for (std::uint64_t i = 0; i < count_; ++i) {
      buffers_.emplace_back(blocks_);
      std::memset(buffers_.back().bytes().data(), 1, blocks_);  // Resident before time is taken.
    }
  }

  double PlainWrite() {
    const std::string path = files_.folder() + "/plain";
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    HEADRACE_CHECK(fd_ >= 0);
    HEADRACE_CHECK(::ftruncate(fd_, static_cast<off_t>(count_ * blocks_)) == 0);
    return Rate([&](std::uint64_t i, const std::function<void()>& ended) {
      executor_.Submit(0, [this, i, ended] {
        HEADRACE_CHECK(::pwrite(fd_, buffers_[i].bytes().data(), blocks_,
                                static_cast<off_t>(i * blocks_)) == static_cast<ssize_t>(blocks_));
        ended();
      });
    });
  }
  double PlainRead() {
    const double rate = Rate([&](std::uint64_t i, const std::function<void()>& ended) {
      executor_.Submit(0, [this, i, ended] {
        HEADRACE_CHECK(::pread(fd_, buffers_[i].bytes().data(), blocks_,
                               static_cast<off_t>(order_[i] * blocks_)) ==
                       static_cast<ssize_t>(blocks_));
        ended();
      });
    });
    ::close(fd_);
    std::filesystem::remove(files_.folder() + "/plain");
    return rate;
  }
  double TierInsert() {
    SsdTierOptions options;
    options.folder = files_.folder() + "/tier";
    options.capacity_bytes = count_ * blocks_;
    options.dataset = "benchmark";
    tier_ = SsdTier::Open(options, executor_).value();
    return Rate([&](std::uint64_t i, const std::function<void()>& ended) {
      tier_->Insert(SampleId{i}, {std::as_bytes(std::span(content_))},
                    [ended](const Status& status) {
                      HEADRACE_CHECK(status.ok());
                      ended();
                    });
    });
  }
  double TierRead() {
    std::vector<Tier::EntryRef> entries(count_);
    const double rate = Rate([&](std::uint64_t i, const std::function<void()>& ended) {
      entries[i] = tier_->Find(SampleId{order_[i]});
      tier_->Read(entries[i], i, buffers_[i].bytes(), {}, [ended](const auto& result) {
        HEADRACE_CHECK(result.ok());
        ended();
      });
    });
    entries.clear();
    tier_ = nullptr;
    return rate;
  }

 private:
  using Start = std::function<void(std::uint64_t item, const std::function<void()>& ended)>;

  // MB/s of samples, all of which are started at once.
  double Rate(const Start& start) const {
    const double seconds = SecondsOf([&] {
      Gate gate;
      for (std::uint64_t i = 0; i < count_; ++i) {
        HEADRACE_CHECK(gate.TryEnter());
        start(i, [&gate] { gate.Leave(); });
      }
      gate.Close();
    });
    return static_cast<double>(count_ * bytes_) * 1e-6 / seconds;
  }

  TempFiles files_;
  const std::uint64_t threads_;
  const std::uint64_t bytes_;
  const std::uint64_t blocks_;
  const std::uint64_t count_;
  const std::vector<std::uint64_t> order_;
  const std::string content_;
  std::vector<AlignedBuffer> buffers_;
  int fd_ = -1;
  TestExecutor executor_{static_cast<int>(threads_)};
  std::unique_ptr<SsdTier> tier_;
};

void BenchDisk(const Config& config, std::uint64_t bytes, bool last) {
  std::vector<double> plain_write;
  std::vector<double> plain_read;
  std::vector<double> insert;
  std::vector<double> read;
  std::vector<double> write_ratio;
  std::vector<double> read_ratio;
  for (std::uint64_t round = 0; round < config["--rounds"]; ++round) {
    DiskRound disk(config, bytes, round);
    plain_write.push_back(disk.PlainWrite());
    plain_read.push_back(disk.PlainRead());
    insert.push_back(disk.TierInsert());
    read.push_back(disk.TierRead());
    write_ratio.push_back(insert.back() / plain_write.back());
    read_ratio.push_back(read.back() / plain_read.back());
  }
  std::printf(
      "  {\"tier\": \"SSD\", \"bytes\": %llu, \"plain_write_mb_s\": %.0f, "
      "\"insert_mb_s\": %.0f, \"insert_ratio\": %.2f, \"plain_read_mb_s\": %.0f, "
      "\"read_mb_s\": %.0f, \"read_ratio\": %.2f}%s\n",
      static_cast<unsigned long long>(bytes), Median(plain_write), Median(insert),
      Median(write_ratio), Median(plain_read), Median(read), Median(read_ratio), last ? "" : ",");
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: tier_bench FOLDER [--threads N] [--rounds N] ...\n");
    return 2;
  }
  Config config;
  config.folder = argv[1];
  for (int i = 2; i + 1 < argc; i += 2) {
    HEADRACE_CHECK(config.numbers.contains(argv[i]));
    config.numbers[argv[i]] = std::strtoull(argv[i + 1], nullptr, 10);
  }
  std::printf("[\n");
  BenchRam(config, 4096);
  BenchRam(config, 102'400);
  BenchDisk(config, 4096, false);
  BenchDisk(config, 102'400, true);
  std::printf("]\n");
  return 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) { return headrace::Main(argc, argv); }
