#include "peer/grpc/node_link.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "base/format/errors.h"
#include "base/prng.h"
#include "base/units.h"

namespace headrace {
namespace {

using peers::v1::SampleAnswer;
using peers::v1::SampleAnswers;
using peers::v1::SampleRequest;
using peers::v1::SampleRequests;

// Failures in a row after which a node is not asked for a while, and for how long: twice as long
// each time, and up to half of it less, so that not all nodes come back at once.
constexpr std::uint32_t kFailuresMax = 3;
constexpr std::int64_t kDownNs = 1 * kNsPerSecond;
constexpr std::uint32_t kDownDoublings = 5;

std::int64_t Now() { return MonotonicClock().NowNanos(); }

}  // namespace

// One call of Samples(). The link keeps it until the call has ended.
class NodeLink::Stream final : public grpc::ClientBidiReactor<SampleRequests, SampleAnswers> {
 public:
  explicit Stream(NodeLink& link) : link_(link) {
    context_.AddMetadata(kPeerTokenKey, link_.options_.token);
    context_.set_wait_for_ready(false);
  }

  void Begin() {
    link_.stub_->async()->Samples(&context_, this);
    AddHold();  // Of Write(), which is not called from a reaction alone.
    StartRead(&answers_);
    StartCall();
  }
  // Under the link's lock, while no other is written.
  void Write(SampleRequests requests) {
    requests_ = std::move(requests);
    StartWrite(&requests_);
  }
  // Once. Nothing is written after it.
  void Cancel() {
    context_.TryCancel();
    RemoveHold();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return link_.OnReadEnd();
    if (link_.OnAnswers(answers_)) StartRead(&answers_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) link_.OnSent();
  }
  // The link may be gone when this returns, and this stream with it.
  void OnDone(const grpc::Status& status) override { link_.OnStreamEnd(status); }

