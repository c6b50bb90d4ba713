#include "store/objects/object_reads.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {
namespace {

using Queue = ReadOrder::Queue;
using Kind = ReadAction::Kind;

double Seconds(std::int64_t ns) { return static_cast<double>(ns) / kNsPerSecond; }

}  // namespace

ObjectReads::ObjectReads(const ObjectReadsOptions& options, Prng& prng)
    : options_(options),
      prng_(prng),
      window_(options.window),
      budget_(options.budget),
      pause_(options.pause, prng),
      first_byte_(options.first_byte),
      next_bytes_(options.next_bytes) {}

ReadId ObjectReads::Add(std::uint64_t bytes, std::int64_t now_ns) {
  HEADRACE_CHECK(bytes > 0);
  if (reads_.size() == 0) pause_.Rested(now_ns - now_ns_);
  BeginEvent(now_ns);
  const ReadId id = reads_.Add({.bytes = bytes});
  Wait(id, reads_.At(id), Queue::kNew);
  EndEvent();
  return id;
}

void ObjectReads::Cancel(ReadId id, std::int64_t now_ns) {
  BeginEvent(now_ns);
  Read* read = reads_.Find(id);
  if (read == nullptr || read->cancelled) return EndEvent();
  if (read->attempt_count() == 0) {
    Finish(id, {StatusCode::kCancelled, "the read was stopped"});
  } else {
    StopWaiting(id, *read);
    read->cancelled = true;
    for (const std::optional<AttemptId>& attempt : read->attempts) {
      if (attempt) actions_.push_back({.kind = Kind::kCancel, .attempt = *attempt});
    }
  }
  EndEvent();
}

void ObjectReads::Received(AttemptId id, std::uint64_t received_bytes, std::int64_t now_ns) {
  BeginEvent(now_ns);
  Attempt& attempt = attempts_.At(id);
  TakeBytes(attempt, received_bytes);
  if (attempt.read) {
    Read& read = reads_.At(*attempt.read);
    // A timer that is too early is set again when it is due.
    const bool late = read.place.has_value();
    const bool timed = read.timer_ns && *read.timer_ns > now_ns_ + next_bytes_.delay_ns();
    if (late || timed) {
      StopWaiting(*attempt.read, read);
      WaitForBytes(*attempt.read, read);
    }
  }
  EndEvent();
}

void ObjectReads::Ended(AttemptId id, AttemptEnd end, std::int64_t now_ns) {
  BeginEvent(now_ns);
  const auto in_flight = static_cast<std::uint32_t>(attempts_.size());
  Attempt attempt = attempts_.Remove(id);
  TakeBytes(attempt, end.received_bytes);
  if (end.result == AttemptResult::kOk && attempt.received < attempt.bytes.size) {
    end.result = AttemptResult::kBroken;
    end.cause = Status(StatusCode::kUnavailable, fmt::format("got {} bytes, must be {}",
                                                             attempt.received, attempt.bytes.size));
  }
  HEADRACE_CHECK(end.result == AttemptResult::kOk || !end.cause.ok());
  if (end.result == AttemptResult::kOk) {
    window_.Success(in_flight);
    pause_.Success();
  } else if (end.result == AttemptResult::kSlowDown) {
    ++counts_.slow_downs;
    slow_cause_ = end.cause.message();
    pause_.SlowDown(end.retry_after_ns, window_.SlowDown(attempt.started_ns, now_ns_), now_ns_);
  } else if (end.result == AttemptResult::kSilent) {
    // A store that queues, or a link that is shared by too many, is silent in place of a 503.
    window_.SlowDown(attempt.started_ns, now_ns_);
  }
  if (attempt.read) TakeEnd(*attempt.read, id, attempt, end);
  if (end.result == AttemptResult::kSlowDown && pause_.expired(now_ns_)) EndWaiting();
  EndEvent();
}

void ObjectReads::Tick(std::int64_t now_ns) {
  BeginEvent(now_ns);
  while (!timers_.empty() && timers_.begin()->first <= now_ns_) {
    const ReadId id = timers_.begin()->second;
    Read& read = reads_.At(id);
    StopWaiting(id, read);
    if (read.attempt_count() == 0) {
      Wait(id, read, Queue::kRetried);
    } else {
      WaitForBytes(id, read);
    }
  }
  EndEvent();
}

