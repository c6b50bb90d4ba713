#include "engine/blocks/outbox.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing/loop_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Nobody waits for a sample of a step.
class NoSteps final : public ResidencyClient {
 public:
  void OnKept(std::span<KeptBytes> /*kept*/) override {}
};

class OutboxTest : public ::testing::Test {
 public:
  ~OutboxTest() override {
    static_cast<void>(outbox_.Drop());
    outbox_.ReleaseAll();
    blocks_.ReleaseAll();
  }

 protected:
  // All of its samples are in cells.
  OutboxTest() {
    blocks_.Connect(&outbox_);
    for (std::uint64_t number = 0; number < 2; ++number) {
      blocks_.Queue({{.number = number, .first = SampleId{number * 4}, .count = 4}}, {});
    }
    EXPECT_TRUE(blocks_.IssueReads().ok());
    test_.Run();
  }

  // The next sample to a node, in a parcel of its own.
  void Send(NodeNumber node, bool ahead = false) {
    const std::uint64_t sample = sent_++;
    parcels_[node].push_back(sample);
    outbox_.Queue({{.node = node,
                    .number = parcels_[node].size() - 1,
                    .samples = {{.block_read = sample / 4, .sample = SampleId{sample}}},
                    .ahead = ahead}});
  }
  // A node asks for a parcel. What it gets stays on its way until Take().
  void Ask(NodeNumber node, std::uint64_t parcel) {
    const SampleId sample{parcels_[node].at(parcel)};
    outbox_.Take(node, {.parcel = parcel, .count = 1, .ids = NextHashOfIds(0, sample)},
                 [this, sample](Result<OwnedBytes> bytes) {
                   if (!bytes.ok()) return;
                   EXPECT_EQ(bytes.value().bytes()[0],
                             static_cast<std::byte>('a' + static_cast<char>(Raw(sample))));
                   given_.push_back(Raw(sample));
                   on_way_.emplace(Raw(sample), std::move(bytes).value());
                 });
    test_.Run();
  }
  void Take(std::uint64_t sample) {
    on_way_.erase(sample);
    outbox_.GiveWaiting();
    test_.Run();
  }
  std::vector<std::uint64_t> given() { return std::exchange(given_, {}); }

  static constexpr std::uint64_t kPages = 4;  // one a part

  LoopHarness test_;
  NoSteps steps_;
  const std::shared_ptr<CellPool> cells_ = CellPool::Make(8, 128).value();
  const std::shared_ptr<BufferPool> memory_ = BufferPool::Make(kPages * 4096);
  Residency blocks_{test_.loop, BlockMemory{.residents = cells_}, nullptr, steps_};
  Outbox outbox_{test_.loop, cells_, memory_, blocks_};
  std::uint64_t sent_ = 0;
  std::map<NodeNumber, std::vector<std::uint64_t>> parcels_;  // samples, by parcel
  std::map<std::uint64_t, OwnedBytes> on_way_;
  std::vector<std::uint64_t> given_;
};

TEST_F(OutboxTest, ANodeThatTakesItsPartsSlowlyHoldsUpNoOther) {
  for (int i = 0; i < 4; ++i) Send(1);
  for (int i = 0; i < 4; ++i) Send(2);
  for (std::uint64_t parcel = 0; parcel < 4; ++parcel) Ask(1, parcel);
  EXPECT_THAT(given(), ElementsAre(0, 1)) << "half of the memory";
  for (std::uint64_t parcel = 0; parcel < 4; ++parcel) Ask(2, parcel);
  EXPECT_THAT(given(), ElementsAre(4));
  // Node 1 takes nothing; node 2 gets on.
  for (std::uint64_t sample = 4; sample < 7; ++sample) {
    Take(sample);
    EXPECT_THAT(given(), ElementsAre(sample + 1));
  }
  Take(7);
  EXPECT_THAT(given(), IsEmpty());
  Take(0);
  EXPECT_THAT(given(), ElementsAre(2));
}

TEST_F(OutboxTest, NodesTakeTurns) {
  for (int i = 0; i < 4; ++i) Send(1);
  for (int i = 0; i < 4; ++i) Send(2);
  const std::optional<Buffer> others = memory_->Acquire((kPages - 1) * 4096);
  for (std::uint64_t parcel = 0; parcel < 4; ++parcel) Ask(1, parcel);
  for (std::uint64_t parcel = 0; parcel < 4; ++parcel) Ask(2, parcel);
  std::vector<std::uint64_t> order;
  while (order.size() < 8) {
    ASSERT_THAT(given_, ::testing::SizeIs(1));
    order.push_back(given().front());
    Take(order.back());
  }
  EXPECT_THAT(order, ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
}

TEST_F(OutboxTest, WhatARequestWaitsForGoesBeforeWhatIsSentAhead) {
  Send(1);
  Send(1, /*ahead=*/true);
  Send(1, /*ahead=*/true);
  Send(1);
  const std::optional<Buffer> others = memory_->Acquire((kPages - 1) * 4096);
  for (std::uint64_t parcel = 0; parcel < 4; ++parcel) Ask(1, parcel);
  EXPECT_THAT(given(), ElementsAre(0)) << "there is memory for one";
  Take(0);
  EXPECT_THAT(given(), ElementsAre(3));
  Take(3);
  EXPECT_THAT(given(), ElementsAre(1));
  Take(1);
  EXPECT_THAT(given(), ElementsAre(2));
}

TEST_F(OutboxTest, APartThatIsNotThereIsRefusedWithItsNumbers) {
  Send(1);
  Send(1);
  Ask(1, 0);
  Take(0);
  const auto refused = [&](const ParcelPart& part) {
    std::string said = "nothing";
    outbox_.Take(1, part, [&](Result<OwnedBytes> bytes) { said = bytes.status().message(); });
    return said;
  };
  const std::uint64_t ids = NextHashOfIds(0, SampleId{1});
  EXPECT_EQ(refused({.parcel = 0, .count = 1, .ids = ids}),
            "taking a part of parcel 0: it was given before");
  EXPECT_EQ(refused({.parcel = 1, .first = 1, .count = 1, .ids = ids}),
            "taking samples 1 to 2 of parcel 1: it has 1");
  EXPECT_EQ(refused({.parcel = 1, .count = 1, .ids = ids + 1}),
            "taking samples 0 to 1 of parcel 1: the nodes have planned different samples for it; "
            "see that all run the same version of headrace, and go on from a state that was saved "
            "before");
}

TEST_F(OutboxTest, ASampleThatWasGivenIsRefusedThoughItsParcelIsThere) {
  outbox_.Queue({{.node = 1,
                  .number = 0,
                  .samples = {{.block_read = 0, .sample = SampleId{0}},
                              {.block_read = 0, .sample = SampleId{1}}}}});
  std::vector<std::string> said;
  for (int i = 0; i < 2; ++i) {
    outbox_.Take(1, {.parcel = 0, .count = 1, .ids = NextHashOfIds(0, SampleId{0})},
                 [&](Result<OwnedBytes> bytes) { said.push_back(bytes.status().ToString()); });
    test_.Run();
  }
  EXPECT_THAT(said,
              ElementsAre("OK",
                          "InvalidArgument: taking samples 0 to 1 of parcel 0: they were given "
                          "before"));
}

}  // namespace
}  // namespace headrace
