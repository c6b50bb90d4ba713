#include "headrace/index.h"

#include <sys/stat.h>
#include <algorithm>

#include <cstdlib>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/index_reader.h"
#include "index/test_contents.h"

namespace headrace {
namespace {

using internal::FileOf;
using internal::kBlockBytes;
using internal::kExtentBytes;
using internal::kObjectBytes;
using internal::MakeExtent;
using internal::Section;
using internal::SectionKind;
using internal::SmallContents;
using internal::Store;
using internal::TestFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;

using Bytes = std::vector<std::byte>;

Result<std::shared_ptr<const Index>> OpenBytes(std::span<const std::byte> bytes) {
  return internal::OpenIndexInMemory(bytes, "/x/damaged.hri", nullptr);
}

void ExpectEqual(const IndexContents& contents, const Index& index) {
  ASSERT_EQ(index.sample_count(), contents.sample_count);
  ASSERT_EQ(index.object_count(), contents.objects.size());
  ASSERT_EQ(index.block_count(), contents.blocks.size());
  ASSERT_EQ(index.fields().size(), contents.fields.size());
  for (std::size_t i = 0; i < contents.objects.size(); ++i) {
    const ObjectInfo object = index.object(ObjectId{i}).value();
    EXPECT_EQ(object.name, contents.objects[i].name);
    EXPECT_EQ(object.size, contents.objects[i].size);
    EXPECT_EQ(object.mtime_ns, contents.objects[i].mtime_ns);
  }
  for (std::size_t f = 0; f < contents.fields.size(); ++f) {
    const IndexContents::Field& field = contents.fields[f];
    const FieldInfo& info = index.fields()[f];
    EXPECT_EQ(info.name, field.info.name);
    EXPECT_EQ(info.kind, field.info.kind);
    EXPECT_EQ(info.dtype, field.info.dtype);
    EXPECT_EQ(info.shape, field.info.shape);
    EXPECT_EQ(info.is_list, field.info.is_list);
    EXPECT_EQ(info.is_inline, field.info.is_inline);
    EXPECT_EQ(info.has_checksums, field.info.has_checksums);
    EXPECT_EQ(info.coding, field.info.coding);
    EXPECT_EQ(info.has_decoded_sizes, field.info.has_decoded_sizes);
    for (std::size_t i = 0; i < contents.sample_count; ++i) {
      const SampleId id{i};
      if (info.is_inline) {
        const auto value = index.inline_value(f, id).value();
        std::uint64_t bytes = info.array_bytes();
        std::uint64_t begin = i * bytes;
        if (info.is_variable()) {
          begin = i == 0 ? 0 : field.inline_ends[i - 1];
          bytes = field.inline_ends[i] - begin;
        }
        const auto written = std::span(field.inline_values).subspan(begin, bytes);
        EXPECT_EQ(Bytes(value.begin(), value.end()), Bytes(written.begin(), written.end()));
      } else {
        EXPECT_EQ(index.extent(f, id).value(), field.extents[i]);
      }
      if (info.has_decoded_sizes) {
        EXPECT_EQ(index.decoded_bytes(f, id).value(), field.decoded_sizes[i]);
      }
      EXPECT_EQ(index.checksum(f, id),
                info.has_checksums ? std::optional(field.checksums[i]) : std::nullopt);
    }
  }
  for (std::size_t i = 0; i < contents.blocks.size(); ++i) {
    const BlockInfo block = index.block(i).value();
    EXPECT_EQ(block.first_sample, contents.blocks[i].first_sample);
    EXPECT_EQ(block.sample_count, contents.blocks[i].sample_count);
    EXPECT_EQ(block.extent, contents.blocks[i].extent);
    EXPECT_EQ(block.checksum, contents.blocks[i].checksum);
  }
  for (const auto& [key, value] : contents.attributes) EXPECT_EQ(FindAttribute(index, key), value);
  EXPECT_EQ(index.attributes().size(), contents.attributes.size());
}

// CopyInlineValues() against inline_value(), for all runs of one length.
void ExpectCopiesOfInlineValues(const Index& index, std::uint64_t run) {
  for (std::size_t f = 0; f < index.fields().size(); ++f) {
    const FieldInfo& info = index.fields()[f];
    if (!info.is_inline || info.is_variable()) continue;
    for (std::uint64_t first = 0; first < index.sample_count(); first += run) {
      const std::uint64_t count = std::min(run, index.sample_count() - first);
      std::vector<std::byte> copied(count * info.array_bytes());
      ASSERT_EQ(index.CopyInlineValues(f, SampleId{first}, copied).ToString(), "OK");
      std::vector<std::byte> expected;
      for (std::uint64_t i = 0; i < count; ++i) {
        const auto value = index.inline_value(f, SampleId{first + i}).value();
        expected.insert(expected.end(), value.begin(), value.end());
      }
      ASSERT_EQ(copied, expected);
    }
    std::vector<std::byte> more(info.array_bytes() + 1);
    EXPECT_EQ(index.CopyInlineValues(f, SampleId{index.sample_count() - 1}, more).code(),
              StatusCode::kOutOfRange);
  }
}

// SampleBytes() against extent(), for all runs of one length.
void ExpectBytesOfExtents(const Index& index, std::uint64_t run) {
  for (std::uint64_t first = 0; first < index.sample_count(); first += run) {
    std::vector<std::uint64_t> found(std::min(run, index.sample_count() - first), 9);
    index.SampleBytes(SampleId{first}, found);
    for (std::uint64_t i = 0; i < found.size(); ++i) {
      std::uint64_t sum = 0;
      for (std::size_t f = 0; f < index.fields().size(); ++f) {
        if (index.fields()[f].is_inline) continue;
        const auto extent = index.extent(f, SampleId{first + i});
        if (extent.ok()) sum += extent.value().range.size;
      }
      ASSERT_EQ(found[i], sum);
    }
  }
}

TEST(IndexTest, GivesBackWhatWasWritten) {
  const TestFolder folder;
  ASSERT_EQ(WriteIndex(SmallContents(), folder / "i").ToString(), "OK");
  const auto index = Index::Open(folder / "i");
  ASSERT_EQ(index.status().ToString(), "OK");
  ExpectEqual(SmallContents(), *index.value());
  EXPECT_EQ(index.value()->root(), "/data/set");
  EXPECT_EQ(index.value()->file_bytes(), std::filesystem::file_size(folder / "i"));
  EXPECT_EQ(index.value()->VerifyAll().ToString(), "OK");
  EXPECT_EQ(FindAttribute(*index.value(), "no such key"), "");
  EXPECT_THAT(index.value()->attributes(), ElementsAre(Key("format"), Key("classes")));
}

TEST(IndexTest, GivesBackAnythingThatKeepsTheRules) {
  std::uint64_t first_seed = 0;
  if (const char* given =
          std::getenv("HEADRACE_SEED")) {  // NOLINT(concurrency-mt-unsafe): no setenv
    first_seed = std::strtoull(given, nullptr, 10);
  }
  for (std::uint64_t seed = first_seed; seed < first_seed + 300; ++seed) {
    SCOPED_TRACE("HEADRACE_SEED=" + std::to_string(seed));
    const IndexContents contents = internal::ContentsGenerator(seed).Make();
    const Bytes file = FileOf(contents);
    const auto index = OpenBytes(file);
    ASSERT_EQ(index.status().ToString(), "OK");
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(contents, *index.value()));
    ASSERT_NO_FATAL_FAILURE(ExpectBytesOfExtents(*index.value(), 1 + seed % 7));
    if (contents.sample_count > 0) {
      ASSERT_NO_FATAL_FAILURE(ExpectCopiesOfInlineValues(*index.value(), 1 + seed % 7));
    }
    ASSERT_EQ(index.value()->VerifyAll().ToString(), "OK");
  }
}

TEST(IndexTest, ExtentsUpToTheLimitsArePackedWhole) {
  IndexContents contents = SmallContents();
  constexpr std::uint64_t kEnd = std::uint64_t{1} << 60;
  contents.objects[1].size = kEnd;
  const std::uint64_t offset = (std::uint64_t{1} << 48) - 1;
  const std::uint64_t size = (std::uint64_t{1} << 40) - 1;
  contents.blocks.clear();
  contents.fields[0].extents[2] = MakeExtent(1, offset, size);
  const Bytes file = FileOf(contents);
  const auto index = OpenBytes(file).value();
  EXPECT_EQ(index->extent(0, SampleId{2}).value(), MakeExtent(1, offset, size));
  std::array<std::byte, kExtentBytes> packed{};
  const Extent extreme = MakeExtent((std::uint64_t{1} << 40) - 1, offset, size);
  internal::EncodeExtent(extreme, packed.data());
  EXPECT_EQ(packed, (std::array<std::byte, kExtentBytes>{
                        std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                        std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                        std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                        std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff}}));
  EXPECT_EQ(internal::DecodeExtent(packed.data()), extreme);
}

