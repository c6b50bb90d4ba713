#include "index/column_spool.h"

#include <sys/mman.h>
#include <sys/mount.h>

#include <filesystem>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"
#include "index/file_io.h"
#include "index/test_contents.h"

namespace headrace::internal {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::size_t kChunk = ColumnSpool::kChunkBytes;

Bytes Drawn(Prng& prng, std::size_t size) {
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.Below(256));
  return bytes;
}

TEST(ColumnSpoolTest, ColumnsThatGrowInTurnAreReadAsTheyWereWritten) {
  const TestFolder folder;
  Prng prng(7, 0, RandomStream::kOrder);
  ColumnSpool spool(folder.path());
  std::vector<Bytes> model(3);
  for (std::size_t i = 0; i < model.size(); ++i) EXPECT_EQ(spool.AddColumn(), i);
  const std::size_t sizes[] = {0, 1, 100, kChunk - 1, kChunk, kChunk + 1, 3 * kChunk + 17};
  for (int round = 0; round < 60; ++round) {
    const std::size_t column = prng.Below(model.size());
    const Bytes bytes = Drawn(prng, sizes[prng.Below(std::size(sizes))]);
    ASSERT_TRUE(spool.Append(column, bytes).ok());
    model[column].insert(model[column].end(), bytes.begin(), bytes.end());
    ASSERT_EQ(spool.size(column), model[column].size());
  }
  for (std::size_t column = 0; column < model.size(); ++column) {
    Bytes whole(model[column].size());
    ASSERT_TRUE(spool.Read(column, 0, whole).ok());
    EXPECT_EQ(whole, model[column]);
    for (int round = 0; round < 50; ++round) {
      const std::size_t begin = prng.Below(whole.size() + 1);
      Bytes part(prng.Below(whole.size() - begin + 1));
      ASSERT_TRUE(spool.Read(column, begin, part).ok());
      EXPECT_TRUE(std::equal(part.begin(), part.end(),
                             model[column].begin() + static_cast<std::ptrdiff_t>(begin)));
    }
  }
}

TEST(ColumnSpoolTest, ShortColumnsTouchNoDiskAndLongOnesHaveNoName) {
  const TestFolder folder;
  ColumnSpool nowhere(folder / "absent");
  nowhere.AddColumn();
  EXPECT_TRUE(nowhere.Append(0, Bytes(kChunk - 1)).ok());
  EXPECT_EQ(nowhere.Append(0, Bytes(1)).code(), StatusCode::kUnavailable);

  ColumnSpool spool(folder.path());
  spool.AddColumn();
  EXPECT_TRUE(spool.Append(0, Bytes(5 * kChunk)).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ColumnSpoolTest, AFileThatLostItsEndIsUnavailable) {
  const UniqueFd file(memfd_create("short", MFD_CLOEXEC));
  ASSERT_TRUE(WriteAll(file.get(), 0, Bytes(3)).ok());
  Bytes bytes(8);
  EXPECT_EQ(
      ReadAll(file.get(), 1, bytes).ToString(),
      "Unavailable: reading 6 bytes at byte 3: a temporary file has lost its end; use another "
      "disk");
}

TEST(ColumnSpoolTest, AFullDiskIsResourceExhausted) {
  const TestFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "mounting a small disk needs root";
  }
  {
    ColumnSpool spool(folder.path());
    spool.AddColumn();
    EXPECT_EQ(spool.Append(0, Bytes(10 * kChunk)).code(), StatusCode::kResourceExhausted);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(umount(folder.path().c_str()), 0);
}

}  // namespace
}  // namespace headrace::internal
