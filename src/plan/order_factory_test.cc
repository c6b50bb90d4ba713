#include "plan/order_factory.h"

#include <array>
#include <set>
#include <span>
#include <string>

#include "gtest/gtest.h"
#include "headrace/papers.h"

namespace headrace {
namespace {

constexpr std::array<std::string_view, 3> kColours = {"red", "green", "blue"};

std::string Error(const Result<OrderParameters>& read, StatusCode code) {
  EXPECT_EQ(read.status().code(), code);
  return std::string(read.status().message());
}

TEST(ParameterReaderTest, WhatIsNotGivenHasItsDefault) {
  const OrderParameters none;
  ParameterReader reader("made up", none);
  EXPECT_EQ(reader.Integer("size", 5, 1, 9), 5);
  EXPECT_EQ(reader.Choice("colour", kColours), 0);
  reader.Computed("hash", "abc");
  EXPECT_EQ(reader.Finish().value(),
            (OrderParameters{{"size", std::int64_t{5}}, {"colour", "red"}, {"hash", "abc"}}));
}

TEST(ParameterReaderTest, WhatIsGivenIsKept) {
  const OrderParameters given = {
      {"size", std::int64_t{9}}, {"least", std::int64_t{-3}}, {"colour", "blue"}, {"hash", "abc"}};
  ParameterReader reader("made up", given);
  EXPECT_EQ(reader.Integer("size", 5, 1, 9), 9);
  EXPECT_EQ(reader.Integer("least", 5, -3, 9), -3);
  EXPECT_EQ(reader.Choice("colour", kColours), 2);
  reader.Computed("hash", "abc");
  EXPECT_EQ(reader.Finish().value(), given);
}

TEST(ParameterReaderTest, NumbersOutsideTheirBoundsAreNamed) {
  for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{10}, INT64_MIN, INT64_MAX}) {
    const OrderParameters given = {{"size", wrong}};
    ParameterReader reader("made up", given);
    EXPECT_EQ(reader.Integer("size", 5, 1, 9), 5);  // so that reading goes on
    EXPECT_EQ(Error(reader.Finish(), StatusCode::kInvalidArgument),
              "size of order made up: got " + std::to_string(wrong) + ", must be in [1, 9]");
  }
}

TEST(ParameterReaderTest, AWordForANumberAndANumberForAWordAreNamed) {
  const OrderParameters given = {{"size", "large"}, {"colour", std::int64_t{1}}};
  ParameterReader sizes("made up", given);
  sizes.Integer("size", 5, 1, 9);
  EXPECT_EQ(Error(sizes.Finish(), StatusCode::kInvalidArgument),
            "size of order made up: got 'large', must be a whole number");
  ParameterReader colours("made up", given);
  EXPECT_EQ(colours.Choice("colour", kColours), 0);
  EXPECT_EQ(Error(colours.Finish(), StatusCode::kInvalidArgument),
            "colour of order made up: got '1', must be one of 'red', 'green', 'blue'");
}

TEST(ParameterReaderTest, AnotherComputedWordIsAnotherInput) {
  for (const OrderParameter& other : {OrderParameter("xyz"), OrderParameter(std::int64_t{7})}) {
    const OrderParameters given = {{"hash", other}};
    ParameterReader reader("made up", given);
    reader.Computed("hash", "abc");
    const std::string got = other.index() == 1 ? "xyz" : "7";
    EXPECT_EQ(Error(reader.Finish(), StatusCode::kFailedPrecondition),
              "hash of order made up: differs from the given parameters: given " + got +
                  ", now abc; use the inputs that they were made with, or start without these "
                  "parameters");
  }
}

TEST(ParameterReaderTest, WhatNothingReadIsNamedWithWhatThereIs) {
  const OrderParameters given = {{"sise", std::int64_t{3}}};
  ParameterReader reader("made up", given);
  reader.Integer("size", 5, 1, 9);
  reader.Choice("colour", kColours);
  EXPECT_EQ(Error(reader.Finish(), StatusCode::kInvalidArgument),
            "order made up: has no parameter 'sise'; it has colour, size");
  EXPECT_EQ(Error(ParameterReader("plain", given).Finish(), StatusCode::kInvalidArgument),
            "order plain: has no parameter 'sise'; it has none");
}

TEST(ParameterReaderTest, TheFirstMistakeCounts) {
  const OrderParameters given = {
      {"colour", "pink"}, {"hash", "xyz"}, {"size", std::int64_t{0}}, {"unknown", "word"}};
  ParameterReader reader("made up", given);
  reader.Choice("colour", kColours);
  reader.Computed("hash", "abc");
  reader.Integer("size", 5, 1, 9);
  EXPECT_EQ(Error(reader.Finish(), StatusCode::kInvalidArgument),
            "colour of order made up: got 'pink', must be one of 'red', 'green', 'blue'");
}

TEST(OrderFactoryTest, EveryOrderIsFoundByItsNameAndNoOtherIs) {
  RegisterPapers();
  std::set<std::string_view> names;
  for (const OrderFactory* order : Orders().rows()) {
    EXPECT_EQ(Orders().Find(order->name()), order);
    names.insert(order->name());
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"batch", "epoch", "exact", "redox"}));
  EXPECT_EQ(Orders().Find(""), nullptr);
  EXPECT_EQ(Orders().Find("Exact"), nullptr);
  EXPECT_EQ(Orders().Find("exact "), nullptr);
}

