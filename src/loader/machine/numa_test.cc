#include "loader/machine/numa.h"

#include <sched.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <set>

#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "loader/session/near_lanes.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::Eq;
using testing::IsEmpty;
using testing::Optional;

class Folder {
 public:
  Folder() { std::filesystem::create_directories(path_); }
  ~Folder() { std::filesystem::remove_all(path_); }
  void Node(const std::string& name, const std::string& cpus) const {
    std::filesystem::create_directories(path_ + "/" + name);
    std::ofstream(path_ + "/" + name + "/cpulist") << cpus;
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  const std::string path_ = testing::TempDir() + "/numa";
};

TEST(NumaTest, ListsOfProcessors) {
  EXPECT_THAT(ParseCpuList("0-3,8,10-11\n"), Optional(ElementsAre(0, 1, 2, 3, 8, 10, 11)));
  EXPECT_THAT(ParseCpuList(""), Optional(IsEmpty()));
  for (const char* const bad : {"x", "1-", "-1", "3-1", "1,,2", "99999999999", "1 2"}) {
    EXPECT_THAT(ParseCpuList(bad), Eq(std::nullopt)) << bad;
  }
}

TEST(NumaTest, ReadsTheNodesThatHaveProcessors) {
  const Folder system;
  system.Node("node10", "2,5\n");
  system.Node("node0", "0-1\n");
  system.Node("node3", "\n");  // Memory alone.
  system.Node("power", "7\n");
  system.Node("nodex", "7\n");
  EXPECT_THAT(ReadNumaNodes(system.path()), ElementsAre(NumaNode{0, {0, 1}}, NumaNode{10, {2, 5}}));
  EXPECT_THAT(ReadNumaNodes(system.path() + "/none"), IsEmpty());
}

TEST(NumaTest, LanesGoWhereTheirProcessesRunElseInRuns) {
  NumaRequest request{.nodes = {{0, {0, 1}}, {1, {2, 3}}}};
  EXPECT_THAT(NumaNodesOfLanes(request, 4), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(NumaNodesOfLanes(request, 3), ElementsAre(0, 0, 1));
  request.lane_cpus = {{2}, {}, {0, 1}, {1, 2}};  // The last is of no one node.
  EXPECT_THAT(NumaNodesOfLanes(request, 4), ElementsAre(1, 0, 0, 1));
  request.nodes.resize(1);
  EXPECT_THAT(NumaNodesOfLanes(request, 4), ElementsAre(0, 0, 0, 0));
}

std::set<int> CpusOfTask(Executor& executor) {
  std::promise<std::set<int>> promise;
  executor.Submit(0, [&] {
    const std::vector<int> cpus = CpusOfProcess(0);
    promise.set_value({cpus.begin(), cpus.end()});
  });
  return promise.get_future().get();
}

TEST(NumaTest, ThreadsAndMemoryOfALaneLieOnItsNode) {
  const std::vector<int> cpus = CpusOfProcess(0);
  if (cpus.size() < 2) GTEST_SKIP() << "takes two processors";
  std::map<const std::byte*, int> preferred;
  NumaRequest request{.nodes = {{4, {cpus[0]}}, {7, {cpus[1]}}}};
  request.prefer = [&](int number, std::span<std::byte> bytes) {
    EXPECT_FALSE(bytes.empty());
    preferred[bytes.data()] = number;
  };
  const auto near = NearLanes::Make(
      {.lanes = 4, .threads = 4, .staging_bytes = 8 * kMiB, .batch_bytes = 4 * kMiB}, request);
  ASSERT_TRUE(near.ok());
  for (std::size_t number = 0; number < 4; ++number) {
    const EngineLane lane = near.value().lane(number);
    const int node = number < 2 ? 4 : 7;
    EXPECT_EQ(CpusOfTask(*lane.executor), std::set<int>{cpus[number < 2 ? 0 : 1]});
    EXPECT_EQ(lane.executor->concurrency(), 2);
    EXPECT_EQ(preferred[lane.batch_memory->mapping().data()], node);
    EXPECT_EQ(preferred[lane.staging->mapping().data()], node);
    EXPECT_EQ(lane.batch_memory->stats().capacity_bytes, kMiB);
    EXPECT_EQ(lane.staging->stats().capacity_bytes, 4 * kMiB);
  }
  EXPECT_EQ(near.value().lane(0).staging, near.value().lane(1).staging);
  EXPECT_NE(near.value().lane(1).staging, near.value().lane(2).staging);
}

TEST(NumaTest, OnOneNodeNothingIsBound) {
  NumaRequest request{.nodes = {{0, CpusOfProcess(0)}}};
  request.prefer = [](int, std::span<std::byte>) { FAIL() << "there is nothing to choose"; };
  const auto near = NearLanes::Make(
      {.lanes = 3, .threads = 2, .staging_bytes = kMiB, .batch_bytes = 3 * kMiB}, request);
  ASSERT_TRUE(near.ok());
  EXPECT_EQ(near.value().lane(0).executor, near.value().lane(2).executor);
  EXPECT_EQ(near.value().lane(0).executor->concurrency(), 2);
}

}  // namespace
}  // namespace headrace
