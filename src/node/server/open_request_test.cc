#include "node/server/open_request.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace headrace {
namespace {

// Of rank 5 of 8, on the second of two nodes.
OpenSession Good() {
  OpenSession open{.job = "train", .process = 5, .local_rank = 1, .local_ranks = 4};
  open.lane = 1;
  open.lanes = 4;
  open.options.job = {.sample_count = 96, .batch_size = 4, .world_size = 8, .rank = 5};
  open.options.fields = {{.name = "image", .image = ImageTransform{.height = 8, .width = 8}}};
  return open;
}

struct Case {
  std::function<void(OpenSession&)> change;
  std::string said;
};

TEST(OpenRequestTest, ARequestThatContradictsItselfIsRefused) {
  ASSERT_TRUE(CheckOpen(Good()).ok());
  const std::vector<Case> cases = {
      {[](OpenSession& open) { open.local_rank = 4; },
       "rank 5 is local rank 4 of 4: must be below the number of ranks on the node, which must be "
       "in [1, 1024], and not above the rank"},
      {[](OpenSession& open) { open.lanes = 3; },
       "rank 5 has position 1 of 3 on a node of 4 ranks: each position must have as many ranks"},
      {[](OpenSession& open) { open.options.job.rank = 0; },
       "position 0 of 8 is number 1 of 4 on its node: the positions of a node must be neighbours, "
       "in the order of their local ranks"},
  };
  for (const Case& each : cases) {
    OpenSession open = Good();
    each.change(open);
    const Status status = CheckOpen(open);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), each.said);
  }
}

TEST(OpenRequestTest, RanksOfANodeThatDifferAreRefused) {
  OpenSession same = Good();
  same.process = 6;
  same.local_rank = 2;
  same.lane = 2;
  same.options.job.rank = 6;
  ASSERT_TRUE(CompareOpen(Good(), same).ok());
  const std::string doing = "rank 6 joins job 'train' of rank 5: ";
  const std::string remedy = "; ranks of a node must make equal loaders, in the same order";
  const std::vector<Case> cases = {
      {[](OpenSession& open) { open.options.job.batch_size = 5; },
       doing + "batch_size is 4 on rank 5 and 5 on rank 6" + remedy},
      {[](OpenSession& open) { open.options.fields[0].image->height = 9; },
       doing + "height is 8 on rank 5 and 9 on rank 6" + remedy},
      {[](OpenSession& open) { open.options.fields[0].image.reset(); },
       doing + "fields is [image (transformed)] on rank 5 and [image] on rank 6" + remedy},
      {[](OpenSession& open) { open.options.nodes = PeerListen{}; },
       doing + "nodes is not given on rank 5 and given on rank 6" + remedy},
      {[](OpenSession& open) { open.options.preprocess.emplace_back(); },
       doing + "preprocess is of 0 entries on rank 5 and of 1 entries on rank 6" + remedy},
      {[](OpenSession& open) {
         open.options.order.costs = std::make_shared<const std::vector<std::uint32_t>>(3);
       },
       doing + "costs is not given on rank 5 and a table of 3 numbers on rank 6" + remedy},
      {[](OpenSession& open) { open.options.job.rank = 7; },
       doing + "its local rank 2 belongs to rank 6; the ranks of a node must be neighbours, in the "
               "order of their local ranks"},
  };
  for (const Case& each : cases) {
    OpenSession open = same;
    each.change(open);
    const Status status = CompareOpen(Good(), open);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.message(), each.said);
  }
}

TEST(OpenRequestTest, NodesThatDifferAreRefused) {
  const OpenSession own = ForOtherNodes(Good());
  ASSERT_TRUE(CompareNodes(own, own).ok());
  const std::string remedy = "; all nodes must make equal loaders, in the same order";
  const std::vector<Case> cases = {
      {[](OpenSession& open) { open.options.order.name = "epoch"; },
       "order is " + own.options.order.name + " here and epoch there" + remedy},
      {[](OpenSession& open) { open.options.fields[0].image->width = 9; },
       "width is 8 here and 9 there" + remedy},
  };
  for (const Case& each : cases) {
    OpenSession open = own;
    each.change(open);
    const Status status = CompareNodes(own, open);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.message(), each.said);
  }
}

}  // namespace
}  // namespace headrace
