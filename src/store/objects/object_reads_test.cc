#include "store/objects/object_reads.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using testing::HasSubstr;
using testing::SizeIs;
using Kind = ReadAction::Kind;

constexpr ObjectReadsOptions kSmall{.window = {.min = 1, .start = 4, .max = 4},
                                    .budget = {.tokens_max = 20, .hedges_max = 2}};

AttemptEnd Fails(AttemptResult result, std::uint64_t received_bytes = 0) {
  return {.result = result,
          .received_bytes = received_bytes,
          .cause = {StatusCode::kUnavailable, "the cause"}};
}

// Events by hand.
class ObjectReadsTest : public testing::Test {
 protected:
  void SetUp() override { Use(kSmall); }
  void Use(const ObjectReadsOptions& options) {
    reads_ = std::make_unique<ObjectReads>(options, prng_);
  }

  // What to do since the last call: only actions of `kind`.
  std::vector<ReadAction> Take(Kind kind) {
    std::vector<ReadAction> all;
    reads_->TakeActions(all);
    std::vector<ReadAction> some;
    for (ReadAction& action : all) {
      if (action.kind == kind) some.push_back(std::move(action));
    }
    return some;
  }
  // The only attempt that was started since the last call.
  AttemptId Started() {
    const std::vector<ReadAction> starts = Take(Kind::kStart);
    EXPECT_THAT(starts, SizeIs(1));
    return starts.at(0).attempt;
  }
  // How the only read that ended did.
  Status Done() {
    const std::vector<ReadAction> ends = Take(Kind::kDone);
    EXPECT_THAT(ends, SizeIs(1));
    return ends.at(0).status;
  }
  // Reads that take 10 ms each, and so give tokens and what is usual.
  void Learn(int count) {
    for (int i = 0; i < count; ++i) {
      reads_->Add(100, now_ns_);
      const AttemptId attempt = Started();
      now_ns_ += 10 * kNsPerMs;
      reads_->Ended(attempt, {.received_bytes = 100}, now_ns_);
      EXPECT_TRUE(Done().ok());
    }
  }
  // Runs what is due until `time_ns`.
  void RunUntil(std::int64_t time_ns) {
    while (reads_->next_ns() && *reads_->next_ns() <= time_ns) {
      now_ns_ = *reads_->next_ns();
      reads_->Tick(now_ns_);
    }
    now_ns_ = time_ns;
  }
  // Of a read whose first attempt is late.
  std::pair<AttemptId, AttemptId> TwoAttempts() {
    Learn(200);
    reads_->Add(100, now_ns_);
    const AttemptId first = Started();
    RunUntil(now_ns_ + 30 * kNsPerMs);
    return {first, Started()};
  }

  Prng prng_{1, 0, RandomStream::kOrder};
  std::int64_t now_ns_ = 0;
  std::unique_ptr<ObjectReads> reads_;
};

TEST_F(ObjectReadsTest, StartsReadsInOrderUpToTheWindow) {
  std::vector<ReadId> added;
  for (int i = 0; i < 6; ++i) added.push_back(reads_->Add(100, 0));
  const std::vector<ReadAction> starts = Take(Kind::kStart);
  ASSERT_THAT(starts, SizeIs(4));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(starts[i].read, added[i]);
    EXPECT_EQ(starts[i].bytes, (ByteRange{0, 100}));
  }
  reads_->Ended(starts[2].attempt, {.received_bytes = 100}, 5);
  std::vector<ReadAction> actions;
  reads_->TakeActions(actions);
  ASSERT_THAT(actions, SizeIs(3));
  EXPECT_EQ(actions[0].kind, Kind::kKeep);
  EXPECT_EQ(actions[0].bytes, (ByteRange{0, 100}));
  EXPECT_EQ(actions[1].kind, Kind::kDone);
  EXPECT_EQ(actions[1].read, added[2]);
  EXPECT_EQ(actions[2].kind, Kind::kStart);
  EXPECT_EQ(actions[2].read, added[4]);
}

TEST_F(ObjectReadsTest, ABodyThatEndsEarlyIsContinuedBehindItsLastByte) {
  reads_->Add(100, 0);
  const AttemptId first = Started();
  reads_->Received(first, 30, 1);
  reads_->Ended(first, Fails(AttemptResult::kBroken, 40), 2);
  std::vector<ReadAction> actions;
  reads_->TakeActions(actions);
  ASSERT_THAT(actions, SizeIs(2));
  EXPECT_EQ(actions[0].bytes, (ByteRange{0, 40}));
  EXPECT_EQ(actions[0].cell_offset, 0U);
  EXPECT_EQ(actions[1].bytes, (ByteRange{40, 60}));
  reads_->Ended(actions[1].attempt, {.received_bytes = 60}, 3);
  EXPECT_TRUE(Done().ok());
}

