#include "peer/hedged_read.h"

#include "gtest/gtest.h"

namespace headrace {
namespace {

const int kFirst = 1;
const int kSecond = 2;

TEST(HedgedReadTest, WhoSendsBytesFirstHasTheReadAndAloneSaysHowItEnded) {
  HedgedRead hedged;
  EXPECT_TRUE(hedged.Claim(&kSecond));
  EXPECT_FALSE(hedged.Claim(&kFirst));
  EXPECT_TRUE(hedged.Claim(&kSecond));
  EXPECT_FALSE(hedged.End(&kFirst));
  EXPECT_TRUE(hedged.End(&kSecond));
}

TEST(HedgedReadTest, AWinnerThatEndsFirstSaysSo) {
  HedgedRead hedged;
  EXPECT_TRUE(hedged.Claim(&kFirst));
  EXPECT_TRUE(hedged.End(&kFirst));
  EXPECT_FALSE(hedged.Claim(&kSecond));
  EXPECT_FALSE(hedged.End(&kSecond));
}

TEST(HedgedReadTest, IfNeitherSendsBytesTheLaterToEndSaysSo) {
  HedgedRead hedged;
  EXPECT_FALSE(hedged.End(&kFirst));
  EXPECT_TRUE(hedged.End(&kSecond));
}

TEST(HedgedReadTest, WhatTheFirstFailsToGiveTheSecondMayStillGive) {
  HedgedRead hedged;
  EXPECT_FALSE(hedged.End(&kFirst));
  EXPECT_TRUE(hedged.Claim(&kSecond));
  EXPECT_TRUE(hedged.End(&kSecond));
}

}  // namespace
}  // namespace headrace