TEST(IndexTest, ARelativeRootIsTheFolderOfTheFile) {
  const TestFolder folder;
  IndexContents contents = SmallContents();
  contents.root = ".";
  ASSERT_TRUE(WriteIndex(contents, folder / "i").ok());
  EXPECT_EQ(Index::Open(folder / "i").value()->root(), folder.path());
  EXPECT_EQ(Index::Open(folder.path() + "/./i").value()->root(), folder.path());
}

TEST(IndexTest, IdsThatDoNotExistAreOutOfRange) {
  const Bytes file = FileOf(SmallContents());
  const auto index = OpenBytes(file).value();
  EXPECT_EQ(index->object(ObjectId{2}).status().ToString(),
            "OutOfRange: object 2: index '/x/damaged.hri' has 2 objects");
  EXPECT_EQ(index->block(2).status().ToString(),
            "OutOfRange: block 2: index '/x/damaged.hri' has 2 blocks");
  EXPECT_EQ(index->extent(0, SampleId{3}).status().ToString(),
            "OutOfRange: sample 3: index '/x/damaged.hri' has 3 samples");
  EXPECT_EQ(index->inline_value(3, SampleId{~std::uint64_t{0}}).status().code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ(index->extent(4, SampleId{0}).status().ToString(),
            "OutOfRange: field 4: index '/x/damaged.hri' has 4 fields");
}

TEST(IndexTest, ExtentsAndInlineValuesAreNotInterchangeable) {
  const Bytes file = FileOf(SmallContents());
  const auto index = OpenBytes(file).value();
  EXPECT_EQ(index->extent(3, SampleId{0}).status().ToString(),
            "InvalidArgument: field 'label' has no extents: ask for its inline values");
  EXPECT_EQ(index->inline_value(0, SampleId{0}).status().ToString(),
            "InvalidArgument: field 'image' has no inline values: ask for its extents");
}

// The hash and its input are part of the format: a change here makes every saved state of a loader
// refer to an index that no longer exists.
TEST(IndexTest, FingerprintIsFrozen) {
  const Bytes file = FileOf(SmallContents());
  EXPECT_EQ(OpenBytes(file).value()->fingerprint(), "799620758fc75fe131b7fdb0318e1736");
}

// Version 1, byte for byte: files written before must stay readable.
TEST(IndexTest, FileIsFrozen) {
  const Bytes file = FileOf(SmallContents());
  EXPECT_EQ(file.size(), 1504u);
  EXPECT_EQ(Hash64(file), 12707417550639599864u);
}

TEST(IndexTest, FingerprintDependsOnWhatSamplesAreAndNothingElse) {
  const auto fingerprint = [](const std::function<void(IndexContents&)>& change) {
    IndexContents contents = SmallContents();
    change(contents);
    const Bytes file = FileOf(contents);
    return OpenBytes(file).value()->fingerprint();
  };
  const std::string plain = fingerprint([](IndexContents&) {});
  EXPECT_EQ(fingerprint([](IndexContents& c) { c.root = "/elsewhere"; }), plain);
  EXPECT_EQ(fingerprint([](IndexContents& c) { c.attributes.clear(); }), plain);
  EXPECT_EQ(fingerprint([](IndexContents& c) { c.blocks.clear(); }), plain);
  EXPECT_NE(fingerprint([](IndexContents& c) { c.fields[0].info.name = "picture"; }), plain);
  EXPECT_NE(fingerprint([](IndexContents& c) { c.fields[3].inline_values[0] = {}; }), plain);
  EXPECT_NE(fingerprint([](IndexContents& c) { c.fields[0].extents[0].range.size = 9; }), plain);
  EXPECT_NE(fingerprint([](IndexContents& c) { c.objects[0].name = "a/uno.bin"; }), plain);
  EXPECT_NE(fingerprint([](IndexContents& c) { c.objects[0].mtime_ns += 1; }), plain);
  EXPECT_NE(fingerprint([](IndexContents& c) { c.objects[1].size += 1; }), plain);
}

TEST(IndexTest, NoSuchFileIsNotFound) {
  const TestFolder folder;
  const Status status = Index::Open(folder / "nothing").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder / "nothing"));
}

