#pragma once

// What a store and its fetchers send each other: docs/design/objects.md, "The fetcher's messages".

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "ipc/wire.h"
#include "store/objects/read_events.h"

namespace headrace {

// Of one packet: it then travels in the socket.
inline constexpr std::size_t kFetcherPacketBytesMax = 32 * kKiB;
inline constexpr std::size_t kFetcherUrlBytesMax = 16 * kKiB;

// The first value of a record.
enum class FetcherRecord : std::uint8_t { kMemory = 0, kStart = 1, kCancel = 2 };
enum class ReportRecord : std::uint8_t { kReceived = 1, kEnded = 2 };

struct FetchStart {
  AttemptId attempt{};
  ByteRange bytes;  // of the object
  std::uint64_t cell_offset = 0;
  std::uint64_t object_bytes = 0;
  std::int64_t version = 0;  // 0: not known
  std::string_view url;      // at most kFetcherUrlBytesMax
};

// What a fetcher says of an attempt. `received_bytes` is not compared with anything.
struct FetcherReport {
  AttemptId attempt{};
  std::uint64_t received_bytes = 0;  // in its cell, from the start
  std::optional<AttemptResult> end;
  std::optional<std::int64_t> retry_after_ns;  // of an end
  std::string cause;                           // of an end
};

// The first packet, which has the memory's descriptor.
WireWriter FetcherMemoryPacket(std::uint64_t bytes);

// The other packets for one fetcher, with as many records as fit.
//
// Thread safety: none.
class FetcherPackets {
 public:
  void AddStart(const FetchStart& start);
  void AddCancel(AttemptId attempt);

  [[nodiscard]] bool empty() const { return packets_.empty(); }
  // Until Pop() or the next record.
  [[nodiscard]] std::span<const std::byte> front() const { return packets_.front().bytes(); }
  void Pop() { packets_.pop_front(); }

 private:
  WireWriter& RoomFor(std::size_t record_bytes);

  std::deque<WireWriter> packets_;
};

// The records of a fetcher's packet.
//
// Errors: DataLoss  not such a packet
Result<std::vector<FetcherReport>> ReadFetcherReports(std::span<const std::byte> packet);

}  // namespace headrace
