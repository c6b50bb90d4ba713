#include "peer/grpc/asked_samples.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "base/clock.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "fetch/held_samples.h"

namespace headrace {
namespace {

Status OtherWasFaster() { return Status(StatusCode::kCancelled, "the other node was faster"); }

// A part of a parcel that was asked for ahead is not late before a step waits for it: until then it
// may be the other node's ranks that pause. False: no step does.
bool MoveDeadline(AskedSamples::Asked& asked) {
  if (!asked.parcel.has_value()) return true;
  const StepWait* const wait = asked.fetch->Reads<PartAtNode>().wait;
  if (wait == nullptr) return true;
  const std::optional<std::int64_t> since_ns = wait->SinceNs(asked.deadline);
  if (!since_ns.has_value() || *since_ns <= asked.asked_ns) return since_ns.has_value();
  asked.due_ns += *since_ns - asked.asked_ns;
  asked.asked_ns = *since_ns;
  return true;
}

// The second node is to be asked, too.
void HandOver(AskedSamples::Asked& asked, AskedSamples::Todo& todo) {
  todo.handed.push_back({.node = std::exchange(asked.second, std::nullopt).value(),
                         .fetch = asked.fetch,
                         .sample = asked.sample,
                         .bytes = asked.bytes,
                         .deadline = asked.deadline,
                         .done = asked.done,
                         .stop = asked.stop,
                         .asked_ns = asked.asked_ns,
                         .due_ns = asked.due_ns,
                         .hedged = asked.hedged});
}

}  // namespace

void AskedSamples::Begin() {
  HEADRACE_CHECK(asked_.empty());
  last_number_ = 0;
  open_bytes_ = 0;
  sent_ = 0;
  parts_ = 0;
  late_.clear();
}

void AskedSamples::Add(Asked asked) {
  const std::uint64_t number = ++last_number_;
  if (asked.is_again) {
    to_send_.push_front(number);
  } else {
    to_send_.push_back(number);
  }
  asked_.emplace(number, std::move(asked));
}

void AskedSamples::Refuse(Asked asked, Status why, Todo& todo) {
  End(asked_.emplace(++last_number_, std::move(asked)).first, std::move(why), todo);
}

std::optional<std::pair<std::uint64_t, const AskedSamples::Asked*>> AskedSamples::Next(Todo& todo) {
  while (!to_send_.empty()) {
    const std::uint64_t number = to_send_.front();
    const auto here = asked_.find(number);
    if (here == asked_.end()) {  // Given up.
      to_send_.pop_front();
      continue;
    }
    Asked& asked = here->second;
    if (asked.hedged != nullptr && asked.hedged->IsLost(this)) {
      to_send_.pop_front();
      End(here, OtherWasFaster(), todo);
      continue;
    }
    if (!HasRoom(asked)) break;
    to_send_.pop_front();
    open_bytes_ += asked.bytes;
    ++sent_;
    if (asked.parcel.has_value()) ++parts_;
    asked.sent = true;
    return std::pair(number, &asked);
  }
  return std::nullopt;
}

// The other node suffers twice as much.
bool AskedSamples::HasRoom(const Asked& asked) const {
  const std::uint64_t times = asked.is_again ? 2 : 1;
  if (open_bytes_ > 0 && open_bytes_ + asked.bytes > times * kPeerWindowBytes) return false;
  if (asked.parcel.has_value() && parts_ >= times * kPartsOpenMax) return false;
  return sent_ + late_.size() < times * kPeerOpenMax;
}

Status AskedSamples::Take(ReceivedAnswer& answer, std::vector<Arrived>& arrived, Todo& todo) {
  const auto here = asked_.find(answer.number);
  if (here == asked_.end()) return TakeLate(answer);
  Asked& asked = here->second;
  const std::uint64_t bytes = answer.part.left();
  if (!asked.sent || asked.whole ||
      (answer.code == 0 &&
       (answer.offset != asked.received || bytes == 0 || bytes > asked.bytes - asked.received))) {
    return DataLoss("{}: got {} bytes at {}, expected up to {} at {}", NameOf(asked), bytes,
                    answer.offset, asked.bytes - asked.received, asked.received);
  }
  if (answer.code == 0 && asked.hedged != nullptr && !asked.hedged->Claim(this)) {
    GiveUp(here, OtherWasFaster(), todo);
    return TakeLate(answer);
  }
  asked.busy = true;
  asked.whole = answer.code != 0 || asked.received + bytes == asked.bytes;
  const std::uint64_t at = asked.received;
  if (answer.code == 0) asked.received += bytes;
  arrived.push_back({.answer = std::move(answer), .at = at, .bytes = bytes, .asked = &asked});
  return Status();
}

std::string AskedSamples::NameOf(const Asked& asked) const {
  if (!asked.parcel.has_value()) return fmt::format("sample {} of {}", Raw(asked.sample), name_);
  return fmt::format("parcel {} of {}, {} from {} on", asked.parcel->parcel, name_,
                     Counted(asked.parcel->count, "sample"), asked.parcel->first);
}

// The node does not give it, and says why. Of a parcel nobody else has the samples: whoever asks
// has to know whether one of them is damaged, or the node has failed.
Status AskedSamples::Refused(const Asked& asked, const ReceivedAnswer& answer) {
  if (!asked.parcel.has_value()) {
    ++counters_.not_held;
    return NotFound("{}: {}", NameOf(asked), answer.reason);
  }
  const bool damaged = answer.code == static_cast<std::uint32_t>(StatusCode::kDataLoss);
  return {damaged ? StatusCode::kDataLoss : StatusCode::kUnavailable,
          fmt::format("{}: {}", NameOf(asked), answer.reason)};
}

// An answer about a sample that was given up: it only makes room.
Status AskedSamples::TakeLate(const ReceivedAnswer& answer) {
  const auto late = late_.find(answer.number);
  if (late == late_.end()) {
    return DataLoss("{} answers request {}, which it was not sent", name_, answer.number);
  }
  std::uint64_t& bytes = late->second.bytes;
  const std::uint64_t came = answer.code != 0 ? bytes : std::min(bytes, answer.part.left());
  bytes -= came;
  open_bytes_ -= std::min(open_bytes_, came);
  if (bytes > 0) return Status();
  if (late->second.is_part) --parts_;
  late_.erase(late);
  return Status();
}

void AskedSamples::Copy(Arrived& arrived) {
  if (arrived.answer.code != 0) return;
  const std::span<std::byte> to =
      arrived.asked->fetch->memory().subspan(arrived.at, arrived.answer.part.left());
  arrived.answer.part.CopyTo(to);
  arrived.asked->checksum = NextPeerChecksum(arrived.asked->checksum, to);
}

void AskedSamples::Finish(const Arrived& arrived, Todo& todo) {
  Asked& asked = *arrived.asked;
  const ReceivedAnswer& answer = arrived.answer;
  asked.busy = false;
  if (!asked.whole || (answer.code == 0 && arrived.at + arrived.bytes < asked.bytes)) return;
  todo.answered = true;
  const auto here = asked_.find(answer.number);
  if (answer.code != 0) {
    return End(here, Refused(asked, answer), todo);
  }
  if (asked.checksum != answer.checksum) {
    ++counters_.bad_messages;
    // Of a parcel the node has given them away: to ask for each alone would be in vain.
    const StatusCode code =
        !asked.parcel.has_value() ? StatusCode::kDataLoss : StatusCode::kUnavailable;
    return End(
        here,
        {code, fmt::format("{}: the bytes that came do not have its checksum", NameOf(asked))},
        todo);
  }
  counters_.received_samples += asked.parcel.has_value() ? asked.parcel->count : 1;
  counters_.received_bytes += asked.bytes;
  if (asked.is_second) ++counters_.second_gave;
  End(here, Status(), todo);
}

bool AskedSamples::Sweep(std::int64_t now_ns, Todo& todo) {
  bool late = false;
  const bool is_slow = IsSlow(now_ns);
  for (auto each = asked_.begin(); each != asked_.end();) {
    const auto here = each++;
    Asked& asked = here->second;
    if (asked.busy) continue;
    if (asked.stop.stop_requested()) {
      GiveUp(here, Status(StatusCode::kCancelled, "the run has ended"), todo);
    } else if (!MoveDeadline(asked)) {
      continue;  // Nobody waits for it.
    } else if (now_ns >= asked.due_ns) {
      // Not what waited for the rate budget, nor what the first node left little time for.
      late = late || (!asked.is_second && (asked.sent || !late_.empty()));
      GiveUp(here,
             Status(StatusCode::kDeadlineExceeded,
                    fmt::format("{}: {} of {} bytes came in {} s", NameOf(asked), asked.received,
                                asked.bytes,
                                static_cast<double>(asked.due_ns - asked.asked_ns) / kNsPerSecond)),
             todo);
    } else if (asked.second.has_value() && asked.received == 0 && now_ns >= asked.hedge_ns &&
               hands_over_ && (asked.sent || is_slow)) {
      asked.hedged = std::make_shared<HedgedRead>();
      HandOver(asked, todo);
    }
  }
  return late;
}

// Whether the node owes answers: what waits behind them waits for it, not for the rate budget.
bool AskedSamples::IsSlow(std::int64_t now_ns) const {
  return !late_.empty() || std::ranges::any_of(asked_, [&](const auto& each) {
    const Asked& asked = each.second;
    return asked.sent && asked.received == 0 && !asked.is_second && now_ns >= asked.hedge_ns;
  });
}

void AskedSamples::EndAll(const Status& why, Todo& todo) {
  while (!asked_.empty()) End(asked_.begin(), why, todo);
  to_send_.clear();
}

// Ends a sample that the node may still send: it counts as open until its bytes have come.
void AskedSamples::GiveUp(AllAsked::iterator here, Status status, Todo& todo) {
  const Asked& asked = here->second;
  if (asked.sent && asked.received < asked.bytes) {
    const bool is_part = asked.parcel.has_value();
    late_.emplace(here->first, Late{.bytes = asked.bytes - asked.received, .is_part = is_part});
    open_bytes_ += asked.bytes - asked.received;
    if (is_part) ++parts_;
  }
  End(here, std::move(status), todo);
}

void AskedSamples::End(AllAsked::iterator here, Status status, Todo& todo) {
  Asked& asked = here->second;
  // What came stays counted by open_bytes_ until the sample ends, here.
  if (asked.sent) {
    open_bytes_ -= std::min(open_bytes_, asked.bytes);
    --sent_;
    if (asked.parcel.has_value()) --parts_;
  }
  const bool cancelled = status.code() == StatusCode::kCancelled;
  if (!status.ok() && status.code() != StatusCode::kNotFound && !cancelled) ++counters_.failed;
  if (asked.hedged != nullptr) {
    if (asked.hedged->End(this))
      todo.ended.push_back({asked.fetch, asked.bytes, asked.done, status});
  } else if (!status.ok() && !cancelled && asked.second.has_value() && hands_over_ &&
             MonotonicClock().NowNanos() < asked.due_ns) {
    HandOver(asked, todo);
  } else {
    todo.ended.push_back({asked.fetch, asked.bytes, asked.done, std::move(status)});
  }
  asked_.erase(here);
}

}  // namespace headrace
