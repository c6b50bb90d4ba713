#include "store/objects/fetchers.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"

namespace headrace {
namespace {

constexpr std::string_view kStarting = "starting a fetcher of objects";
constexpr std::int64_t kGraceNs = 150 * kNsPerMs;  // for a process that has closed its socket
constexpr std::uint32_t kUntriedAttemptsMax = 4;   // of a process that may not run yet
constexpr int kPacketsInARow = 64;                 // of one process

Status SilentFor(std::int64_t silence_ns) {
  return {StatusCode::kUnavailable,
          fmt::format("no byte came for {} s", static_cast<double>(silence_ns) / kNsPerSecond)};
}

AttemptEnd EndOf(FetcherReport report) {
  AttemptEnd end{.result = *report.end,
                 .received_bytes = report.received_bytes,
                 .cause = {},
                 .retry_after_ns = report.retry_after_ns};
  if (end.result == AttemptResult::kOk) return end;
  const bool may_pass =
      end.result == AttemptResult::kSlowDown || end.result == AttemptResult::kBroken;
  end.cause = Status(may_pass ? StatusCode::kUnavailable : StatusCode::kFailedPrecondition,
                     report.cause.empty() ? "the fetcher gave no cause" : std::move(report.cause));
  return end;
}

}  // namespace

Result<std::unique_ptr<Fetchers>> Fetchers::Make(FetchersOptions options) {
  HEADRACE_CHECK(options.processes_max > 0);
  if (options.command.empty()) {
    return FailedPrecondition(
        "{}: this process has no command for it; import headrace.formats, or start headrace-node "
        "with --helper",
        kStarting);
  }
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                            SharedMemory::Make("headrace-objects", options.memory_bytes));
  std::unique_ptr<Fetchers> fetchers(new Fetchers(std::move(options), std::move(memory)));
  HEADRACE_RETURN_IF_ERROR(fetchers->AddFetcher());
  return fetchers;
}

Fetchers::Fetchers(FetchersOptions options, std::shared_ptr<SharedMemory> memory)
    : options_(std::move(options)), memory_(std::move(memory)), space_(options_.memory_bytes) {}

void Fetchers::Start(const FetchStart& start) {
  HEADRACE_CHECK(CellSpace::ChargedBytes(start.bytes.size) <= options_.memory_bytes);
  attempts_.emplace(start.attempt, Attempt{.start = start});
  waiting_.push_back(start.attempt);
}

std::uint64_t Fetchers::Cancel(AttemptId id, std::int64_t now_ns) {
  Attempt& attempt = attempts_.at(id);
  const std::uint64_t received = attempt.received;
  if (attempt.fetcher != nullptr && attempt.open) Close(id, attempt, now_ns);
  attempt.held = false;
  Forget(id);
  return received;
}

void Fetchers::Release(AttemptId id) {
  Attempt& attempt = attempts_.at(id);
  HEADRACE_CHECK(!attempt.open);
  attempt.held = false;
  Forget(id);
}

std::span<const std::byte> Fetchers::cell(AttemptId id) const {
  const Attempt& attempt = attempts_.at(id);
  return std::span<const std::byte>(memory_->bytes())
      .subspan(attempt.start.cell_offset, attempt.start.bytes.size);
}

void Fetchers::Send(std::int64_t now_ns) {
  while (!waiting_.empty()) {
    const AttemptId id = waiting_.front();
    const auto found = attempts_.find(id);
    if (found != attempts_.end()) {
      Attempt& attempt = found->second;
      const std::optional<std::uint64_t> cell = space_.Take(attempt.start.bytes.size);
      if (!cell) break;
      attempt.start.cell_offset = *cell;
      attempt.has_cell = true;
      const Result<Fetcher*> fetcher = Choose();
      if (fetcher.ok()) {
        attempt.fetcher = fetcher.value();
        attempt.changed_ns = now_ns;
        ++attempt.fetcher->open;
        attempt.fetcher->packets.AddStart(attempt.start);
      } else {
        attempt.open = false;
        events_.push_back(
            {.attempt = id,
             .ended = true,
             .end = AttemptEnd{.result = AttemptResult::kRefused, .cause = fetcher.status()}});
      }
    }
    waiting_.pop_front();
  }
  for (const std::unique_ptr<Fetcher>& fetcher : fetchers_) SendPackets(*fetcher);
}

