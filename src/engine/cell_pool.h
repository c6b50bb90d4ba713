#pragma once
#include <cstdint>
namespace headrace {
class CellPool {
 public:
  static std::uint64_t ChargedBytes(std::uint64_t units, std::uint64_t unit_bytes) { return units * (unit_bytes + 4); }
};
}  // namespace headrace