TEST_F(ObjectReadsTest, AShortAnswerThatSaysItIsCompleteIsBroken) {
  Use({.budget = {.tokens_max = 1}});
  reads_->Add(100, 0);
  reads_->Ended(Started(), {.received_bytes = 99}, 1);
  const std::vector<ReadAction> starts = Take(Kind::kStart);
  ASSERT_THAT(starts, SizeIs(1));
  EXPECT_EQ(starts[0].bytes, (ByteRange{99, 1}));
  reads_->Ended(starts[0].attempt, {}, 1);
  EXPECT_THAT(std::string(Done().message()),
              HasSubstr("got 0 bytes, must be 1, and no retry is left"));
}

TEST_F(ObjectReadsTest, AConnectionThatBreaksAfterTheLastByteGaveTheRead) {
  reads_->Add(100, 0);
  reads_->Ended(Started(), Fails(AttemptResult::kBroken, 100), 1);
  EXPECT_TRUE(Done().ok());
}

TEST_F(ObjectReadsTest, FinalAnswersEndTheRead) {
  reads_->Add(100, 0);
  reads_->Ended(
      Started(),
      {.result = AttemptResult::kRefused, .cause = {StatusCode::kNotFound, "no such object"}}, 1);
  EXPECT_EQ(Done().ToString(), "NotFound: no such object");
  reads_->Add(100, 1);
  reads_->Ended(Started(),
                {.result = AttemptResult::kChanged,
                 .cause = {StatusCode::kUnavailable, "object changed since it was indexed"}},
                2);
  EXPECT_EQ(Done().ToString(),
            "FailedPrecondition: object changed since it was indexed; index the dataset again");
}

TEST_F(ObjectReadsTest, TriesWithoutAByteAreBoundedAndAByteBeginsTheCountAgain) {
  reads_->Add(100, 0);
  for (int i = 0; i < 9; ++i) {
    reads_->Ended(Started(), Fails(AttemptResult::kBroken), now_ns_);
    RunUntil(now_ns_ + 6 * kNsPerSecond);
  }
  reads_->Ended(Started(), Fails(AttemptResult::kBroken, 1), now_ns_);
  for (int i = 0; i < 9; ++i) {
    reads_->Ended(Started(), Fails(AttemptResult::kBroken), now_ns_);
    RunUntil(now_ns_ + 6 * kNsPerSecond);
  }
  reads_->Ended(Started(), Fails(AttemptResult::kBroken), now_ns_);
  EXPECT_EQ(Done().ToString(),
            "Unavailable: the cause, after 10 tries in a row without a byte; check the store and "
            "the network");
}

TEST_F(ObjectReadsTest, AnAbsentObjectIsNotFound) {
  reads_->Add(100, 0);
  reads_->Ended(Started(), Fails(AttemptResult::kAbsent), 1);
  EXPECT_EQ(Done().ToString(), "NotFound: the cause; index the dataset again");
}

TEST_F(ObjectReadsTest, SilenceHalvesTheWindowAndTakesNoToken) {
  Use({.window = {.min = 1, .start = 8, .max = 8}, .budget = {.tokens_max = 1}});
  for (int i = 0; i < 8; ++i) reads_->Add(100, 0);
  std::vector<AttemptId> attempts;
  for (const ReadAction& action : Take(Kind::kStart)) attempts.push_back(action.attempt);
  ASSERT_THAT(attempts, SizeIs(8));
  RunUntil(30 * kNsPerSecond);
  for (const AttemptId attempt : attempts) {
    reads_->Ended(attempt, Fails(AttemptResult::kSilent), now_ns_);
  }
  EXPECT_EQ(reads_->window(), 4);
  EXPECT_THAT(Take(Kind::kStart), SizeIs(4));
  EXPECT_EQ(reads_->reads(), 8);
}

TEST_F(ObjectReadsTest, AStoreThatStaysSilentEndsTheReadAfterAsManyTriesAsOneThatBreaks) {
  Use({.budget = {.tokens_max = 1}});
  reads_->Add(100, 0);
  for (int i = 0; i < 9; ++i) {
    reads_->Ended(Started(), Fails(AttemptResult::kSilent), now_ns_);
    RunUntil(now_ns_ + 36 * kNsPerSecond);
  }
  reads_->Ended(Started(), Fails(AttemptResult::kSilent), now_ns_);
  EXPECT_EQ(Done().ToString(),
            "Unavailable: the cause, after 10 tries in a row without a byte; check the store and "
            "the network");
}