void Fetchers::Receive(std::int64_t now_ns) {
  // From the last on: those that end leave the vector.
  for (std::size_t i = fetchers_.size(); i > 0; --i) ReceiveFrom(*fetchers_[i - 1], now_ns);
  if (next_ns() && now_ns >= *next_ns()) {
    checked_ns_ = now_ns;
    EndSilent(now_ns);
    RetireAndKill(now_ns);
  }
}

std::optional<FetcherEvent> Fetchers::NextEvent() {
  while (!events_.empty()) {
    FetcherEvent event = std::move(events_.front());
    events_.pop_front();
    const auto found = attempts_.find(event.attempt);
    if (found != attempts_.end() && found->second.held) return event;
  }
  return std::nullopt;
}

std::optional<std::int64_t> Fetchers::next_ns() const {
  if (attempts_.empty()) return std::nullopt;
  return checked_ns_ + options_.check_ns;
}

void Fetchers::AddPolls(std::vector<pollfd>& polls) const {
  for (const std::unique_ptr<Fetcher>& fetcher : fetchers_) {
    const short send = fetcher->packets.empty() ? short{0} : short{POLLOUT};
    polls.push_back({.fd = fetcher->process->connection().fd(),
                     .events = static_cast<short>(POLLIN | send),
                     .revents = 0});
  }
}

Status Fetchers::AddFetcher() {
  auto fetcher = std::make_unique<Fetcher>();
  HEADRACE_ASSIGN_OR_RETURN(fetcher->process, SpawnedProcess::Start(options_.command, kStarting));
  const int fd = memory_->fd();
  // If it has ended already, the next Receive() says so.
  static_cast<void>(fetcher->process->connection().Send(
      FetcherMemoryPacket(memory_->bytes().size()).bytes(), std::span(&fd, 1)));
  fetchers_.push_back(std::move(fetcher));
  return Status();
}

Result<Fetchers::Fetcher*> Fetchers::Choose() {
  Fetcher* best = nullptr;
  std::size_t usable = 0;
  for (const std::unique_ptr<Fetcher>& each : fetchers_) {
    if (each->retired_ns) continue;
    ++usable;
    // One that still starts would be late.
    const bool full = !each->reported && each->open >= kUntriedAttemptsMax;
    const bool best_full = best != nullptr && !best->reported && best->open >= kUntriedAttemptsMax;
    if (best == nullptr || std::pair(full, each->open) < std::pair(best_full, best->open)) {
      best = each.get();
    }
  }
  const bool wanted = best == nullptr || best->open >= options_.attempts_each;
  if (!wanted || usable >= options_.processes_max) return best;
  const Status added = AddFetcher();
  if (best != nullptr) return best;
  HEADRACE_RETURN_IF_ERROR(added);
  return fetchers_.back().get();
}

void Fetchers::SendPackets(Fetcher& fetcher) {
  while (!fetcher.packets.empty()) {
    const Status sent = fetcher.process->connection().Send(fetcher.packets.front(), {},
                                                           /*timeout_ns=*/0);
    // Of one that has ended Receive() learns.
    if (!sent.ok()) return;
    fetcher.packets.Pop();
  }
}

void Fetchers::ReceiveFrom(Fetcher& fetcher, std::int64_t now_ns) {
  for (int i = 0; i < kPacketsInARow; ++i) {
    const Result<std::optional<IpcMessage>> taken = fetcher.process->connection().Receive(0);
    if (!taken.ok() && taken.status().code() == StatusCode::kUnavailable) {
      return End(fetcher, {}, kGraceNs);
    }
    if (!taken.ok()) return End(fetcher, taken.status().message(), 0);
    if (!taken.value()) return;
    Result<std::vector<FetcherReport>> reports = ReadFetcherReports(taken.value()->bytes);
    if (!reports.ok()) return End(fetcher, reports.status().message(), 0);
    fetcher.reported = true;
    failed_starts_ = 0;
    for (FetcherReport& report : reports.value()) {
      if (!Take(fetcher, std::move(report), now_ns)) {
        return End(fetcher, "it reported what it was not asked for", 0);
      }
    }
  }
}