TEST(IndexTest, WhatIsNoIndexFileIsDataLoss) {
  const TestFolder folder;
  EXPECT_EQ(Index::Open(folder.path()).status().code(), StatusCode::kDataLoss);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(Index::Open(folder / "pipe").status().code(), StatusCode::kDataLoss);
  internal::WriteFile(folder / "empty", {});
  EXPECT_EQ(Index::Open(folder / "empty").status().code(), StatusCode::kDataLoss);
  const std::string text = "PK: not an index at all";
  internal::WriteFile(folder / "text", std::as_bytes(std::span(text)));
  const Status status = Index::Open(folder / "text").status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("text"), HasSubstr("not an index")));
}

TEST(IndexTest, AFileThatCanNotBeReadIsFailedPrecondition) {
  const TestFolder folder;
  std::filesystem::create_symlink("loop", folder / "loop");
  EXPECT_EQ(Index::Open(folder / "loop").status().code(), StatusCode::kFailedPrecondition);
}

TEST(IndexTest, AnotherVersionIsFailedPreconditionAndSaysWhichOneIsRead) {
  Bytes file = FileOf(SmallContents());
  for (const std::uint32_t version : {0U, 4U}) {
    Store(version, file.data() + 8);
    internal::Reseal(file);
    const Status status = OpenBytes(file).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("version " + std::to_string(version) +
                                                         ", this headrace reads versions 1 to 3"));
  }
}

