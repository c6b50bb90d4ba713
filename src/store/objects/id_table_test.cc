#include "store/objects/id_table.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

enum class ThingId : std::uint64_t {};

TEST(IdTableTest, EqualsAMapAndNeverGivesANumberTwice) {
  Prng prng(2, 0, RandomStream::kOrder);
  IdTable<ThingId, int> table;
  std::map<ThingId, int> model;
  std::set<ThingId> given;
  std::size_t most = 0;
  std::uint32_t last_entry = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (prng.Below(2) == 0 || model.empty()) {
      const ThingId id = table.Add(i);
      EXPECT_TRUE(given.insert(id).second);
      model.emplace(id, i);
      last_entry = std::max(last_entry, static_cast<std::uint32_t>(id));
    } else {
      const auto at =
          std::next(model.begin(), static_cast<std::ptrdiff_t>(prng.Below(model.size())));
      EXPECT_EQ(table.At(at->first), at->second);
      EXPECT_EQ(table.Remove(at->first), at->second);
      EXPECT_EQ(table.Find(at->first), nullptr);
      model.erase(at);
    }
    most = std::max(most, model.size());
    ASSERT_EQ(table.size(), model.size());
  }
  EXPECT_EQ(last_entry + 1, most) << "entries are used again";
  for (const ThingId id : given) {
    EXPECT_EQ(table.Find(id) != nullptr, model.count(id) == 1);
  }
}

}  // namespace
}  // namespace headrace
