// Files of version 2, and that what version 1 holds is still written as version 1.

#include <array>
#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/index_reader.h"
#include "index/test_contents.h"

namespace headrace {
namespace {

using internal::FileOf;
using internal::SmallContents;
using internal::TypedContents;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Result<std::shared_ptr<const Index>> OpenVersion(const Bytes& file) {
  return internal::OpenIndexInMemory(file, "/data/index", nullptr);
}

// Where the type of field 2, 'box', begins in the file.
std::size_t TypeOfBoxAt(const Bytes& file) {
  const std::string name = "box";
  for (std::size_t at = 0; at + name.size() <= file.size(); ++at) {
    if (std::memcmp(file.data() + at, name.data(), name.size()) == 0) return at - 8;
  }
  return 0;
}

TEST(IndexVersionTest, ContentsThatVersion1HoldsAreWrittenAsVersion1) {
  EXPECT_EQ(internal::Load<std::uint32_t>(FileOf(SmallContents()).data() + 8), 1U);
  EXPECT_EQ(internal::Load<std::uint32_t>(FileOf(TypedContents()).data() + 8), 2U);
}

TEST(IndexVersionTest, TheTypeOfBatchesIsReadAsItWasWritten) {
  const Bytes file = FileOf(TypedContents());
  const auto index = OpenVersion(file).value();
  EXPECT_EQ(index->VerifyAll().ToString(), "OK");
  EXPECT_EQ(index->fields()[2].batch_dtype, DType::kFloat64);
  EXPECT_EQ(index->fields()[2].dtype, DType::kFloat32);
  EXPECT_EQ(index->fields()[0].batch_dtype, std::nullopt);
  EXPECT_EQ(index->extent(2, SampleId{1}).value(), TypedContents().fields[2].extents[1]);
}

TEST(IndexVersionTest, TheTypeOfBatchesIsPartOfTheFingerprint) {
  const Bytes one = FileOf(SmallContents());
  const Bytes two = FileOf(TypedContents());
  EXPECT_NE(OpenVersion(one).value()->fingerprint(), OpenVersion(two).value()->fingerprint());
}

// The bytes are part of the format (docs/index-format.md): a change here is a new version.
TEST(IndexVersionTest, Version2IsFrozen) {
  const Bytes file = FileOf(TypedContents());
  EXPECT_EQ(OpenVersion(file).value()->fingerprint(), "64e8cf719f4fcf0044cc4f5e30a7e0e4");
  const std::size_t at = TypeOfBoxAt(file);
  EXPECT_EQ(static_cast<int>(file[at]), static_cast<int>(DType::kFloat64) + 1);
  for (std::size_t i = 1; i < 8; ++i) EXPECT_EQ(file[at + i], std::byte{0});
}

TEST(IndexVersionTest, CutAnywhereItIsDataLossAtOpen) {
  const Bytes file = FileOf(TypedContents());
  for (std::size_t size = 0; size < file.size(); ++size) {
    const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_EQ(OpenVersion(cut).status().code(), StatusCode::kDataLoss) << size;
  }
}

Status AfterChangeOfBox(std::size_t which, int value) {
  Bytes file = FileOf(TypedContents());
  file[TypeOfBoxAt(file) + which] = static_cast<std::byte>(value);
  internal::Reseal(file);
  return OpenVersion(file).status();
}

TEST(IndexVersionTest, ReservedUsesAreRefusedByNameNotAsDamage) {
  const Status codec = AfterChangeOfBox(1, 1);
  EXPECT_EQ(codec.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(codec.message()),
              HasSubstr("entry 2 has codec 1, which this headrace does not read"));
  const Status lists = AfterChangeOfBox(2, 3);
  EXPECT_EQ(lists.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(lists.message()), HasSubstr("entry 2 has lists of depth 3"));
  Bytes file = FileOf(TypedContents());
  file[TypeOfBoxAt(file) - 4] = std::byte{4};
  internal::Reseal(file);
  const Status text = OpenVersion(file).status();
  EXPECT_EQ(text.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(text.message()), HasSubstr("entry 2 has kind 4"));
}

TEST(IndexVersionTest, AWrongTypeIsDataLoss) {
  const auto why = [](std::size_t which, int value) {
    const Status status = AfterChangeOfBox(which, value);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    return std::string(status.message());
  };
  EXPECT_THAT(why(7, 1), HasSubstr("entry 2: reserved bytes are not zero"));
  EXPECT_THAT(why(0, 200), HasSubstr("field 2 'box': has an unknown dtype for batches"));
  EXPECT_THAT(why(0, static_cast<int>(DType::kFloat16) + 1),
              HasSubstr("batches would hold float16, which is not a wider type than float32"));
  EXPECT_THAT(why(0, 0), HasSubstr("no field needs version 2"));
}

TEST(IndexVersionTest, OnlyArraysOutsideTheIndexHaveATypeOfBatches) {
  for (const std::size_t field : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    IndexContents contents = SmallContents();
    contents.fields[field].info.batch_dtype = DType::kInt64;
    const internal::TestFolder folder;
    const Status status = WriteIndex(contents, folder / "i");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("has a dtype for batches but is no array outside the index"));
  }
}

// Captions inline and in the file, and boxes, of 2 samples.
IndexContents RaggedContents() {
  IndexContents contents = SmallContents();
  contents.blocks.clear();
  contents.fields.resize(1);
  contents.fields[0].info = {.name = "said", .kind = FieldKind::kText};
  contents.fields[0].checksums.clear();
  contents.fields.push_back({.info = {.name = "text", .kind = FieldKind::kText, .is_inline = true},
                             .extents = {},
                             .inline_values = {},
                             .inline_ends = {},
                             .checksums = {}});
  contents.fields.push_back({.info = {.name = "boxes",
                                      .kind = FieldKind::kArray,
                                      .dtype = DType::kInt16,
                                      .shape = {2},
                                      .is_list = true,
                                      .is_inline = true},
                             .extents = {},
                             .inline_values = {},
                             .inline_ends = {},
                             .checksums = {}});
  for (std::uint64_t i = 0; i < contents.sample_count; ++i) {  // sample i: i letters, i boxes
    contents.fields[1].inline_values.insert(contents.fields[1].inline_values.end(), i,
                                            std::byte{'a'});
    contents.fields[1].inline_ends.push_back(contents.fields[1].inline_values.size());
    contents.fields[2].inline_values.insert(contents.fields[2].inline_values.end(), 4 * i,
                                            static_cast<std::byte>(i));
    contents.fields[2].inline_ends.push_back(contents.fields[2].inline_values.size());
  }
  return contents;
}

TEST(IndexVersionTest, InlineValuesOfVariableLengthAreReadAsTheyWereWritten) {
  const Bytes file = FileOf(RaggedContents());
  EXPECT_EQ(internal::Load<std::uint32_t>(file.data() + 8), 2U);
  const auto index = OpenVersion(file).value();
  EXPECT_EQ(index->VerifyAll().ToString(), "OK");
  EXPECT_EQ(index->fields()[0].kind, FieldKind::kText);
  EXPECT_TRUE(index->fields()[2].is_list);
  for (std::uint64_t i = 0; i < index->sample_count(); ++i) {
    const auto text = index->inline_value(1, SampleId{i}).value();
    EXPECT_EQ(std::string(text.size(), 'a'),
              std::string(reinterpret_cast<const char*>(text.data()), text.size()));
    EXPECT_EQ(text.size(), i);
    const auto boxes = index->inline_value(2, SampleId{i}).value();
    EXPECT_EQ(Bytes(boxes.begin(), boxes.end()), Bytes(4 * i, static_cast<std::byte>(i)));
  }
}

TEST(IndexVersionTest, TheEndsOfInlineValuesHaveToAscendInWholeEntries) {
  const auto why = [](std::uint64_t end) {
    IndexContents contents = RaggedContents();
    contents.fields[2].inline_ends[1] = end;
    const internal::TestFolder folder;
    const Status status = WriteIndex(contents, folder / "i");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(why(3),
              HasSubstr("field 'boxes': an inline value at bytes [0, 3), must be a multiple"));
  EXPECT_THAT(why(1 << 20), HasSubstr("field 'boxes': "));
}

TEST(IndexVersionTest, AWrongEndIsDataLossOnAccess) {
  const Bytes good = FileOf(RaggedContents());
  const auto opened = OpenVersion(good).value();
  for (std::size_t at = 0; at + 8 <= good.size(); at += 8) {
    Bytes file = good;
    internal::Store(~std::uint64_t{0} / 2, file.data() + at);
    internal::Reseal(file);
    const auto index = OpenVersion(file);
    if (!index.ok()) continue;
    bool whole = true;
    for (std::size_t field = 1; field < 3; ++field) {
      for (std::uint64_t i = 0; i < index.value()->sample_count(); ++i) {
        const auto value = index.value()->inline_value(field, SampleId{i});
        whole = whole && value.ok();
        if (!value.ok()) {
          EXPECT_EQ(value.status().code(), StatusCode::kDataLoss);
        }
      }
    }
    if (!whole) {
      EXPECT_EQ(index.value()->VerifyAll().code(), StatusCode::kDataLoss) << at;
    }
  }
}

TEST(IndexVersionTest, AnImageIsNotInlineAndTextIsNoList) {
  const auto why = [](const FieldInfo& info) {
    const std::array fields = {info};
    return internal::WhyFieldsAreWrong(fields).value_or("");
  };
  EXPECT_THAT(why({.name = "a", .kind = FieldKind::kImage, .is_inline = true}),
              HasSubstr("is an image and inline"));
  EXPECT_THAT(why({.name = "a", .kind = FieldKind::kText, .is_list = true}),
              HasSubstr("is not an array but has a shape"));
  EXPECT_EQ(why({.name = "a", .kind = FieldKind::kBytes, .is_inline = true}), "");
}

TEST(IndexVersionTest, ATypeIsWiderIfItHoldsEveryValue) {
  EXPECT_TRUE(IsWider(DType::kInt64, DType::kUInt16));
  EXPECT_TRUE(IsWider(DType::kFloat32, DType::kFloat16));
  EXPECT_FALSE(IsWider(DType::kUInt32, DType::kInt8));
  EXPECT_FALSE(IsWider(DType::kInt16, DType::kUInt16));
  EXPECT_FALSE(IsWider(DType::kInt64, DType::kInt64));
  EXPECT_FALSE(IsWider(DType::kFloat64, DType::kInt32));
  EXPECT_FALSE(IsWider(DType::kInt64, DType::kBool));
}

}  // namespace
}  // namespace headrace
