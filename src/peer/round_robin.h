#pragma once

#include <cstddef>

namespace headrace {

// Takes turns among users of a scarce resource, where the first may take all of it.
//
// Thread safety: none.
class RoundRobin {
 public:
  // Calls served(each) for all of `all`, which returns whether it took some. The next call begins
  // after the first one that did, which then comes last.
  template <typename All, typename Served>
  void Visit(const All& all, const Served& served) {
    const std::size_t count = all.size();
    const std::size_t first = first_;
    bool found = false;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t place = (first + i) % count;
      if (!served(all[place]) || found) continue;
      found = true;
      first_ = place + 1;
    }
  }

 private:
  std::size_t first_ = 0;
};

}  // namespace headrace
