// Random reads of one large file through each store, at a depth: MB/s and CPU time a read, as JSON.
//
//   store_bench FILE [--read-bytes N] [--align N] [--depth N] [--seconds N] [--warm-bytes N]
//               [--only CASE]
//
// The file is evicted from the page cache first, except for the warm cases, which read its first
// --warm-bytes after having read them once. Compare the direct cases with
//   roofline_bench FILE --block 100K --depth 32 --pattern random --seconds 5

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory/buffer_pool.h"
#include "base/mutex.h"
#include "base/prng.h"
#include "base/testing/test_executor.h"
#include "base/units.h"
#include "store/thread_file_store.h"
#include "store/uring_file_store.h"

namespace headrace {
namespace {

// Such a pool is in huge pages, as the engine's are.
constexpr std::uint64_t kPoolBytesMin = 16 * kMiB;

struct Config {
  std::string path;
  std::uint64_t file_bytes = 0;
  std::map<std::string, std::uint64_t> numbers = {{"--read-bytes", 102'400},
                                                  {"--align", 4096},
                                                  {"--depth", 32},
                                                  {"--seconds", 5},
                                                  {"--warm-bytes", 1 << 30}};
  std::string only;

  [[nodiscard]] std::uint64_t operator[](const std::string& name) const { return numbers.at(name); }
};

class OneFile final : public FileCatalog {
 public:
  explicit OneFile(const Config& config) : info_{config.path, config.file_bytes, 0} {}
  [[nodiscard]] Result<FileInfo> file(ObjectId /*object*/) const override { return info_; }

 private:
  FileInfo info_;
};

// Hands answers from the store's threads to the one that asks, as the engine does.
class Answers {
 public:
  void Put(std::size_t slot, bool ok) HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    if (!ok) ++failures_;
    slots_.push_back(slot);
    if (slots_.size() == 1) put_.NotifyAll();
  }
  std::vector<std::size_t> TakeAll() HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    while (slots_.empty()) put_.Wait(mutex_);
    return std::exchange(slots_, {});
  }
  std::uint64_t failures() HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return failures_;
  }

