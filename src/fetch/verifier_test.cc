#include "fetch/verifier.h"

#include <cstring>
#include <string>

#include "base/hash.h"
#include "gtest/gtest.h"
#include "index/testing/table_index.h"

namespace headrace {
namespace {

TEST(VerifierTest, ComparesWithTheIndexWhereItHasAChecksum) {
  const std::string text = "stored";
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  TableIndex index;
  index.samples = 1;
  index.columns.resize(2);
  index.columns[0].checksums = {Hash64(bytes)};
  index.infos = {{.name = "image", .has_checksums = true}, {.name = "text"}};

  EXPECT_TRUE(Verifier(index, true).Check(0, SampleId{0}, bytes).ok());
  const Status damaged = Verifier(index, true).Check(0, SampleId{0}, bytes.first(5));
  EXPECT_EQ(damaged.code(), StatusCode::kDataLoss);
  EXPECT_EQ(
      damaged.message(),
      "field image: its checksum differs from the index's; the stored 5 bytes are damaged, or "
      "changed since they were indexed: restore them, or index the dataset again (headrace "
      "index)");
  EXPECT_TRUE(Verifier(index, true).Check(1, SampleId{0}, bytes.first(5)).ok());
  EXPECT_TRUE(Verifier(index, false).Check(0, SampleId{0}, bytes.first(5)).ok());
}

}  // namespace
}  // namespace headrace
