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
    context_.AddMetadata(kPeerNodeKey, std::to_string(link_.options_.own));
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
      samples_stub_(std::move(channel)),
      asked_(Name(), counters_) {}

NodeLink::~NodeLink() { HEADRACE_CHECK(stream_ == nullptr); }

std::string NodeLink::Name() const {
  return fmt::format("node {} ({})", options_.node, options_.address);
}

Status NodeLink::DownError(const Asked& asked) const {
  return {StatusCode::kUnavailable,
          fmt::format("{}: the node did not answer and is not asked for a while",
                      asked_.NameOf(asked))};
}

// The second node of a fetch, if it is another one of the job.
std::optional<NodeNumber> NodeLink::SecondOf(const SampleAtNode& sample) const {
  const std::optional<NodeNumber> second = sample.nodes.second;
  const auto is_other = [this](NodeNumber node) {
    return node < options_.nodes && node != options_.own && node != options_.node;
  };
  return second.has_value() && is_other(*second) ? second : std::nullopt;
}

void NodeLink::Read(std::span<Fetch* const> fetches, const std::stop_token& stop,
                    const FetchSource::Done& done) {
  Todo todo;
  {
    MutexLock lock(mutex_);
    const std::int64_t now_ns = Now();
    for (Fetch* const fetch : fetches) {
      Asked asked{.fetch = fetch,
                  .bytes = fetch->bytes(),
                  .deadline = fetch->deadline,
                  .done = &done,
                  .stop = stop,
                  .hedge_ns = now_ns + std::min(options_.hedge_ns, options_.answer_ns / 4),
                  .asked_ns = now_ns,
                  .due_ns = now_ns + options_.answer_ns};
      if (const auto* const part = std::get_if<PartAtNode>(&fetch->from)) {
        asked.due_ns = now_ns + options_.parcel_ns;
        asked.parcel = part->part;
        asked.is_again = part->is_again;
      } else {
        const auto& sample = fetch->Reads<SampleAtNode>();
        asked.sample = sample.sample;
        asked.second = SecondOf(sample);
      }
      Ask(std::move(asked), now_ns, todo);
    }
    Send(todo);
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
           .deadline = each.deadline,
           .done = each.done,
           .stop = std::move(each.stop),
           .asked_ns = each.asked_ns,
           .due_ns = each.due_ns,
           .is_second = true,
           .hedged = std::move(each.hedged)},
          now_ns, todo);
    }
    Send(todo);
  }
  Do(todo);
}

// Has Send() ask for a sample, or ends it at once.
void NodeLink::Ask(Asked asked, std::int64_t now_ns, Todo& todo) {
  const bool down = closing_ || now_ns < down_until_ns_;
  const bool stopped = asked.stop.stop_requested();
  if (!down && !stopped && stream_ == nullptr) OpenStream();
  if (stopped) {
    asked_.Refuse(std::move(asked), RunEnded(), todo);
  } else if (down) {
    Status why = DownError(asked);
    asked_.Refuse(std::move(asked), std::move(why), todo);
  } else {
    asked_.Add(std::move(asked));
  }
}

// Sends as many requests as the window and the rate budget allow, in one message. False: none.
bool NodeLink::Send(Todo& todo) {
  if (sending_ || stream_ == nullptr || cancelled_) return false;
  SampleRequests message;
  const std::int64_t now_ns = Now();
  // What the budget does not let pass now is sent by Sweep().
  while (message.requests_size() < kPeerRequestsMax && shared_.asking.MayPass(now_ns)) {
    const auto next = asked_.Next(todo);
    if (!next.has_value()) break;
    const auto [number, asked] = *next;
    shared_.asking.Pass(asked->bytes, now_ns);
    ++counters_.asked_samples;
    SampleRequest& request = *message.add_requests();
    request.set_number(number);
    request.set_sample(Raw(asked->sample));
    request.set_bytes(asked->bytes);
    request.set_deadline(asked->deadline);
    if (!asked->parcel.has_value()) continue;
    peers::v1::ParcelPart& part = *request.mutable_parcel();
    part.set_round(asked->parcel->round);
    part.set_parcel(asked->parcel->parcel);
    part.set_first(asked->parcel->first);
    part.set_count(asked->parcel->count);
    part.set_ids(asked->parcel->ids);
  }
  if (message.requests_size() == 0) return false;
  ++counters_.requests;
  sending_ = true;
  stream_->Write(std::move(message));
  return true;
}

void NodeLink::OnSent() {
  Todo todo;
  {
    MutexLock lock(mutex_);
    sending_ = false;
    Send(todo);
  }
  Do(todo);
}

// False: the node contradicts what it was asked, and is asked no more on this stream.
bool NodeLink::OnAnswers(Pieces::List message) {
  Todo todo;
  std::vector<AskedSamples::Arrived> arrived;
  Result<std::vector<ReceivedAnswer>> answers = ReadSampleAnswers(message);
  Status bad = answers.status();
  if (answers.ok()) {
    ++counters_.answers;
    MutexLock lock(mutex_);
    for (ReceivedAnswer& answer : answers.value()) {
      bad = asked_.Take(answer, arrived, todo);
      if (!bad.ok()) break;
    }
  }
  for (AskedSamples::Arrived& each : arrived) AskedSamples::Copy(each);  // Most of the work.
  {
    MutexLock lock(mutex_);
    for (const AskedSamples::Arrived& each : arrived) asked_.Finish(each, todo);
    if (todo.answered) failures_ = 0;
    if (!bad.ok()) {
      ++counters_.bad_messages;
      Failed();
      CancelStream();
    } else {
      Send(todo);
    }
  }
  Do(todo);
  return bad.ok();
}

bool NodeLink::Sweep(std::int64_t now_ns) {
  Todo todo;
  bool asked = false;
  std::vector<std::unique_ptr<Stream>> streams;  // destroyed without the lock
  {
    MutexLock lock(mutex_);
    streams.swap(ended_streams_);
    if (asked_.Sweep(now_ns, todo)) Failed();
    asked = Send(todo);
  }
  Do(todo);
  return asked;
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

void NodeLink::Do(Todo& todo) const {
  Tell(todo.ended);
  if (!todo.handed.empty()) shared_.ask_second(std::move(todo.handed));
}

void NodeLink::Tell(std::vector<AskedSamples::Ended>& ended) {
  for (AskedSamples::Ended& each : ended) {
    if (each.status.ok()) {
      (*each.done)(*each.fetch, each.fetch->memory().first(each.bytes));
    } else {
      (*each.done)(*each.fetch, std::move(each.status));
    }
  }
}

void NodeLink::OpenStream() {
  sending_ = false;
  asked_.Begin();
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
    asked_.EndAll(why, todo);
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
  asked_.StopHandingOver();
  CancelStream();
  while (stream_ != nullptr || handing_ > 0) ended_.Wait(mutex_);
  streams.swap(ended_streams_);
}

}  // namespace headrace
