#include "peer/race.h"

#include "gtest/gtest.h"

namespace headrace {
namespace {

const int kFirst = 1;
const int kSecond = 2;

TEST(RaceTest, WhoSendsBytesFirstHasTheReadAndAloneSaysHowItEnded) {
  Race race;
  EXPECT_TRUE(race.Claim(&kSecond));
  EXPECT_FALSE(race.Claim(&kFirst));
  EXPECT_TRUE(race.Claim(&kSecond));
  EXPECT_FALSE(race.End(&kFirst));
  EXPECT_TRUE(race.End(&kSecond));
}

TEST(RaceTest, AWinnerThatEndsFirstSaysSo) {
  Race race;
  EXPECT_TRUE(race.Claim(&kFirst));
  EXPECT_TRUE(race.End(&kFirst));
  EXPECT_FALSE(race.Claim(&kSecond));
  EXPECT_FALSE(race.End(&kSecond));
}

TEST(RaceTest, IfNeitherSendsBytesTheLaterToEndSaysSo) {
  Race race;
  EXPECT_FALSE(race.End(&kFirst));
  EXPECT_TRUE(race.End(&kSecond));
}

TEST(RaceTest, WhatTheFirstFailsToGiveTheSecondMayStillGive) {
  Race race;
  EXPECT_FALSE(race.End(&kFirst));
  EXPECT_TRUE(race.Claim(&kSecond));
  EXPECT_TRUE(race.End(&kSecond));
}

}  // namespace
}  // namespace headrace