TEST_F(ObjectReadsTest, TheSecondTryWithoutAByteIsRepeatedAtOnceLaterOnesWait) {
  reads_->Add(100, 0);
  reads_->Ended(Started(), Fails(AttemptResult::kBroken), 0);
  std::int64_t most_ns = 0;
  for (std::int64_t end_ns = 50 * kNsPerMs; end_ns < kNsPerSecond; end_ns *= 2) {
    reads_->Ended(Started(), Fails(AttemptResult::kBroken), now_ns_);
    EXPECT_THAT(Take(Kind::kStart), SizeIs(0));
    ASSERT_TRUE(reads_->next_ns());
    EXPECT_LT(*reads_->next_ns(), now_ns_ + end_ns);
    most_ns = std::max(most_ns, *reads_->next_ns() - now_ns_);
    RunUntil(*reads_->next_ns());
  }
  EXPECT_GT(most_ns, 100 * kNsPerMs);
}

TEST_F(ObjectReadsTest, WithoutATokenABrokenTryIsFinal) {
  Use({.budget = {.tokens_max = 1}});
  reads_->Add(100, 0);
  reads_->Ended(Started(), Fails(AttemptResult::kBroken), 0);
  reads_->Ended(Started(), Fails(AttemptResult::kBroken), 0);
  EXPECT_EQ(Done().ToString(),
            "Unavailable: the cause, and no retry is left: all reads of the store share 1, and ten "
            "that succeed give one more; check the store and the network");
}

TEST_F(ObjectReadsTest, AFetcherThatEndsCostsNoTokenButAReadMeetsThreeAtMost) {
  Use({.budget = {.tokens_max = 1}});
  reads_->Add(100, 0);
  reads_->Ended(Started(), Fails(AttemptResult::kFetcherGone), 0);
  reads_->Ended(Started(), Fails(AttemptResult::kFetcherGone), 0);
  reads_->Ended(Started(), Fails(AttemptResult::kBroken), 0);  // takes the token
  reads_->Ended(Started(), Fails(AttemptResult::kFetcherGone, 70), 0);
  EXPECT_EQ(Done().ToString(),
            "Unavailable: the cause; it is process 3 that ended during this read; check the memory "
            "of the machine");
}

TEST_F(ObjectReadsTest, AReadIsSlowedDownForFiveMinutesBeforeItFailsEvenIfOthersSucceed) {
  Use({.window = {.min = 2, .start = 2, .max = 2},
       .first_byte = {.min_ns = 1000 * kNsPerSecond, .unknown_ns = 1000 * kNsPerSecond}});
  reads_->Add(100, 0);
  AttemptId attempt = Started();
  for (;;) {
    reads_->Ended(attempt, Fails(AttemptResult::kSlowDown), now_ns_);
    const std::vector<ReadAction> done = Take(Kind::kDone);
    if (!done.empty()) {
      EXPECT_EQ(done.at(0).status.code(), StatusCode::kUnavailable);
      EXPECT_THAT(std::string(done.at(0).status.message()),
                  HasSubstr(" s to slow down: the cause; try again later"));
      break;
    }
    RunUntil(now_ns_ + 10 * kNsPerSecond);
    attempt = Started();
    Learn(1);
    ASSERT_LT(now_ns_, 400 * kNsPerSecond);
  }
  EXPECT_GE(now_ns_, 300 * kNsPerSecond);
}

TEST_F(ObjectReadsTest, ACancelledReadThatWaitsEndsAtOnceAndNeverStarts) {
  Use({.window = {.min = 1, .start = 1, .max = 1}});
  reads_->Add(100, 0);
  const AttemptId first = Started();
  const ReadId waits = reads_->Add(100, 0);
  reads_->Cancel(waits, 1);
  EXPECT_EQ(Done().ToString(), "Cancelled: the read was stopped");
  reads_->Cancel(waits, 1);  // It has ended: nothing happens.
  reads_->Ended(first, {.received_bytes = 100}, 2);
  EXPECT_THAT(Take(Kind::kStart), SizeIs(0));
  EXPECT_EQ(reads_->reads(), 0U);
}

