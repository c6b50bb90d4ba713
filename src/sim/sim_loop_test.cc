#include "sim/sim_loop.h"

#include <vector>

#include "gtest/gtest.h"
#include "sim/sim_executor.h"

namespace headrace {
namespace {

TEST(SimLoopTest, RunsEventsByTimeThenByOrderOfAdding) {
  SimLoop loop;
  std::vector<int> ran;
  loop.After(5, [&] { ran.push_back(3); });
  loop.After(1, [&] {
    ran.push_back(1);
    loop.After(4, [&] { ran.push_back(4); });
  });
  loop.After(1, [&] { ran.push_back(2); });
  EXPECT_TRUE(loop.RunUntilIdle(100));
  EXPECT_EQ(ran, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(loop.clock().NowNanos(), 5);
}

TEST(SimLoopTest, StopsAtTheBound) {
  SimLoop loop;
  std::function<void()> forever = [&] { loop.After(1, forever); };
  forever();
  EXPECT_FALSE(loop.RunUntilIdle(1000));
}

TEST(SimExecutorTest, RunsTheEarliestDeadlineFirstOnAsManyCoresAsThereAre) {
  SimLoop loop;
  SimExecutor executor(loop, /*cores=*/1, [](std::uint64_t) { return 10; });
  std::vector<std::pair<int, std::int64_t>> ran;
  for (const int deadline : {3, 1, 2}) {
    executor.Submit(static_cast<std::uint64_t>(deadline),
                    [&, deadline] { ran.emplace_back(deadline, loop.now_ns()); });
  }
  EXPECT_TRUE(ran.empty());
  EXPECT_TRUE(loop.RunUntilIdle(100));
  EXPECT_EQ(ran, (std::vector<std::pair<int, std::int64_t>>{{1, 10}, {2, 20}, {3, 30}}));
}

TEST(SimExecutorTest, ATaskSeesThatItTookItsTime) {
  SimLoop loop;
  SimExecutor executor(loop, /*cores=*/2,
                       [](std::uint64_t bytes) { return static_cast<std::int64_t>(bytes); });
  std::vector<std::int64_t> looks;
  for (const std::uint64_t bytes : {10U, 25U}) {
    executor.SubmitSized(bytes, bytes, [&] {
      for (int i = 0; i < 3; ++i) looks.push_back(loop.clock().NowNanos());
      EXPECT_EQ(loop.now_ns(), loop.clock().NowNanos());
    });
  }
  loop.After(12, [&] {
    looks.push_back(loop.clock().NowNanos());
    EXPECT_EQ(executor.busy(), 1);
  });
  EXPECT_TRUE(loop.RunUntilIdle(100));
  EXPECT_EQ(looks, (std::vector<std::int64_t>{0, 10, 10, 12, 0, 25, 25}));
  EXPECT_EQ(executor.busy(), 0);
}

}  // namespace
}  // namespace headrace
