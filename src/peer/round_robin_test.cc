#include "peer/round_robin.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(RoundRobinTest, WhoTookSomeComesLastTheNextTime) {
  const std::vector<int> all = {0, 1, 2};
  RoundRobin round_robin;
  std::vector<int> takers;
  for (int round = 0; round < 6; ++round) {
    bool left = true;  // enough for one, and only 1 and 2 want it
    round_robin.Visit(all, [&](int each) {
      if (!left || each == 0) return false;
      takers.push_back(each);
      left = false;
      return true;
    });
  }
  EXPECT_THAT(takers, ElementsAre(1, 2, 1, 2, 1, 2));
}

TEST(RoundRobinTest, AllAreVisitedOnceFromTheOneWhoseTurnItIs) {
  RoundRobin round_robin;
  std::vector<int> visited;
  const auto visit = [&](int each) {
    visited.push_back(each);
    return true;
  };
  round_robin.Visit(std::vector<int>{0, 1, 2}, visit);
  round_robin.Visit(std::vector<int>{0, 1, 2}, visit);
  round_robin.Visit(std::vector<int>{7}, visit);  // Others have gone.
  EXPECT_THAT(visited, ElementsAre(0, 1, 2, 1, 2, 0, 7));
  visited.clear();
  round_robin.Visit(std::vector<int>{}, visit);
  EXPECT_THAT(visited, IsEmpty());
}

}  // namespace
}  // namespace headrace
