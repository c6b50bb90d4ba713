#include "store/objects/read_order.h"

#include <deque>
#include <map>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using Queue = ReadOrder::Queue;

TEST(ReadOrderTest, RetriedReadsGoFirstButEveryFourthIsANewOne) {
  ReadOrder order;
  for (std::uint64_t i = 0; i < 3; ++i) order.Push(Queue::kNew, ReadId{i});
  for (std::uint64_t i = 10; i < 18; ++i) order.Push(Queue::kRetried, ReadId{i});
  for (const std::uint64_t read : {10U, 11U, 12U, 0U, 13U, 14U, 15U, 1U, 16U, 17U, 2U}) {
    EXPECT_EQ(order.TakeNext(), ReadId{read});
  }
  EXPECT_EQ(order.TakeNext(), std::nullopt);
}

TEST(ReadOrderTest, ReadsThatAreAlwaysTriedAgainDoNotStarveOthersOfTheirQueue) {
  ReadOrder order;
  for (std::uint64_t i = 0; i < 4; ++i) order.Push(Queue::kRetried, ReadId{i});
  for (std::uint64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(order.TakeNext(), ReadId{i % 4});
    order.Push(Queue::kRetried, ReadId{i % 4});
  }
}

TEST(ReadOrderTest, EqualsThreeQueuesUnderRandomCalls) {
  Prng prng(9, 0, RandomStream::kOrder);
  ReadOrder order;
  std::map<Queue, std::deque<std::pair<ReadId, ReadOrder::Place>>> model;
  std::uint32_t retried = 0;
  const auto take = [&](Queue queue) -> std::optional<ReadId> {
    if (model[queue].empty()) return std::nullopt;
    const ReadId read = model[queue].front().first;
    model[queue].pop_front();
    return read;
  };
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const auto queue = static_cast<Queue>(prng.Below(3));
    const std::uint64_t what = prng.Below(5);
    std::deque<std::pair<ReadId, ReadOrder::Place>>& reads = model[queue];
    if (what < 2) {
      reads.emplace_back(ReadId{i}, order.Push(queue, ReadId{i}));
    } else if (what == 2 && !reads.empty()) {
      const auto at = reads.begin() + static_cast<std::ptrdiff_t>(prng.Below(reads.size()));
      order.Remove(at->second, at->first);
      reads.erase(at);
    } else if (what == 3) {
      ASSERT_EQ(order.TakeLate(), take(Queue::kLate));
    } else if (what == 4) {
      const bool new_turn = retried >= 3 && !model[Queue::kNew].empty();
      const bool is_new = new_turn || model[Queue::kRetried].empty();
      retried = is_new ? 0 : retried + 1;
      ASSERT_EQ(order.TakeNext(), take(is_new ? Queue::kNew : Queue::kRetried));
    }
    ASSERT_EQ(order.empty(queue), model[queue].empty());
  }
}

}  // namespace
}  // namespace headrace
