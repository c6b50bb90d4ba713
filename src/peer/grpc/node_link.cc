#include "peer/grpc/node_link.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/clock.h"
#include "base/format/errors.h"
#include "base/prng.h"
#include "base/units.h"

namespace headrace {
namespace {

using peers::v1::SampleRequest;
using peers::v1::SampleRequests;

constexpr char kSamplesCall[] = "/headrace.peers.v1.Peers/Samples";

// Failures in a row after which a node is not asked for a while, and for how long: twice as long
// each time, and up to half of it less, so that not all nodes come back at once.
constexpr std::uint32_t kFailuresMax = 3;
constexpr std::int64_t kDownNs = 1 * kNsPerSecond;
constexpr std::uint32_t kDownDoublings = 5;

std::int64_t Now() { return MonotonicClock().NowNanos(); }

Status RunEnded() { return {StatusCode::kCancelled, "the run has ended"}; }

}  // namespace

// One call of Samples(). The link keeps it until the call has ended.
class NodeLink::Stream final : public grpc::ClientBidiReactor<SampleRequests, grpc::ByteBuffer> {
 public:
  explicit Stream(NodeLink& link) : link_(link) {
    context_.AddMetadata(kPeerTokenKey, link_.options_.token);
    context_.set_wait_for_ready(false);
  }

