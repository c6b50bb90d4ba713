#pragma once

// The tests that every ByteStore must pass. A store registers a StoreCase in an
// INSTANTIATE_TEST_SUITE_P of StoreConformanceTest; the tests are in store_conformance.cc.

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>

#include "gtest/gtest.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/byte_store.h"

namespace headrace {

using StoreObjects = std::map<ObjectId, std::string>;

// A store over given objects, with everything that it needs.
class StoreUnderTest {
 public:
  virtual ~StoreUnderTest() = default;
  virtual ByteStore& store() = 0;

  // Destroys only the store.
  virtual void DestroyStore() = 0;

  // For stores that answer only on request: requests it. Called until everything is answered.
  [[nodiscard]] virtual std::function<void()> pump() { return nullptr; }
};

struct StoreCase {
  std::string name;

  // An error: the store cannot be made here; its tests are skipped with that reason.
  std::function<Result<std::unique_ptr<StoreUnderTest>>(const StoreObjects&)> make;
};

inline void PrintTo(const StoreCase& store, std::ostream* out) { *out << store.name; }

class StoreConformanceTest : public testing::TestWithParam<StoreCase> {
 protected:
  static constexpr ObjectId kLarge{1};  // whole blocks and a tail
  static constexpr ObjectId kSmall{2};
  static constexpr ObjectId kEmpty{3};
  static constexpr ObjectId kUnknown{99};

  void SetUp() override;

  [[nodiscard]] ByteStore& store() { return made_->store(); }
  [[nodiscard]] const std::string& object(ObjectId id) const { return objects_.at(id); }

  // The expected bytes of a read of `extent`.
  [[nodiscard]] std::string Expected(const Extent& extent) const;

  // Reads one range; fails the test if `done` did not run exactly once.
  Result<std::string> ReadOne(const Extent& extent, std::stop_token stop = {});

  // Reads many ranges in one call, and compares their bytes.
  void ExpectBytes(const std::vector<Extent>& extents);

  StoreObjects objects_;
  std::unique_ptr<StoreUnderTest> made_;
};

}  // namespace headrace