TEST_F(ObjectReadsTest, ACancelledReadWithAnAttemptEndsWhenThatHasEnded) {
  const ReadId read = reads_->Add(100, 0);
  const AttemptId attempt = Started();
  reads_->Cancel(read, 1);
  reads_->Cancel(read, 1);
  std::vector<ReadAction> actions;
  reads_->TakeActions(actions);
  ASSERT_THAT(actions, SizeIs(1));
  EXPECT_EQ(actions[0].kind, Kind::kCancel);
  EXPECT_EQ(actions[0].attempt, attempt);
  reads_->Received(attempt, 50, 2);
  EXPECT_EQ(reads_->next_ns(), std::nullopt);
  reads_->Ended(attempt, Fails(AttemptResult::kBroken, 50), 3);
  EXPECT_EQ(Done().code(), StatusCode::kCancelled);
  EXPECT_EQ(reads_->attempts(), 0U);
}

TEST_F(ObjectReadsTest, ACancelledReadWithTwoAttemptsEndsWhenBothHaveEnded) {
  Learn(200);
  const ReadId read = reads_->Add(100, now_ns_);
  const AttemptId first = Started();
  RunUntil(now_ns_ + 30 * kNsPerMs);
  const AttemptId second = Started();
  reads_->Cancel(read, now_ns_);
  reads_->Ended(second, {.received_bytes = 100}, now_ns_);
  EXPECT_THAT(Take(Kind::kDone), SizeIs(0));
  reads_->Ended(first, Fails(AttemptResult::kRefused), now_ns_);
  EXPECT_EQ(Done().code(), StatusCode::kCancelled);
}

TEST_F(ObjectReadsTest, ASecondAttemptIsSentIfTheFirstByteIsLaterThanUsual) {
  Learn(200);
  reads_->Add(100, now_ns_);
  const AttemptId first = Started();
  const std::int64_t began_ns = now_ns_;
  EXPECT_EQ(reads_->next_ns(), began_ns + 30 * kNsPerMs) << "three times the usual 10 ms";
  RunUntil(began_ns + 30 * kNsPerMs);
  const AttemptId second = Started();
  EXPECT_EQ(reads_->next_ns(), std::nullopt) << "there is never a third";
  reads_->Ended(second, {.received_bytes = 100}, now_ns_);
  std::vector<ReadAction> actions;
  reads_->TakeActions(actions);
  ASSERT_THAT(actions, SizeIs(3));
  EXPECT_EQ(actions[0].kind, Kind::kKeep);
  EXPECT_EQ(actions[0].attempt, second);
  EXPECT_EQ(actions[1].kind, Kind::kCancel);
  EXPECT_EQ(actions[1].attempt, first);
  EXPECT_EQ(actions[2].kind, Kind::kDone);
  EXPECT_EQ(reads_->attempts(), 1U) << "its cell is not free before it has ended";
  reads_->Ended(first, {.received_bytes = 100}, now_ns_);
  EXPECT_THAT(Take(Kind::kDone), SizeIs(0));
  EXPECT_EQ(reads_->counts().hedges_won, 1U);
}

TEST_F(ObjectReadsTest, TheFirstAttemptMayStillWin) {
  const auto [first, second] = TwoAttempts();
  reads_->Ended(first, {.received_bytes = 100}, now_ns_);
  const std::vector<ReadAction> cancels = Take(Kind::kCancel);
  ASSERT_THAT(cancels, SizeIs(1));
  EXPECT_EQ(cancels[0].attempt, second);
}

TEST_F(ObjectReadsTest, WhileOneAttemptGoesOnAnotherMayBreakWithoutAToken) {
  const auto [first, second] = TwoAttempts();
  reads_->Ended(first, Fails(AttemptResult::kBroken, 60), now_ns_);
  EXPECT_THAT(Take(Kind::kStart), SizeIs(0));
  reads_->Ended(second, Fails(AttemptResult::kBroken, 20), now_ns_);
  const std::vector<ReadAction> starts = Take(Kind::kStart);
  ASSERT_THAT(starts, SizeIs(1));
  EXPECT_EQ(starts[0].bytes, (ByteRange{60, 40})) << "behind the last byte of either";
}

