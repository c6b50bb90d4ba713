// Files of version 3: fields that are compressed, and the sizes that samples decode to.

#include <array>
#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/index_reader.h"
#include "index/test_contents.h"

namespace headrace {
namespace {

using internal::CodedContents;
using internal::FileOf;
using internal::Section;
using internal::SectionKind;
using internal::Store;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Result<std::shared_ptr<const Index>> OpenCoded(const Bytes& file) {
  return internal::OpenIndexInMemory(file, "/data/index", nullptr);
}

std::size_t SectionAt(const Bytes& file, SectionKind kind, std::uint32_t field = 0) {
  for (const Section& section : internal::SectionsOf(file)) {
    if (section.kind == kind && section.field == field) return section.offset;
  }
  ADD_FAILURE() << "no such section";
  return 0;
}

// Where the type of the field `name` begins in the file.
std::size_t TypeOfFieldAt(const Bytes& file, const std::string& name) {
  for (std::size_t at = SectionAt(file, SectionKind::kFields); at + name.size() <= file.size();
       ++at) {
    if (std::memcmp(file.data() + at, name.data(), name.size()) == 0) return at - 8;
  }
  return 0;
}

TEST(IndexCodedTest, CodecsAndDecodedSizesAreReadAsTheyWereWritten) {
  const Bytes file = FileOf(CodedContents());
  EXPECT_EQ(internal::Load<std::uint32_t>(file.data() + 8), 3U);
  const auto index = OpenCoded(file).value();
  EXPECT_EQ(index->VerifyAll().ToString(), "OK");
  EXPECT_EQ(index->fields()[0].coding, Coding::kZstd);
  EXPECT_TRUE(index->fields()[0].has_decoded_sizes);
  EXPECT_EQ(index->fields()[1].coding, Coding::kStored);
  EXPECT_TRUE(index->fields()[1].has_decoded_sizes);
  EXPECT_EQ(index->fields()[2].coding, Coding::kGzip);
  EXPECT_TRUE(index->fields()[2].is_shuffled);
  EXPECT_EQ(index->fields()[2].header_bytes, 128U);
  EXPECT_FALSE(index->fields()[2].has_decoded_sizes);
  EXPECT_FALSE(index->fields()[3].is_compressed());
  for (std::uint64_t i = 0; i < 3; ++i) {
    for (const std::size_t field : {0U, 1U}) {
      EXPECT_EQ(index->decoded_bytes(field, SampleId{i}).value(),
                CodedContents().fields[field].decoded_sizes[i]);
    }
    EXPECT_EQ(index->decoded_bytes(2, SampleId{i}).value(), 8U);
    EXPECT_EQ(index->extent(2, SampleId{i}).value(), CodedContents().fields[2].extents[i]);
    EXPECT_EQ(index->checksum(0, SampleId{i}), CodedContents().fields[0].checksums[i]);
  }
}

TEST(IndexCodedTest, DecodedBytesOfWhatIsNotThereAreErrors) {
  const auto index = OpenCoded(FileOf(CodedContents())).value();
  EXPECT_EQ(index->decoded_bytes(0, SampleId{3}).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(index->decoded_bytes(9, SampleId{0}).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(index->decoded_bytes(3, SampleId{0}).status().code(), StatusCode::kInvalidArgument);
  const auto plain = OpenCoded(FileOf(internal::SmallContents())).value();
  EXPECT_THAT(plain->decoded_bytes(1, SampleId{0}).status().ToString(),
              HasSubstr("field 'note' is not decoded"));
}

// The bytes are part of the format (docs/index-format.md): a change here is a new version.
TEST(IndexCodedTest, Version3IsFrozen) {
  const Bytes file = FileOf(CodedContents());
  EXPECT_EQ(OpenCoded(file).value()->fingerprint(), "6b19be36bf09ede7529b454befbaab46");
  const auto type = [&](const std::string& name) {
    return internal::Load<std::uint64_t>(file.data() + TypeOfFieldAt(file, name));
  };
  EXPECT_EQ(type("image"), 0x0000'0000'0100'0100U);
  EXPECT_EQ(type("note"), 0x0000'0000'0100'0000U);
  EXPECT_EQ(type("box"), 0x0000'0080'0200'0500U);
  EXPECT_EQ(type("label"), 0U);
}

TEST(IndexCodedTest, WhatVersion2HoldsIsWrittenAsVersion2) {
  EXPECT_EQ(internal::Load<std::uint32_t>(FileOf(internal::TypedContents()).data() + 8), 2U);
}

TEST(IndexCodedTest, EveryFlippedByteIsFound) {
  const Bytes file = FileOf(CodedContents());
  for (std::size_t at = 0; at < file.size(); ++at) {
    Bytes damaged = file;
    damaged[at] ^= std::byte{0x41};
    const auto index = OpenCoded(damaged);
    const Status status = index.ok() ? index.value()->VerifyAll() : index.status();
    ASSERT_EQ(status.code(), StatusCode::kDataLoss) << at;
  }
}

Status AfterChangeOfField(const std::string& name, std::size_t which, int value) {
  Bytes file = FileOf(CodedContents());
  file[TypeOfFieldAt(file, name) + which] = static_cast<std::byte>(value);
  internal::Reseal(file);
  return OpenCoded(file).status();
}

TEST(IndexCodedTest, ALaterCodecIsRefusedByNameNotAsDamage) {
  const Status status = AfterChangeOfField("image", 1, 6);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr("entry 0 has codec 6, which this headrace does not"));
}

TEST(IndexCodedTest, AWrongCodecIsDataLoss) {
  const auto why = [](const std::string& name, std::size_t which, int value) {
    const Status status = AfterChangeOfField(name, which, value);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    return status.ToString();
  };
  EXPECT_THAT(why("image", 3, 4), HasSubstr("entry 0 has unknown flags 4 of its codec"));
  EXPECT_THAT(why("image", 3, 3), HasSubstr("field 0 'image': is shuffled but no array"));
  EXPECT_THAT(why("image", 3, 0), HasSubstr("field 0 'image': is compressed and has no decoded"));
  EXPECT_THAT(why("box", 3, 3), HasSubstr("field 2 'box': has decoded sizes but is an array of"));
  EXPECT_THAT(why("box", 1, 0), HasSubstr("field 2 'box': is shuffled or has a header but is not"));
  EXPECT_THAT(why("label", 1, 1), HasSubstr("field 3 'label': is inline and compressed"));
}

// Sizes that no sample can have are found before anybody reserves memory for them.
TEST(IndexCodedTest, ADecodedSizeThatCannotBeIsDataLoss) {
  const auto why = [](std::uint32_t field, std::uint64_t size) {
    Bytes file = FileOf(CodedContents());
    Store(size, file.data() + SectionAt(file, SectionKind::kDecodedSizes, field) + 8);
    internal::Reseal(file);
    const auto index = OpenCoded(file).value();
    const Status status = index->decoded_bytes(field, SampleId{1}).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_EQ(index->VerifyAll().ToString(), status.ToString());
    return status.ToString();
  };
  EXPECT_THAT(
      why(0, std::uint64_t{20} * 65'536 + 1),
      HasSubstr("decoded sizes of field 'image': entry 1: 20 bytes stored decode to 1310721: "
                "zstd gives 1310720 at most"));
  EXPECT_THAT(why(1, std::uint64_t{1} << 40),
              HasSubstr("1099511627776 bytes decoded: 2^40 or more"));
  EXPECT_THAT(why(1, ~std::uint64_t{0}), HasSubstr("2^40 or more"));
}

TEST(IndexCodedTest, SizesOfListsAreWholeArrays) {
  IndexContents contents = CodedContents();
  contents.fields[2].info.is_list = true;
  contents.fields[2].info.has_decoded_sizes = true;
  contents.fields[2].decoded_sizes = {0, 16, 8};
  EXPECT_EQ(OpenCoded(FileOf(contents)).value()->decoded_bytes(2, SampleId{1}).value(), 16U);
  contents.fields[2].decoded_sizes[1] = 15;
  const internal::TestFolder folder;
  const Status status = WriteIndex(contents, folder / "i");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("field 'box' sample 1: 15 bytes decoded, a sample of "
                                           "field 'box' has a multiple of 8"));
}

TEST(IndexCodedTest, EachSampleOfAVariableFieldHasADecodedSize) {
  IndexContents contents = CodedContents();
  contents.fields[0].decoded_sizes.pop_back();
  const internal::TestFolder folder;
  EXPECT_THAT(WriteIndex(contents, folder / "i").ToString(),
              HasSubstr("field 'image': 2 decoded sizes, must be 3"));
  contents.fields[0].info.has_decoded_sizes = false;
  EXPECT_THAT(WriteIndex(contents, folder / "i").ToString(),
              HasSubstr("field 0 'image': is compressed and has no decoded sizes"));
}

// Random bytes anywhere, with the checksums corrected: an error that says where, or an index whose
// entries are read without one.
TEST(IndexCodedTest, DamageIsDataLossOrIsNone) {
  const Bytes good = FileOf(CodedContents());
  Prng draw(3, 1, RandomStream::kOrder);
  for (int round = 0; round < 5000; ++round) {
    Bytes file = good;
    for (std::uint64_t n = 1 + draw.Below(3); n > 0; --n) {
      file[draw.Below(file.size())] = static_cast<std::byte>(draw.Below(256));
    }
    internal::Reseal(file);
    const auto index = OpenCoded(file);
    if (!index.ok()) {
      ASSERT_TRUE(index.status().code() == StatusCode::kDataLoss ||
                  index.status().code() == StatusCode::kFailedPrecondition)
          << index.status().ToString();
      continue;
    }
    bool whole = true;
    for (std::size_t field = 0; field < index.value()->fields().size(); ++field) {
      const FieldInfo& info = index.value()->fields()[field];
      for (std::uint64_t i = 0; i < index.value()->sample_count(); ++i) {
        if (!info.is_compressed() && !info.has_decoded_sizes) continue;
        whole = index.value()->decoded_bytes(field, SampleId{i}).ok() && whole;
      }
    }
    ASSERT_TRUE(whole || !index.value()->VerifyAll().ok());
  }
}

}  // namespace
}  // namespace headrace
