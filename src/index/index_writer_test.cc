#include "headrace/index_writer.h"

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/index_file.h"
#include "index/test_contents.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using internal::MakeExtent;
using internal::SmallContents;
using internal::TestFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

// Contents whose file has a little more than `bytes`.
IndexContents LargeContents(std::uint64_t bytes) {
  IndexContents contents = SmallContents();
  contents.attributes.emplace_back("filling", std::string(bytes, 'x'));
  return contents;
}

TEST(IndexWriterTest, LeavesTheFileAndNothingElse) {
  const TestFolder folder;
  ASSERT_TRUE(WriteIndex(SmallContents(), folder / "i").ok());
  EXPECT_THAT(FilesIn(folder.path()), UnorderedElementsAre("i"));
}

TEST(IndexWriterTest, TwoFilesOfTheSameContentsAreEqual) {
  EXPECT_EQ(internal::FileOf(SmallContents()), internal::FileOf(SmallContents()));
}

TEST(IndexWriterTest, ReplacesAFileWhileItIsRead) {
  const TestFolder folder;
  ASSERT_TRUE(WriteIndex(SmallContents(), folder / "i").ok());
  const auto before = Index::Open(folder / "i").value();
  IndexContents contents = SmallContents();
  contents.objects[0].mtime_ns = 5;
  ASSERT_TRUE(WriteIndex(contents, folder / "i").ok());
  const auto after = Index::Open(folder / "i").value();
  EXPECT_EQ(before->object(ObjectId{0}).value().mtime_ns, 1700000000123456789);
  EXPECT_EQ(after->object(ObjectId{0}).value().mtime_ns, 5);
  EXPECT_TRUE(before->VerifyAll().ok());
}