TEST_F(ObjectReadsTest, BytesThatAnotherAttemptGaveAreNotKeptAgain) {
  const auto [first, second] = TwoAttempts();
  reads_->Ended(first, Fails(AttemptResult::kBroken, 60), now_ns_);
  EXPECT_THAT(Take(Kind::kKeep), SizeIs(1));
  reads_->Ended(second, {.received_bytes = 100}, now_ns_);
  const std::vector<ReadAction> keeps = Take(Kind::kKeep);
  ASSERT_THAT(keeps, SizeIs(1));
  EXPECT_EQ(keeps[0].attempt, second);
  EXPECT_EQ(keeps[0].bytes, (ByteRange{60, 40}));
  EXPECT_EQ(keeps[0].cell_offset, 60U);
}

TEST_F(ObjectReadsTest, AnAttemptThatHasAllBytesGetsNoSecondOne) {
  Learn(200);
  reads_->Add(100, now_ns_);
  const AttemptId attempt = Started();
  reads_->Received(attempt, 100, ++now_ns_);
  RunUntil(now_ns_ + 100 * kNsPerSecond);
  EXPECT_THAT(Take(Kind::kStart), SizeIs(0));
}

TEST_F(ObjectReadsTest, ABodyThatStallsGetsASecondAttemptForTheRest) {
  for (int i = 0; i < 200; ++i) {
    reads_->Add(100, now_ns_);
    const AttemptId attempt = Started();
    reads_->Received(attempt, 50, now_ns_ += kNsPerSecond);
    reads_->Ended(attempt, {.received_bytes = 100}, now_ns_ += kNsPerMs);
    EXPECT_TRUE(Done().ok());
  }
  reads_->Add(100, now_ns_);
  const AttemptId first = Started();
  reads_->Received(first, 70, now_ns_ += kNsPerMs);
  EXPECT_EQ(reads_->next_ns(), now_ns_ + 200 * kNsPerMs) << "not three times a second";
  RunUntil(now_ns_ + 199 * kNsPerMs);
  EXPECT_THAT(Take(Kind::kStart), SizeIs(0));
  RunUntil(now_ns_ + kNsPerMs);
  std::vector<ReadAction> actions;
  reads_->TakeActions(actions);
  ASSERT_THAT(actions, SizeIs(2));
  EXPECT_EQ(actions[0].kind, Kind::kKeep);
  EXPECT_EQ(actions[0].bytes, (ByteRange{0, 70}));
  EXPECT_EQ(actions[1].bytes, (ByteRange{70, 30}));
}

TEST_F(ObjectReadsTest, UntilAHundredWaitsAreKnownASecondAttemptWaitsTwoSeconds) {
  Learn(99);
  reads_->Add(100, now_ns_);
  EXPECT_EQ(reads_->next_ns(), now_ns_ + 2 * kNsPerSecond);
}

TEST_F(ObjectReadsTest, ALateReadWaitsForATokenAndAByteEndsItsWait) {
  Use({.budget = {.tokens_max = 20, .hedges_max = 1}});
  Learn(200);
  for (int i = 0; i < 3; ++i) reads_->Add(100, ++now_ns_);
  const std::vector<ReadAction> starts = Take(Kind::kStart);
  ASSERT_THAT(starts, SizeIs(3));
  RunUntil(now_ns_ + 30 * kNsPerMs);
  EXPECT_EQ(Take(Kind::kStart).at(0).read, starts[0].read);
  reads_->Received(starts[1].attempt, 1, now_ns_);
  for (int i = 0; i < 20; ++i) {
    reads_->Add(100, now_ns_);
    reads_->Ended(Started(), {.received_bytes = 100}, now_ns_ += kNsPerMs);
    if (i < 19) {
      EXPECT_TRUE(Done().ok());
    }
  }
  EXPECT_EQ(Take(Kind::kStart).at(0).read, starts[2].read);
}

TEST_F(ObjectReadsTest, NoSecondAttemptIsSentToAStoreThatIsSlow) {
  Use({.window = {.min = 8, .start = 8, .max = 8}});
  Learn(200);
  reads_->Add(100, now_ns_);
  const AttemptId late = Started();
  reads_->Add(100, now_ns_);
  reads_->Ended(Started(), Fails(AttemptResult::kSlowDown), now_ns_);
  RunUntil(now_ns_ + 2 * kNsPerSecond);
  const std::vector<ReadAction> starts = Take(Kind::kStart);
  ASSERT_THAT(starts, SizeIs(1)) << "the retry alone";
  reads_->Ended(starts[0].attempt, {.received_bytes = 100}, now_ns_);
  EXPECT_THAT(Take(Kind::kStart), SizeIs(1)) << "it is no longer slow";
  reads_->Ended(late, {.received_bytes = 100}, now_ns_);
}

}  // namespace
}  // namespace headrace
