#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "papers/redox/redox_order.h"
#include "plan/order_factory.h"
#include "plan/testing/odd_blocks.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

OrderRequest Request(OrderParameters parameters) {
  return {.job = {.sample_count = 96, .batch_size = 4},
          .parameters = std::move(parameters),
          .blocks = std::make_shared<OddBlocks>(std::vector<std::uint32_t>(12, 8),
                                                std::vector<std::uint32_t>(96, 3)),
          .homes = nullptr,
          .costs = nullptr};
}

std::string Error(OrderParameters parameters) {
  return std::string(
      RedoxOrderFactory().Resolve(Request(std::move(parameters))).status().message());
}

TEST(RedoxFactoryTest, ResolvingFillsInEveryDefaultAndChangesNothingTwice) {
  const OrderParameters resolved = RedoxOrderFactory().Resolve(Request({})).value();
  EXPECT_EQ(resolved, (OrderParameters{{"bijection_from", 1 << 24},
                                       {"chunks_per_virtual", 10},
                                       {"mapping", "consecutive"},
                                       {"refill", "max_fill"},
                                       {"ties", "random"},
                                       {"read", "kept"},
                                       {"framing", "one"},
                                       {"slot_classes", 0},
                                       {"nodes", 1},
                                       {"remap", 0},
                                       {"arrival", 0},
                                       {"fill_ahead", 0},
                                       {"home_table", "none"},
                                       {"prefetch", 0},
                                       {"remote_bytes", 0},
                                       {"memory_bytes", 0}}));
  EXPECT_EQ(RedoxOrderFactory().Resolve(Request(resolved)).value(), resolved);
}

TEST(RedoxFactoryTest, SamplesInSequenceAreRefused) {
  OrderRequest request = Request({});
  request.job.shuffle = false;
  const std::string message =
      "order redox: shuffle=False, but slots give whichever sample of theirs is in memory; use "
      "order 'exact' to have them in sequence, or shuffle=True";
  for (const Status& status : {RedoxOrderFactory().Resolve(request).status(),
                               RedoxOrderFactory().ResidentUnits(request).status(),
                               RedoxOrderFactory().Make(request, {0, 0}).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), message);
  }
}

TEST(RedoxFactoryTest, TheFactoryMakesWhatTheParametersSay) {
  const OrderRequest request = Request({{"chunks_per_virtual", 3},
                                        {"mapping", "interleaved"},
                                        {"refill", "random"},
                                        {"ties", "first"},
                                        {"slot_classes", 4},
                                        {"nodes", 2},
                                        {"prefetch", 9},
                                        {"remote_bytes", 700},
                                        {"memory_bytes", 5000}});
  RedoxOrderOptions options;
  options.job = request.job;
  options.blocks = request.blocks;
  options.chunks_per_virtual = 3;
  options.mapping = RedoxOrderOptions::Mapping::kInterleaved;
  options.refill = RedoxOrderOptions::Refill::kRandom;
  options.ties = RedoxOrderOptions::Ties::kFirst;
  options.slot_classes = 4;
  options.nodes = 2;
  options.prefetch = 9;
  options.remote_units = 10;  // 700 bytes, 64 a unit
  options.memory_units = 78;
  EXPECT_EQ(RedoxOrderFactory().ResidentUnits(request).value(), 78U);
  auto expected = MakeRedoxOrder(options, {0, 2}).value();
  auto made = RedoxOrderFactory().Make(request, {0, 2}).value();
  for (int i = 0; i < 60; ++i) {
    const Step step = *made->Next();
    const Step same = *expected->Next();
    EXPECT_EQ(step.reads, same.reads);
    EXPECT_EQ(step.deliveries, same.deliveries);
  }
}

TEST(RedoxFactoryTest, TheBoundIsThatOfAllSlotsAndOfWhatIsSentAhead) {
  // Two virtual chunks of 6 chunks, 8 slots each, 3 units in a slot; each node, 8 of the other's.
  const auto units = [](OrderParameters parameters) {
    parameters.emplace("chunks_per_virtual", 6);
    return RedoxOrderFactory().ResidentUnits(Request(std::move(parameters))).value();
  };
  EXPECT_EQ(units({}), 48U);
  EXPECT_EQ(units({{"nodes", 2}}), 48U);
  EXPECT_EQ(units({{"nodes", 2}, {"prefetch", 2}}), 96U);
  EXPECT_EQ(units({{"nodes", 2}, {"prefetch", 2}, {"remote_bytes", 640}}), 68U);
  EXPECT_EQ(units({{"memory_bytes", 640}}), 10U);
  EXPECT_EQ(units({{"memory_bytes", 64000}}), 48U);
}

TEST(RedoxFactoryTest, BadParametersAreNamed) {
  EXPECT_EQ(Error({{"chunks_per_virtual", 0}}),
            "chunks_per_virtual of order redox: got 0, must be in [1, 2147483647]");
  EXPECT_THAT(Error({{"mapping", "random"}}), HasSubstr("mapping of order redox"));
  EXPECT_THAT(Error({{"refill", "best"}}), HasSubstr("'max_fill', 'random'"));
  EXPECT_THAT(Error({{"ties", 3}}), HasSubstr("ties of order redox"));
  EXPECT_EQ(Error({{"nodes", 5000}}), "nodes of order redox: got 5000, must be in [1, 4096]");
  EXPECT_THAT(Error({{"prefetch", -1}}), HasSubstr("prefetch of order redox: got -1"));
  EXPECT_THAT(Error({{"slot_classes", -1}}), HasSubstr("slot_classes of order redox: got -1"));
  EXPECT_EQ(
      Error({{"remote_bytes", 63}}),
      "remote_bytes of order redox: got 63, must be 0 (no limit) or at least 64, the bytes in "
      "which memory is counted");
  EXPECT_EQ(
      Error({{"memory_bytes", 191}}),
      "memory_bytes of order redox: got 128, must be 0 (no limit) or hold the largest sample, "
      "192 bytes in memory");
  EXPECT_THAT(Error({{"window", 1}}), HasSubstr("has no parameter 'window'"));
}

}  // namespace
}  // namespace headrace
