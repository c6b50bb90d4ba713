#pragma once

// What passes between ObjectReads and its driver.

#include <cstdint>
#include <optional>

#include "headrace/ids.h"
#include "headrace/status.h"

namespace headrace {

// A read of one range of an object, and one request for bytes of it. Numbers are not used again.
enum class ReadId : std::uint64_t {};
enum class AttemptId : std::uint64_t {};

// How an attempt ended, by what to do next.
enum class AttemptResult : std::uint8_t {
  kOk,        // all bytes are in its cell
  kSlowDown,  // the store asks for fewer requests (503, 429): wait, then try again
  kBroken,    // connection refused or ended, body short: try again, for a token
  kRefused,   // final: no permission, a wrong answer
  kChanged,   // final: the object is not the version that was indexed (412)
  kAbsent,    // final: no such object
  // Of these the driver knows, not a fetcher.
  kFetcherGone,  // the process that made the attempt ended: try again, without a token
  kSilent,       // no byte for long: try again, with fewer in flight, without a token
};

// The end of an attempt: nothing writes to its cell from now on. Of a cancelled one, too.
struct AttemptEnd {
  AttemptResult result = AttemptResult::kOk;
  std::uint64_t received_bytes = 0;  // in its cell, from the start; correct, whatever the result
  Status cause;  // not OK, unless the result is kOk; "CAUSE", without the object and the range
  std::optional<std::int64_t> retry_after_ns;  // of kSlowDown: what the store asks for
};

// What the driver has to do, in the order given.
struct ReadAction {
  enum class Kind : std::uint8_t {
    kStart,   // send a request for `bytes` of the read, into a cell of the attempt's own
    kCancel,  // end the attempt and report its end
    kKeep,    // copy `bytes` of the read to its buffer; in the attempt's cell they begin at
              // `cell_offset`. (If they are the whole read, the cell may serve as its buffer.)
    kDone,    // the read ended with `status`; if OK, its buffer has all bytes
  };
  Kind kind = Kind::kStart;
  ReadId read{};        // not of kCancel
  AttemptId attempt{};  // not of kDone
  ByteRange bytes;      // from the start of the read
  std::uint64_t cell_offset = 0;
  Status status;
};

}  // namespace headrace