std::optional<std::int64_t> ObjectReads::next_ns() const {
  std::optional<std::int64_t> next_ns;
  if (!timers_.empty()) next_ns = timers_.begin()->first;
  const bool waits =
      !order_.empty(Queue::kNew) || !order_.empty(Queue::kRetried) || !order_.empty(Queue::kLate);
  const std::int64_t resume_ns = pause_.resume_ns();
  // Once it has passed, reads that wait need an event: a place or a token.
  if (waits && resume_ns > now_ns_) next_ns = std::min(next_ns.value_or(resume_ns), resume_ns);
  return next_ns;
}

void ObjectReads::TakeActions(std::vector<ReadAction>& actions) {
  actions.clear();
  actions.swap(actions_);
}

void ObjectReads::BeginEvent(std::int64_t now_ns) {
  HEADRACE_CHECK(now_ns >= now_ns_);
  now_ns_ = now_ns;
}

void ObjectReads::EndEvent() {
  while (attempts_.size() < window_.limit() && now_ns_ >= pause_.resume_ns()) {
    if (!order_.empty(Queue::kLate) && !pause_.slow() && budget_.TakeHedge()) {
      StartAttempt(*order_.TakeLate(), /*hedge=*/true);
    } else if (const std::optional<ReadId> next = order_.TakeNext()) {
      StartAttempt(*next, /*hedge=*/false);
    } else {
      return;
    }
  }
}

void ObjectReads::StartAttempt(ReadId id, bool hedge) {
  Read& read = reads_.At(id);
  read.place.reset();
  if (hedge) Keep(id, read.only_attempt(), attempts_.At(read.only_attempt()));
  const ByteRange bytes{read.kept, read.bytes - read.kept};
  const AttemptId attempt = attempts_.Add(
      {.read = id, .bytes = bytes, .started_ns = now_ns_, .progress_ns = now_ns_, .hedge = hedge});
  (read.attempts[0] ? read.attempts[1] : read.attempts[0]) = attempt;
  actions_.push_back({.kind = Kind::kStart, .read = id, .attempt = attempt, .bytes = bytes});
  ++counts_.attempts;
  if (hedge) ++counts_.hedges;
  if (!hedge && std::exchange(read.tried, true)) ++counts_.retries;
  if (!hedge) WaitForBytes(id, read);
}

void ObjectReads::TakeBytes(Attempt& attempt, std::uint64_t received_bytes) {
  HEADRACE_CHECK(attempt.received <= received_bytes && received_bytes <= attempt.bytes.size);
  if (received_bytes == attempt.received) return;
  if (attempt.read) {
    (attempt.received == 0 ? first_byte_ : next_bytes_).Add(now_ns_ - attempt.progress_ns);
  }
  attempt.received = received_bytes;
  attempt.progress_ns = now_ns_;
}

void ObjectReads::TakeEnd(ReadId id, AttemptId attempt_id, const Attempt& attempt,
                          const AttemptEnd& end) {
  Read& read = reads_.At(id);
  (read.attempts[0] == attempt_id ? read.attempts[0] : read.attempts[1]).reset();
  StopWaiting(id, read);
  if (read.cancelled) {
    if (read.attempt_count() == 0) Finish(id, {StatusCode::kCancelled, "the read was stopped"});
    return;
  }
  if (end.result == AttemptResult::kRefused) return Finish(id, end.cause);
  if (end.result == AttemptResult::kChanged) {
    return Finish(id, FailedPrecondition("{}; index the dataset again", end.cause.message()));
  }
  if (end.result == AttemptResult::kAbsent) {
    return Finish(id, NotFound("{}; index the dataset again", end.cause.message()));
  }
  Keep(id, attempt_id, attempt);
  if (read.kept == read.bytes) {
    budget_.Success();
    if (attempt.hedge) ++counts_.hedges_won;
    return Finish(id, Status());
  }
  if (read.attempt_count() == 0) {
    TryAgain(id, read, end);
  } else {
    WaitForBytes(id, read);
  }
}

