#include "engine/lanes/stall_meter.h"

#include "gtest/gtest.h"

namespace headrace {
namespace {

TEST(StallMeterTest, AWaitIsCountedForTheCauseThatHeldMeanwhile) {
  StallMeter meter;
  meter.OnWaiting(100);
  EXPECT_TRUE(meter.waiting());
  meter.set_cause(StallCause::kStorage);
  EXPECT_EQ(meter.Account(130), 30);
  meter.set_cause(StallCause::kDecode);
  EXPECT_EQ(meter.Account(135), 5);
  EXPECT_EQ(meter.Account(135), 0);
  meter.OnBatch();
  EXPECT_FALSE(meter.waiting());
  EXPECT_EQ(meter.Account(1000), 0);
  EXPECT_EQ(meter.stall_ns(), (StallTimes{30, 5, 0, 0}));
}

TEST(StallMeterTest, ASecondCallToWaitDoesNotBeginTheWaitAgain) {
  StallMeter meter;
  meter.OnWaiting(100);
  meter.OnWaiting(150);
  EXPECT_EQ(meter.Account(200), 100);
}

TEST(StallMeterTest, TakeNewReturnsEachNanosecondOnce) {
  StallMeter meter;
  meter.OnWaiting(0);
  meter.Account(10);
  EXPECT_EQ(meter.TakeNew(), (StallTimes{10, 0, 0, 0}));
  meter.Account(14);
  EXPECT_EQ(meter.TakeNew(), (StallTimes{4, 0, 0, 0}));
  EXPECT_EQ(meter.TakeNew(), StallTimes{});
  EXPECT_EQ(meter.stall_ns()[0], 14);
}

TEST(StallMeterTest, AStepLastsFromABatchTakenToTheNextOneAskedFor) {
  StallMeter meter;
  EXPECT_EQ(meter.step_ns(), 0);
  meter.OnTaken(0);
  meter.OnWaiting(80);  // It worked 80 ns; the wait is not its time.
  EXPECT_EQ(meter.step_ns(), 80);
  meter.Account(500);
  meter.OnBatch();
  meter.OnTaken(500);
  EXPECT_EQ(meter.step_ns(), 80) << "the time before the batch was no step";
  meter.OnTaken(740);  // It took the next one at once, after 240 ns: an eighth of the new counts.
  EXPECT_EQ(meter.step_ns(), 80 + (240 - 80) / 8);
}

TEST(StallMeterTest, AConsumerThatGetsNoMoreBatchesDoesNotWait) {
  StallMeter meter;
  meter.OnWaiting(0);
  meter.OnEnd();
  EXPECT_EQ(meter.Account(100), 0);
}

}  // namespace
}  // namespace headrace
