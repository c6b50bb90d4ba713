// What another node gives: peer_bench [seconds a run] [rounds]
//
// Two processes of this machine: one has samples of 100 KB (and of 4 KB) in a tier in memory, the
// other fetches them at random, 64 at a time (1,024), over the loopback device: by PeerNode, and by
// a bare blocking TCP connection that asks for 64 samples by one message and reads them into the
// same buffers. In turn, so many rounds; one line of JSON: medians, the ratio of each round's two
// rates with its range, and processor time of both processes a GB, medians and the least of a round
// each: on a busy machine these say more than the rates.
//
// Goal: 0.45 of the bare connection at 100 KB.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory/buffer_pool.h"
#include "base/prng.h"
#include "base/units.h"
#include "peer/grpc/peer_memory.h"
#include "peer/grpc/peer_node.h"
#include "tier/ram_tier.h"

namespace headrace {
namespace {

struct Shape {
  std::uint64_t bytes;
  std::uint64_t samples;
  std::size_t at_once;
};
constexpr std::array<Shape, 2> kShapes = {{{.bytes = 100'000, .samples = 2'000, .at_once = 64},
                                           {.bytes = 4096, .samples = 20'000, .at_once = 1024}}};

void WriteAll(int fd, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t put = write(fd, at, size);
    HEADRACE_CHECK(put > 0);
    at += put;
    size -= static_cast<std::size_t>(put);
  }
}
bool ReadAll(int fd, void* data, std::size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = read(fd, at, size);
    if (got <= 0) return false;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}
void WriteText(int fd, const std::string& text) {
  const std::uint64_t size = text.size();
  WriteAll(fd, &size, sizeof(size));
  WriteAll(fd, text.data(), text.size());
}
std::string ReadText(int fd) {
  std::uint64_t size = 0;
  HEADRACE_CHECK(ReadAll(fd, &size, sizeof(size)));
  std::string text(size, '\0');
  HEADRACE_CHECK(ReadAll(fd, text.data(), size));
  return text;
}

class TierSamples final : public HeldSamples {
 public:
  explicit TierSamples(const Shape& shape)
      : tier_(RamTier::Make(shape.samples * ((shape.bytes + 4095) / 4096) * 4096, 4096).value()) {
    std::string bytes(shape.bytes, 'x');
    for (std::uint64_t i = 0; i < shape.samples; ++i) {
      std::memcpy(bytes.data(), &i, sizeof(i));
      tier_->Insert(SampleId{i}, {std::as_bytes(std::span(bytes))},
                    [](const Status& status) { HEADRACE_CHECK(status.ok()); });
    }
  }
  void Take(SampleId sample, std::uint64_t /*deadline*/, TakenEntry done) override {
    done(tier_->Find(sample));
  }

 private:
  std::unique_ptr<RamTier> tier_;
};

// Serves a bare connection: requests are numbers of samples, `at_once` in one message.
void ServeBare(int listener, const Shape& shape) {
  const std::string all(shape.samples * shape.bytes, 'x');
  const int fd = accept(listener, nullptr, nullptr);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  std::vector<std::uint64_t> numbers(shape.at_once);
  while (ReadAll(fd, numbers.data(), numbers.size() * sizeof(std::uint64_t))) {
    for (const std::uint64_t number : numbers) {
      WriteAll(fd, all.data() + number * shape.bytes, shape.bytes);
    }
  }
  close(fd);
}

// The process that has the samples. Ends when its input does.
int Give(int in, int out, const Shape& shape) {
  TierSamples held(shape);
  auto node = PeerNode::Listen({}).value();
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  HEADRACE_CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  HEADRACE_CHECK(listen(listener, 1) == 0);
  socklen_t size = sizeof(address);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  WriteText(out, node->address());
  WriteText(out, std::to_string(ntohs(address.sin_port)));
  const std::string other = ReadText(in);
  HEADRACE_CHECK(
      node->Connect({.node = 1, .addresses = {other, node->address()}, .token = "t"}).ok());
  node->Give(&held);
  WriteText(out, "ready");
  std::thread bare([&] { ServeBare(listener, shape); });
  char byte = 0;
  while (ReadAll(in, &byte, 1)) {  // Asks how much processor time it took.
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const double seconds =
        static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
        1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    WriteAll(out, &seconds, sizeof(seconds));
  }
  bare.join();
  node->Give(nullptr);
  return 0;
}

double OwnCpu() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

struct Run {
  double mb_per_s = 0;
  double cpu_s_per_gb = 0;
};

class Other {
 public:
  explicit Other(const Shape& shape) {
    std::array<int, 2> to{};
    std::array<int, 2> from{};
    HEADRACE_CHECK(pipe(to.data()) == 0 && pipe(from.data()) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(to[1]);
      close(from[0]);
      _exit(Give(to[0], from[1], shape));
    }
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
  }
  ~Other() {
    close(to_);
    waitpid(pid_, nullptr, 0);
    close(from_);
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  [[nodiscard]] std::string Hear() const { return ReadText(from_); }
  void Say(const std::string& text) const { WriteText(to_, text); }
  [[nodiscard]] double Cpu() const {
    WriteAll(to_, "c", 1);
    double seconds = 0;
    HEADRACE_CHECK(ReadAll(from_, &seconds, sizeof(seconds)));
    return seconds;
  }

 private:
  pid_t pid_ = 0;
  int to_ = -1;
  int from_ = -1;
};

template <typename FetchSome>
Run Measure(const Other& other, const Shape& shape, double seconds, FetchSome fetch_some) {
  const MonotonicClock clock;
  Prng random(1, 0, RandomStream::kOrder);
  const double cpu = OwnCpu() + other.Cpu();
  const std::int64_t begin_ns = clock.NowNanos();
  std::uint64_t bytes = 0;
  std::int64_t now_ns = begin_ns;
  std::vector<std::uint64_t> numbers(shape.at_once);
  while (static_cast<double>(now_ns - begin_ns) < seconds * 1e9) {
    for (std::uint64_t& number : numbers) number = random.Below(shape.samples);
    fetch_some(numbers);
    bytes += shape.at_once * shape.bytes;
    now_ns = clock.NowNanos();
  }
  const double gb = static_cast<double>(bytes) / 1e9;
  return {.mb_per_s = gb * 1e3 / (static_cast<double>(now_ns - begin_ns) / 1e9),
          .cpu_s_per_gb = (OwnCpu() + other.Cpu() - cpu) / gb};
}

void MeasureShape(const Shape& shape, double seconds, int rounds) {
  const Other other(shape);  // Forks: before gRPC has threads here.
  auto node = PeerNode::Listen({}).value();
  const std::string address = other.Hear();
  const int port = std::atoi(other.Hear().c_str());
  HEADRACE_CHECK(
      node->Connect({.node = 0, .addresses = {node->address(), address}, .token = "t"}).ok());
  other.Say(node->address());
  HEADRACE_CHECK(other.Hear() == "ready");
  const int bare = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  HEADRACE_CHECK(connect(bare, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0);

  const auto pool = BufferPool::Make(shape.at_once * (shape.bytes + 8192));
  std::vector<Fetch> fetches(shape.at_once);
  std::vector<Fetch*> pointers;
  for (Fetch& fetch : fetches) {
    fetch.buffer = *pool->Acquire(shape.bytes);
    pointers.push_back(&fetch);
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t left = 0;
  const FetchSource::Done done = [&](Fetch&, const Result<std::span<std::byte>>& data) {
    HEADRACE_CHECK(data.ok());
    const std::lock_guard lock(mutex);
    if (--left == 0) changed.notify_one();
  };
  const auto by_peer = [&](const std::vector<std::uint64_t>& numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      fetches[i].from =
          SampleAtNode{.nodes = {.first = 1}, .sample = SampleId{numbers[i]}, .bytes = shape.bytes};
    }
    left = numbers.size();
    node->source().Read(pointers, {}, done);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return left == 0; });
  };
  const auto by_bare = [&](const std::vector<std::uint64_t>& numbers) {
    WriteAll(bare, numbers.data(), numbers.size() * sizeof(std::uint64_t));
    for (Fetch& fetch : fetches) {
      HEADRACE_CHECK(ReadAll(bare, fetch.memory().data(), shape.bytes));
    }
  };
  std::vector<double> ratios;
  std::vector<double> peers;
  std::vector<double> cpus;
  std::vector<double> bares;
  std::vector<double> bare_cpus;
  for (int round = 0; round < rounds + 1; ++round) {
    const Run peer = Measure(other, shape, seconds, by_peer);
    const Run plain = Measure(other, shape, seconds, by_bare);
    if (round == 0) continue;  // A warm-up.
    ratios.push_back(peer.mb_per_s / plain.mb_per_s);
    peers.push_back(peer.mb_per_s);
    cpus.push_back(peer.cpu_s_per_gb);
    bares.push_back(plain.mb_per_s);
    bare_cpus.push_back(plain.cpu_s_per_gb);
  }
  close(bare);
  const auto median = [](std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  };
  const auto [low, high] = std::ranges::minmax(ratios);
  std::printf(
      "{\"benchmark\": \"peer\", \"sample_bytes\": %llu, \"peer_MB_per_s\": %.0f, "
      "\"bare_MB_per_s\": %.0f, \"ratio\": %.3f, \"range\": [%.3f, %.3f], "
      "\"peer_cpu_s_per_GB\": %.2f, \"bare_cpu_s_per_GB\": %.2f, \"least\": [%.2f, %.2f]}\n",
      static_cast<unsigned long long>(shape.bytes), median(peers), median(bares), median(ratios),
      low, high, median(cpus), median(bare_cpus), std::ranges::min(cpus),
      std::ranges::min(bare_cpus));
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  KeepFreedMessages();  // As headrace-node does.
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1.0;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  for (const Shape& shape : kShapes) {
    const pid_t child = fork();  // gRPC must not have been used before Other forks.
    if (child == 0) {
      MeasureShape(shape, seconds, rounds);
      std::_Exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) { return headrace::Main(argc, argv); }
