#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "headrace/order_options.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/testing/exchange_memory.h"
#include "plan/testing/stream_ledger.h"

namespace headrace {

// Runs the streams of all nodes of a job that exchanges samples side by side, and checks that they
// fit each other: what a node sends is what the other one expects, in the same step; a node reads
// only what lies on its own disks; an epoch delivers every sample once, less the drop set or plus
// the pad set; no stream needs more memory than it promises, and nodes with that memory never wait
// for each other in a circle.
//
// Call Run() and Finish() inside ASSERT_NO_FATAL_FAILURE.
class ExchangeLedger {
 public:
  using HomeOf = std::function<std::uint32_t(std::uint64_t sample)>;

  // `job`: of any of the streams; `limits`: units that each node's stream may have resident;
  // `start`: the position that the streams begin at. `blocks` must outlive the ledger.
  ExchangeLedger(const BlockMap& blocks, const OrderOptions& job,
                 const std::vector<std::uint64_t>& limits, HomeOf home_of, Position start = {})
      : job_(job), home_of_(std::move(home_of)), start_(start), memory_(blocks, limits) {
    for (const std::uint64_t limit : limits) streams_.emplace_back(blocks, limit);
    from_parcels_.resize(limits.size());
  }

  // The next step of each node's stream, by node.
  void Run(const std::vector<Step>& steps) {
    ASSERT_EQ(steps.size(), job_.nodes());
    ASSERT_EQ(steps.size(), streams_.size());
    for (std::uint32_t node = 0; node < steps.size(); ++node) {
      SCOPED_TRACE("node " + std::to_string(node) + ", " +
                   StepText({steps[node].epoch, steps[node].step}));
      ASSERT_EQ(steps[node].epoch, steps[0].epoch);
      ASSERT_EQ(steps[node].step, steps[0].step);
      ASSERT_EQ(steps[node].ends_epoch, steps[0].ends_epoch);
      ASSERT_NO_FATAL_FAILURE(Send(node, steps[node]));
    }
    for (std::uint32_t node = 0; node < steps.size(); ++node) {
      SCOPED_TRACE("node " + std::to_string(node) + ", " +
                   StepText({steps[node].epoch, steps[node].step}));
      ASSERT_NO_FATAL_FAILURE(Receive(node, steps[node]));
      ASSERT_NO_FATAL_FAILURE(CheckDeliveries(node, steps[node]));
      ASSERT_NO_FATAL_FAILURE(streams_[node].Run(steps[node]));
    }
    for (const auto& [sent, samples] : under_way_) {
      FAIL() << "parcel " << std::get<2>(sent) << " from node " << std::get<0>(sent) << " to node "
             << std::get<1>(sent) << " is expected by no read";
    }
    ASSERT_NO_FATAL_FAILURE(memory_.Run(steps));
    ASSERT_NO_FATAL_FAILURE(CheckEpoch(steps));
    first_ = false;
  }

  // After the last step.
  void Finish() const {
    for (const StreamLedger& stream : streams_) ASSERT_EQ(stream.resident_units(), 0U);
  }

  // Samples that were sent in parcels so far, from each node to each.
  [[nodiscard]] std::uint64_t sent(std::uint32_t from, std::uint32_t to) const {
    const auto found = sent_samples_.find({from, to});
    return found == sent_samples_.end() ? 0 : found->second;
  }

 private:
  using Link = std::pair<std::uint32_t, std::uint32_t>;                  // from, to
  using Sent = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;  // from, to, number
  using Samples = std::vector<std::uint64_t>;

