#include "base/memory/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

namespace headrace {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "headrace-mapped-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  static std::string Text(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }

  std::filesystem::path folder_;
};

TEST_F(MappedFileTest, HasTheBytesThatTheFileHadWhenItWasOpened) {
  const std::string path = Write("file", "as it was");
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  std::filesystem::rename(Write("new", "another"), path);
  EXPECT_EQ(Text(*file.value()), "as it was");
  EXPECT_EQ(Text(*MappedFile::Open(path).value()), "another");
  EXPECT_EQ(Text(*MappedFile::Open(Write("empty", "")).value()), "");
}

TEST_F(MappedFileTest, WhatIsNoFileIsSaidAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("loop", folder_ / "loop");
  const auto code = [&](const char* name) {
    return MappedFile::Open(folder_ / name).status().code();
  };
  EXPECT_EQ(code("none"), StatusCode::kNotFound);
  EXPECT_EQ(code("pipe/below"), StatusCode::kNotFound);
  EXPECT_EQ(code("pipe"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("."), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("loop"), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace headrace