bool Fetchers::Take(Fetcher& fetcher, FetcherReport report, std::int64_t now_ns) {
  const auto found = attempts_.find(report.attempt);
  if (found == attempts_.end() || found->second.fetcher != &fetcher) return false;
  Attempt& attempt = found->second;
  if (report.received_bytes < attempt.received ||
      report.received_bytes > attempt.start.bytes.size) {
    return false;
  }
  const bool more = report.received_bytes > attempt.received;
  attempt.received = report.received_bytes;
  if (report.end) attempt.fetcher = nullptr;
  if (!attempt.open) {
    if (report.end) --fetcher.owed;
    Forget(report.attempt);
    return true;
  }
  if (more) attempt.changed_ns = now_ns;
  FetcherEvent event{.attempt = report.attempt, .ended = report.end.has_value(), .end = {}};
  event.end.received_bytes = report.received_bytes;
  if (report.end) {
    --fetcher.open;
    attempt.open = false;
    event.end = EndOf(std::move(report));
  }
  events_.push_back(std::move(event));
  return true;
}

void Fetchers::Close(AttemptId id, Attempt& attempt, std::int64_t now_ns) {
  attempt.open = false;
  attempt.changed_ns = now_ns;
  --attempt.fetcher->open;
  ++attempt.fetcher->owed;
  attempt.fetcher->packets.AddCancel(id);
}

void Fetchers::EndSilent(std::int64_t now_ns) {
  for (auto& [id, attempt] : attempts_) {
    const bool sent = attempt.fetcher != nullptr && attempt.open;
    if (!sent || now_ns - attempt.changed_ns < options_.silence_ns) continue;
    Close(id, attempt, now_ns);
    events_.push_back({.attempt = id,
                       .ended = true,
                       .end = AttemptEnd{.result = AttemptResult::kSilent,
                                         .received_bytes = attempt.received,
                                         .cause = SilentFor(options_.silence_ns)}});
  }
}

void Fetchers::RetireAndKill(std::int64_t now_ns) {
  const auto retire = [now_ns](Fetcher& fetcher) {
    if (!fetcher.retired_ns) fetcher.retired_ns = now_ns;
  };
  for (const auto& [id, attempt] : attempts_) {
    const bool owed = attempt.fetcher != nullptr && !attempt.open;
    if (owed && now_ns - attempt.changed_ns >= options_.owed_ns) retire(*attempt.fetcher);
  }
  for (std::size_t i = fetchers_.size(); i > 0; --i) {
    Fetcher& fetcher = *fetchers_[i - 1];
    if (fetcher.owed > options_.owed_max) retire(fetcher);
    if (!fetcher.retired_ns) continue;
    if (fetcher.open > 0 && now_ns - *fetcher.retired_ns < options_.silence_ns) continue;
    End(fetcher, "it did not end requests that were cancelled", 0);
  }
}

void Fetchers::End(Fetcher& fetcher, std::string_view why, std::int64_t grace_ns) {
  const pid_t pid = fetcher.process->pid();
  const std::string how = fetcher.process->End(grace_ns);
  AttemptEnd end{.result = AttemptResult::kFetcherGone};
  if (!fetcher.reported && ++failed_starts_ >= kFailedStartsMax) {
    end.result = AttemptResult::kRefused;
    end.cause = FailedPrecondition(
        "{} fetchers in a row ended as they started: process {} {}; see what it wrote to stderr, "
        "and run: pip install 'headrace[objects]'",
        failed_starts_, pid, how);
  } else {
    end.cause =
        Status(StatusCode::kUnavailable,
               why.empty() ? fmt::format("its fetcher, process {}, {}", pid, how)
                           : fmt::format("its fetcher, process {}, was killed: {}", pid, why));
  }
  std::vector<AttemptId> ended;
  for (auto& [id, attempt] : attempts_) {
    if (attempt.fetcher != &fetcher) continue;
    attempt.fetcher = nullptr;
    ended.push_back(id);
    if (!std::exchange(attempt.open, false)) continue;
    end.received_bytes = attempt.received;
    events_.push_back({.attempt = id, .ended = true, .end = end});
  }
  for (const AttemptId id : ended) Forget(id);
  std::erase_if(fetchers_, [&](const auto& each) { return each.get() == &fetcher; });
}

void Fetchers::Forget(AttemptId id) {
  const auto found = attempts_.find(id);
  if (found->second.held || found->second.fetcher != nullptr) return;
  if (found->second.has_cell) space_.Release(found->second.start.cell_offset);
  attempts_.erase(found);
}

}  // namespace headrace
