#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/hash.h"

namespace headrace {

// What a node received from other nodes and gave them. Monotonic.
//
// Thread safety: every member may be used from any thread.
struct PeerCounters {
  std::atomic<std::uint64_t> received_samples = 0;
  std::atomic<std::uint64_t> received_bytes = 0;
  std::atomic<std::uint64_t> asked_samples = 0;
  std::atomic<std::uint64_t> requests = 0;
  std::atomic<std::uint64_t> answers = 0;
  std::atomic<std::uint64_t> not_held = 0;
  std::atomic<std::uint64_t> failed = 0;
  std::atomic<std::uint64_t> asked_second = 0;
  std::atomic<std::uint64_t> second_gave = 0;
  std::atomic<std::uint64_t> given_samples = 0;
  std::atomic<std::uint64_t> given_bytes = 0;
  std::atomic<std::uint64_t> not_given = 0;
  std::atomic<std::uint64_t> bad_messages = 0;
  std::atomic<std::uint64_t> wrong_tokens = 0;  // of them: calls with another token, or none
};

// The most bytes of open requests of one node at another, besides one larger sample.
inline constexpr std::uint64_t kPeerWindowBytes = std::uint64_t{32} << 20;
// The most samples in these requests. A node that requests twice as many, or twice the bytes, is
// refused.
inline constexpr std::size_t kPeerOpenMax = 16'384;
// The bytes of a part of a large sample; the size from which a message takes no more answers.
inline constexpr std::uint64_t kPeerPartBytes = std::uint64_t{512} << 10;
inline constexpr std::uint64_t kPeerMessageBytes = std::uint64_t{512} << 10;
// The largest gRPC message that is accepted: larger than any that is sent.
inline constexpr int kPeerMessageBytesMax = 4 << 20;
inline constexpr int kPeerRequestsMax = 4096;  // in one message
inline constexpr char kPeerTokenKey[] = "headrace-token";
inline constexpr char kPeerNodeKey[] = "headrace-node";  // of Samples(): the node that asks

// The checksum of a sample's parts so far, `before`, and of one more.
inline std::uint64_t NextPeerChecksum(std::uint64_t before, std::span<const std::byte> part) {
  return before * 31 + Hash64(part);
}

}  // namespace headrace