void ObjectReads::Keep(ReadId id, AttemptId attempt_id, const Attempt& attempt) {
  Read& read = reads_.At(id);
  const std::uint64_t end = attempt.bytes.offset + attempt.received;
  if (end <= read.kept) return;
  actions_.push_back({.kind = Kind::kKeep,
                      .read = id,
                      .attempt = attempt_id,
                      .bytes = {read.kept, end - read.kept},
                      .cell_offset = read.kept - attempt.bytes.offset});
  read.kept = end;
  read.slow = read.broken = 0;
}

void ObjectReads::TryAgain(ReadId id, Read& read, const AttemptEnd& end) {
  const std::string_view cause = end.cause.message();
  if (end.result == AttemptResult::kFetcherGone) {
    if (++read.fetchers_gone < options_.fetchers_max) return Wait(id, read, Queue::kRetried);
    return Finish(id,
                  Status(StatusCode::kUnavailable,
                         fmt::format("{}; it is process {} that ended during this read; check the "
                                     "memory of the machine",
                                     cause, read.fetchers_gone)));
  }
  if (end.result == AttemptResult::kSlowDown) {
    if (read.slow++ == 0) read.slow_ns = now_ns_;
    const std::int64_t slow_ns = now_ns_ - read.slow_ns;
    if (read.slow < options_.tries_max || slow_ns < options_.pause.deadline_ns) {
      return Wait(id, read, Queue::kRetried);
    }
    return Finish(id,
                  Status(StatusCode::kUnavailable,
                         fmt::format("the store asked {} times in {:.0f} s to slow down: {}; try "
                                     "again later",
                                     read.slow, Seconds(slow_ns), cause)));
  }
  if (end.received_bytes == 0 && ++read.broken >= options_.tries_max) {
    return Finish(
        id, Status(StatusCode::kUnavailable,
                   fmt::format("{}, after {} tries in a row without a byte; check the store and "
                               "the network",
                               cause, read.broken)));
  }
  if (end.result != AttemptResult::kSilent && !budget_.TakeRetry()) {
    return Finish(
        id, Status(StatusCode::kUnavailable,
                   fmt::format("{}, and no retry is left: all reads of the store share {}, and "
                               "ten that succeed give one more; check the store and the network",
                               cause, options_.budget.tokens_max)));
  }
  if (read.broken <= 1) return Wait(id, read, Queue::kRetried);
  WaitUntil(
      id, read,
      now_ns_ + JitterNs(options_.broken_first_ns, options_.broken_max_ns, read.broken - 1, prng_));
}

void ObjectReads::Finish(ReadId id, Status status) {
  StopWaiting(id, reads_.At(id));
  const Read read = reads_.Remove(id);
  for (const std::optional<AttemptId>& other : read.attempts) {
    if (!other) continue;
    attempts_.At(*other).read.reset();
    actions_.push_back({.kind = Kind::kCancel, .attempt = *other});
  }
  actions_.push_back({.kind = Kind::kDone, .read = id, .status = std::move(status)});
}

void ObjectReads::EndWaiting() {
  const Status error(
      StatusCode::kUnavailable,
      fmt::format(
          "the store asked to slow down, and answered no request for {:.0f} s: {}; try again later",
          Seconds(options_.pause.deadline_ns), slow_cause_));
  while (const std::optional<ReadId> id = order_.TakeNext()) {
    reads_.At(*id).place.reset();
    Finish(*id, error);
  }
}

void ObjectReads::Wait(ReadId id, Read& read, Queue queue) { read.place = order_.Push(queue, id); }

void ObjectReads::WaitUntil(ReadId id, Read& read, std::int64_t time_ns) {
  read.timer_ns = time_ns;
  timers_.emplace(time_ns, id);
}

void ObjectReads::WaitForBytes(ReadId id, Read& read) {
  const Attempt& attempt = attempts_.At(read.only_attempt());
  if (attempt.received == attempt.bytes.size) return;
  const HedgeDelay& delay = attempt.received == 0 ? first_byte_ : next_bytes_;
  const std::int64_t late_ns = attempt.progress_ns + delay.delay_ns();
  if (late_ns > now_ns_) {
    WaitUntil(id, read, late_ns);
  } else {
    Wait(id, read, Queue::kLate);
  }
}

void ObjectReads::StopWaiting(ReadId id, Read& read) {
  if (read.place) order_.Remove(*read.place, id);
  if (read.timer_ns) timers_.erase({*read.timer_ns, id});
  read.place.reset();
  read.timer_ns.reset();
}

}  // namespace headrace
