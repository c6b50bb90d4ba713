#pragma once

// Plans of nodes that exchange samples, for tests of whoever runs them: legal ones, of no
// particular order.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "plan/order.h"

namespace headrace {

// Draws the plans of nodes, each of one rank, that deliver every sample of `units` cells once.
// Blocks of a few samples are at home on one node each. Samples go to other nodes in the step that
// delivers them, or before. All is one sequence of events, in which no node has more resident than
// its budget: what two of its largest blocks take, and a few more.
class ExchangePlanMaker {
 public:
  ExchangePlanMaker(std::span<const std::uint32_t> units, std::uint32_t nodes, Prng& random)
      : units_(units), random_(random), nodes_(nodes) {
    std::uint64_t largest = 1;
    for (std::uint64_t first = 0; first < units_.size();) {
      const std::uint64_t count =
          1 + random_.Below(std::min<std::uint64_t>(units_.size() - first, 8));
      std::uint64_t block_units = 0;
      for (std::uint64_t i = 0; i < count; ++i) block_units += units_[first + i];
      largest = std::max(largest, block_units);
      nodes_[random_.Below(nodes)].blocks.emplace_back(first, count);
      first += count;
    }
    budget_units_ = 2 * largest + random_.Below(2 * largest);
  }

  // [node][step]; all nodes have as many steps.
  std::vector<std::vector<Step>> Make() {
    std::vector<std::vector<Step>> plans(nodes_.size());
    for (std::uint64_t left = units_.size(); left > 0;) {
      for (Node& node : nodes_) {
        node.step = {.step = plans.front().size()};
        node.parcels.clear();
      }
      const std::uint64_t rows = 1 + random_.Below(6);
      for (std::uint64_t row = 0; row < rows; ++row) {
        for (std::uint32_t node = 0; node < nodes_.size(); ++node) left -= Deliver(node);
      }
      for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
        Step& step = nodes_[node].step;
        for (auto& [to, parcel] : nodes_[node].parcels) {
          std::ranges::sort(parcel.samples, {}, &Release::sample);
          step.parcels.push_back(std::move(parcel));
        }
        step.ends_epoch = left == 0;
        plans[node].push_back(std::move(step));
      }
    }
    return plans;
  }

  [[nodiscard]] std::uint64_t budget_units() const { return budget_units_; }

 private:
  struct Node {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> blocks;  // to read: first, count
    std::vector<Release> residents;                               // of own blocks
    std::vector<Release> received;                // of parcels of earlier steps, and not delivered
    std::map<std::uint32_t, std::uint64_t> sent;  // parcels, by node
    std::map<std::uint32_t, Parcel> parcels;      // of this step, by node
    std::uint64_t units = 0;
    std::uint64_t reads = 0;
    Step step;
  };

  [[nodiscard]] bool Fits(const Node& node, std::uint64_t units) const {
    return node.units + units <= budget_units_;
  }

  // One row of a node, if there is a sample that it can get. Returns how many it delivered.
  std::uint64_t Deliver(std::uint32_t number) {
    Node& node = nodes_[number];
    if (random_.Below(3) != 0) Read(node, /*must=*/false);
    const auto from = static_cast<std::uint32_t>(random_.Below(nodes_.size()));
    if (from != number && random_.Below(3) != 0) Send(from, number);
    if (!node.received.empty() && random_.Below(2) == 0) return DeliverOf(node, node.received);
    if (node.residents.empty() && node.received.empty()) Read(node, /*must=*/true);
    if (!node.residents.empty()) return DeliverOf(node, node.residents);
    if (!node.received.empty()) return DeliverOf(node, node.received);
    for (std::uint32_t other = 0; other < nodes_.size(); ++other) {
      if (other == number) continue;
      if (nodes_[other].residents.empty()) Read(nodes_[other], /*must=*/true);
      Send(other, number);
    }
    return node.received.empty() ? 0 : DeliverOf(node, node.received);
  }

  void Read(Node& node, bool must) {
    if (node.blocks.empty()) return;
    const auto [first, count] = node.blocks.back();
    std::uint64_t units = 0;
    for (std::uint64_t i = 0; i < count; ++i) units += units_[first + i];
    if (!Fits(node, units) || (!must && random_.Below(2) == 0)) return;
    node.blocks.pop_back();
    node.units += units;
    const std::uint64_t number = node.reads++;
    node.step.reads.push_back({.number = number,
                               .first = SampleId{first},
                               .count = static_cast<std::uint32_t>(count),
                               .whole = random_.Below(3) == 0});
    for (std::uint64_t i = 0; i < count; ++i) {
      node.residents.push_back({.block_read = number, .sample = SampleId{first + i}});
    }
  }

  // Some samples of a node to another one: a parcel, if none went there with this step.
  void Send(std::uint32_t from_number, std::uint32_t to_number) {
    Node& from = nodes_[from_number];
    Node& to = nodes_[to_number];
    if (from.parcels.contains(to_number)) return;
    Parcel parcel{.node = to_number,
                  .number = from.sent[to_number],
                  .samples = {},
                  .ahead = random_.Below(2) == 0};
    std::vector<SampleId> samples;
    for (std::uint64_t wanted = 1 + random_.Below(4); wanted > 0 && !from.residents.empty();
         --wanted) {
      const std::size_t at = random_.Below(from.residents.size());
      const Release sent = from.residents[at];
      const std::uint32_t units = units_[Raw(sent.sample)];
      if (!Fits(to, units)) break;
      from.residents.erase(from.residents.begin() + static_cast<std::ptrdiff_t>(at));
      from.units -= units;
      to.units += units;
      parcel.samples.push_back(sent);
      samples.push_back(sent.sample);
    }
    if (samples.empty()) return;
    ++from.sent[to_number];
    std::ranges::sort(samples);
    BlockRead read{
        .number = to.reads++,
        .first = samples.front(),
        .count = static_cast<std::uint32_t>(Raw(samples.back()) - Raw(samples.front()) + 1),
        .home = from_number,
        .parcel = parcel.number};
    for (const SampleId sample : samples) {
      read.kept.push_back(static_cast<std::uint32_t>(Raw(sample) - Raw(samples.front())));
      to.received.push_back({.block_read = read.number, .sample = sample});
    }
    to.step.reads.push_back(std::move(read));
    from.parcels.emplace(to_number, std::move(parcel));
  }

  std::uint64_t DeliverOf(Node& node, std::vector<Release>& samples) {
    const std::size_t at = random_.Below(samples.size());
    const Release taken = samples[at];
    samples.erase(samples.begin() + static_cast<std::ptrdiff_t>(at));
    node.units -= units_[Raw(taken.sample)];
    node.step.deliveries.push_back({.sample = taken.sample,
                                    .slot = static_cast<std::uint32_t>(node.step.deliveries.size()),
                                    .block_read = taken.block_read});
    return 1;
  }

  const std::span<const std::uint32_t> units_;
  Prng& random_;
  std::vector<Node> nodes_;
  std::uint64_t budget_units_ = 0;
};

}  // namespace headrace
