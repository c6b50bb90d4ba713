#include "workers/worker_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace headrace {
namespace {

using ::testing::ElementsAre;

WireWriter Reply(ReplyMessage kind, const std::vector<std::uint64_t>& numbers) {
  WireWriter writer;
  writer.PutU64(static_cast<std::uint64_t>(kind));
  for (const std::uint64_t number : numbers) writer.PutU64(number);
  return writer;
}

WireWriter ShapedMessage(std::uint32_t rows, const std::vector<std::uint64_t>& dims,
                         bool object = false) {
  WireWriter writer = Reply(ReplyMessage::kShaped, {7, 9, 4});
  writer.PutU32(rows);
  writer.PutString("ab");
  writer.PutCount(1);
  writer.PutBool(object);
  writer.PutU32(4);
  writer.PutString("float32");
  writer.PutU32(2);  // rank
  writer.PutVector(dims, [](WireWriter& to, std::uint64_t dim) { to.PutU64(dim); });
  return writer;
}

TEST(MessagesTest, ShapesAreReadForEachRowOrForAll) {
  const auto alike = ParseReply(ShapedMessage(3, {5, 6}).bytes());
  ASSERT_TRUE(alike.ok()) << alike.status().ToString();
  EXPECT_EQ(alike.value().task, 7U);
  EXPECT_EQ(alike.value().busy_ns, 9U);
  EXPECT_EQ(alike.value().ran_ns, 4U);
  const TaskShapes& shapes = alike.value().shapes;
  EXPECT_EQ(shapes.tree, "ab");
  ASSERT_EQ(shapes.leaves.size(), 1U);
  EXPECT_EQ(shapes.leaves[0].dtype, "float32");
  EXPECT_THAT(std::vector(shapes.leaves[0].row(2).begin(), shapes.leaves[0].row(2).end()),
              ElementsAre(5, 6));
  const auto each = ParseReply(ShapedMessage(2, {5, 6, 7, 8}).bytes());
  ASSERT_TRUE(each.ok());
  const LeafShape& leaf = each.value().shapes.leaves[0];
  EXPECT_THAT(std::vector(leaf.row(1).begin(), leaf.row(1).end()), ElementsAre(7, 8));
}

TEST(MessagesTest, AMessageCutAnywhereOrWithMoreIsRefused) {
  WireWriter error = Reply(ReplyMessage::kError, {1});
  error.PutU32(2);
  error.PutString("abc");
  error.PutString("pick");
  WireWriter done = Reply(ReplyMessage::kDone, {1, 2, 1});
  done.PutString("abc");
  WireWriter ready = Reply(ReplyMessage::kReady, {});
  ready.PutU32(3);
  const WireWriter unlike = Reply(ReplyMessage::kUnlike, {1});
  for (const WireWriter& writer : {ShapedMessage(2, {5, 6, 7, 8}), error, done, ready, unlike}) {
    std::vector<std::byte> bytes(writer.bytes().begin(), writer.bytes().end());
    ASSERT_TRUE(ParseReply(bytes).ok());
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_EQ(ParseReply(std::span(bytes).first(size)).status().code(), StatusCode::kDataLoss)
          << size;
    }
    bytes.push_back(std::byte{0});
    EXPECT_EQ(ParseReply(bytes).status().code(), StatusCode::kDataLoss);
  }
}

TEST(MessagesTest, NumbersThatCanNotBeAreRefused) {
  EXPECT_FALSE(ParseReply(ShapedMessage(std::uint32_t{1} << 31, {5, 6}).bytes()).ok());
  EXPECT_FALSE(ParseReply(ShapedMessage(3, {5, 6, 7, 8}).bytes()).ok());
  EXPECT_FALSE(ParseReply(ShapedMessage(3, {5, 6}, /*object=*/true).bytes()).ok());
  EXPECT_FALSE(ParseReply(Reply(ReplyMessage{99}, {}).bytes()).ok());
  for (const std::uint32_t threads : {0U, 1U << 20}) {
    WireWriter ready = Reply(ReplyMessage::kReady, {});
    ready.PutU32(threads);
    EXPECT_FALSE(ParseReply(ready.bytes()).ok()) << threads;
  }
}

TEST(MessagesTest, ALayoutIsWrittenAsShapesAre) {
  const auto reply = ParseReply(ShapedMessage(3, {5, 6}).bytes());
  ASSERT_TRUE(reply.ok());
  OutputLayout layout;
  ShapeMismatch mismatch;
  ASSERT_TRUE(
      MakeOutputLayout(std::span(&reply.value().shapes, 1), RaggedRows::kError, layout, mismatch));
  WireWriter written;
  AppendLayout(layout, written);
  const WireWriter shaped = ShapedMessage(3, {5, 6});
  EXPECT_TRUE(std::ranges::equal(written.bytes(), shaped.bytes().subspan(4 * 8 + 4)));
}

}  // namespace
}  // namespace headrace
