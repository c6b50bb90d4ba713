#include "plan/placement/use_window.h"

#include <memory>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/placement/testing/cases.h"
#include "plan/placement/use_reader.h"

namespace headrace::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kNone = UseWindow::kNone;

TEST(UseWindowTest, EachUseLinksToTheNextOneOfItsBlock) {
  UseWindow window(3, std::nullopt, /*firsts=*/true);
  std::vector<std::uint64_t> fresh;
  window.Append(std::vector<std::uint32_t>{2, 0}, 1, fresh);
  window.Append(std::vector<std::uint32_t>{0, 2}, 0, fresh);
  EXPECT_THAT(fresh, ElementsAre(0, 1));
  EXPECT_EQ(window.After(0), 3U);
  EXPECT_EQ(window.After(1), 2U);
  EXPECT_EQ(window.After(3), kNone);
  EXPECT_EQ(window.Node(1), 1U);
  EXPECT_EQ(window.Node(2), 0U);
  EXPECT_EQ(window.First(2), 0U);
  window.Pass();
  EXPECT_EQ(window.First(2), 3U);
  EXPECT_EQ(window.First(1), kNone);
}

TEST(UseWindowTest, LinksStayWhenItGrowsAndAPassedUseIsForgotten) {
  UseWindow window(2, 5, /*firsts=*/false);
  std::vector<std::uint64_t> fresh;
  window.Append(std::vector<std::uint32_t>{1, 0}, 5, fresh);
  window.Pass();
  const std::uint64_t before = window.size();
  window.Append(std::vector<std::uint32_t>(before, 0), 5, fresh);
  EXPECT_EQ(window.size(), 2 * before);
  for (std::uint64_t use = 1; use + 1 < window.end(); ++use) EXPECT_EQ(window.After(use), use + 1);
  EXPECT_EQ(window.Node(1), 5U);
  fresh.clear();
  window.Append(std::vector<std::uint32_t>{1}, 5, fresh);  // Its use 0 was passed.
  EXPECT_THAT(fresh, ElementsAre(window.end() - 1));
}

TEST(UseReaderTest, ReadsStepsBeforeTheLimitAndKeepsTheirEnds) {
  const auto steps = std::make_shared<const Steps>(Steps{
      {.at = {.epoch = 0, .step = 0}, .blocks = {0, 1, 2}, .node_ends = {1, 3}},
      {.at = {.epoch = 0, .step = 1}, .blocks = {2}, .node_ends = {0, 1}},
      {.at = {.epoch = 1, .step = 0}, .blocks = {0}, .node_ends = {1, 1}},
  });
  UseWindow window(3, std::nullopt, /*firsts=*/false);
  UseReader reader(std::make_unique<FixedUses>(steps), window);
  EXPECT_FALSE(reader.Extend({.epoch = 0, .step = 0}));
  ASSERT_TRUE(reader.Extend({.epoch = 0, .step = 1}));
  EXPECT_FALSE(reader.Extend({.epoch = 0, .step = 1}));
  ASSERT_TRUE(reader.Extend({.epoch = 1, .step = 0}));
  EXPECT_THAT(reader.fresh(), IsEmpty());  // Block 2 was used before.
  ASSERT_EQ(reader.steps().size(), 2U);
  EXPECT_THAT(reader.steps()[0].node_ends, ElementsAre(1, 3));
  EXPECT_EQ(reader.steps()[1].first, 3U);
  EXPECT_EQ(reader.steps()[1].end, 4U);
  EXPECT_FALSE(reader.ended());
  ASSERT_TRUE(reader.Extend({.epoch = 9, .step = 0}));
  EXPECT_FALSE(reader.Extend({.epoch = 9, .step = 0}));
  EXPECT_TRUE(reader.ended());
}

TEST(UseReaderTest, OfOneNodeOnlyItsUsesAreInTheWindow) {
  const auto steps = std::make_shared<const Steps>(
      Steps{{.at = {.epoch = 0, .step = 0}, .blocks = {0, 1, 2}, .node_ends = {1, 3}}});
  UseWindow window(3, 1, /*firsts=*/false);
  UseReader reader(std::make_unique<FixedUses>(steps), window);
  ASSERT_TRUE(reader.Extend({.epoch = 1, .step = 0}));
  ASSERT_EQ(window.end(), 2U);
  EXPECT_EQ(window.Block(0), 1U);
  EXPECT_EQ(window.Block(1), 2U);
  window.Pass();
  window.Pass();
  reader.PassStep();
  EXPECT_THAT(reader.steps(), IsEmpty());
}

}  // namespace
}  // namespace headrace::placement
