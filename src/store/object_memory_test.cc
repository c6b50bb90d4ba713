#include "store/object_memory.h"

#include <algorithm>

#include "base/prng.h"
#include "base/units.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

TEST(DecodedMemoryTest, NoObjectsNeedNothing) {
  const DecodedMemory none;
  EXPECT_EQ(none.least(), 0U);
  EXPECT_EQ(none.useful(), 0U);
  EXPECT_EQ(none.Divide(0).kept_bytes_max, 0U);
}

TEST(DecodedMemoryTest, ManyObjectsHaveUseForTheDefaultLimits) {
  DecodedMemory memory;
  for (int i = 0; i < 1000; ++i) memory.Add({.kept_bytes = kMiB, .decode_bytes = 2 * kMiB});
  EXPECT_EQ(memory.least(), 3 * kMiB);
  EXPECT_EQ(memory.useful(), (256 + 128) * kMiB);
  const DecodedLimits limits = memory.Divide(memory.useful());
  EXPECT_EQ(limits.kept_bytes_max, 256 * kMiB);
  EXPECT_EQ(limits.decoding_bytes_max, 128 * kMiB);
}

TEST(DecodedMemoryTest, AnyMemoryHoldsTheLargestTwiceAndIsNotExceeded) {
  Prng random(1, 0, RandomStream::kOrder);
  for (int round = 0; round < 2000; ++round) {
    DecodedMemory memory;
    ObjectMemory largest;
    const std::uint64_t count = 1 + random.Below(30);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t kept = 1 + random.Below(200 * kMiB);
      const ObjectMemory object{.kept_bytes = kept, .decode_bytes = kept + random.Below(kept)};
      memory.Add(object);
      largest.kept_bytes = std::max(largest.kept_bytes, object.kept_bytes);
      largest.decode_bytes = std::max(largest.decode_bytes, object.decode_bytes);
    }
    ASSERT_GE(memory.useful(), memory.least());
    const std::uint64_t bytes = memory.least() + random.Below(memory.useful() - memory.least() + 1);
    const DecodedLimits limits = memory.Divide(bytes);
    ASSERT_LE(limits.kept_bytes_max + limits.decoding_bytes_max, bytes);
    ASSERT_GE(limits.kept_bytes_max, largest.kept_bytes);
    ASSERT_GE(limits.decoding_bytes_max, largest.decode_bytes);
    const DecodedLimits most = memory.Divide(memory.useful());
    ASSERT_EQ(most.kept_bytes_max + most.decoding_bytes_max, memory.useful());
  }
}

}  // namespace
}  // namespace headrace