 private:
  NodeLink& link_;
  grpc::ClientContext context_;
  SampleRequests requests_;
  SampleAnswers answers_;
};

NodeLink::NodeLink(Options options, std::shared_ptr<grpc::Channel> channel, PeerCounters& counters)
    : options_(std::move(options)),
      stub_(peers::v1::Peers::NewStub(std::move(channel))),
      counters_(counters) {}

NodeLink::~NodeLink() { HEADRACE_CHECK(stream_ == nullptr); }

std::string NodeLink::Name() const {
  return fmt::format("node {} ({})", options_.node, options_.address);
}

void NodeLink::Read(std::span<Fetch* const> fetches, const std::stop_token& stop,
                    const FetchSource::Done& done) {
  AllEnded ended;
  {
    MutexLock lock(mutex_);
    const std::int64_t now_ns = Now();
    const bool down = closing_ || now_ns < down_until_ns_;
    if (!down && !stop.stop_requested() && stream_ == nullptr) OpenStream();
    for (Fetch* const fetch : fetches) {
      if (stop.stop_requested()) {
        ended.push_back({fetch, &done, Status(StatusCode::kCancelled, "the run has ended")});
      } else if (down) {
        ++counters_.failed;
        ended.push_back({fetch, &done,
                         Status(StatusCode::kUnavailable,
                                fmt::format("sample {} of {}: the node did not answer and is not "
                                            "asked for a while",
                                            Raw(fetch->sample), Name()))});
      } else {
        const std::uint64_t number = ++last_number_;
        asked_.emplace(number, Asked{.fetch = fetch,
                                     .done = &done,
                                     .stop = stop,
                                     .due_ns = now_ns + options_.answer_ns});
        to_send_.push_back(number);
      }
    }
    Send();
  }
  Tell(ended);
}

// Sends as many requests as the window holds, in one message.
void NodeLink::Send() {
  if (sending_ || stream_ == nullptr || cancelled_) return;
  SampleRequests message;
  while (!to_send_.empty() && message.requests_size() < kPeerRequestsMax) {
    const auto asked = asked_.find(to_send_.front());
    if (asked == asked_.end()) {  // Given up.
      to_send_.pop_front();
      continue;
    }
    const Fetch& fetch = *asked->second.fetch;
    const std::uint64_t bytes = fetch.extent.range.size;
    if (open_bytes_ > 0 && open_bytes_ + bytes > kPeerWindowBytes) break;
    SampleRequest& request = *message.add_requests();
    request.set_number(asked->first);
    request.set_sample(Raw(fetch.sample));
    request.set_bytes(bytes);
    open_bytes_ += bytes;
    asked->second.sent = true;
    to_send_.pop_front();
  }
  if (message.requests_size() == 0) return;
  sending_ = true;
  stream_->Write(std::move(message));
}

void NodeLink::OnSent() {
  MutexLock lock(mutex_);
  sending_ = false;
  Send();
}

// False: the node contradicts what it was asked, and is asked no more on this stream.
bool NodeLink::OnAnswers(const SampleAnswers& answers) {
  AllEnded ended;
  Status bad;
  {
    MutexLock lock(mutex_);
    for (const SampleAnswer& answer : answers.answers()) {
      bad = OnAnswer(answer, ended);
      if (!bad.ok()) break;
    }
    if (!bad.ok()) {
      ++counters_.bad_messages;
      Failed();
      CancelStream();
    } else {
      Send();
    }
  }
  Tell(ended);
  return bad.ok();
}

// Errors: DataLoss  what it says was not asked for, or is too much: the stream is broken
Status NodeLink::OnAnswer(const SampleAnswer& answer, AllEnded& ended) {
  const auto asked = asked_.find(answer.number());
  if (asked == asked_.end()) {
    const auto late = late_.find(answer.number());
    if (late == late_.end()) {
      return DataLoss("{} answers request {}, which it was not sent", Name(), answer.number());
    }
    late->second -= std::min<std::uint64_t>(late->second, answer.part().size());
    open_bytes_ -= std::min<std::uint64_t>(open_bytes_, answer.part().size());
    if (answer.code() != 0) open_bytes_ -= std::min(open_bytes_, late->second);
    if (answer.code() != 0 || late->second == 0) late_.erase(late);
    return Status();
  }
  Asked& state = asked->second;
  const Fetch& fetch = *state.fetch;
  const std::uint64_t bytes = fetch.extent.range.size;
  if (answer.code() != 0) {
    ++counters_.not_held;
    failures_ = 0;
    End(asked, NotFound("sample {} of {}: {}", Raw(fetch.sample), Name(), answer.reason()), ended);
    return Status();
  }
  const std::string& part = answer.part();
  if (!state.sent || answer.offset() != state.received || part.empty() ||
      part.size() > bytes - state.received) {
    const Status bad =
        DataLoss("sample {} of {}: got {} bytes at {}, expected up to {} at {}", Raw(fetch.sample),
                 Name(), part.size(), answer.offset(), bytes - state.received, state.received);
    End(asked, bad, ended);
    return bad;
  }
  // Under the lock: a fetch that is given up has its memory back.
  std::memcpy(fetch.memory().data() + state.received, part.data(), part.size());
  state.received += part.size();
  state.checksum = NextPeerChecksum(state.checksum, std::as_bytes(std::span(part)));
  if (state.received < bytes) return Status();
  failures_ = 0;
  if (state.checksum != answer.checksum()) {
    ++counters_.bad_messages;
    End(asked,
        DataLoss("sample {} of {}: the bytes that came do not have its checksum", Raw(fetch.sample),
                 Name()),
        ended);
    return Status();
  }
  ++counters_.received_samples;
  counters_.received_bytes += bytes;
  End(asked, Status(), ended);
  return Status();
}

void NodeLink::Sweep(std::int64_t now_ns) {
  AllEnded ended;
  std::vector<std::unique_ptr<Stream>> streams;  // destroyed without the lock
  {
    MutexLock lock(mutex_);
    streams.swap(ended_streams_);
    bool overdue = false;
    for (auto each = asked_.begin(); each != asked_.end();) {
      const auto here = each++;
      const Asked& state = here->second;
      Status why;
      if (state.stop.stop_requested()) {
        why = Status(StatusCode::kCancelled, "the run has ended");
      } else if (now_ns >= state.due_ns) {
        overdue = true;
        why = Status(
            StatusCode::kDeadlineExceeded,
            fmt::format("sample {} of {}: {} of {} bytes came in {} s", Raw(state.fetch->sample),
                        Name(), state.received, state.fetch->extent.range.size,
                        static_cast<double>(options_.answer_ns) / kNsPerSecond));
      } else {
        continue;
      }
      if (state.sent) {
        late_.emplace(here->first, state.fetch->extent.range.size - state.received);
        // Its bytes stay open until they came.
        open_bytes_ += state.fetch->extent.range.size - state.received;
      }
      End(here, std::move(why), ended);
    }
    if (overdue) Failed();
    Send();
  }
  Tell(ended);
}

// Not told by the end of the stream alone: a node that is stopped keeps its connection.
void NodeLink::Failed() {
  if (++failures_ < kFailuresMax) return;
  const std::uint32_t doublings = std::min(failures_ - kFailuresMax, kDownDoublings);
  const std::int64_t now_ns = Now();
  Prng random(static_cast<std::uint64_t>(now_ns), 0, RandomStream::kOrder, options_.node);
  const std::int64_t down_ns = kDownNs << doublings;
  down_until_ns_ = now_ns + down_ns -
                   static_cast<std::int64_t>(random.Below(static_cast<std::uint64_t>(down_ns / 2)));
}

void NodeLink::End(std::unordered_map<std::uint64_t, Asked>::iterator asked, Status status,
                   AllEnded& ended) {
  const Asked& state = asked->second;
  // What came stays counted by open_bytes_ until the sample ends, here.
  if (state.sent) open_bytes_ -= std::min(open_bytes_, state.fetch->extent.range.size);
  const bool answered = status.ok() || status.code() == StatusCode::kNotFound;
  if (!answered && status.code() != StatusCode::kCancelled) ++counters_.failed;
  ended.push_back({state.fetch, state.done, std::move(status)});
  asked_.erase(asked);
}

void NodeLink::EndAll(const Status& why, AllEnded& ended) {
  while (!asked_.empty()) End(asked_.begin(), why, ended);
  to_send_.clear();
}

void NodeLink::Tell(AllEnded& ended) {
  for (Ended& each : ended) {
    if (each.status.ok()) {
      (*each.done)(*each.fetch, each.fetch->memory().first(each.fetch->extent.range.size));
    } else {
      (*each.done)(*each.fetch, std::move(each.status));
    }
  }
}

void NodeLink::OpenStream() {
  sending_ = false;
  last_number_ = 0;
  open_bytes_ = 0;
  late_.clear();
  HEADRACE_CHECK(asked_.empty());
  stream_ = std::make_unique<Stream>(*this);
  stream_->Begin();
}

// Its end follows: OnStreamEnd().
void NodeLink::CancelStream() {
  if (stream_ != nullptr && !std::exchange(cancelled_, true)) stream_->Cancel();
}

void NodeLink::OnReadEnd() {
  MutexLock lock(mutex_);
  CancelStream();
}

// The last that a stream does: without the lock, it and this link may be gone.
void NodeLink::OnStreamEnd(const grpc::Status& status) {
  AllEnded ended;
  {
    MutexLock lock(mutex_);
    const Status why(StatusCode::kUnavailable,
                     fmt::format("asking {}: {}", Name(),
                                 status.error_message().empty() ? "the connection has ended"
                                                                : status.error_message()));
    if (!asked_.empty()) Failed();
    EndAll(why, ended);
    ended_streams_.push_back(std::move(stream_));
    cancelled_ = false;
    ended_.NotifyAll();
  }
  Tell(ended);
}

bool NodeLink::is_down() const {
  MutexLock lock(mutex_);
  return Now() < down_until_ns_;
}

void NodeLink::Close() {
  std::vector<std::unique_ptr<Stream>> streams;  // destroyed without the lock
  MutexLock lock(mutex_);
  closing_ = true;
  CancelStream();
  while (stream_ != nullptr) ended_.Wait(mutex_);
  streams.swap(ended_streams_);
}

}  // namespace headrace
