#pragma once

// What tests of nodes share: samples to give, and reads that are waited for.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/memory/buffer_pool.h"
#include "base/units.h"
#include "fetch/held_samples.h"
#include "gtest/gtest.h"
#include "peer/grpc/peer_node.h"
#include "tier/ram_tier.h"

namespace headrace {

inline bool Always() { return true; }

// Samples in a tier in memory; those that are asked for and not there are lost, or never answered.
class TierSamples final : public HeldSamples {
 public:
  explicit TierSamples(const std::vector<std::string>& samples) {
    for (std::uint64_t number = 0; number < samples.size(); ++number) {
      tier->Insert(SampleId{number}, {std::as_bytes(std::span(samples[number]))},
                   [](const Status& status) { ASSERT_TRUE(status.ok()) << status.message(); });
    }
  }
  ~TierSamples() override { Release(); }
  void Take(SampleId sample, std::uint64_t deadline, TakenEntry done) override {
    {
      const std::lock_guard lock(mutex);
      deadlines.push_back(deadline);
    }
    if (silent) {
      const std::lock_guard lock(mutex);
      unanswered.push_back(std::move(done));
      return;
    }
    Tier::EntryRef entry = tier->Find(sample);
    if (entry) return done(std::move(entry));
    done(Status(StatusCode::kNotFound, "the plan does not keep it"));
  }
  void Release() {
    silent = false;
    std::vector<TakenEntry> all;
    {
      const std::lock_guard lock(mutex);
      all.swap(unanswered);
    }
    for (TakenEntry& done : all) done(Status(StatusCode::kNotFound, "released"));
  }

  const std::unique_ptr<RamTier> tier = RamTier::Make(64 << 20, 4096).value();
  std::atomic<bool> silent = false;
  std::mutex mutex;
  std::vector<TakenEntry> unanswered;
  std::vector<std::uint64_t> deadlines;  // of what was asked for
};

// Nodes of one job, in this process.
class Nodes {
 public:
  explicit Nodes(NodeNumber count, std::int64_t answer_ns = 60 * kNsPerSecond)
      : Nodes(count, PeerGroup{.answer_ns = answer_ns}) {}
  // All with the options of `group`.
  Nodes(NodeNumber count, PeerGroup group) {
    std::vector<std::string> addresses;
    for (NodeNumber node = 0; node < count; ++node) {
      auto made = PeerNode::Listen({});
      EXPECT_TRUE(made.ok()) << made.status().message();
      nodes_.push_back(std::move(made).value());
      addresses.push_back(nodes_.back()->address());
    }
    group.addresses = std::move(addresses);
    group.token = "secret";
    group.begin_ns = 20 * kNsPerSecond;
    for (group.node = 0; group.node < count; ++group.node) {
      EXPECT_TRUE(nodes_[group.node]->Connect(group).ok());
    }
  }
  PeerNode& operator[](NodeNumber node) { return *nodes_[node]; }

 private:
  std::vector<std::unique_ptr<PeerNode>> nodes_;
};

// Reads samples and waits for all.
inline std::vector<Result<std::string>> ReadAll(
    PeerNode& from, NodeNumber node,
    const std::vector<std::pair<std::uint64_t, std::uint64_t>>& samples_and_bytes,
    const std::stop_token& stop = {}, std::optional<NodeNumber> second = std::nullopt,
    std::uint64_t deadline = 0) {
  const auto pool = BufferPool::Make(256 << 20);
  std::vector<Fetch> fetches(samples_and_bytes.size());
  std::vector<Fetch*> pointers;
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    fetches[i].from = SampleAtNode{.nodes = {node, second},
                                   .sample = SampleId{samples_and_bytes[i].first},
                                   .bytes = samples_and_bytes[i].second};
    fetches[i].deadline = deadline;
    fetches[i].buffer = *pool->Acquire(from.source().BufferBytes(fetches[i]));
    pointers.push_back(&fetches[i]);
  }
  std::vector<Result<std::string>> results(fetches.size(), Result<std::string>(std::string()));
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t ended = 0;
  const FetchSource::Done done = [&](Fetch& fetch, Result<std::span<std::byte>> data) {
    const std::lock_guard lock(mutex);
    const auto i = static_cast<std::size_t>(&fetch - fetches.data());
    if (data.ok()) {
      results[i] =
          std::string(reinterpret_cast<const char*>(data.value().data()), data.value().size());
    } else {
      results[i] = data.status();
    }
    ++ended;
    changed.notify_all();
  };
  from.source().Read(pointers, stop, done);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ended == fetches.size(); });
  return results;
}

}  // namespace headrace
