#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/ids.h"
#include "headrace/members.h"

namespace headrace {

// The nodes of a job, as one of them knows them.
struct PeerGroup {
  NodeNumber node = 0;                     // this one
  std::vector<std::string> addresses;      // of all nodes, by number: "host:port"
  std::string token;                       // a secret of the job
  std::int64_t answer_ns = 5'000'000'000;  // a sample that takes longer comes from storage
  // How long to wait before a second node is asked for a sample: far longer than an answer takes.
  std::int64_t hedge_ns = 1'000'000'000;
  std::int64_t begin_ns = 600'000'000'000;  // how long to wait for nodes that begin a run
  // Limit of the bytes of samples a second that the node receives from all others together, and of
  // those that it sends; 0: no limit.
  std::uint64_t rate_bytes_per_s = 0;
};
HEADRACE_MEMBERS(PeerGroup, node, addresses, token, answer_ns, hedge_ns, begin_ns, rate_bytes_per_s)

}  // namespace headrace
