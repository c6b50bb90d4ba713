#include "index/index_builder.h"

#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/index_rules.h"
#include "index/test_contents.h"

namespace headrace {
namespace {

using internal::FileOf;
using internal::MakeExtent;
using internal::SmallContents;
using internal::TestFolder;
using testing::HasSubstr;

bool IsEmpty(const TestFolder& folder) { return std::filesystem::is_empty(folder.path()); }

// Adds `count` inline values of variable length.
Status AddVariable(IndexBuilder& builder, std::size_t position, const IndexContents::Field& field,
                   std::uint64_t first, std::uint64_t count) {
  const std::uint64_t begin = first == 0 ? 0 : field.inline_ends[first - 1];
  const std::uint64_t end = field.inline_ends[first + count - 1];
  std::vector<std::uint64_t> lengths;
  for (std::uint64_t i = 0, at = begin; i < count; at = field.inline_ends[first + i], ++i) {
    lengths.push_back(field.inline_ends[first + i] - at);
  }
  return builder.AddInlineValues(
      position, std::span(field.inline_values).subspan(begin, end - begin), lengths);
}

// Adds everything but blocks, columns in pieces of `piece` entries, in turn.
Status AddAll(IndexBuilder& builder, const IndexContents& contents, std::uint64_t piece) {
  for (const IndexContents::Field& field : contents.fields) {
    HEADRACE_RETURN_IF_ERROR(builder.AddField(field.info).status());
  }
  for (const IndexContents::Object& object : contents.objects) {
    HEADRACE_RETURN_IF_ERROR(builder.AddObjects({&object, 1}));
  }
  for (std::uint64_t first = 0; first < contents.sample_count; first += piece) {
    const std::uint64_t count = std::min(piece, contents.sample_count - first);
    for (std::size_t i = 0; i < contents.fields.size(); ++i) {
      const IndexContents::Field& field = contents.fields[i];
      if (!field.inline_ends.empty()) {
        HEADRACE_RETURN_IF_ERROR(AddVariable(builder, i, field, first, count));
      } else if (field.info.is_inline) {
        const std::uint64_t bytes = field.info.array_bytes();
        HEADRACE_RETURN_IF_ERROR(builder.AddInlineValues(
            i, std::span(field.inline_values).subspan(first * bytes, count * bytes)));
      } else {
        HEADRACE_RETURN_IF_ERROR(
            builder.AddExtents(i, std::span(field.extents).subspan(first, count)));
      }
      if (field.info.has_decoded_sizes) {
        HEADRACE_RETURN_IF_ERROR(
            builder.AddDecodedSizes(i, std::span(field.decoded_sizes).subspan(first, count)));
      }
      if (field.info.has_checksums) {
        HEADRACE_RETURN_IF_ERROR(
            builder.AddChecksums(i, std::span(field.checksums).subspan(first, count)));
      }
    }
  }
  for (const auto& [key, value] : contents.attributes) {
    HEADRACE_RETURN_IF_ERROR(builder.SetAttribute(key, value));
  }
  return Status();
}

Status Build(const IndexContents& contents, const std::string& path, std::uint64_t piece) {
  HEADRACE_ASSIGN_OR_RETURN(const auto builder, IndexBuilder::Create(path, contents.root));
  HEADRACE_RETURN_IF_ERROR(AddAll(*builder, contents, piece));
  HEADRACE_RETURN_IF_ERROR(builder->AddBlocks(contents.blocks));
  return builder->Publish();
}

TEST(IndexBuilderTest, TheFileIsThatOfWriteIndexWhateverTheContentsAndPieces) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const TestFolder folder;
    const IndexContents contents = seed == 0   ? SmallContents()
                                   : seed == 1 ? internal::TypedContents()
                                   : seed == 2 ? internal::CodedContents()
                                               : internal::ContentsGenerator(seed).Make();
    ASSERT_EQ(Build(contents, folder / "i", 1 + seed % 7).ToString(), "OK") << seed;
    ASSERT_EQ(internal::ReadFile(folder / "i"), FileOf(contents)) << seed;
  }
}