TEST(IndexTest, CutAnywhereItIsDataLossAtOpen) {
  const Bytes file = FileOf(SmallContents());
  for (std::size_t size = 0; size < file.size(); ++size) {
    const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_EQ(OpenBytes(cut).status().code(), StatusCode::kDataLoss) << size;
  }
  Bytes longer = file;
  longer.push_back(std::byte{0});
  EXPECT_EQ(OpenBytes(longer).status().code(), StatusCode::kDataLoss);
}

// Open checks the header, section table, small sections and inline values; VerifyAll checks the
// rest. Together they find any flipped byte.
TEST(IndexTest, EveryFlippedByteIsFound) {
  const Bytes file = FileOf(SmallContents());
  const std::vector<Section> sections = internal::SectionsOf(file);
  const std::uint64_t small_end =
      sections[internal::kAttributesSection].offset + sections[internal::kAttributesSection].size;
  const auto is_inline_value = [&sections](std::size_t at) {
    return std::any_of(sections.begin(), sections.end(), [at](const Section& section) {
      return section.kind == SectionKind::kInlineValues && at >= section.offset &&
             at < section.offset + section.size;
    });
  };
  std::size_t found_at_open = 0;
  for (std::size_t at = 0; at < file.size(); ++at) {
    for (const unsigned flip : {0x01u, 0x80u, 0xffu}) {
      Bytes damaged = file;
      damaged[at] ^= static_cast<std::byte>(flip);
      const auto index = OpenBytes(damaged);
      if (!index.ok()) {
        ASSERT_EQ(index.status().code(), StatusCode::kDataLoss) << at;
        ASSERT_TRUE(at < small_end || is_inline_value(at)) << at;
        ++found_at_open;
        continue;
      }
      ASSERT_FALSE(is_inline_value(at)) << at;
      const Status status = index.value()->VerifyAll();
      ASSERT_EQ(status.code(), StatusCode::kDataLoss) << "byte " << at << " of " << file.size();
      ASSERT_THAT(std::string(status.message()), HasSubstr("/x/damaged.hri"));
    }
  }
  EXPECT_GT(found_at_open, 3 * internal::kHeaderBytes);
}

