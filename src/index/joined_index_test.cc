#include "index/joined_index.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/hash.h"
#include "gtest/gtest.h"
#include "headrace/index_writer.h"
#include "index/test_contents.h"

namespace headrace {
namespace {

// Samples of 10 bytes with a label, in files of two samples below `root`.
IndexContents Contents(const std::string& root, std::uint64_t samples, std::int64_t label) {
  IndexContents contents;
  contents.root = root;
  contents.sample_count = samples;
  IndexContents::Field text{.info = {.name = "text"}};
  IndexContents::Field labels{
      .info = {
          .name = "label", .kind = FieldKind::kArray, .dtype = DType::kInt64, .is_inline = true}};
  for (std::uint64_t i = 0; i < samples; ++i) {
    if (i % 2 == 0) contents.objects.push_back({.name = "f" + std::to_string(i / 2), .size = 20});
    text.extents.push_back(
        {.object = ObjectId{i / 2}, .range = {.offset = i % 2 * 10, .size = 10}});
    const std::int64_t value = label + static_cast<std::int64_t>(i);
    labels.inline_values.resize((i + 1) * 8);
    std::memcpy(labels.inline_values.data() + i * 8, &value, 8);
  }
  contents.fields = {text, labels};
  return contents;
}

class JoinedIndexTest : public ::testing::Test {
 protected:
  std::string Written(const std::string& name, const IndexContents& contents) {
    const std::string path = folder_ / name;
    EXPECT_TRUE(WriteIndex(contents, path).ok());
    return path;
  }

  std::shared_ptr<const Index> Joined(const JoinOptions& options) {
    const std::string path = folder_ / "joined.hri";
    const Status status = WriteJoinedIndex(options, path);
    EXPECT_TRUE(status.ok()) << status.ToString();
    Result<std::shared_ptr<const Index>> index = Index::Open(path);
    EXPECT_TRUE(index.ok()) << index.status().ToString();
    return index.value();
  }

  void ExpectRefused(const JoinOptions& options, const std::string& text) {
    const Status status = WriteJoinedIndex(options, folder_ / "joined.hri");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  }