// Many chunks a column, so that all are spooled.
TEST(IndexBuilderTest, TheFileIsThatOfWriteIndexIfColumnsAreSpooled) {
  const TestFolder folder;
  IndexContents contents = SmallContents();
  contents.blocks = {{.first_sample = SampleId{0},
                      .sample_count = 100'000,
                      .extent = MakeExtent(0, 0, 100),
                      .checksum = 5}};
  contents.sample_count = 100'000;
  for (IndexContents::Field& field : contents.fields) {
    field.extents.resize(1);
    field.extents.resize(field.info.is_inline ? 0 : contents.sample_count, MakeExtent(0, 20, 8));
    field.extents.assign(field.extents.size(), MakeExtent(0, 20, 8));
    if (field.info.has_checksums) field.checksums.assign(contents.sample_count, 3);
    if (field.info.is_inline) field.inline_values.assign(2 * contents.sample_count, std::byte{1});
  }
  for (int i = 0; i < 20'000; ++i) {
    contents.objects.push_back({.name = "object-" + std::to_string(i), .size = 9, .mtime_ns = i});
  }
  ASSERT_EQ(Build(contents, folder / "i", 5'000).ToString(), "OK");
  EXPECT_EQ(internal::ReadFile(folder / "i"), FileOf(contents));
  EXPECT_EQ(Index::Open(folder / "i").value()->VerifyAll().ToString(), "OK");
}

// Sizes of objects are looked up many at a time where extents go from one to the next.
TEST(IndexBuilderTest, AnExtentIsCheckedAgainstTheSizeOfItsOwnObject) {
  constexpr std::uint64_t kCount = 10'000;
  constexpr std::uint64_t kPiece = 1'500;
  for (const std::uint64_t wrong : {0U, 1U, 1'499U, 1'500U, 2'049U, 9'999U, 10'000U}) {
    const TestFolder folder;
    const auto builder = IndexBuilder::Create(folder / "i", "/data").value();
    ASSERT_TRUE(builder->AddField({.name = "file"}).ok());
    Status status;
    for (std::uint64_t first = 0; first < kCount && status.ok(); first += kPiece) {
      std::vector<IndexContents::Object> objects;
      std::vector<Extent> extents;
      for (std::uint64_t i = first; i < std::min(first + kPiece, kCount); ++i) {
        objects.push_back({.name = "object-" + std::to_string(i), .size = i + 1});
        extents.push_back(MakeExtent(i, 0, i == wrong ? i + 2 : i + 1));
        if (i % 100 == 0) extents.push_back(MakeExtent(i / 2, i / 2, 1));
      }
      ASSERT_TRUE(builder->AddObjects(objects).ok());
      status = builder->AddExtents(0, extents);
    }
    if (wrong == kCount) {
      EXPECT_TRUE(status.ok()) << status.ToString();
      continue;
    }
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(status.message()), HasSubstr("object-" + std::to_string(wrong)));
  }
}

struct Mistake {
  const char* name;
  std::function<Status(IndexBuilder&)> make;
  const char* why;
};

class IndexBuilderMistakeTest : public testing::TestWithParam<Mistake> {};

TEST_P(IndexBuilderMistakeTest, IsInvalidArgumentNamedAndLeavesNothing) {
  const TestFolder folder;
  {
    const auto builder = IndexBuilder::Create(folder / "i", "/data").value();
    ASSERT_TRUE(AddAll(*builder, SmallContents(), 2).ok());
    Status status = GetParam().make(*builder);
    if (status.ok()) status = builder->Publish();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()),
              "writing index '" + (folder / "i") + "': " + GetParam().why);
  }
  EXPECT_TRUE(IsEmpty(folder));
}