 private:
  Mutex mutex_;
  CondVar put_;
  std::vector<std::size_t> slots_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t failures_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

double CpuSeconds() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Keeps `depth` reads at random places of the first `span_bytes` going for the time.
void Measure(const std::string& name, ByteStore& store, const Config& config,
             std::uint64_t span_bytes) {
  const std::uint64_t size = config["--read-bytes"];
  const std::uint64_t places = (span_bytes - size) / config["--align"] + 1;
  const std::uint64_t buffer_bytes = store.BufferBytes({config["--align"] - 1, size});
  const auto pool = BufferPool::Make(
      std::max(config["--depth"] * BufferPool::ChargedBytes(buffer_bytes), kPoolBytesMin));
  std::vector<Buffer> buffers;
  Answers answers;
  Prng prng(1, 0, RandomStream::kOrder);
  std::vector<std::size_t> free;
  for (std::size_t i = 0; i < config["--depth"]; ++i) {
    std::optional<Buffer> buffer = pool->Acquire(buffer_bytes);
    HEADRACE_CHECK(buffer.has_value());
    buffers.push_back(std::move(*buffer));
    free.push_back(i);
  }
  const MonotonicClock clock;
  const double cpu_before = CpuSeconds();
  const std::int64_t start = clock.NowNanos();
  const std::int64_t end = start + static_cast<std::int64_t>(config["--seconds"]) * 1'000'000'000;
  std::uint64_t reads = 0;
  std::size_t in_flight = 0;
  for (;;) {
    const bool going = clock.NowNanos() < end;
    if (!going && in_flight == 0) break;
    if (going) {
      std::vector<ReadRequest> requests;
      for (const std::size_t slot : free) {
        const std::uint64_t offset = prng.Below(places) * config["--align"];
        requests.push_back({{ObjectId{0}, {offset, size}},
                            buffers[slot].bytes(),
                            [slot, &answers](const Result<std::span<std::byte>>& result) {
                              answers.Put(slot, result.ok());
                            }});
      }
      in_flight += free.size();
      store.Read(std::move(requests), {});
    }
    free = answers.TakeAll();
    in_flight -= free.size();
    reads += free.size();
  }
  const double seconds = 1e-9 * static_cast<double>(clock.NowNanos() - start);
  const double count = static_cast<double>(reads);
  const StoreStats stats = store.stats();
  std::printf(
      "  {\"case\": \"%s\", \"reads\": %llu, \"failures\": %llu, \"mb_per_s\": %.1f, "
      "\"cpu_us_per_read\": %.2f, \"page_cache_share\": %.3f}",
      name.c_str(), static_cast<unsigned long long>(reads),
      static_cast<unsigned long long>(answers.failures()),
      count * static_cast<double>(size) / seconds / 1e6, 1e6 * (CpuSeconds() - cpu_before) / count,
      static_cast<double>(stats.bytes_page_cache) / static_cast<double>(stats.bytes));
}

void Evict(const Config& config) {
  const int fd = ::open(config.path.c_str(), O_RDONLY | O_CLOEXEC);
  ::fdatasync(fd);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

void Warm(const Config& config, std::uint64_t bytes) {
  const int fd = ::open(config.path.c_str(), O_RDONLY | O_CLOEXEC);
  std::vector<char> sink(1 << 20);
  for (std::uint64_t at = 0; at < bytes; at += sink.size()) {
    if (::pread(fd, sink.data(), sink.size(), static_cast<off_t>(at)) <= 0) break;
  }
  ::close(fd);
}

struct Case {
  std::string name;
  bool warm;
  int threads;
  std::function<Result<std::unique_ptr<ByteStore>>(const FileCatalog&, Executor&)> make;
};

Case Threads(const std::string& name, bool warm, ThreadFileStoreOptions options) {
  return {name, warm, 32, [options](const FileCatalog& files, Executor& executor) {
            return Result<std::unique_ptr<ByteStore>>(
                std::make_unique<ThreadFileStore>(files, executor, options));
          }};
}

Case Uring(const std::string& name, bool warm, UringFileStoreOptions options) {
  return {name, warm, 1,
          [options](const FileCatalog& files,
                    Executor& executor) -> Result<std::unique_ptr<ByteStore>> {
            HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<ByteStore> store,
                                      UringFileStore::Open(files, executor, options));
            return store;
          }};
}

void RunAll(const Config& config) {
  const std::vector<Case> cases = {
      Threads("threads", false, {}),
      Threads("threads_direct", false, {.direct = true}),
      Uring("uring_direct", false, {}),
      Uring("uring_direct_only", false, {.page_cache = false}),
      Uring("uring_buffered", false, {.direct = false}),
      Threads("threads_warm", true, {}),
      Threads("threads_direct_warm", true, {.direct = true}),
      Uring("uring_direct_warm", true, {}),
      Uring("uring_buffered_warm", true, {.direct = false}),
  };
  const std::uint64_t warm_bytes = std::min(config["--warm-bytes"], config.file_bytes);
  const OneFile files(config);
  bool first = true;
  std::printf("[\n");
  for (const Case& one : cases) {
    if (!config.only.empty() && one.name != config.only) continue;
    if (!std::exchange(first, false)) std::printf(",\n");
    Evict(config);
    if (one.warm) Warm(config, warm_bytes);
    TestExecutor executor(one.threads);
    const Result<std::unique_ptr<ByteStore>> store = one.make(files, executor);
    if (store.ok()) {
      Measure(one.name, *store.value(), config, one.warm ? warm_bytes : config.file_bytes);
    } else {
      std::printf("  {\"case\": \"%s\", \"skipped\": \"%s\"}", one.name.c_str(),
                  store.status().ToString().c_str());
    }
    std::fflush(stdout);
  }
  std::printf("\n]\n");
}

int Main(const std::vector<std::string>& arguments) {
  Config config;
  struct stat stat = {};
  bool wrong = arguments.size() % 2 == 0 || ::stat(arguments.front().c_str(), &stat) != 0;
  for (std::size_t i = 1; !wrong && i < arguments.size(); i += 2) {
    if (arguments[i] == "--only") {
      config.only = arguments[i + 1];
    } else if (config.numbers.contains(arguments[i])) {
      config.numbers[arguments[i]] = std::strtoull(arguments[i + 1].c_str(), nullptr, 10);
    } else {
      wrong = true;
    }
  }
  if (wrong) {
    std::fprintf(stderr,
                 "usage: store_bench FILE [--read-bytes N] [--align N] [--depth N] [--seconds N] "
                 "[--warm-bytes N] [--only CASE]\n");
    return 2;
  }
  config.path = arguments.front();
  config.file_bytes = static_cast<std::uint64_t>(stat.st_size);
  RunAll(config);
  return 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  return headrace::Main(std::vector<std::string>(argv + 1, argv + argc));
}