  internal::TestFolder folder_;
};

std::int64_t LabelOf(const Index& index, std::size_t field, std::uint64_t id) {
  std::int64_t value = 0;
  const std::span<const std::byte> bytes = index.inline_value(field, SampleId{id}).value();
  EXPECT_EQ(bytes.size(), 8U);
  std::memcpy(&value, bytes.data(), 8);
  return value;
}

TEST_F(JoinedIndexTest, HasTheSamplesOfAllParts) {
  const std::string web = Written("web.hri", Contents("/data/web", 5, 100));
  const std::string none = Written("none.hri", Contents("/data/none", 0, 0));
  const std::string code = Written("code.hri", Contents("/data/more/code", 3, 200));
  const auto index = Joined({.parts = {{.name = "web", .path = web},
                                       {.name = "none", .path = none},
                                       {.name = "code", .path = code}},
                             .part_field = "source"});
  EXPECT_EQ(index->sample_count(), 8U);
  EXPECT_EQ(index->object_count(), 5U);
  EXPECT_EQ(index->root(), "/data");
  ASSERT_EQ(index->fields().size(), 3U);
  EXPECT_EQ(index->fields()[2].name, "source");
  for (std::uint64_t id = 0; id < 8; ++id) {
    const bool is_web = id < 5;
    const std::uint64_t own = is_web ? id : id - 5;
    EXPECT_EQ(LabelOf(*index, 1, id), static_cast<std::int64_t>((is_web ? 100 : 200) + own));
    EXPECT_EQ(LabelOf(*index, 2, id), is_web ? 0 : 2);
    const Extent extent = index->extent(0, SampleId{id}).value();
    EXPECT_EQ(extent.range.offset, own % 2 * 10);
    const ObjectInfo object = index->object(extent.object).value();
    EXPECT_EQ(object.name, (is_web ? "web/f" : "more/code/f") + std::to_string(own / 2));
    EXPECT_EQ(object.size, 20U);
    EXPECT_EQ(index->object_bytes(extent.object), 20U);
  }
  std::vector<std::int64_t> labels(6);
  ASSERT_TRUE(
      index->CopyInlineValues(1, SampleId{2}, std::as_writable_bytes(std::span(labels))).ok());
  EXPECT_EQ(labels, (std::vector<std::int64_t>{102, 103, 104, 200, 201, 202}));
  std::vector<std::uint64_t> bytes(8);
  index->SampleBytes(SampleId{0}, bytes);
  EXPECT_EQ(bytes, std::vector<std::uint64_t>(8, 10));
  EXPECT_TRUE(index->VerifyAll().ok());
  EXPECT_TRUE(index->CheckIntact().ok());
  EXPECT_EQ(index->extent(0, SampleId{8}).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(index->extent(3, SampleId{0}).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(index->object(ObjectId{5}).status().code(), StatusCode::kOutOfRange);
  EXPECT_FALSE(index->extent(2, SampleId{0}).ok());
}

TEST_F(JoinedIndexTest, RenamesFieldsAndLeavesOutThoseOfSomeParts) {
  IndexContents code = Contents("/data/code", 2, 7);
  code.fields[0].info.name = "content";
  code.fields.push_back(code.fields[1]);
  code.fields[2].info.name = "stars";
  const auto index = Joined(
      {.parts = {
           {.name = "web", .path = Written("web.hri", Contents("/data/web", 2, 0))},
           {.name = "code", .path = Written("code.hri", code), .renames = {{"content", "text"}}}}});
  ASSERT_EQ(index->fields().size(), 2U);
  EXPECT_EQ(index->fields()[0].name, "text");
  EXPECT_EQ(index->fields()[1].name, "label");
  EXPECT_EQ(LabelOf(*index, 1, 3), 8);
  EXPECT_EQ(index->object(index->extent(0, SampleId{3}).value().object).value().name, "code/f0");
}

TEST_F(JoinedIndexTest, APathBehindAPrefixIsBelowTheRoot) {
  IndexContents web = Contents("decoded:///data/web", 1, 0);
  web.objects[0].name = "gzip:20/x/f0";
  const auto index = Joined(
      {.parts = {{.name = "web", .path = Written("web.hri", web)},
                 {.name = "code", .path = Written("code.hri", Contents("decoded:///data", 1, 0))}},
       .prefixed_names = true});
  EXPECT_EQ(index->root(), "decoded:///data");
  EXPECT_EQ(index->object(ObjectId{0}).value().name, "gzip:20/web/x/f0");
}

TEST_F(JoinedIndexTest, FindsTheFolderAboveAllRoots) {
  const auto root = [&](const std::string& a, const std::string& b) {
    return Joined({.parts = {{.name = "a", .path = Written("a.hri", Contents(a, 1, 0))},
                             {.name = "b", .path = Written("b.hri", Contents(b, 1, 0))}}})
        ->root();
  };
  EXPECT_EQ(root("/data/a", "/data/ab"), "/data");
  EXPECT_EQ(root("/data", "/data"), "/data");
  EXPECT_EQ(root("/data", "/data/a"), "/data");
  EXPECT_EQ(root("/one", "/two"), "/.");
  EXPECT_EQ(root("s3://bucket/a", "s3://bucket/b/c"), "s3://bucket");
}

TEST_F(JoinedIndexTest, ItsFingerprintIsThatOfPartsAndFields) {
  const JoinedPart a{.name = "a", .path = Written("a.hri", Contents("/data/a", 1, 0))};
  const JoinedPart b{.name = "b", .path = Written("b.hri", Contents("/data/b", 1, 5))};
  const auto fingerprint = [&](const JoinOptions& options) {
    return Joined(options)->fingerprint();
  };
  const std::string before = fingerprint({.parts = {a, b}});
  EXPECT_EQ(before.size(), 32U);
  EXPECT_EQ(fingerprint({.parts = {a, b}}), before);
  EXPECT_NE(fingerprint({.parts = {b, a}}), before);
  EXPECT_NE(fingerprint({.parts = {a, b}, .part_field = "source"}), before);
  EXPECT_NE(Joined({.parts = {a, b}})->Content(), Joined({.parts = {b, a}})->Content());
}

TEST_F(JoinedIndexTest, NoticesAPartThatChanged) {
  const std::string web = Written("web.hri", Contents("/data/web", 5, 100));
  Joined({.parts = {{.name = "web", .path = web}}});
  Written("web.hri", Contents("/data/web", 4, 100));
  const Status status = Index::Open(folder_ / "joined.hri").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("'web' has changed"), std::string::npos);
  std::filesystem::remove(web);
  EXPECT_EQ(Index::Open(folder_ / "joined.hri").status().code(), StatusCode::kNotFound);
}

TEST_F(JoinedIndexTest, RefusesWhatDoesNotFit) {
  const std::string web = Written("web.hri", Contents("/data/web", 5, 100));
  const JoinedPart part{.name = "web", .path = web};
  ExpectRefused({}, "no part");
  ExpectRefused({.parts = {{.name = "web", .path = web, .renames = {{"body", "text"}}}}},
                "no field 'body' to rename");
  ExpectRefused({.parts = {{.name = "web", .path = web, .renames = {{"label", "text"}}}}},
                "two of its fields would have the name");
  IndexContents other = Contents("/data/other", 2, 0);
  other.fields[1].info.dtype = DType::kFloat64;
  ExpectRefused({.parts = {part, {.name = "other", .path = Written("other.hri", other)}}},
                "fields 'label' differ in dtype");
  other = Contents("/data/other", 2, 0);
  other.fields[0].info.name = "a";
  other.fields[1].info.name = "b";
  ExpectRefused({.parts = {part, {.name = "other", .path = Written("other.hri", other)}}},
                "no field has the same name");
  ExpectRefused(
      {.parts = {part,
                 {.name = "far", .path = Written("far.hri", Contents("s3://bucket/far", 1, 0))}}},
      "different stores");
  ExpectRefused({.parts = {part}, .part_field = "label"}, "have a field 'label' themselves");
  ASSERT_TRUE(WriteJoinedIndex({.parts = {part}}, folder_ / "inner.hri").ok());
  ExpectRefused({.parts = {{.name = "inner", .path = folder_ / "inner.hri"}}},
                "is a mixture itself");
}

}  // namespace
}  // namespace headrace
