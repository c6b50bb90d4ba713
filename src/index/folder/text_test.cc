#include "index/folder/text.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::internal {
namespace {

using testing::ElementsAre;

std::string Json(std::string_view text) {
  std::string json;
  AppendJsonString(text, json);
  return json;
}

TEST(TextTest, SortsAsPythonSortsDecodedNames) {
  // sorted(os.fsdecode(n) for n in names): a lone byte is U+DC80.., after most of Unicode's first
  // plane and before its end and the emoji.
  std::vector<std::string> names = {"\xf0\x9f\x98\x80",
                                    "\xff",
                                    "\xef\xbf\xbd",
                                    "\xc3\xa9",
                                    "\x80",
                                    "b",
                                    "",
                                    "a/b",
                                    "a-b",
                                    "a",
                                    "a\xc3",
                                    "a\xc3\xa9"};
  std::sort(names.begin(), names.end(), TextLess);
  EXPECT_THAT(names, ElementsAre("", "a", "a-b", "a/b", "a\xc3\xa9", "a\xc3", "b", "\xc3\xa9",
                                 "\x80", "\xff", "\xef\xbf\xbd", "\xf0\x9f\x98\x80"));
}

TEST(TextTest, NoTextIsLessThanItself) {
  for (const char* text : {"", "a", "\xff", "\xc3\xa9", "\xe2\x82"}) {
    EXPECT_FALSE(TextLess(text, text));
  }
}

TEST(TextTest, JsonEscapesWhatJsonMust) {
  EXPECT_EQ(Json("a\"b\\c\n/\x01"), R"("a\"b\\c\u000a/\u0001")");
  EXPECT_EQ(Json("\xc3\xa9\xf0\x9f\x98\x80"), "\"\xc3\xa9\xf0\x9f\x98\x80\"");
}

// As os.fsdecode does, so that os.fsencode(json.loads(...)) gives the bytes back.
TEST(TextTest, JsonHoldsBytesThatAreNotUtf8AsLoneSurrogates) {
  EXPECT_EQ(Json("a\xff"), R"("a\udcff")");
  EXPECT_EQ(Json("\xc3"), R"("\udcc3")");                                // cut short
  EXPECT_EQ(Json("\xc0\x80"), R"("\udcc0\udc80")");                      // overlong
  EXPECT_EQ(Json("\xed\xa0\x80"), R"("\udced\udca0\udc80")");            // a surrogate
  EXPECT_EQ(Json("\xf4\x90\x80\x80"), R"("\udcf4\udc90\udc80\udc80")");  // past U+10FFFF
  EXPECT_EQ(Json("\xe2\x82z"), R"("\udce2\udc82z")");
}

TEST(TextTest, JsonLists) {
  EXPECT_EQ(JsonList(std::vector<std::string>{}), "[]");
  EXPECT_EQ(JsonList(std::vector<std::string>{"a", "b"}), R"(["a","b"])");
  EXPECT_EQ(JsonList(NumberedTexts{{"", 1}, {"b", -2}}), R"([["",1],["b",-2]])");
}

TEST(TextTest, NumberedTextsComeBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const NumberedTexts pairs = {{"", 0},
                               {all, std::numeric_limits<std::int64_t>::min()},
                               {"\xc3\xa9\"\\", std::numeric_limits<std::int64_t>::max()}};
  EXPECT_EQ(ParseNumberedTexts(JsonList(pairs)), pairs);
  EXPECT_EQ(ParseNumberedTexts("[]"), NumberedTexts());
}

TEST(TextTest, TextsComeBackAndAnythingElseIsNone) {
  const std::vector<std::string> texts = {"", "a\"\\\xff", "b"};
  const std::string whole = JsonList(texts);
  EXPECT_EQ(ParseTexts(whole), texts);
  EXPECT_EQ(ParseTexts("[]"), std::vector<std::string>());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(ParseTexts(whole.substr(0, size)), std::nullopt) << size;
  }
  for (const char* json : {"[]x", "[1]", "[\"a\" \"b\"]", "{}"}) {
    EXPECT_EQ(ParseTexts(json), std::nullopt) << json;
  }
}

TEST(TextTest, AnythingElseIsNoNumberedTexts) {
  const std::string whole = R"([["a\"\udcff",12],["b",3]])";
  ASSERT_TRUE(ParseNumberedTexts(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(ParseNumberedTexts(whole.substr(0, size)), std::nullopt) << size;
  }
  for (const char* json : {"[[\"a\",1]]x", "[[\"a\"]]", "[[1,2]]", "{}", R"([["\ud800",1]])",
                           R"([["\q",1]])", R"([["a",99999999999999999999]])"}) {
    EXPECT_EQ(ParseNumberedTexts(json), std::nullopt) << json;
  }
}

}  // namespace
}  // namespace headrace::internal
