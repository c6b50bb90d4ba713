#include "plan/packing/free_rows.h"

#include <map>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

TEST(FreeRowsTest, IsWhatAMapFinds) {
  for (const std::uint32_t row_tokens : {1U, 2U, 63U, 64U, 65U, 4095U, 4096U, 70000U, 300000U}) {
    Prng prng(row_tokens, 0, RandomStream::kOrder);
    FreeRows rows(row_tokens);
    std::map<std::uint32_t, std::vector<std::uint32_t>> model;
    std::uint32_t next = 0;
    for (int i = 0; i < 20000; ++i) {
      if (prng.Below(2) == 0) {
        const auto free = static_cast<std::uint32_t>(prng.Below(row_tokens + 1));
        model[free].push_back(next);
        rows.Add(next++, free);
        continue;
      }
      const auto tokens = static_cast<std::uint32_t>(prng.Below(row_tokens + 1));
      const auto found = model.lower_bound(tokens);
      const std::uint32_t free = rows.LeastFree(tokens);
      if (found == model.end()) {
        ASSERT_EQ(free, FreeRows::kNone);
        continue;
      }
      ASSERT_EQ(free, found->first);
      ASSERT_EQ(rows.Take(free), found->second.back());
      found->second.pop_back();
      if (found->second.empty()) model.erase(found);
    }
  }
}

}  // namespace
}  // namespace headrace
