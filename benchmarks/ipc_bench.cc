// Messages between two processes: CPU time of both, and time from a question to its answer, of 200
// bytes there and 40 back, one after the other. Three ways: both ends IpcConnection::Receive()
// (`connection`); an IpcServer at the other end (`server`); the other end in the same process,
// which costs what the system calls cost, without a process that sleeps and is woken
// (`one_process`). Beside them two bare sockets that send and receive the same bytes (`bare`).
// `paced` ones come at 10,000 pairs a second, as of a node process with many ranks: between them
// both sleep. The figures are medians of rounds.
//
//   ipc_bench [--pairs N] [--rounds N]
//
// Prints JSON.

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "ipc/connection.h"
#include "ipc/server.h"

namespace headrace {
namespace {

constexpr std::size_t kQuestionBytes = 200;
constexpr std::size_t kAnswerBytes = 40;
constexpr std::int64_t kPaceNs = 100'000;

using Bytes = std::vector<std::byte>;

double CpuMicros(int who) {
  rusage usage{};
  HEADRACE_CHECK(::getrusage(who, &usage) == 0);
  const auto micros = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
  };
  return micros(usage.ru_utime) + micros(usage.ru_stime);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Costs {
  double cpu_micros = 0;  // of both processes, a pair
  double micros = 0;      // from a question to its answer
};

// Asks `pairs` times. The clock that paces is the kernel's: waiting costs a sleep and a waking.
double AskAll(std::uint64_t pairs, bool paced, const std::function<void()>& ask) {
  const MonotonicClock clock;
  std::int64_t asked_ns = 0;
  std::int64_t next_ns = clock.NowNanos();
  for (std::uint64_t i = 0; i < pairs; ++i) {
    if (paced) {
      next_ns += kPaceNs;
      const timespec until{next_ns / 1'000'000'000, next_ns % 1'000'000'000};
      (void)::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    }
    const std::int64_t begin = clock.NowNanos();
    ask();
    asked_ns += clock.NowNanos() - begin;
  }
  return static_cast<double>(asked_ns) / 1e3 / static_cast<double>(pairs);
}

// Runs `other` in a child and `ask` here; `end` makes the child end.
Costs BetweenProcesses(std::uint64_t pairs, bool paced, const std::function<void()>& other,
                       const std::function<void()>& ask, const std::function<void()>& end) {
  const double children_before = CpuMicros(RUSAGE_CHILDREN);
  const pid_t child = ::fork();
  HEADRACE_CHECK(child >= 0);
  if (child == 0) {
    other();
    ::_exit(0);
  }
  const double before = CpuMicros(RUSAGE_SELF);
  const double micros = AskAll(pairs, paced, ask);
  const double mine = CpuMicros(RUSAGE_SELF) - before;
  end();
  HEADRACE_CHECK(::waitpid(child, nullptr, 0) == child);
  const double theirs = CpuMicros(RUSAGE_CHILDREN) - children_before;
  return {(mine + theirs) / static_cast<double>(pairs), micros};
}

// Answers until the peer has gone.
class Answerer final : public IpcHandler {
 public:
  void OnConnected(const std::shared_ptr<IpcPeer>& /*peer*/) override {}
  Status OnMessage(const std::shared_ptr<IpcPeer>& peer, IpcMessage /*message*/) override {
    return peer->Send(answer_);
  }
  void OnClosed(const std::shared_ptr<IpcPeer>& /*peer*/, const Status& /*why*/) override {
    stop.request_stop();
  }

  std::stop_source stop;

 private:
  const Bytes answer_ = Bytes(kAnswerBytes);
};

struct Ends {
  std::unique_ptr<IpcConnection> mine;
  std::unique_ptr<IpcConnection> theirs;