// Of a field of text in the index.
Status AddTexts(IndexBuilder& b, const std::string& texts,
                const std::vector<std::uint64_t>& lengths) {
  HEADRACE_RETURN_IF_ERROR(
      b.AddField({.name = "said", .kind = FieldKind::kText, .is_inline = true}).status());
  return b.AddInlineValues(4, std::as_bytes(std::span(texts)), lengths);
}

// NOLINTNEXTLINE(readability-function-size): a table
std::vector<Mistake> Mistakes() {
  const auto block = [](std::uint64_t first, std::uint64_t count, Extent extent) {
    return BlockInfo{.first_sample = SampleId{first},
                     .sample_count = count,
                     .extent = extent,
                     .checksum = std::nullopt};
  };
  return {
      {"TheSameFieldTwice", [](IndexBuilder& b) { return b.AddField({.name = "image"}).status(); },
       "field 4 'image': the name is taken"},
      {"AFieldWithoutSamples",
       [](IndexBuilder& b) { return b.AddField({.name = "more"}).status(); },
       "field 'more': 0 extents, must be 3, the number of samples of field 'image'"},
      {"AnObjectAboveTheRoot",
       [](IndexBuilder& b) {
         const IndexContents::Object object{.name = "../x"};
         return b.AddObjects({&object, 1});
       },
       "object 2: '../x' has a part '..'"},
      {"AnObjectThatIsNotThere",
       [](IndexBuilder& b) {
         const Extent extent = MakeExtent(2, 0, 1);
         return b.AddExtents(1, {&extent, 1});
       },
       "field 'note' sample 3: object 2: there are 2 objects"},
      {"PastItsObject",
       [](IndexBuilder& b) {
         const Extent extent = MakeExtent(1, 50, 1);
         return b.AddExtents(1, {&extent, 1});
       },
       "field 'note' sample 3: object 1 bytes [50, 51): 'b/two.bin' has 50 bytes"},
      {"AnArrayOfAnotherSize",
       [](IndexBuilder& b) {
         const Extent extent = MakeExtent(1, 0, 7);
         return b.AddExtents(2, {&extent, 1});
       },
       "field 'box' sample 3: object 1 bytes [0, 7): 7 bytes, a sample of field 'box' has 8"},
      {"ExtentsOfAnInlineField", [](IndexBuilder& b) { return b.AddExtents(3, {}); },
       "field 'label': inline values are needed, not extents"},
      {"ValuesOfAFieldWithExtents", [](IndexBuilder& b) { return b.AddInlineValues(0, {}); },
       "field 'image': extents are needed, it is not inline"},
      {"ChecksumsOfAFieldWithout", [](IndexBuilder& b) { return b.AddChecksums(1, {}); },
       "field 'note': it has no checksums"},
      {"DecodedSizesOfAFieldWithout", [](IndexBuilder& b) { return b.AddDecodedSizes(1, {}); },
       "field 'note': it has no decoded sizes"},
      {"DecodedSizesOfNoField", [](IndexBuilder& b) { return b.AddDecodedSizes(4, {}); },
       "field 4: there are 4"},
      {"DecodedSizesThatAreMissing",
       [](IndexBuilder& b) {
         const std::array extents = {MakeExtent(0, 0, 2), MakeExtent(0, 2, 2), MakeExtent(0, 4, 2)};
         HEADRACE_RETURN_IF_ERROR(
             b.AddField({.name = "z", .coding = Coding::kZlib, .has_decoded_sizes = true})
                 .status());
         return b.AddExtents(4, extents);
       },
       "field 'z': 0 decoded sizes, must be 3, the number of samples of field 'image'"},
      {"ADecodedSizeThatCannotBe",
       [](IndexBuilder& b) {
         const std::array extents = {MakeExtent(0, 0, 2), MakeExtent(0, 2, 2), MakeExtent(0, 4, 2)};
         const std::array<std::uint64_t, 3> sizes = {2064, 2065, 9};
         HEADRACE_RETURN_IF_ERROR(
             b.AddField({.name = "z", .coding = Coding::kZlib, .has_decoded_sizes = true})
                 .status());
         HEADRACE_RETURN_IF_ERROR(b.AddExtents(4, extents));
         return b.AddDecodedSizes(4, sizes);
       },
       "field 'z' sample 1: 2 bytes stored decode to 2065: zlib gives 2064 at most"},
      {"NoSuchField", [](IndexBuilder& b) { return b.AddExtents(4, {}); }, "field 4: there are 4"},
      {"HalfAValue",
       [](IndexBuilder& b) {
         const std::byte half{};
         return b.AddInlineValues(3, {&half, 1});
       },
       "field 'label': 1 bytes of inline values, must be a multiple of 2"},
      {"LengthsOfValuesOfOneLength",
       [](IndexBuilder& b) { return b.AddInlineValues(3, {}, std::vector<std::uint64_t>()); },
       "field 'label': its values have one length; give none"},
      {"TextsWithoutLengths",
       [](IndexBuilder& b) {
         HEADRACE_RETURN_IF_ERROR(AddTexts(b, "", {}));
         return b.AddInlineValues(4, {});
       },
       "field 'said': its values differ in length: the length of each is needed"},
      {"ATextLongerThanAllBytes",
       [](IndexBuilder& b) {
         return AddTexts(b, "ab", {1, 2});
       },
       "field 'said' sample 1: an inline value of 2 bytes, of 1 left; must be a multiple of 1"},
      {"BytesBehindTheLastText", [](IndexBuilder& b) { return AddTexts(b, "ab", {1}); },
       "field 'said': 1 byte of inline values beyond the sum of their lengths, which must be "
       "equal"},
      {"OneChecksumMore",
       [](IndexBuilder& b) {
         const std::uint64_t one = 1;
         return b.AddChecksums(0, {&one, 1});
       },
       "field 'image': 4 checksums, must be 3, the number of samples of field 'image'"},
      {"TheSameAttributeTwice", [](IndexBuilder& b) { return b.SetAttribute("format", "x"); },
       "attribute 'format': the key is taken"},
      {"ABlockThatLacksASample",
       [block](IndexBuilder& b) {
         const BlockInfo one = block(0, 3, MakeExtent(0, 0, 100));
         return b.AddBlocks({&one, 1});
       },
       "block 0: object 0 bytes [0, 100) must hold sample 2 field 'image': object 1 bytes [0, "
       "30)"},
      {"ABlockPastItsObject",
       [block](IndexBuilder& b) {
         const BlockInfo one = block(0, 3, MakeExtent(0, 0, 101));
         return b.AddBlocks({&one, 1});
       },
       "block 0: object 0 bytes [0, 101): 'a/one.bin' has 100 bytes"},
      {"BlocksWithAGap",
       [block](IndexBuilder& b) {
         const BlockInfo one = block(1, 2, MakeExtent(0, 0, 100));
         return b.AddBlocks({&one, 1});
       },
       "block 0: begins at sample 1, its predecessor ends at 0"},
  };
}