TEST(IndexWriterTest, WritesSectionsLargerThanItsBuffers) {
  const TestFolder folder;
  IndexContents contents = LargeContents(3'000'000);
  contents.blocks.clear();
  contents.sample_count = 200'000;
  for (IndexContents::Field& field : contents.fields) {
    field.checksums.resize(field.info.has_checksums ? contents.sample_count : 0, 7);
    if (field.info.is_inline) {
      field.inline_values.resize(contents.sample_count * field.info.array_bytes());
    } else {
      field.extents.resize(contents.sample_count, field.extents[0]);
    }
  }
  ASSERT_EQ(WriteIndex(contents, folder / "i").ToString(), "OK");
  const auto index = Index::Open(folder / "i").value();
  EXPECT_EQ(index->VerifyAll().ToString(), "OK");
  EXPECT_EQ(index->extent(0, SampleId{199'999}).value(), contents.fields[0].extents[0]);
  EXPECT_EQ(index->checksum(0, SampleId{199'999}), 7u);
}

struct Contradiction {
  const char* name;
  std::function<void(IndexContents&)> make;
  const char* why;
};

class ContradictionTest : public testing::TestWithParam<Contradiction> {};

TEST_P(ContradictionTest, IsInvalidArgumentNamedAndWritesNothing) {
  const TestFolder folder;
  IndexContents contents = SmallContents();
  GetParam().make(contents);
  const Status status = WriteIndex(contents, folder / "i");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "writing index '" + (folder / "i") + "': " + GetParam().why);
  EXPECT_THAT(FilesIn(folder.path()), testing::IsEmpty());
}

// NOLINTNEXTLINE(readability-function-size): a table
std::vector<Contradiction> Contradictions() {
  using C = IndexContents;
  constexpr std::uint64_t kBig = std::uint64_t{1} << 50;
  return {
      {"NoFields", [](C& c) { c.fields.clear(); }, "no fields"},
      {"UnnamedField", [](C& c) { c.fields[1].info.name = ""; }, "field 1 '': has no name"},
      {"LongName", [](C& c) { c.fields[1].info.name = std::string(1025, '\n'); }, nullptr},
      {"SameName", [](C& c) { c.fields[1].info.name = "image"; },
       "field 1 'image': the name is taken"},
      {"UnknownKind", [](C& c) { c.fields[1].info.kind = static_cast<FieldKind>(4); },
       "field 1 'note': has an unknown kind"},
      {"UnknownDtype", [](C& c) { c.fields[1].info.dtype = static_cast<DType>(11); },
       "field 1 'note': has an unknown dtype"},
      {"InlineImage",
       [](C& c) {
         c.fields[1].info.is_inline = true;
         c.fields[1].info.kind = FieldKind::kImage;
       },
       "field 1 'note': is an image and inline"},
      {"InlineBytesWithoutEnds", [](C& c) { c.fields[1].info.is_inline = true; },
       "field 'note': 0 ends of inline values, must be 3"},
      {"EndsOfOneLength",
       [](C& c) {
         c.fields[3].inline_ends = {2, 4, 6};
       },
       "field 'label': 3 ends of inline values, must be 0"},
      {"InlineChecksums", [](C& c) { c.fields[3].info.has_checksums = true; },
       "field 3 'label': is inline and has checksums"},
      {"ShapeOfBytes", [](C& c) { c.fields[1].info.shape = {1}; },
       "field 1 'note': is not an array but has a shape"},
      {"TooManyDimensions",
       [](C& c) { c.fields[3].info.shape = std::vector<std::uint64_t>(65, 1); },
       "field 3 'label': has 65 dimensions, more than 64"},
      {"HugeArray",
       [](C& c) {
         c.fields[3].info.shape = {kBig, kBig};
       },
       "field 3 'label': has 2^40 bytes a sample or more"},
      {"ValuesOf2To64Bytes",
       [](C& c) {
         c.fields = {c.fields[3]};
         c.fields[0].info.shape = {std::uint64_t{1} << 30};
         c.sample_count = std::uint64_t{1} << 34;
       },
       "field 'label': its values must be below 2^64 bytes"},
      {"EmptyArray", [](C& c) { c.fields[3].info.shape = {0}; },
       "field 3 'label': has a dimension of 0: no bytes a sample"},
      {"TooFewExtents", [](C& c) { c.fields[1].extents.pop_back(); },
       "field 'note': 2 extents, must be 3"},
      {"ExtentsOfInline", [](C& c) { c.fields[3].extents.resize(3); },
       "field 'label': 3 extents, must be 0"},
      {"TooFewValues", [](C& c) { c.fields[3].inline_values.pop_back(); },
       "field 'label': 5 bytes of inline values, must be 6"},
      {"TooFewChecksums", [](C& c) { c.fields[0].checksums.pop_back(); },
       "field 'image': 2 checksums, must be 3"},
      {"UnexpectedChecksums",
       [](C& c) {
         c.fields[1].checksums = {1, 2, 3};
       },
       "field 'note': 3 checksums, must be 0"},
      {"NoSuchObject", [](C& c) { c.fields[0].extents[1] = MakeExtent(2, 0, 1); },
       "field 'image' sample 1: object 2: there are 2 objects"},
      {"PastItsObject", [](C& c) { c.fields[0].extents[1] = MakeExtent(1, 50, 1); },
       "field 'image' sample 1: object 1 bytes [50, 51): 'b/two.bin' has 50 bytes"},
      {"OffsetTooLarge", [](C& c) { c.fields[0].extents[1] = MakeExtent(1, kBig, 1); },
       "field 'image' sample 1: object 1 bytes [1125899906842624, 1125899906842625): offset of "
       "2^48 or more"},
      {"LengthTooLarge", [](C& c) { c.fields[0].extents[1] = MakeExtent(1, 0, kBig); },
       "field 'image' sample 1: object 1 bytes [0, 1125899906842624): length of 2^40 or more"},
      {"ArrayOfAnotherSize", [](C& c) { c.fields[2].extents[1].range.size = 4; },
       "field 'box' sample 1: object 0 bytes [28, 32): 4 bytes, a sample of field 'box' has 8"},
      {"UnnamedObject", [](C& c) { c.objects[1].name = ""; }, "object 1: has no name"},
      {"AbsoluteObject", [](C& c) { c.objects[1].name = "/etc/x"; },
       "object 1: '/etc/x' is not below the root"},
      {"ObjectAboveRoot", [](C& c) { c.objects[1].name = "a/../../x"; },
       "object 1: 'a/../../x' has a part '..'"},
      {"ZeroByteInName", [](C& c) { c.objects[1].name = std::string("a\0b", 3); },
       "object 1: 'a\\x00b' has a zero byte"},
      {"BlockGap", [](C& c) { c.blocks[1].first_sample = SampleId{1}; },
       "block 1: begins at sample 1, its predecessor ends at 2"},
      {"BlockOfNothing", [](C& c) { c.blocks[0].sample_count = 0; }, "block 0: holds no samples"},
      {"BlockPastTheEnd", [](C& c) { c.blocks[1].sample_count = 2; },
       "block 1: holds 2 samples from 2, the index has 3"},
      {"BlocksTooShort", [](C& c) { c.blocks.pop_back(); },
       "block 0: is the last and ends at sample 2, the index has 3"},
      {"BlockOfNoObject", [](C& c) { c.blocks[0].extent.object = ObjectId{9}; },
       "block 0: object 9: there are 2 objects"},
      {"BlockPastItsObject", [](C& c) { c.blocks[0].extent.range.size = 101; },
       "block 0: object 0 bytes [0, 101): 'a/one.bin' has 100 bytes"},
      {"BlockWithoutASample",
       [](C& c) {
         c.blocks[0].extent.range.offset = 1;
         c.blocks[0].extent.range.size = 99;
       },
       "block 0: object 0 bytes [1, 100) must hold sample 0 field 'image': object 0 bytes [0, "
       "10)"},
      {"RelativeRoot", [](C& c) { c.root = "data"; },
       "root: is 'data': neither an absolute path nor \".\""},
      {"RootOfSchemeFile", [](C& c) { c.root = "file:///data"; },
       "root: is 'file:///data': write the path alone"},
      {"UnnamedAttribute", [](C& c) { c.attributes[0].first = ""; }, "an attribute has no key"},
      {"SameAttribute", [](C& c) { c.attributes[1].first = "format"; },
       "attribute 'format': the key is taken"},
  };
}

std::vector<Contradiction> Named() {
  static const std::string long_name = [] {
    std::string shown;
    for (int i = 0; i < 200; ++i) shown += "\\x0a";
    return "field 1 '" + shown + "...': its name has 1025 bytes, more than 1024";
  }();
  std::vector<Contradiction> all = Contradictions();
  for (Contradiction& one : all) {
    if (one.why == nullptr) one.why = long_name.c_str();
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(IndexWriter, ContradictionTest, testing::ValuesIn(Named()),
                         [](const auto& test) { return test.param.name; });

TEST(IndexWriterTest, TooManyFieldsOrAttributesAreInvalid) {
  const TestFolder folder;
  IndexContents contents = SmallContents();
  for (int i = 0; i < 4096; ++i) contents.attributes.emplace_back(std::to_string(i), "");
  EXPECT_THAT(WriteIndex(contents, folder / "i").ToString(),
              AllOf(HasSubstr("InvalidArgument"), HasSubstr("4098 attributes, more than 4096")));
  contents.fields.resize(4097);
  EXPECT_THAT(WriteIndex(contents, folder / "i").ToString(),
              AllOf(HasSubstr("InvalidArgument"), HasSubstr("4097 fields, more than 4096")));
}

TEST(IndexWriterTest, AFileOf2To63BytesIsInvalid) {
  const TestFolder folder;
  const auto file = internal::AtomicFile::Create(folder / "i").value();
  const internal::IndexOutline outline = {.sample_count = std::uint64_t{1} << 59,
                                          .fields = {{.name = "bytes"}},
                                          .root = "/data",
                                          .attributes = {}};
  const auto give = [](const internal::Section&, const internal::TakeBytes&) { return Status(); };
  EXPECT_EQ(internal::WriteIndexFile(outline, give, *file).ToString(),
            "InvalidArgument: it would exceed 2^63 bytes; index the dataset in parts");
}

TEST(IndexWriterTest, AFolderThatIsNotThereIsUnavailable) {
  const TestFolder folder;
  const Status status = WriteIndex(SmallContents(), folder / "no/i");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("there is no folder"));
}

TEST(IndexWriterTest, AFolderByItsNameIsUnavailableAndNothingIsLeft) {
  const TestFolder folder;
  fs::create_directory(folder / "i");
  EXPECT_EQ(WriteIndex(SmallContents(), folder / "i").code(), StatusCode::kUnavailable);
  EXPECT_THAT(FilesIn(folder.path()), UnorderedElementsAre("i"));
}

TEST(IndexWriterTest, AFileLeftByAKilledWriterIsNoObstacle) {
  const TestFolder folder;
  const std::string left = "i.tmp-" + std::to_string(getpid()) + "-0";
  internal::WriteFile(folder / left, {});
  EXPECT_TRUE(WriteIndex(SmallContents(), folder / "i").ok());
  EXPECT_THAT(FilesIn(folder.path()), UnorderedElementsAre("i", left));
}

TEST(IndexWriterTest, AFullDiskIsResourceExhaustedAndLeavesTheOldFile) {
  const TestFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "mounting a small disk needs root";
  }
  EXPECT_TRUE(WriteIndex(SmallContents(), folder / "i").ok());
  const Status status = WriteIndex(LargeContents(2'000'000), folder / "i");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("No space left on device"));
  EXPECT_THAT(FilesIn(folder.path()), UnorderedElementsAre("i"));
  EXPECT_TRUE(Index::Open(folder / "i").value()->VerifyAll().ok());
  EXPECT_EQ(umount(folder.path().c_str()), 0);
}

TEST(IndexWriterTest, AFileSizeLimitIsResourceExhaustedAndLeavesTheOldFile) {
  const TestFolder folder;
  EXPECT_TRUE(WriteIndex(SmallContents(), folder / "i").ok());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 100'000;
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const Status status = WriteIndex(LargeContents(2'000'000), folder / "i");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(FilesIn(folder.path()), UnorderedElementsAre("i"));
  EXPECT_TRUE(Index::Open(folder / "i").value()->VerifyAll().ok());
}

}  // namespace
}  // namespace headrace
