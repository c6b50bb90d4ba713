#pragma once

// store/objects/ decides who is asked for which bytes of object stores (s3, gs, az, https), and
// when: retries, resumed bodies, hedges, how many requests are in flight. Pure: no socket, thread,
// clock or random source of its own, so its tests run in virtual time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/objects/hedge_delay.h"
#include "store/objects/id_table.h"
#include "store/objects/read_events.h"
#include "store/objects/read_order.h"
#include "store/objects/read_window.h"
#include "store/objects/retry_budget.h"
#include "store/objects/store_pause.h"

namespace headrace {

struct ObjectReadsOptions {
  ReadWindow::Options window;
  RetryBudget::Options budget;
  StorePause::Options pause;
  HedgeDelay::Options first_byte;
  // Of a body. At least TCP's shortest time until it sends a lost packet again, of 200 ms on Linux:
  // a shorter silence is usual.
  HedgeDelay::Options next_bytes{.min_ns = 200'000'000};

  std::uint32_t tries_max = 10;    // in a row, of a read, that give no byte
  std::uint32_t fetchers_max = 3;  // processes that end during a read, before it fails
  // Upper ends of the waits after a second broken try in a row, and after many. The first try after
  // a broken one does not wait.
  std::int64_t broken_first_ns = 50'000'000;
  std::int64_t broken_max_ns = 5'000'000'000;
};

// Counted since the start.
struct ObjectReadsCounts {
  std::uint64_t attempts = 0;
  std::uint64_t retries = 0;     // attempts of reads that had one before, without hedges
  std::uint64_t hedges = 0;      // second attempts beside one that is late
  std::uint64_t hedges_won = 0;  // gave the last byte of the read
  std::uint64_t slow_downs = 0;  // answers
};

// The reads of one store and their attempts. The driver reports events, each with its time, which
// never goes back, and does what TakeActions() returns after each.
//
// A read has one attempt at a time, or two: the second is a *hedge*, sent if the first has no byte,
// or no further one, for longer than usual. The first to have the last byte wins; the other is
// cancelled. How long is usual is learned from waits for the first byte, and from those between
// reports of a body, not from the time of whole reads: these two depend on the store and hardly on
// the size of a read, so that one number each serves all sizes. A broken attempt is continued
// behind its last byte. The driver asks for the object's version (If-Match), so that all bytes are
// of one version.
//
// A read ends with OK, with the error of an attempt (kRefused, kChanged, kAbsent), or with
//   Unavailable  broken, and no token is left; or the last `tries_max` tries gave no byte;
//                `fetchers_max` processes ended during it; or the store asked to slow down, for
//                longer than StorePause::Options::deadline_ns without a success: its next such
//                answer ends all reads that wait; or it asked this read for as long, `tries_max`
//                times in a row
//   Cancelled    Cancel() was called before its end
// Messages are causes; the driver adds "reading NAME bytes [8, 12)".
//
// An attempt exists from kStart until Ended(); its cell is free once the actions that follow are
// done. There are at most as many as the window's maximum. The driver, not this class, limits the
// time of an attempt: it ends one that gets no byte for long (kSilent).
//
// Thread safety: none; one thread drives.
// Cost: O(log n) a call for n reads, below 1 us. Memory: the reads that have not ended; the driver
// bounds these.
// Shutdown: cancel all reads and wait for the ends of all attempts, or drop it with the driver.
class ObjectReads {
 public:
  // `prng` draws waits, and outlives this.
  ObjectReads(const ObjectReadsOptions& options, Prng& prng);

  // A read of `bytes`, not 0. It begins after those that were added before.
  ReadId Add(std::uint64_t bytes, std::int64_t now_ns);

  // Ends the read: now, or once its attempts have ended. Does nothing if it has ended.
  void Cancel(ReadId read, std::int64_t now_ns);

  // The attempt has `received_bytes` in its cell, from the start.
  void Received(AttemptId attempt, std::uint64_t received_bytes, std::int64_t now_ns);