INSTANTIATE_TEST_SUITE_P(Mistakes, IndexBuilderMistakeTest, testing::ValuesIn(Mistakes()),
                         [](const auto& each) { return each.param.name; });

TEST(IndexBuilderTest, NoFieldsAndAWrongRootAreInvalidArgument) {
  const TestFolder folder;
  EXPECT_THAT(IndexBuilder::Create(folder / "i", "data").status().ToString(),
              HasSubstr("root: is 'data': neither an absolute path"));
  const auto builder = IndexBuilder::Create(folder / "i", "/").value();
  EXPECT_THAT(builder->Publish().ToString(), HasSubstr("no fields"));
  EXPECT_TRUE(IsEmpty(folder));
}

// Refused by their number: none is read.
TEST(IndexBuilderTest, MoreObjectsThan2To40AreInvalidArgument) {
  const TestFolder folder;
  const auto builder = IndexBuilder::Create(folder / "i", "/").value();
  const IndexContents::Object one;
  EXPECT_THAT(builder->AddObjects({&one, internal::kObjectsMax + 1}).ToString(),
              HasSubstr("1099511627777 objects, must be at most 2^40"));
}

// Of 3,000 extents a part was added before the wrong one was seen.
TEST(IndexBuilderTest, AfterAnErrorEveryCallReturnsIt) {
  const TestFolder folder;
  {
    const auto builder = IndexBuilder::Create(folder / "i", "/data/set").value();
    ASSERT_TRUE(builder->AddField({.name = "bytes"}).ok());
    const IndexContents::Object object = {.name = "a", .size = 3000};
    ASSERT_TRUE(builder->AddObjects({&object, 1}).ok());
    std::vector<Extent> extents;
    for (std::uint64_t i = 0; i < 3000; ++i) extents.push_back({ObjectId{0}, {i, 1}});
    extents[2500].object = ObjectId{7};
    const Status error = builder->AddExtents(0, extents);
    EXPECT_THAT(error.ToString(), HasSubstr("sample 2500: object 7: there are 1 objects"));
    EXPECT_EQ(builder->AddExtents(0, {&extents[0], 1}).ToString(), error.ToString());
    EXPECT_EQ(builder->AddField({.name = "more"}).status().ToString(), error.ToString());
    EXPECT_EQ(builder->Publish().ToString(), error.ToString());
  }
  EXPECT_TRUE(IsEmpty(folder));
}