  static Ends Make() {
    auto pair = IpcConnection::MakePair().value();
    return {std::move(pair.first), std::move(pair.second)};
  }
  void Ask() const {
    static const Bytes question(kQuestionBytes);
    HEADRACE_CHECK(mine->Send(question).ok());
    HEADRACE_CHECK(mine->Receive().value()->bytes.size() == kAnswerBytes);
  }
};

Costs Connections(std::uint64_t pairs, bool paced) {
  Ends ends = Ends::Make();
  return BetweenProcesses(
      pairs, paced,
      [&ends] {
        ends.mine.reset();
        const Bytes answer(kAnswerBytes);
        while (ends.theirs->Receive().ok()) (void)ends.theirs->Send(answer);
      },
      [&ends] { ends.Ask(); }, [&ends] { ends.mine->Shutdown(); });
}

Costs Server(std::uint64_t pairs, bool paced) {
  Ends ends = Ends::Make();
  return BetweenProcesses(
      pairs, paced,
      [&ends] {
        ends.mine.reset();
        Answerer answerer;
        const auto server = IpcServer::Make({}, answerer).value();
        HEADRACE_CHECK(server->Add(std::move(ends.theirs)).ok());
        server->Run(answerer.stop.get_token());
      },
      [&ends] { ends.Ask(); }, [&ends] { ends.mine->Shutdown(); });
}

Costs Bare(std::uint64_t pairs, bool paced) {
  std::array<int, 2> ends{};
  HEADRACE_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()) == 0);
  std::array<char, 256> bytes{};
  const Costs costs = BetweenProcesses(
      pairs, paced,
      [&] {
        std::array<char, 256> received{};
        while (::recv(ends[1], received.data(), received.size(), 0) > 0) {
          (void)::send(ends[1], received.data(), kAnswerBytes, MSG_NOSIGNAL);
        }
      },
      [&] {
        HEADRACE_CHECK(::send(ends[0], bytes.data(), kQuestionBytes, 0) > 0);
        HEADRACE_CHECK(::recv(ends[0], bytes.data(), bytes.size(), 0) == kAnswerBytes);
      },
      [&] { (void)::shutdown(ends[0], SHUT_RDWR); });
  (void)::close(ends[0]);
  (void)::close(ends[1]);
  return costs;
}

Costs OneProcess(std::uint64_t pairs, bool paced) {
  const Ends ends = Ends::Make();
  const Bytes question(kQuestionBytes);
  const Bytes answer(kAnswerBytes);
  const double before = CpuMicros(RUSAGE_SELF);
  const double micros = AskAll(pairs, paced, [&] {
    HEADRACE_CHECK(ends.mine->Send(question).ok() && ends.theirs->Receive().ok());
    HEADRACE_CHECK(ends.theirs->Send(answer).ok() && ends.mine->Receive().ok());
  });
  return {(CpuMicros(RUSAGE_SELF) - before) / static_cast<double>(pairs), micros};
}

int Main(int argc, char** argv) {
  std::map<std::string, std::uint64_t> numbers = {{"--pairs", 20'000}, {"--rounds", 5}};
  for (int i = 1; i + 1 < argc; i += 2) {
    HEADRACE_CHECK(numbers.contains(argv[i]));
    numbers[argv[i]] = std::strtoull(argv[i + 1], nullptr, 10);
  }
  const std::vector<std::pair<const char*, Costs (*)(std::uint64_t, bool)>> ways = {
      {"connection", Connections}, {"server", Server}, {"bare", Bare}, {"one_process", OneProcess}};
  std::map<std::pair<std::size_t, bool>, std::vector<Costs>> costs;
  for (std::uint64_t round = 0; round < numbers["--rounds"]; ++round) {
    for (const bool paced : {false, true}) {
      for (std::size_t i = 0; i < ways.size(); ++i) {
        costs[{i, paced}].push_back(ways[i].second(numbers["--pairs"], paced));
      }
    }
  }
  std::printf("[\n");
  std::size_t left = costs.size();
  for (const auto& [key, rounds] : costs) {
    std::vector<double> cpu;
    std::vector<double> micros;
    for (const Costs& round : rounds) {
      cpu.push_back(round.cpu_micros);
      micros.push_back(round.micros);
    }
    std::printf("  {\"way\": \"%s\", \"paced\": %s, \"cpu_us\": %.2f, \"answer_us\": %.2f}%s\n",
                ways[key.first].first, key.second ? "true" : "false", Median(cpu), Median(micros),
                --left == 0 ? "" : ",");
  }
  std::printf("]\n");
  return 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) { return headrace::Main(argc, argv); }