  // Exactly once an attempt.
  void Ended(AttemptId attempt, AttemptEnd end, std::int64_t now_ns);

  // Does what is due. To be called at next_ns(), if there is one; earlier does no harm.
  void Tick(std::int64_t now_ns);
  [[nodiscard]] std::optional<std::int64_t> next_ns() const;

  // Replaces the contents of `actions` by what to do since the last call.
  void TakeActions(std::vector<ReadAction>& actions);

  [[nodiscard]] std::size_t reads() const { return reads_.size(); }
  [[nodiscard]] std::size_t attempts() const { return attempts_.size(); }
  [[nodiscard]] std::uint32_t window() const { return window_.limit(); }
  [[nodiscard]] const ObjectReadsCounts& counts() const { return counts_; }

 private:
  struct Attempt {
    std::optional<ReadId> read;  // none: the read has ended
    ByteRange bytes;             // of the read
    std::uint64_t received = 0;
    std::int64_t started_ns = 0;
    std::int64_t progress_ns = 0;  // of the last byte; before the first: the start
    bool hedge = false;
  };
  // Without an attempt it waits: in `place`, or until `timer_ns` and then in one. With one attempt
  // that gives bytes in time, `timer_ns` is when it will be late; with one that is late, `place` is
  // where the read waits for a second one. With two it has neither.
  struct Read {
    std::uint64_t bytes = 0;
    std::uint64_t kept = 0;  // bytes in the read's buffer, from the start
    std::array<std::optional<AttemptId>, 2> attempts;
    std::optional<ReadOrder::Place> place;
    std::optional<std::int64_t> timer_ns;
    std::int64_t slow_ns = 0;  // when the first of `slow` ended
    std::uint32_t slow = 0;    // kSlowDown since the last byte
    std::uint32_t broken = 0;  // kBroken and kSilent since the last byte
    std::uint32_t fetchers_gone = 0;
    bool tried = false;
    bool cancelled = false;

    [[nodiscard]] int attempt_count() const {
      return static_cast<int>(attempts[0].has_value()) + static_cast<int>(attempts[1].has_value());
    }
    [[nodiscard]] AttemptId only_attempt() const {
      return attempts[0] ? *attempts[0] : *attempts[1];
    }
  };

  // First and last at each event: sets the time; starts attempts while there are places for them.
  void BeginEvent(std::int64_t now_ns);
  void EndEvent();

  void StartAttempt(ReadId id, bool hedge);
  void TakeBytes(Attempt& attempt, std::uint64_t received_bytes);
  void TakeEnd(ReadId id, AttemptId attempt_id, const Attempt& attempt, const AttemptEnd& end);
  void Keep(ReadId id, AttemptId attempt_id, const Attempt& attempt);
  // `end` is that of the read's last attempt.
  void TryAgain(ReadId id, Read& read, const AttemptEnd& end);
  void Finish(ReadId id, Status status);
  // Ends all reads that wait for a store that is slow.
  void EndWaiting();

  void Wait(ReadId id, Read& read, ReadOrder::Queue queue);
  void WaitUntil(ReadId id, Read& read, std::int64_t time_ns);
  // For the next bytes of the only attempt.
  void WaitForBytes(ReadId id, Read& read);
  void StopWaiting(ReadId id, Read& read);

  const ObjectReadsOptions options_;
  Prng& prng_;
  std::int64_t now_ns_ = 0;  // of the last event
  ReadWindow window_;
  RetryBudget budget_;
  StorePause pause_;
  HedgeDelay first_byte_;
  HedgeDelay next_bytes_;
  IdTable<ReadId, Read> reads_;
  IdTable<AttemptId, Attempt> attempts_;
  ReadOrder order_;
  std::set<std::pair<std::int64_t, ReadId>> timers_;
  std::string slow_cause_;  // of the last kSlowDown
  std::vector<ReadAction> actions_;
  ObjectReadsCounts counts_;
};

}  // namespace headrace
