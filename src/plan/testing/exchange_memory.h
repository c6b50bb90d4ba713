#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/testing/stream_ledger.h"

namespace headrace {

// Nodes of limited memory that work through their steps together: each takes memory for its reads
// and parcels in the order of their numbers. A sample of a parcel leaves its home when it is there
// and the other node has memory for the parcel. Finds nodes that wait for each other in a circle.
//
// Call Run() inside ASSERT_NO_FATAL_FAILURE.
class ExchangeMemory {
 public:
  // `limits`: of each node, in units. `blocks` must outlive it.
  ExchangeMemory(const BlockMap& blocks, const std::vector<std::uint64_t>& limits)
      : blocks_(blocks), nodes_(limits.size()) {
    for (std::size_t node = 0; node < limits.size(); ++node) nodes_[node].limit = limits[node];
  }

  // The next step of each node.
  void Run(const std::vector<Step>& steps) {
    for (std::uint32_t node = 0; node < steps.size(); ++node) Add(steps[node], nodes_[node]);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t node = 0; node < steps.size(); ++node) {
        moved = TakeReads(node, steps[node].reads) || moved;
        moved = Deliver(nodes_[node]) || moved;
        moved = Send(node, steps[node].parcels) || moved;
      }
    }
    for (std::uint32_t node = 0; node < steps.size(); ++node) {
      const Node& of = nodes_[node];
      ASSERT_EQ(of.reads_taken, steps[node].reads.size()) << "node " << node << " waits for memory";
      ASSERT_TRUE(of.wanted.empty())
          << "node " << node << " waits for sample " << of.wanted.begin()->second;
      ASSERT_EQ(of.to_send, 0U) << "node " << node << " has not sent all";
    }
  }

 private:
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // read, sample
  struct Node {
    std::uint64_t limit = 0;
    std::uint64_t units = 0;
    std::size_t reads_taken = 0;  // of the step
    std::size_t to_send = 0;      // samples of the step
    std::set<Key> here;
    std::set<Key> wanted;  // by deliveries and releases of the step
  };

  static void Add(const Step& step, Node& of) {
    of.reads_taken = 0;
    for (const Delivery& each : step.deliveries) {
      if (each.block_read != kNoBlockRead) of.wanted.emplace(each.block_read, Raw(each.sample));
    }
    for (const Release& each : step.releases) of.wanted.emplace(each.block_read, Raw(each.sample));
    for (const Parcel& parcel : step.parcels) of.to_send += parcel.samples.size();
  }

  bool TakeReads(std::uint32_t node, const std::vector<BlockRead>& reads) {
    Node& of = nodes_[node];
    const std::size_t before = of.reads_taken;
    for (; of.reads_taken < reads.size(); ++of.reads_taken) {
      const BlockRead& read = reads[of.reads_taken];
      const std::vector<std::uint64_t> kept = StreamLedger::Kept(read);
      std::uint64_t units = 0;
      for (const std::uint64_t sample : kept) units += Units(sample);
      if (of.units + units > of.limit) break;
      of.units += units;
      if (read.home != kNoNode) {
        expected_[{read.home, node, read.parcel}] = read.number;
        continue;
      }
      for (const std::uint64_t sample : kept) of.here.emplace(read.number, sample);
    }
    return of.reads_taken != before;
  }

  bool Deliver(Node& of) {
    bool moved = false;
    for (auto it = of.wanted.begin(); it != of.wanted.end();) {
      const bool is_here = of.here.erase(*it) != 0;
      if (is_here) of.units -= Units(it->second);
      moved = moved || is_here;
      it = is_here ? of.wanted.erase(it) : std::next(it);
    }
    return moved;
  }

  bool Send(std::uint32_t node, const std::vector<Parcel>& parcels) {
    Node& of = nodes_[node];
    bool moved = false;
    for (const Parcel& parcel : parcels) {
      const auto expected = expected_.find({node, parcel.node, parcel.number});
      if (expected == expected_.end()) continue;
      for (const Release& each : parcel.samples) {
        if (of.here.erase({each.block_read, Raw(each.sample)}) == 0) continue;
        of.units -= Units(Raw(each.sample));
        --of.to_send;
        nodes_[parcel.node].here.emplace(expected->second, Raw(each.sample));
        moved = true;
      }
    }
    return moved;
  }

  [[nodiscard]] std::uint64_t Units(std::uint64_t sample) const {
    std::uint32_t units = 0;
    blocks_.Charges(SampleId{sample}, {&units, 1});
    return units;
  }

  const BlockMap& blocks_;
  std::vector<Node> nodes_;
  // The reads that expect parcels: by home, other node, number.
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>, std::uint64_t> expected_;
};

}  // namespace headrace
