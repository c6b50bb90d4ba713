#include "index/folder/skip_rules.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::internal {
namespace {

using testing::HasSubstr;

SkipRules Rules(const std::vector<std::string>& skip) { return SkipRules::Parse(skip).value(); }

TEST(SkipRulesTest, AStarStaysInsideItsPartOfThePath) {
  EXPECT_TRUE(MatchesGlob("*", "a.jpg"));
  EXPECT_TRUE(MatchesGlob("*", ""));
  EXPECT_TRUE(MatchesGlob("*.jp*g", "x.jp.jpeg"));
  EXPECT_TRUE(MatchesGlob("a/*/c", "a/b/c"));
  EXPECT_TRUE(MatchesGlob("a**b", "a--b"));
  EXPECT_FALSE(MatchesGlob("a/*", "a/b/c"));
  EXPECT_FALSE(MatchesGlob("*c", "a/c"));
  EXPECT_FALSE(MatchesGlob("*.webp", "x.webp.jpg"));
  EXPECT_FALSE(MatchesGlob("", "x"));
}

TEST(SkipRulesTest, AQuestionMarkIsOneCharacterOfAnyNumberOfBytes) {
  EXPECT_TRUE(MatchesGlob("?.jpg", "x.jpg"));
  EXPECT_TRUE(MatchesGlob("?.jpg", "\xc3\xa4.jpg"));
  EXPECT_TRUE(MatchesGlob("??", "\xff\xfe"));
  EXPECT_FALSE(MatchesGlob("?.jpg", "xy.jpg"));
  EXPECT_FALSE(MatchesGlob("a?b", "a/b"));
  EXPECT_FALSE(MatchesGlob("?", ""));
}

TEST(SkipRulesTest, WithoutASlashANameMatchesAnywhereWithOneTheWholePath) {
  SkipRules rules = Rules({"src", "a/b", "/top", "*.webp"});
  for (const char* path : {"src", "x/src", "a/b", "top", "x/y.webp"}) {
    EXPECT_TRUE(rules.LeavesOut(path)) << path;
  }
  for (const char* path : {"src2", "x/a/b", "x/top", "a", "b", "x/y.webp2"}) {
    EXPECT_FALSE(rules.LeavesOut(path)) << path;
  }
  EXPECT_TRUE(Rules({"src/"}).LeavesOut("x/src"));
}

TEST(SkipRulesTest, APatternThatMatchedNoPathIsToldAsItWasGiven) {
  SkipRules rules = Rules({"*.webp", "/src/", "*.wepb", "x*", ":hidden", ":empty"});
  EXPECT_TRUE(rules.LeavesOut("a/x.webp"));  // by two of them
  EXPECT_FALSE(rules.LeavesOut("a/b.jpg"));
  EXPECT_THAT(rules.Unmatched(), testing::ElementsAre("/src/", "*.wepb"));
}

TEST(SkipRulesTest, APatternOfWhatLiesBelowAFolderThatIsLeftOutIsNotToldAsUnmatched) {
  SkipRules rules = Rules({"b", "b/3.jpg", "?/*/4.jpg", "c/5.jpg", "x/b/6.jpg", "x/*"});
  EXPECT_TRUE(rules.LeavesOut("b"));
  EXPECT_THAT(rules.Unmatched(), testing::ElementsAre("c/5.jpg", "x/b/6.jpg", "x/*"));
}

TEST(SkipRulesTest, KindsLeaveOutWhatIsFound) {
  const SkipRules all = Rules({":undecodable"});
  for (const FileFinding finding :
       {FileFinding::kFormat, FileFinding::kEmpty, FileFinding::kBrokenLink, FileFinding::kSpecial,
        FileFinding::kUnreadable}) {
    EXPECT_TRUE(all.LeavesOut(finding));
    EXPECT_FALSE(Rules({}).LeavesOut(finding));
  }
  EXPECT_FALSE(all.LeavesOut(FileFinding::kNone));
  EXPECT_TRUE(Rules({":empty"}).LeavesOut(FileFinding::kEmpty));
  EXPECT_FALSE(Rules({":empty"}).LeavesOut(FileFinding::kFormat));
  EXPECT_TRUE(Rules({":broken_link"}).LeavesOut(FileFinding::kBrokenLink));
  EXPECT_TRUE(Rules({":hidden"}).LeavesOut("a/.x.jpg"));
  EXPECT_FALSE(Rules({":hidden"}).LeavesOut("a/x.jpg"));
}

TEST(SkipRulesTest, WhatCanBeNoRuleIsRefusedByName) {
  const auto says = [](const std::string& rule) {
    const Status status = SkipRules::Parse({"fine", rule}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(says(":webp"), HasSubstr("got ':webp', a kind is one of :undecodable, :empty"));
  EXPECT_THAT(says(""), HasSubstr("got '', must be the name of a file or folder"));
  EXPECT_THAT(says("//"), HasSubstr("got '//', must be"));
}

}  // namespace
}  // namespace headrace::internal
