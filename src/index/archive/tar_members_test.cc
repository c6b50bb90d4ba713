#include "index/archive/tar_members.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/test_contents.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::size_t kBlock = 512;

// A header, and `size` bytes behind it, rounded up.
struct Member {
  std::string name;
  std::string content;
  char kind = '0';
  std::string prefix = {};
};

std::string HeaderOf(const Member& member) {
  std::string header(kBlock, '\0');
  const auto put = [&](std::size_t at, const std::string& text) {
    std::copy(text.begin(), text.end(), header.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(0, member.name);
  put(124, fmt::format("{:011o}", member.content.size()));
  put(148, std::string(8, ' '));
  header[156] = member.kind;
  put(257, std::string("ustar\0", 6) + "00");
  put(345, member.prefix);
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return header;
}

class TarMembersTest : public testing::Test {
 protected:
  void Add(const Member& member) {
    tar_ += HeaderOf(member) + member.content;
    tar_.resize((tar_.size() + kBlock - 1) / kBlock * kBlock);
  }

  TarMembers Read(std::size_t members_max = 1000, std::uint64_t at = 0) {
    internal::WriteFile(folder_ / "a.tar", std::as_bytes(std::span(tar_)));
    const UniqueFd fd(open((folder_ / "a.tar").c_str(), O_RDONLY | O_CLOEXEC));
    return ReadTarMembers(fd.get(), tar_.size(), at, members_max);
  }

  static std::vector<std::string> NamesOf(const TarMembers& found) {
    std::vector<std::string> names;
    for (const char* at = found.names.data(); at < found.names.data() + found.names.size();
         at += names.back().size() + 1) {
      names.emplace_back(at);
    }
    return names;
  }

  std::string tar_;
  internal::TestFolder folder_;
};

TEST_F(TarMembersTest, FilesHaveTheirPlaces) {
  Add({.name = "a.txt", .content = "hello"});
  Add({.name = "folder/", .content = "", .kind = '5'});
  Add({.name = "old/", .content = ""});
  Add({.name = "b", .content = std::string(700, 'x'), .prefix = "far/away"});
  Add({.name = "c", .content = "", .kind = '\0'});
  const std::uint64_t end = tar_.size();
  tar_ += std::string(2 * kBlock, '\0');
  const TarMembers found = Read();
  EXPECT_THAT(NamesOf(found), ElementsAre("a.txt", "far/away/b", "c"));
  EXPECT_THAT(found.offsets, ElementsAre(512, 2560, 4096));
  EXPECT_THAT(found.sizes, ElementsAre(5, 700, 0));
  EXPECT_EQ(found.next, end);
  EXPECT_FALSE(found.is_plain);
}

TEST_F(TarMembersTest, SomeAtATimeAreAll) {
  for (int i = 0; i < 300; ++i) {
    Add({.name = std::to_string(i),
         .content = std::string(static_cast<std::size_t>(i * 331), 'x')});
  }
  const TarMembers all = Read();
  EXPECT_EQ(all.sizes.size(), 300);
  std::vector<std::int64_t> offsets;
  std::uint64_t at = 0;
  for (;;) {
    const TarMembers some = Read(7, at);
    offsets.insert(offsets.end(), some.offsets.begin(), some.offsets.end());
    at = some.next;
    if (!some.is_plain) break;
    EXPECT_EQ(some.sizes.size(), 7);
  }
  EXPECT_EQ(offsets, all.offsets);
}

TEST_F(TarMembersTest, PaxRecordsOfTimesAreRead) {
  Add({.name = "x", .content = "20 mtime=1234567.25\n", .kind = 'x'});
  Add({.name = "a", .content = "1"});
  EXPECT_THAT(NamesOf(Read()), ElementsAre("a"));
}

TEST_F(TarMembersTest, ItStopsBeforeWhatIsNotPlain) {
  const std::vector<Member> odd = {
      {.name = "x", .content = "8 path=b\n", .kind = 'x'},
      {.name = "x", .content = "10 path=b\n", .kind = 'x'},
      {.name = "x", .content = "9 size=1\n", .kind = 'x'},
      {.name = "x", .content = "22 GNU.sparse.major=1\n", .kind = 'x'},
      {.name = "x", .content = "nonsense", .kind = 'x'},
      {.name = "x", .content = "99 mtime=1\n", .kind = 'x'},
      {.name = "x", .content = "", .kind = 'g'},
      {.name = "x", .content = "long", .kind = 'L'},
      {.name = "x", .content = "", .kind = '2'},
      {.name = "x", .content = "", .kind = 'S'},
      {.name = "x", .content = "", .kind = '7'},
  };
  for (const Member& each : odd) {
    tar_.clear();
    Add({.name = "a", .content = "1"});
    const std::uint64_t at = tar_.size();
    Add(each);
    Add({.name = "b", .content = "1"});
    const TarMembers found = Read();
    EXPECT_THAT(NamesOf(found), ElementsAre("a"));
    EXPECT_EQ(found.next, at) << each.kind << each.content;
    EXPECT_FALSE(found.is_plain);
  }
}

TEST_F(TarMembersTest, ItStopsBeforeDamage) {
  Add({.name = "a", .content = "1"});
  const std::string good = tar_;
  tar_[0] = 'b';  // The checksum is that of another name.
  EXPECT_THAT(Read().sizes, IsEmpty());
  tar_ = good.substr(0, 300);
  EXPECT_THAT(Read().sizes, IsEmpty());
  tar_ = good.substr(0, kBlock);  // Its byte is missing.
  EXPECT_THAT(Read().sizes, IsEmpty());
  tar_.clear();
  EXPECT_THAT(Read().sizes, IsEmpty());
  EXPECT_THAT(ReadTarMembers(-1, 4096, 0, 5).sizes, IsEmpty());
}

}  // namespace
}  // namespace headrace