  void Send(std::uint32_t node, const Step& step) {
    ASSERT_TRUE(std::ranges::is_sorted(
        step.parcels, {}, [](const Parcel& each) { return std::pair(each.node, each.number); }));
    for (const Parcel& parcel : step.parcels) {
      SCOPED_TRACE("parcel " + std::to_string(parcel.number) + " to node " +
                   std::to_string(parcel.node));
      ASSERT_LT(parcel.node, job_.nodes());
      ASSERT_NE(parcel.node, node);
      ASSERT_FALSE(parcel.samples.empty());
      ASSERT_EQ(parcel.number, next_sent_[Link(node, parcel.node)]++);
      Samples& samples = under_way_[Sent(node, parcel.node, parcel.number)];
      for (const Release& each : parcel.samples) {
        ASSERT_TRUE(samples.empty() || samples.back() < Raw(each.sample));
        ASSERT_EQ(home_of_(Raw(each.sample)), node) << "sends a sample that it was sent";
        samples.push_back(Raw(each.sample));
      }
      sent_samples_[Link(node, parcel.node)] += samples.size();
    }
  }

  void Receive(std::uint32_t node, const Step& step) {
    for (const BlockRead& read : step.reads) {
      SCOPED_TRACE("read " + std::to_string(read.number));
      ASSERT_TRUE(first_ || !read.again);
      if (read.home == kNoNode) {
        for (std::uint32_t i = 0; i < read.count; ++i) {
          ASSERT_EQ(home_of_(Raw(read.first) + i), node) << "reads what another node has";
        }
        continue;
      }
      ASSERT_EQ(read.parcel, next_received_[Link(read.home, node)]++);
      const auto parcel = under_way_.find(Sent(read.home, node, read.parcel));
      ASSERT_NE(parcel, under_way_.end())
          << "parcel " << read.parcel << " of node " << read.home << " is not sent in this step";
      ASSERT_EQ(StreamLedger::Kept(read), parcel->second);
      under_way_.erase(parcel);
      from_parcels_[node].insert(read.number);
    }
    for (const Parcel& parcel : step.parcels) {
      for (const Release& each : parcel.samples) {
        ASSERT_FALSE(from_parcels_[node].contains(each.block_read));
      }
    }
  }

  void CheckDeliveries(std::uint32_t node, const Step& step) {
    const std::uint64_t rows = RowsOfStep(job_, step.step);
    ASSERT_EQ(step.deliveries.size(), rows * job_.ranks);
    for (std::size_t i = 0; i < step.deliveries.size(); ++i) {
      const Delivery& delivery = step.deliveries[i];
      ASSERT_EQ(delivery.rank, std::uint64_t{node} * job_.ranks + i / rows);
      ASSERT_EQ(delivery.slot, i % rows);
      if (delivery.block_read == kNoBlockRead) {
        ASSERT_EQ(home_of_(Raw(delivery.sample)), node) << "reads what another node has";
      }
    }
  }

  void CheckEpoch(const std::vector<Step>& steps) {
    const bool pads = steps[0].ends_epoch && !job_.drop_last;
    std::set<std::uint64_t> here;
    for (const Step& step : steps) {
      for (const Delivery& each : step.deliveries) {
        ASSERT_FALSE(given_.contains(Raw(each.sample))) << "sample " << Raw(each.sample);
        ASSERT_TRUE(here.insert(Raw(each.sample)).second || pads) << "sample " << Raw(each.sample);
      }
    }
    given_.merge(here);
    if (!steps[0].ends_epoch) return;
    const std::uint64_t global_batch = job_.batch_size * job_.world_size;
    const std::uint64_t before = steps[0].epoch == start_.epoch ? start_.step * global_batch : 0;
    const std::uint64_t whole =
        job_.drop_last ? job_.sample_count / global_batch * global_batch : job_.sample_count;
    ASSERT_EQ(given_.size(), whole - before);
    given_.clear();
  }

  const OrderOptions job_;
  const HomeOf home_of_;
  const Position start_;
  bool first_ = true;  // no step was run yet
  std::vector<StreamLedger> streams_;
  ExchangeMemory memory_;
  std::map<Link, std::uint64_t> next_sent_;
  std::map<Link, std::uint64_t> next_received_;
  std::map<Link, std::uint64_t> sent_samples_;
  std::map<Sent, Samples> under_way_;
  std::vector<std::set<std::uint64_t>> from_parcels_;  // of each node, its reads that are parcels
  std::set<std::uint64_t> given_;                      // in this epoch
};

}  // namespace headrace
