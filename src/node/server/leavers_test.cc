#include "node/server/leavers.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <future>
#include <thread>

#include "gtest/gtest.h"

namespace headrace {
namespace {

constexpr std::chrono::seconds kHang(60);

TEST(LeaversTest, AJobThatEndsDoesNotWaitForOneThatCannotYet) {
  std::promise<void> slow;
  std::promise<void> first;
  std::promise<void> second;
  Leavers leavers;
  leavers.Run([&] {
    slow.get_future().get();
    first.set_value();
  });
  leavers.Run([&] { second.set_value(); });
  EXPECT_EQ(second.get_future().wait_for(kHang), std::future_status::ready);
  slow.set_value();
  first.get_future().get();
}

TEST(LeaversTest, TheEndWaitsForAll) {
  std::atomic<int> ended = 0;
  {
    Leavers leavers;
    for (int i = 0; i < 20; ++i) leavers.Run([&] { ++ended; });
  }
  EXPECT_EQ(ended, 20);
}

TEST(LeaversTest, BeyondItsThreadsTheCallerWaits) {
  std::promise<void> all;
  const std::shared_future<void> may_end = all.get_future().share();
  Leavers leavers;
  for (std::size_t i = 0; i < Leavers::kThreadsMax; ++i) leavers.Run([&] { may_end.get(); });
  std::thread::id by;
  leavers.Run([&] { by = std::this_thread::get_id(); });
  EXPECT_EQ(by, std::this_thread::get_id());
  all.set_value();
}

}  // namespace
}  // namespace headrace
