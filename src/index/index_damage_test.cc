// Errors of an index file whose bytes contradict each other, behind checksums that are right.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/index_reader.h"
#include "index/test_contents.h"

namespace headrace {
namespace {

using internal::FileOf;
using internal::SectionKind;
using internal::SmallContents;
using internal::Store;
using internal::TestFolder;

using Bytes = std::vector<std::byte>;

constexpr std::size_t kSectionCountAt = 12;
constexpr std::size_t kFileBytesAt = 16;

// Of 3 samples, with a text in the index: sample i has i letters.
IndexContents WithText() {
  IndexContents contents = SmallContents();
  contents.fields.push_back({.info = {.name = "text", .kind = FieldKind::kText, .is_inline = true},
                             .extents = {},
                             .inline_values = Bytes(3, std::byte{'a'}),
                             .inline_ends = {0, 1, 3},
                             .checksums = {}});
  return contents;
}

std::byte* EndsOf(Bytes& file) {
  for (const internal::Section& section : internal::SectionsOf(file)) {
    if (section.kind == SectionKind::kInlineEnds) return file.data() + section.offset;
  }
  return nullptr;
}

struct Damage {
  const char* name;
  std::function<void(Bytes&)> make;
  bool sealed;  // with checksums that are right
  std::string why;
};

class DamagedIndexTest : public testing::TestWithParam<Damage> {};

TEST_P(DamagedIndexTest, IsDataLossWithAWayOut) {
  Bytes file = FileOf(WithText());
  GetParam().make(file);
  if (GetParam().sealed) internal::Reseal(file);
  const auto index = internal::OpenIndexInMemory(file, "/x/damaged.hri", nullptr);
  const Status status = index.ok() ? index.value()->VerifyAll() : index.status();
  EXPECT_EQ(status.ToString(), "DataLoss: reading index '/x/damaged.hri': " + GetParam().why +
                                   "; copy the file again, or index the dataset again (headrace "
                                   "index)");
}

std::vector<Damage> Damages() {
  const Bytes file = FileOf(WithText());
  const std::string size = std::to_string(file.size());
  const std::string longer = std::to_string(file.size() + 8);
  const auto sections = internal::Load<std::uint32_t>(file.data() + kSectionCountAt);
  return {
      {"CutInItsHeader", [](Bytes& it) { it.resize(100); }, false,
       "truncated: the file has 100 bytes, its header alone 128"},
      {"Header", [](Bytes& it) { it[kFileBytesAt] ^= std::byte{1}; }, false,
       "header: its checksum is wrong"},
      {"Cut", [](Bytes& it) { it.resize(1000); }, false,
       "truncated or extended: the file has 1000 bytes, its header says " + size},
      {"OneSectionLess",
       [sections](Bytes& it) { Store(sections - 1, it.data() + kSectionCountAt); }, true,
       "header: " + std::to_string(sections - 1) + " sections, its fields need " +
           std::to_string(sections)},
      {"Extended",
       [](Bytes& it) {
         it.resize(it.size() + 8);
         Store(std::uint64_t{it.size()}, it.data() + kFileBytesAt);
       },
       true, "the file has " + longer + " bytes, its sections end at " + size},
      {"TextEndsEarly", [](Bytes& it) { Store(std::uint64_t{2}, EndsOf(it) + 16); }, true,
       "ends of the values of field 'text': the last ends at byte 2 of 3"},
      {"TextEndsBackwards", [](Bytes& it) { Store(std::uint64_t{5}, EndsOf(it) + 8); }, true,
       "ends of the values of field 'text': entry 1: value at bytes [0, 5) of 3, must be a "
       "multiple of 1"},
  };
}

INSTANTIATE_TEST_SUITE_P(Damages, DamagedIndexTest, testing::ValuesIn(Damages()),
                         [](const auto& one) { return std::string(one.param.name); });

// Both an index beside its data, and a folder that is to be indexed, may be named relatively.
TEST(RelativeIndexTest, AWorkingFolderThatIsGoneIsNamed) {
  IndexContents contents = SmallContents();
  contents.root = ".";
  const Bytes file = FileOf(contents);
  const std::filesystem::path before = std::filesystem::current_path();
  {
    const TestFolder folder;
    std::filesystem::current_path(folder.path());
  }
  const Status status = internal::OpenIndexInMemory(file, "a.hri", nullptr).status();
  std::filesystem::current_path(before);
  EXPECT_EQ(
      status.ToString(),
      "FailedPrecondition: reading index 'a.hri': finding the working folder: No such file or "
      "directory; change to a folder that exists");
}

}  // namespace
}  // namespace headrace