// A file with correct checksums and wrong entries: a bug of a writer, or malice.
class ForgedIndexTest : public testing::Test {
 protected:
  std::byte* At(SectionKind kind, std::uint64_t offset, std::uint32_t field = 0) {
    for (const Section& section : internal::SectionsOf(file_)) {
      if (section.kind == kind && section.field == field) {
        return file_.data() + section.offset + offset;
      }
    }
    ADD_FAILURE() << "no such section";
    return nullptr;
  }
  Status OpenForged() {
    internal::Reseal(file_);
    const auto index = OpenBytes(file_);
    if (index.ok()) index_ = index.value();
    return index.status();
  }
  // VerifyAll must find everything that access finds.
  void ExpectDataLoss(const Status& status, const std::string& why) {
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_EQ(std::string(status.message()),
              "reading index '/x/damaged.hri': " + why +
                  "; copy the file again, or index the dataset again (headrace index)");
    EXPECT_EQ(index_->VerifyAll().ToString(), status.ToString());
  }

  Bytes file_ = FileOf(SmallContents());
  std::shared_ptr<const Index> index_;
};

TEST_F(ForgedIndexTest, AnExtentPastItsObjectIsDataLoss) {
  internal::EncodeExtent(MakeExtent(1, 40, 11), At(SectionKind::kExtents, kExtentBytes, 0));
  ASSERT_TRUE(OpenForged().ok());
  ExpectDataLoss(index_->extent(0, SampleId{1}).status(),
                 "extents of field 'image': entry 1: object 1 bytes [40, 51): 'b/two.bin' has 50 "
                 "bytes");
  EXPECT_TRUE(index_->extent(0, SampleId{0}).ok());
}

TEST_F(ForgedIndexTest, AnExtentOfNoObjectIsDataLoss) {
  internal::EncodeExtent(MakeExtent(2, 0, 1), At(SectionKind::kExtents, 0, 1));
  ASSERT_TRUE(OpenForged().ok());
  ExpectDataLoss(
      index_->extent(1, SampleId{0}).status(),
      "extents of field 'note': entry 0: object 2 bytes [0, 1): the index has 2 objects");
}

TEST_F(ForgedIndexTest, AnArrayOfAnotherSizeIsDataLoss) {
  internal::EncodeExtent(MakeExtent(0, 20, 7), At(SectionKind::kExtents, 0, 2));
  ASSERT_TRUE(OpenForged().ok());
  ExpectDataLoss(index_->extent(2, SampleId{0}).status(),
                 "extents of field 'box': entry 0: object 0 bytes [20, 27): 7 bytes, a sample of "
                 "field 'box' has 8");
}

TEST_F(ForgedIndexTest, WhatExtentRefusesHasNoBytes) {
  internal::EncodeExtent(MakeExtent(1, 40, 11), At(SectionKind::kExtents, kExtentBytes, 0));
  internal::EncodeExtent(MakeExtent(2, 0, 1), At(SectionKind::kExtents, 0, 1));
  internal::EncodeExtent(MakeExtent(0, 20, 7), At(SectionKind::kExtents, 0, 2));
  ASSERT_TRUE(OpenForged().ok());
  std::array<std::uint64_t, 3> found{};
  index_->SampleBytes(SampleId{0}, found);
  EXPECT_THAT(found, ElementsAre(10, 40 + 8, 30 + 1 + 8));
  ASSERT_NO_FATAL_FAILURE(ExpectBytesOfExtents(*index_, 2));
}

TEST_F(ForgedIndexTest, ANameOutsideTheNamesIsDataLoss) {
  Store(std::uint64_t{1000}, At(SectionKind::kNameOffsets, 8));
  ASSERT_TRUE(OpenForged().ok());
  ExpectDataLoss(index_->object(ObjectId{0}).status(),
                 "name offsets: entry 0: name at bytes [0, 1000) of 18");
  EXPECT_THAT(index_->object(ObjectId{1}).status().ToString(), HasSubstr("[1000, 18) of 18"));
}

