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
  // A second node that has the sample is asked after so long: far longer than an answer takes.
  std::int64_t hedge_ns = 1'000'000'000;
  std::int64_t begin_ns = 600'000'000'000;  // how long to wait for nodes that begin a run
  // Bytes of samples that the node takes from all others together, and as many that it gives; 0: no
  // limit.
  std::uint64_t rate_bytes_per_s = 0;
};
HEADRACE_MEMBERS(PeerGroup, node, addresses, token, answer_ns, hedge_ns, begin_ns, rate_bytes_per_s)

}  // namespace headrace