// Rules of the interface, for every order of the table.
class EveryOrderTest : public ::testing::TestWithParam<const OrderFactory*> {
 protected:
  static OrderRequest Request() {
    OrderRequest request;
    request.job = {.sample_count = 960, .batch_size = 12, .world_size = 8, .epochs = 2};
    request.blocks = MakeUniformBlocks(960, 8);
    return request;
  }
};

TEST_P(EveryOrderTest, ResolvingWhatWasResolvedChangesNothingOnAnyRankOrWorldSize) {
  OrderRequest request = Request();
  const auto resolved = GetParam()->Resolve(request);
  ASSERT_TRUE(resolved.ok()) << resolved.status().ToString();
  request.parameters = resolved.value();
  for (const std::uint32_t world : {8U, 3U, 16U, 1U}) {
    request.job.world_size = world;
    request.job.batch_size = 96 / world;
    request.job.rank = world - 1;
    const auto again = GetParam()->Resolve(request);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(again.value(), resolved.value());
    EXPECT_TRUE(GetParam()->ResidentUnits(request).ok());
    EXPECT_TRUE(GetParam()->Make(request, {.epoch = 1, .step = 2}).ok());
  }
}

TEST_P(EveryOrderTest, GivesEachRankEquallyManySamplesEachOnce) {
  std::set<std::uint64_t> seen;
  OrderRequest request = Request();
  request.job.epochs = 1;
  for (request.job.rank = 0; request.job.rank < 8; ++request.job.rank) {
    auto order = GetParam()->Make(request, {});
    ASSERT_TRUE(order.ok()) << order.status().ToString();
    std::uint64_t steps = 0;
    while (const auto step = order.value()->Next()) {
      ++steps;
      ASSERT_EQ(step->deliveries.size(), 12);
      for (const Delivery& delivery : step->deliveries) {
        ASSERT_TRUE(seen.insert(Raw(delivery.sample)).second);
        ASSERT_EQ(delivery.rank, request.job.rank);
        ASSERT_EQ(delivery.block_read != kNoBlockRead, GetParam()->reads_blocks());
      }
    }
    ASSERT_EQ(steps, 10);
  }
  EXPECT_EQ(seen.size(), 960);
}

TEST_P(EveryOrderTest, AnUnknownParameterABadJobAndAStartPastTheEndAreErrors) {
  OrderRequest request = Request();
  EXPECT_EQ(GetParam()->Make(request, {.epoch = 0, .step = 10}).status().code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ(GetParam()->Make(request, {.epoch = 3, .step = 0}).status().code(),
            StatusCode::kOutOfRange);
  request.parameters["no such"] = std::int64_t{1};
  for (const bool bad_job : {false, true}) {
    if (bad_job) {
      request.parameters.clear();
      request.job.rank = 8;
    }
    EXPECT_EQ(GetParam()->Resolve(request).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(GetParam()->ResidentUnits(request).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(GetParam()->Make(request, {}).status().code(), StatusCode::kInvalidArgument);
  }
}

std::vector<std::uint64_t> SamplesOf(Order& order) {
  std::vector<std::uint64_t> samples;
  while (const auto step = order.Next()) {
    for (const Delivery& delivery : step->deliveries) samples.push_back(Raw(delivery.sample));
  }
  return samples;
}

TEST_P(EveryOrderTest, PermutationsAreKeyedBijectionsFromTheGivenSizeOn) {
  OrderRequest request = Request();
  request.job.ranks = 8;
  const OrderParameters resolved = GetParam()->Resolve(request).value();
  EXPECT_EQ(resolved.at("bijection_from"), OrderParameter(std::int64_t{1} << 24));
  EXPECT_EQ(BijectionFrom(resolved), std::uint64_t{1} << 24);
  const auto samples = [&](std::int64_t bijection_from) {
    request.parameters["bijection_from"] = bijection_from;
    return SamplesOf(*GetParam()->Make(request, {}).value());
  };
  // `epoch` permutes the blocks, the others the samples.
  const bool of_blocks = GetParam()->budget_parameter() == "pool_bytes";
  const std::int64_t size = of_blocks ? 120 : 960;
  const std::vector<std::uint64_t> table = samples(size + 1);
  EXPECT_EQ(table, samples((std::int64_t{1} << 27) + 1));
  const std::vector<std::uint64_t> keyed = samples(size);
  EXPECT_EQ(keyed, samples(1));
  EXPECT_NE(keyed, table);
  for (const std::int64_t wrong : {std::int64_t{0}, (std::int64_t{1} << 27) + 2}) {
    request.parameters["bijection_from"] = wrong;
    EXPECT_EQ(std::string(GetParam()->Make(request, {}).status().message()),
              "bijection_from of order " + std::string(GetParam()->name()) + ": got " +
                  std::to_string(wrong) + ", must be in [1, 134217729]");
  }
}

std::span<const OrderFactory* const> AllOrders() {
  RegisterPapers();
  return Orders().rows();
}

INSTANTIATE_TEST_SUITE_P(All, EveryOrderTest, ::testing::ValuesIn(AllOrders()),
                         [](const auto& each) { return std::string(each.param->name()); });

}  // namespace
}  // namespace headrace
