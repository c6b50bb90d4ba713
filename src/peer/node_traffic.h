#pragma once

#include <cstdint>
#include <vector>

#include "base/members.h"

namespace headrace {

// What this node and the other nodes of the job gave each other. Monotonic, but for `down`.
struct NodeTraffic {
  std::uint32_t node = 0;   // number of this node
  std::uint32_t nodes = 1;  // of the job; 1: there is no other, or it is not asked
  std::uint64_t received_samples = 0;
  std::uint64_t received_bytes = 0;  // of these
  std::uint64_t asked_samples = 0;   // of other nodes
  std::uint64_t requests = 0;        // messages that asked for these, one or several
  std::uint64_t answers = 0;         // messages that came in answer
  std::uint64_t not_held = 0;        // asked for, and the other node did not have it
  std::uint64_t failed = 0;          // asked for, and not answered in time, or wrongly
  std::uint64_t asked_second = 0;  // that a second node was asked for, as the first did not answer
  std::uint64_t second_gave = 0;   // of these, those that the second gave
  std::uint64_t given_samples = 0;
  std::uint64_t given_bytes = 0;     // of these
  std::uint64_t not_given = 0;       // that others asked for, and this node did not have
  std::uint64_t bad_messages = 0;    // of others: refused, for they contradict what was asked
  std::uint64_t compared_steps = 0;  // of other nodes' plans, with this node's
  std::vector<std::uint32_t> down;   // nodes that are not asked now, as they did not answer
};
HEADRACE_MEMBERS(NodeTraffic, node, nodes, received_samples, received_bytes, asked_samples,
                 requests, answers, not_held, failed, asked_second, second_gave, given_samples,
                 given_bytes, not_given, bad_messages, compared_steps, down)

}  // namespace headrace
