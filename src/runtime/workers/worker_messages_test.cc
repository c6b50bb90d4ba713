#include "runtime/workers/worker_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace headrace {
namespace {

using ::testing::ElementsAre;

std::uint64_t Kind(ReplyMessage kind) { return static_cast<std::uint64_t>(kind); }

MessageWriter Shaped(std::uint64_t rows, std::uint64_t times,
                     const std::vector<std::uint64_t>& dims) {
  MessageWriter writer;
  for (const std::uint64_t word :
       {Kind(ReplyMessage::kShaped), std::uint64_t{7}, std::uint64_t{9}, rows, std::uint64_t{2},
        std::uint64_t{1}, std::uint64_t{0}, std::uint64_t{4}}) {
    writer.Word(word);
  }
  writer.Bytes(std::string("float32") + std::string(9, '\0'));
  writer.Word(2);  // rank
  writer.Word(times);
  writer.Words(dims);
  writer.Bytes("ab");
  return writer;
}

TEST(MessagesTest, ShapesAreReadForEachRowOrForAll) {
  const auto alike = ParseReply(Shaped(3, 1, {5, 6}).message());
  ASSERT_TRUE(alike.ok()) << alike.status().ToString();
  EXPECT_EQ(alike.value().task, 7U);
  EXPECT_EQ(alike.value().busy_ns, 9U);
  const TaskShapes& shapes = alike.value().shapes;
  EXPECT_EQ(shapes.tree, "ab");
  ASSERT_EQ(shapes.leaves.size(), 1U);
  EXPECT_EQ(shapes.leaves[0].dtype, "float32");
  EXPECT_THAT(std::vector(shapes.leaves[0].row(2).begin(), shapes.leaves[0].row(2).end()),
              ElementsAre(5, 6));
  const auto each = ParseReply(Shaped(2, 2, {5, 6, 7, 8}).message());
  ASSERT_TRUE(each.ok());
  const LeafShape& leaf = each.value().shapes.leaves[0];
  EXPECT_THAT(std::vector(leaf.row(1).begin(), leaf.row(1).end()), ElementsAre(7, 8));
}

TEST(MessagesTest, AMessageCutAnywhereOrWithMoreIsRefused) {
  MessageWriter error;
  for (const std::uint64_t word : {Kind(ReplyMessage::kError), std::uint64_t{1}, std::uint64_t{2},
                                   std::uint64_t{3}, std::uint64_t{4}}) {
    error.Word(word);
  }
  error.Bytes("abcpick");
  MessageWriter done;
  for (const std::uint64_t word :
       {Kind(ReplyMessage::kDone), std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}}) {
    done.Word(word);
  }
  done.Bytes("abc");
  for (const MessageWriter& writer : {Shaped(2, 2, {5, 6, 7, 8}), error, done}) {
    std::vector<std::byte> bytes(writer.message().begin(), writer.message().end());
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
  EXPECT_FALSE(ParseReply(Shaped(std::uint64_t{1} << 60, 1, {5, 6}).message()).ok());
  EXPECT_FALSE(ParseReply(Shaped(3, 4, {5, 6}).message()).ok());
  MessageWriter unknown;
  unknown.Word(99);
  EXPECT_FALSE(ParseReply(unknown.message()).ok());
}

TEST(MessagesTest, ALayoutIsWrittenAsShapesAre) {
  const auto reply = ParseReply(Shaped(3, 1, {5, 6}).message());
  ASSERT_TRUE(reply.ok());
  OutputLayout layout;
  ShapeMismatch mismatch;
  ASSERT_TRUE(
      MakeOutputLayout(std::span(&reply.value().shapes, 1), RaggedRows::kError, layout, mismatch));
  MessageWriter written;
  AppendLayout(layout, written);
  const MessageWriter shaped = Shaped(3, 1, {5, 6});
  const std::span<const std::byte> expected = shaped.message().subspan(4 * sizeof(std::uint64_t));
  EXPECT_TRUE(std::equal(written.message().begin(), written.message().end(), expected.begin(),
                         expected.end()));
}

}  // namespace
}  // namespace headrace
