#include "store/objects/testing/object_world.h"

#include <algorithm>
#include <iterator>

#include "gtest/gtest.h"

namespace headrace {
namespace {

constexpr std::int64_t kCancelNs = 2 * kNsPerMs;  // until a fetcher confirms

// The bytes of all objects, one after the other: pseudo-random ones that repeat after a prime
// number, which no size of a read divides. Any kBytesMax from [0, kPeriod) on.
constexpr std::uint64_t kPeriod = 65'521;
constexpr std::uint64_t kBytesMax = 2 * kMiB;

std::vector<std::uint8_t>::const_iterator BytesAt(std::uint64_t place) {
  static const std::vector<std::uint8_t> all_bytes = [] {
    std::vector<std::uint8_t> bytes(kPeriod + kBytesMax);
    for (std::uint64_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::uint8_t>((i % kPeriod * 0x9e37'79b9'7f4a'7c15) >> 47U);
    }
    return bytes;
  }();
  return all_bytes.begin() + static_cast<std::ptrdiff_t>(place % kPeriod);
}

}  // namespace

ObjectWorld::ObjectWorld(const ObjectReadsOptions& options, std::uint64_t seed, Serve serve)
    : prng_(seed, 0, RandomStream::kOrder, 1), serve_(std::move(serve)), reads_(options, prng_) {}

void ObjectWorld::Run(const Work& work) {
  ASSERT_LE(work.bytes, kBytesMax);
  AddReads(work);
  while (!queue_.empty() || reads_.next_ns()) {
    const std::optional<std::int64_t> tick_ns = reads_.next_ns();
    if (tick_ns && (queue_.empty() || *tick_ns < queue_.top().time_ns)) {
      ASSERT_GE(*tick_ns, now_ns_);
      now_ns_ = *tick_ns;
      reads_.Tick(now_ns_);
      Act();
    } else {
      const Event event = queue_.top();
      queue_.pop();
      now_ns_ = event.time_ns;
      runs_.extract(event.number).mapped()();
    }
    AddReads(work);
    done = ends.size() == work.reads;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(ends.size(), work.reads);
  EXPECT_EQ(live_.size(), 0U);
  EXPECT_EQ(flights_.size(), 0U);
  EXPECT_EQ(reads_.reads(), 0U);
  EXPECT_EQ(reads_.attempts(), 0U);
}

void ObjectWorld::At(std::int64_t time_ns, std::function<void()> event) {
  queue_.push({std::max(time_ns, now_ns_), events_});
  runs_.emplace(events_++, std::move(event));
}

void ObjectWorld::KillFetcher(int fetcher) {
  std::vector<AttemptId> gone;
  for (const auto& [id, flight] : flights_) {
    if (flight.fetcher == fetcher) gone.push_back(id);
  }
  for (const AttemptId id : gone) End(id, AttemptResult::kFetcherGone);
}

void ObjectWorld::CancelOne(std::uint64_t n) {
  if (live_.empty()) return;
  const auto at = std::next(live_.begin(), static_cast<std::ptrdiff_t>(n % live_.size()));
  reads_.Cancel(at->first, now_ns_);
  Act();
}

void ObjectWorld::AddReads(const Work& work) {
  while (added_ < work.reads && live_.size() < work.queued) {
    const ReadId id = reads_.Add(work.bytes, now_ns_);
    live_.emplace(id, SimRead{.number = added_,
                              .offset = added_ * 7919,
                              .buffer = std::vector<std::uint8_t>(work.bytes)});
    ++added_;
    Act();
  }
}

void ObjectWorld::Act(std::optional<AttemptId> ended) {
  reads_.TakeActions(actions_);
  bool started = false;
  for (const ReadAction& action : std::exchange(actions_, {})) {
    started = started || action.kind == ReadAction::Kind::kStart;
    Do(action);
  }
  if (ended) flights_.erase(*ended);  // Not before: actions may keep its bytes.
  EXPECT_TRUE(!started || reads_.attempts() <= reads_.window());
  EXPECT_EQ(reads_.attempts(), flights_.size());
  EXPECT_EQ(reads_.reads(), live_.size());
}

void ObjectWorld::Do(const ReadAction& action) {
  switch (action.kind) {
    case ReadAction::Kind::kStart: {
      SimRead& read = live_.at(action.read);
      hedged_max = std::max(hedged_max, ++read.attempts);
      const Flight flight{.read = action.read,
                          .bytes = action.bytes,
                          .offset = read.offset,
                          .cell = std::vector<std::uint8_t>(action.bytes.size),
                          .fetcher = next_fetcher_++ % kFetchers};
      EXPECT_TRUE(flights_.emplace(action.attempt, flight).second);
      Arrive(action.attempt);
      return;
    }
    case ReadAction::Kind::kCancel:
      EXPECT_EQ(flights_.count(action.attempt), 1U);
      At(now_ns_ + kCancelNs, [this, id = action.attempt] { End(id, AttemptResult::kBroken); });
      return;
    case ReadAction::Kind::kKeep: {
      const Flight& flight = flights_.at(action.attempt);
      EXPECT_EQ(flight.read, action.read);
      ASSERT_LE(action.cell_offset + action.bytes.size, flight.received);
      const auto from = flight.cell.begin() + static_cast<std::ptrdiff_t>(action.cell_offset);
      std::copy_n(
          from, action.bytes.size,
          live_.at(action.read).buffer.begin() + static_cast<std::ptrdiff_t>(action.bytes.offset));
      return;
    }
    case ReadAction::Kind::kDone:
      return Finish(action.read, action.status);
  }
}

void ObjectWorld::Arrive(AttemptId id) {
  Flight& flight = flights_.at(id);
  SimRead& read = live_.at(flight.read);
  if (!std::exchange(read.asked, true)) order.push_back(read.number);
  flight.answer = serve_({.number = requests_ns.size(),
                          .read = read.number,
                          .bytes = {flight.offset + flight.bytes.offset, flight.bytes.size},
                          .now_ns = now_ns_});
  requests_ns.push_back(now_ns_);
  At(now_ns_ + flight.answer.first_byte_ns, [this, id] { SendChunk(id); });
}

void ObjectWorld::SendChunk(AttemptId id) {
  const auto at = flights_.find(id);
  if (at == flights_.end()) return;  // It has ended since.
  Flight& flight = at->second;
  const ServerAnswer& answer = flight.answer;
  if (answer.stall_at && flight.received >= *answer.stall_at) {
    At(now_ns_ + answer.stall_ns, [this, id] { End(id, AttemptResult::kBroken); });
    return;
  }
  std::uint64_t to = std::min(flight.received + answer.chunk_bytes, flight.bytes.size);
  to = std::min(to, answer.bytes_max);
  if (answer.stall_at) to = std::min(to, *answer.stall_at);
  bytes_served += to - flight.received;
  const std::uint64_t from = std::exchange(flight.received, to);
  std::copy_n(BytesAt(flight.offset + flight.bytes.offset + from), to - from,
              flight.cell.begin() + static_cast<std::ptrdiff_t>(from));
  if (flight.received == std::min(answer.bytes_max, flight.bytes.size)) {
    return End(id, answer.end);
  }
  At(now_ns_ + answer.chunk_ns, [this, id] { SendChunk(id); });
  reads_.Received(id, flight.received, now_ns_);
  Act();
}

void ObjectWorld::End(AttemptId id, AttemptResult result) {
  const auto at = flights_.find(id);
  if (at == flights_.end()) return;  // It has ended since.
  const auto live = live_.find(at->second.read);
  if (live != live_.end()) --live->second.attempts;
  AttemptEnd end{.result = result, .received_bytes = at->second.received};
  if (result != AttemptResult::kOk) {
    const bool refused = result == AttemptResult::kRefused;
    end.cause = {refused ? StatusCode::kNotFound : StatusCode::kUnavailable, "the cause"};
  }
  if (result == AttemptResult::kSlowDown) end.retry_after_ns = at->second.answer.retry_after_ns;
  reads_.Ended(id, std::move(end), now_ns_);
  Act(id);
}

void ObjectWorld::Finish(ReadId id, const Status& status) {
  const auto at = live_.find(id);
  ASSERT_NE(at, live_.end()) << "a read ends once";
  if (status.ok()) {
    successes_ns.push_back(now_ns_);
    const SimRead& read = at->second;
    EXPECT_TRUE(std::equal(read.buffer.begin(), read.buffer.end(), BytesAt(read.offset)))
        << "read " << read.number;
  }
  ends.push_back(status);
  live_.erase(at);
}

}  // namespace headrace