  void Begin() {
    link_.samples_stub_.PrepareBidiStreamingCall(&context_, kSamplesCall, {}, this);
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
    std::vector<grpc::Slice> slices;
    std::vector<std::span<const std::byte>> pieces;
    if (answers_.Dump(&slices).ok()) {
      for (const grpc::Slice& slice : slices) {
        pieces.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
      }
    }
    answers_.Clear();
    if (link_.OnAnswers(pieces)) StartRead(&answers_);
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
  grpc::ByteBuffer answers_;
};

NodeLink::NodeLink(Options options, std::shared_ptr<grpc::Channel> channel, const Shared& shared)
    : options_(std::move(options)),
      shared_(shared),
      counters_(shared.counters),
      stub_(peers::v1::Peers::NewStub(channel)),
      samples_stub_(std::move(channel)) {}

NodeLink::~NodeLink() { HEADRACE_CHECK(stream_ == nullptr); }

std::string NodeLink::Name() const {
  return fmt::format("node {} ({})", options_.node, options_.address);
}

Status NodeLink::DownError(SampleId sample) const {
  return {StatusCode::kUnavailable,
          fmt::format("sample {} of {}: the node did not answer and is not asked for a while",
                      Raw(sample), Name())};
}

// The second node of a fetch, if it is another one of the job.
NodeNumber NodeLink::SecondOf(const Fetch& fetch) const {
  const NodeNumber second = fetch.second_node;
  return second < options_.nodes && second != options_.own && second != options_.node ? second
                                                                                      : kNoNode;
}

void NodeLink::Read(std::span<Fetch* const> fetches, const std::stop_token& stop,
                    const FetchSource::Done& done) {
  Todo todo;
  {
    MutexLock lock(mutex_);
    const std::int64_t now_ns = Now();
    for (Fetch* const fetch : fetches) {
      Ask({.fetch = fetch,
           .sample = fetch->sample,
           .bytes = fetch->extent.range.size,
           .done = &done,
           .stop = stop,
           .hedge_ns = now_ns + options_.hedge_ns,
           .due_ns = now_ns + options_.answer_ns,
           .second = SecondOf(*fetch)},
          now_ns, todo);
    }
    Send();
  }
  Do(todo);
}

void NodeLink::ReadSecond(std::span<Handed> handed) {
  Todo todo;
  {
    MutexLock lock(mutex_);
    const std::int64_t now_ns = Now();
    for (Handed& each : handed) {
      ++counters_.asked_second;
      Ask({.fetch = each.fetch,
           .sample = each.sample,
           .bytes = each.bytes,
           .done = each.done,
           .stop = std::move(each.stop),
           .due_ns = each.due_ns,
           .is_second = true,
           .race = std::move(each.race)},
          now_ns, todo);
    }
    Send();
  }
  Do(todo);
}

// Has Send() ask for a sample, or ends it at once.
void NodeLink::Ask(Asked asked, std::int64_t now_ns, Todo& todo) {
  const bool down = closing_ || now_ns < down_until_ns_;
  const bool stopped = asked.stop.stop_requested();
  if (!down && !stopped && stream_ == nullptr) OpenStream();
  const std::uint64_t number = ++last_number_;
  const SampleId sample = asked.sample;
  const auto here = asked_.emplace(number, std::move(asked)).first;
  if (stopped) return End(here, RunEnded(), todo);
  if (down) return End(here, DownError(sample), todo);
  to_send_.push_back(number);
}

// Sends as many requests as the window and the rate budget allow, in one message.
void NodeLink::Send() {
  if (sending_ || stream_ == nullptr || cancelled_ || to_send_.empty()) return;
  SampleRequests message;
  const std::int64_t now_ns = Now();
  while (!to_send_.empty() && message.requests_size() < kPeerRequestsMax) {
    const auto asked = asked_.find(to_send_.front());
    if (asked == asked_.end()) {  // Given up.
      to_send_.pop_front();
      continue;
    }
    const std::uint64_t bytes = asked->second.bytes;
    if (open_bytes_ > 0 && open_bytes_ + bytes > kPeerWindowBytes) break;
    if (!shared_.asking.MayPass(now_ns)) break;  // Sweep() tries again.
    shared_.asking.Pass(bytes, now_ns);
    SampleRequest& request = *message.add_requests();
    request.set_number(asked->first);
    request.set_sample(Raw(asked->second.sample));
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
bool NodeLink::OnAnswers(Pieces::List message) {
  Todo todo;
  std::vector<Arrived> arrived;
  Result<std::vector<ReceivedAnswer>> answers = ReadSampleAnswers(message);
  Status bad = answers.status();
  if (answers.ok()) {
    MutexLock lock(mutex_);
    for (ReceivedAnswer& answer : answers.value()) {
      bad = Believe(answer, arrived, todo);
      if (!bad.ok()) break;
    }
  }
  // Most of the work. Nothing ends these samples meanwhile: they are busy.
  for (Arrived& each : arrived) Copy(each);
  {
    MutexLock lock(mutex_);
    for (const Arrived& each : arrived) OnCopied(each, todo);
    if (!bad.ok()) {
      ++counters_.bad_messages;
      Failed();
      CancelStream();
    } else {
      Send();
    }
  }
  Do(todo);
  return bad.ok();
}

// Adds an answer to those that are taken.
//
// Errors: DataLoss  what it says was not asked for, or is too much: the stream is broken
Status NodeLink::Believe(ReceivedAnswer& answer, std::vector<Arrived>& arrived, Todo& todo) {
  const auto here = asked_.find(answer.number);
  if (here == asked_.end()) return BelieveLate(answer);
  Asked& asked = here->second;
  const std::uint64_t bytes = answer.part.left();
  if (!asked.sent || asked.whole ||
      (answer.code == 0 &&
       (answer.offset != asked.received || bytes == 0 || bytes > asked.bytes - asked.received))) {
    return DataLoss("sample {} of {}: got {} bytes at {}, expected up to {} at {}",
                    Raw(asked.sample), Name(), bytes, answer.offset, asked.bytes - asked.received,
                    asked.received);
  }
  if (answer.code == 0 && asked.race != nullptr && !asked.race->Claim(this)) {
    GiveUp(here, Status(StatusCode::kCancelled, "the other node was faster"), todo);
    return BelieveLate(answer);
  }
  asked.busy = true;
  asked.whole = answer.code != 0 || asked.received + bytes == asked.bytes;
  const std::uint64_t at = asked.received;
  if (answer.code == 0) asked.received += bytes;
  arrived.push_back({.answer = std::move(answer), .at = at, .bytes = bytes, .asked = &asked});
  return Status();
}

// An answer about a sample that was given up: it only makes room.
Status NodeLink::BelieveLate(const ReceivedAnswer& answer) {
  const auto late = late_.find(answer.number);
  if (late == late_.end()) {
    return DataLoss("{} answers request {}, which it was not sent", Name(), answer.number);
  }
  const std::uint64_t came =
      answer.code != 0 ? late->second : std::min(late->second, answer.part.left());
  late->second -= came;
  open_bytes_ -= std::min(open_bytes_, came);
  if (late->second == 0) late_.erase(late);
  return Status();
}

void NodeLink::Copy(Arrived& arrived) {
  if (arrived.answer.code != 0) return;
  const std::span<std::byte> to =
      arrived.asked->fetch->memory().subspan(arrived.at, arrived.answer.part.left());
  arrived.answer.part.CopyTo(to);
  arrived.asked->checksum = NextPeerChecksum(arrived.asked->checksum, to);
}

void NodeLink::OnCopied(const Arrived& arrived, Todo& todo) {
  Asked& asked = *arrived.asked;
  const ReceivedAnswer& answer = arrived.answer;
  asked.busy = false;
  if (!asked.whole || (answer.code == 0 && arrived.at + arrived.bytes < asked.bytes)) return;
  failures_ = 0;
  const auto here = asked_.find(answer.number);
  if (answer.code != 0) {
    ++counters_.not_held;
    return End(here, NotFound("sample {} of {}: {}", Raw(asked.sample), Name(), answer.reason),
               todo);
  }
  if (asked.checksum != answer.checksum) {
    ++counters_.bad_messages;
    return End(here,
               DataLoss("sample {} of {}: the bytes that came do not have its checksum",
                        Raw(asked.sample), Name()),
               todo);
  }
  ++counters_.received_samples;
  counters_.received_bytes += asked.bytes;
  if (asked.is_second) ++counters_.second_gave;
  End(here, Status(), todo);
}

void NodeLink::Sweep(std::int64_t now_ns) {
  Todo todo;
  std::vector<std::unique_ptr<Stream>> streams;  // destroyed without the lock
  {
    MutexLock lock(mutex_);
    streams.swap(ended_streams_);
    bool overdue = false;
    for (auto each = asked_.begin(); each != asked_.end();) {
      const auto here = each++;
      Asked& asked = here->second;
      if (asked.busy) continue;
      if (asked.stop.stop_requested()) {
        GiveUp(here, RunEnded(), todo);
      } else if (now_ns >= asked.due_ns) {
        overdue = overdue || asked.sent;  // Else it waited for others, or for the rate budget.
        GiveUp(here,
               Status(StatusCode::kDeadlineExceeded,
                      fmt::format("sample {} of {}: {} of {} bytes came in {} s", Raw(asked.sample),
                                  Name(), asked.received, asked.bytes,
                                  static_cast<double>(options_.answer_ns) / kNsPerSecond)),
               todo);
      } else if (asked.second != kNoNode && asked.received == 0 && now_ns >= asked.hedge_ns) {
        asked.race = std::make_shared<Race>();
        HandOver(asked, todo);
      }
    }
    if (overdue) Failed();
    Send();
  }
  Do(todo);
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

// The second node is to be asked, too.
void NodeLink::HandOver(Asked& asked, Todo& todo) {
  todo.handed.push_back({.node = std::exchange(asked.second, kNoNode),
                         .fetch = asked.fetch,
                         .sample = asked.sample,
                         .bytes = asked.bytes,
                         .done = asked.done,
                         .stop = asked.stop,
                         .due_ns = asked.due_ns,
                         .race = asked.race});
}

// Ends a sample that the node may still send: its bytes stay open until they came.
void NodeLink::GiveUp(AllAsked::iterator here, Status status, Todo& todo) {
  const Asked& asked = here->second;
  if (asked.sent && asked.received < asked.bytes) {
    late_.emplace(here->first, asked.bytes - asked.received);
    open_bytes_ += asked.bytes - asked.received;
  }
  End(here, std::move(status), todo);
}

void NodeLink::End(AllAsked::iterator here, Status status, Todo& todo) {
  Asked& asked = here->second;
  // What came stays counted by open_bytes_ until the sample ends, here.
  if (asked.sent) open_bytes_ -= std::min(open_bytes_, asked.bytes);
  const bool cancelled = status.code() == StatusCode::kCancelled;
  if (!status.ok() && status.code() != StatusCode::kNotFound && !cancelled) ++counters_.failed;
  if (asked.race != nullptr) {
    if (asked.race->End(this)) todo.ended.push_back({asked.fetch, asked.bytes, asked.done, status});
  } else if (!status.ok() && !cancelled && asked.second != kNoNode && !closing_ &&
             Now() < asked.due_ns) {
    HandOver(asked, todo);
  } else {
    todo.ended.push_back({asked.fetch, asked.bytes, asked.done, std::move(status)});
  }
  asked_.erase(here);
}

void NodeLink::Do(Todo& todo) const {
  Tell(todo.ended);
  if (!todo.handed.empty()) shared_.ask_second(std::move(todo.handed));
}

void NodeLink::Tell(std::vector<Ended>& ended) {
  for (Ended& each : ended) {
    if (each.status.ok()) {
      (*each.done)(*each.fetch, each.fetch->memory().first(each.bytes));
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

// The last that a stream does: without the lock, it and this link may be gone. Close() waits for
// what uses the link still.
void NodeLink::OnStreamEnd(const grpc::Status& status) {
  Todo todo;
  bool hands = false;
  {
    MutexLock lock(mutex_);
    const Status why(StatusCode::kUnavailable,
                     fmt::format("asking {}: {}", Name(),
                                 status.error_message().empty() ? "the connection has ended"
                                                                : status.error_message()));
    if (!asked_.empty()) Failed();
    while (!asked_.empty()) End(asked_.begin(), why, todo);
    to_send_.clear();
    ended_streams_.push_back(std::move(stream_));
    cancelled_ = false;
    hands = !todo.handed.empty();
    handing_ += hands ? 1 : 0;
    ended_.NotifyAll();
  }
  Tell(todo.ended);
  if (!hands) return;
  shared_.ask_second(std::move(todo.handed));
  MutexLock lock(mutex_);
  --handing_;
  ended_.NotifyAll();
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
  while (stream_ != nullptr || handing_ > 0) ended_.Wait(mutex_);
  streams.swap(ended_streams_);
}

}  // namespace headrace