TEST(IndexBuilderTest, StoppedItIsCancelledAndLeavesNothing) {
  const TestFolder folder;
  {
    const auto builder = IndexBuilder::Create(folder / "i", "/data/set").value();
    ASSERT_TRUE(AddAll(*builder, SmallContents(), 3).ok());
    int calls = 0;
    EXPECT_EQ(builder->Publish([&] { return ++calls < 3; }).code(), StatusCode::kCancelled);
    EXPECT_EQ(calls, 3);
  }
  EXPECT_TRUE(IsEmpty(folder));
}

TEST(IndexBuilderTest, AFullDiskIsResourceExhaustedAndLeavesNothing) {
  const TestFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "mounting a small disk needs root";
  }
  IndexContents contents = SmallContents();
  contents.fields.resize(1);
  contents.fields[0].info.has_checksums = false;
  contents.fields[0].checksums.clear();
  contents.blocks.clear();
  bool full = false;  // while samples are added, and while the whole is written
  for (const std::uint64_t count : {40'000U, 100'000U}) {
    contents.sample_count = count;
    contents.fields[0].extents.assign(count, MakeExtent(0, 0, 1));
    const Status status = Build(contents, folder / "i", 1000);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("No space left on device"));
    EXPECT_TRUE(IsEmpty(folder));
    full = true;
  }
  EXPECT_TRUE(full);
  EXPECT_EQ(umount(folder.path().c_str()), 0);
}

TEST(IndexBuilderTest, AKilledProcessLeavesNothing) {
  const TestFolder folder;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto builder = IndexBuilder::Create(folder / "i", "/data/set").value();
    IndexContents contents = SmallContents();
    contents.sample_count = 100'000;
    contents.fields.resize(1);
    contents.fields[0].extents.assign(contents.sample_count, MakeExtent(0, 0, 1));
    contents.fields[0].checksums.assign(contents.sample_count, 1);
    HEADRACE_CHECK(AddAll(*builder, contents, 1000).ok());
    (void)builder->Publish([] {
      raise(SIGKILL);  // while the file is written
      return true;
    });
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(IsEmpty(folder));
}

}  // namespace
}  // namespace headrace