TEST_F(ForgedIndexTest, NamesThatDoNotCoverTheirBytesAreDataLoss) {
  Store(std::uint64_t{17}, At(SectionKind::kNameOffsets, 16));
  ASSERT_TRUE(OpenForged().ok());
  EXPECT_THAT(index_->VerifyAll().ToString(),
              HasSubstr("name offsets: [0, 17) do not cover the 18 bytes of names"));
}

TEST_F(ForgedIndexTest, ANameThatLeadsOutOfTheRootIsDataLoss) {
  const std::string name = "../../pwn";
  std::memcpy(At(SectionKind::kNameBytes, 0), name.data(), name.size());
  ASSERT_TRUE(OpenForged().ok());
  ExpectDataLoss(index_->object(ObjectId{0}).status(),
                 "names: entry 0: '../../pwn' has a part '..'");
}

TEST_F(ForgedIndexTest, ABlockThatDoesNotFollowItsPredecessorIsDataLoss) {
  Store(std::uint64_t{1}, At(SectionKind::kBlocks, 8));
  ASSERT_TRUE(OpenForged().ok());
  ExpectDataLoss(index_->block(1).status(),
                 "blocks: entry 1: begins at sample 2, its predecessor ends at 1");
}

TEST_F(ForgedIndexTest, ABlockWhosePredecessorWrapsAroundIsDataLoss) {
  Store(~std::uint64_t{0}, At(SectionKind::kBlocks, 0));
  ASSERT_TRUE(OpenForged().ok());
  EXPECT_THAT(index_->block(1).status().ToString(), HasSubstr("predecessor ends past 2^64"));
  ExpectDataLoss(index_->block(0).status(),
                 "blocks: entry 0: begins at sample 18446744073709551615, its predecessor ends at "
                 "0");
}

TEST_F(ForgedIndexTest, BlocksThatEndBeforeOrPastTheSamplesAreDataLoss) {
  Store(std::uint64_t{2}, At(SectionKind::kBlocks, kBlockBytes + 8));
  ASSERT_TRUE(OpenForged().ok());
  ExpectDataLoss(index_->block(1).status(),
                 "blocks: entry 1: holds 2 samples from 2, the index has 3");
  Store(std::uint64_t{0}, At(SectionKind::kBlocks, kBlockBytes + 8));
  ASSERT_TRUE(OpenForged().ok());
  ExpectDataLoss(index_->block(1).status(), "blocks: entry 1: holds no samples");
}

TEST_F(ForgedIndexTest, ABlockPastItsObjectIsDataLoss) {
  internal::EncodeExtent(MakeExtent(1, 1, 50), At(SectionKind::kBlocks, kBlockBytes + 16));
  ASSERT_TRUE(OpenForged().ok());
  ExpectDataLoss(index_->block(1).status(),
                 "blocks: entry 1: object 1 bytes [1, 51): 'b/two.bin' has 50 bytes");
}

TEST_F(ForgedIndexTest, ABlockChecksumThatIsNeitherThereNorMissingIsDataLoss) {
  Store(std::uint64_t{2}, At(SectionKind::kBlocks, 40));
  ASSERT_TRUE(OpenForged().ok());
  ExpectDataLoss(index_->block(0).status(),
                 "blocks: entry 0: its checksum flag is neither 0 nor 1");
}

TEST_F(ForgedIndexTest, ABlockWithoutItsSamplesIsDataLossOfVerifyAll) {
  internal::EncodeExtent(MakeExtent(0, 0, 99), At(SectionKind::kBlocks, 16));
  ASSERT_TRUE(OpenForged().ok());
  EXPECT_THAT(index_->VerifyAll().ToString(),
              HasSubstr("blocks: entry 0: object 0 bytes [0, 99) does not hold sample 1 field "
                        "'note': object 0 bytes [60, 100)"));
}

