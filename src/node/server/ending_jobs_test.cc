#include "node/server/ending_jobs.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <future>
#include <thread>

#include "gtest/gtest.h"

namespace headrace {
namespace {

constexpr std::chrono::seconds kHang(60);

TEST(EndingJobsTest, AJobThatEndsDoesNotWaitForOneThatCannotYet) {
  std::promise<void> slow;
  std::promise<void> first;
  std::promise<void> second;
  EndingJobs ending_jobs;
  ending_jobs.Run([&] {
    slow.get_future().get();
    first.set_value();
  });
  ending_jobs.Run([&] { second.set_value(); });
  EXPECT_EQ(second.get_future().wait_for(kHang), std::future_status::ready);
  slow.set_value();
  first.get_future().get();
}

TEST(EndingJobsTest, TheEndWaitsForAll) {
  std::atomic<int> ended = 0;
  {
    EndingJobs ending_jobs;
    for (int i = 0; i < 20; ++i) ending_jobs.Run([&] { ++ended; });
  }
  EXPECT_EQ(ended, 20);
}

TEST(EndingJobsTest, BeyondItsThreadsTheCallerWaits) {
  std::promise<void> all;
  const std::shared_future<void> may_end = all.get_future().share();
  EndingJobs ending_jobs;
  for (std::size_t i = 0; i < EndingJobs::kThreadsMax; ++i) ending_jobs.Run([&] { may_end.get(); });
  std::thread::id by;
  ending_jobs.Run([&] { by = std::this_thread::get_id(); });
  EXPECT_EQ(by, std::this_thread::get_id());
  all.set_value();
}

}  // namespace
}  // namespace headrace