TEST_F(ForgedIndexTest, OpenRefusesWhatContradictsTheHeader) {
  const auto refused = [&](std::size_t at, std::uint64_t value, const std::string& why) {
    const Bytes whole = file_;
    Store(value, file_.data() + at);
    EXPECT_THAT(OpenForged().ToString(), AllOf(HasSubstr("DataLoss: "), HasSubstr(why))) << at;
    file_ = whole;
  };
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  constexpr std::size_t kSecondEntry = internal::kHeaderBytes + internal::kSectionEntryBytes;
  refused(16, 1, "its header says 1");
  refused(24, 4, "must be extents of field 'image'");      // samples
  refused(24, kHuge, "exceed the size of any file");       // 16 bytes each: past 2^64
  refused(24, kHuge / 32, "exceed the size of any file");  // below 2^64, past 2^63
  refused(32, 3, "must be objects at byte");               // objects
  refused(32, kHuge, "more than 2^40");
  refused(40, 1, "must be blocks at byte");  // blocks
  refused(80, 1, "reserved bytes are not zero");
  refused(internal::kHeaderBytes + 8, kHuge, "fields: ");   // where the fields lie
  refused(internal::kHeaderBytes + 16, kHuge, "fields: ");  // and how long they are
  refused(kSecondEntry + 8, 0, "must be root at byte");
  refused(kSecondEntry + 16, kHuge, "exceed the size of any file");
  refused(kSecondEntry + 24, 2, "must be root at byte");
}

TEST_F(ForgedIndexTest, OpenRefusesMoreSectionsThanFitOrFewerThanThereMustBe) {
  for (const std::uint32_t count : {0U, 7U, ~0U}) {
    const Bytes whole = file_;
    Store(count, file_.data() + 12);
    EXPECT_THAT(OpenForged().ToString(), HasSubstr(std::to_string(count) + " sections"));
    file_ = whole;
  }
}

TEST_F(ForgedIndexTest, OpenRefusesAFingerprintOfOtherContents) {
  Store(std::uint64_t{1}, file_.data() + 56);
  Store(Hash64(std::span(file_).first(120)), file_.data() + 120);
  EXPECT_THAT(OpenBytes(file_).status().ToString(),
              HasSubstr("fingerprint is not that of the sections"));
}

TEST_F(ForgedIndexTest, OpenRefusesFieldsThatBreakTheRules) {
  const auto refused = [&](std::size_t at, unsigned value, const std::string& why) {
    const Bytes whole = file_;
    *At(SectionKind::kFields, at) = static_cast<std::byte>(value);
    EXPECT_THAT(OpenForged().ToString(), AllOf(HasSubstr("DataLoss: "), HasSubstr(why))) << at;
    file_ = whole;
  };
  refused(0, 0xff, "fields: entry");         // length of the first name
  refused(3, 0xff, "entry 0 is cut short");  // a length of 4 GB
  refused(4, 9, "has an unknown kind");
  refused(5, 11, "has an unknown dtype");
  refused(6, 4, "unknown flags 4");
  refused(6, 1, "is an image and inline");
  refused(7, 1, "fields: ");  // rank
}

TEST_F(ForgedIndexTest, OpenRefusesARootThatIsNoFolder) {
  *At(SectionKind::kRoot, 0) = std::byte{'x'};
  EXPECT_THAT(OpenForged().ToString(), HasSubstr("root: is 'xdata/set': neither an absolute path"));
}

TEST_F(ForgedIndexTest, OpenRefusesAttributesPastTheirSection) {
  Store(~std::uint64_t{0}, At(SectionKind::kAttributes, 8));
  EXPECT_THAT(OpenForged().ToString(), HasSubstr("attributes: entry 0 is cut short"));
}

TEST(DTypeTest, NamesAndSizesAreNumPys) {
  for (unsigned i = 0; i <= 10; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(DTypeFromName(DTypeName(dtype)), dtype);
  }
  EXPECT_EQ(DTypeName(DType::kBool), "bool");
  EXPECT_EQ(DTypeName(DType::kUInt16), "uint16");
  EXPECT_EQ(ElementBytes(DType::kInt64), 8u);
  EXPECT_EQ(ElementBytes(DType::kFloat16), 2u);
  EXPECT_EQ(DTypeFromName("complex64"), std::nullopt);
}

}  // namespace
}  // namespace headrace
