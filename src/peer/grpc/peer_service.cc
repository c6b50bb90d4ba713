#include "peer/grpc/peer_service.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "peer/grpc/sample_message.h"
#include "peer/grpc/sample_writer.h"

namespace headrace {
namespace {

using peers::v1::AgreePart;
using peers::v1::SampleRequest;
using peers::v1::SampleRequests;

constexpr std::size_t kAgreePartBytesMax = std::size_t{2} << 20;

// Takes as long for any token: the time does not reveal the right one.
bool SameSecret(std::string_view given, std::string_view secret) {
  unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char other = secret.empty() ? '\0' : secret[i % secret.size()];
    difference |= static_cast<unsigned>(static_cast<unsigned char>(given[i] ^ other));
  }
  return difference == 0 && !secret.empty();
}

// Receives the facts of another node's run.
class AgreeStream final : public grpc::ServerReadReactor<AgreePart> {
 public:
  AgreeStream(PeerService& service, Agreement& agreement, PeerCounters& counters)
      : service_(service), agreement_(agreement), counters_(counters) {
    StartRead(&part_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Refuse(grpc::StatusCode::INVALID_ARGUMENT, "the message has no last part");
    if (part_.facts().size() > kAgreePartBytesMax ||
        facts_.size() + part_.facts().size() > Agreement::kFactsBytesMax) {
      return Refuse(grpc::StatusCode::RESOURCE_EXHAUSTED, "the message is too long");
    }
    facts_ += part_.facts();
    if (!part_.last()) return StartRead(&part_);
    const Status said = agreement_.Say(part_.node(), part_.round(), facts_);
    if (!said.ok()) return Refuse(static_cast<grpc::StatusCode>(said.code()), said.message());
    service_.Heard(part_.node(), part_.process());
    Finish(grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  void Refuse(grpc::StatusCode code, std::string_view why) {
    ++counters_.bad_messages;
    Finish(grpc::Status(code, std::string(why)));
  }

  PeerService& service_;
  Agreement& agreement_;
  PeerCounters& counters_;
  AgreePart part_;
  std::string facts_;
};

// Of messages in peers.proto's encoding.
using SamplesReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// Refuses a stream at once.
class RefusedSamples final : public SamplesReactor {
 public:
  explicit RefusedSamples(const grpc::Status& why) { Finish(why); }
  void OnDone() override { delete this; }
};
class RefusedAgree final : public grpc::ServerReadReactor<AgreePart> {
 public:
  explicit RefusedAgree(const grpc::Status& why) { Finish(why); }
  void OnDone() override { delete this; }
};

class SampleStream;

// What a stream has to answer. Outlives it: entries may come, and disks may read, after its end.
class Answers final : public PeerService::Served, public std::enable_shared_from_this<Answers> {
 public:
  explicit Answers(PeerService::Parts parts) : parts_(parts) {}
  // Once, first: where answers are written.
  void Attach(SampleStream& stream) HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    stream_ = &stream;
  }

  // False: the node asks for more than it may.
  bool Begin(const SampleRequest& request) HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    constexpr std::uint64_t kBytesMax = 2 * kPeerWindowBytes;
    const std::uint64_t room = kBytesMax - std::min(open_bytes_, kBytesMax);
    if (request.bytes() == 0 || open_ >= 2 * kPeerOpenMax) return false;
    if (open_ != 0 && request.bytes() > room) return false;
    ++open_;
    open_bytes_ += request.bytes();
    return true;
  }

  // What is asked for, as in a SampleRequest.
  struct Wanted {
    std::uint64_t number = 0;
    std::uint64_t sample = 0;
    std::uint64_t bytes = 0;
  };
  void OnTaken(const Wanted& wanted, Result<Tier::EntryRef> entry,
               std::shared_ptr<LeasedSamples::Lease> lease) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // The same of `samples` samples of a parcel.
  void OnTaken(const Wanted& wanted, std::uint32_t samples, Result<OwnedBytes> bytes)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Writes a message if the stream can take one and there is something to say.
  bool Pump() override HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Withdraw() override HEADRACE_LOCKS_EXCLUDED(mutex_);
  // The stream can take a message; it can no more. The other side sends nothing more.
  void OnWritten(bool ok) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void OnInputEnd() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Ends the stream, if it has not ended; drops what it would have answered.
  void End(const grpc::Status& status) HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  void Add(SampleWriter writer) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Write(std::deque<SampleWriter>& done) HEADRACE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  SampleStream* stream_ HEADRACE_GUARDED_BY(mutex_) = nullptr;  // null: it has ended
  const PeerService::Parts parts_;
  // What is sent ahead comes after the rest, even if some of it has been written.
  std::deque<SampleWriter> ready_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t open_ HEADRACE_GUARDED_BY(mutex_) = 0;  // not answered whole
  std::uint64_t open_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool writing_ HEADRACE_GUARDED_BY(mutex_) = false;
  // Parcels whose last part is being written: they count as given when it has been.
  std::deque<SampleWriter> written_ HEADRACE_GUARDED_BY(mutex_);
  bool input_ended_ HEADRACE_GUARDED_BY(mutex_) = false;
};

// Gives another node the samples that it asks for.
class SampleStream final : public SamplesReactor {
 public:
  // `node`: who asks; kNoNode: it does not say, and gets no parcels.
  SampleStream(PeerService::Parts parts, NodeNumber node, std::shared_ptr<Answers> answers)
      : parts_(parts), node_(node), answers_(std::move(answers)) {
    answers_->Attach(*this);
    StartRead(&received_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return answers_->OnInputEnd();
    SampleRequests requests;
    if (!grpc::SerializationTraits<SampleRequests>::Deserialize(&received_, &requests).ok()) {
      return Refuse(grpc::StatusCode::INVALID_ARGUMENT, "the message is no list of requests");
    }
    if (requests.requests_size() > kPeerRequestsMax) return Refuse("too many requests at once");
    for (const SampleRequest& request : requests.requests()) {
      if (!answers_->Begin(request)) return Refuse("more bytes are asked for than a stream may");
      if (request.has_parcel()) {
        if (node_ == kNoNode) {
          return Refuse(grpc::StatusCode::INVALID_ARGUMENT, "no other node of the job asks");
        }
        TakeParcel(request);
        continue;
      }
      parts_.leased.Take(
          SampleId{request.sample()}, request.deadline(),
          [answers = answers_, number = request.number(), sample = request.sample(),
           bytes = request.bytes()](Result<Tier::EntryRef> entry,
                                    std::shared_ptr<LeasedSamples::Lease> lease) {
            answers->OnTaken({number, sample, bytes}, std::move(entry), std::move(lease));
          });
    }
    StartRead(&received_);
  }
  void OnWriteDone(bool ok) override { answers_->OnWritten(ok); }
  void OnCancel() override { answers_->End(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }  // After Finish(), of which End() is one.

 private:
  friend class Answers;

  void Refuse(const char* why) { Refuse(grpc::StatusCode::RESOURCE_EXHAUSTED, why); }
  void Refuse(grpc::StatusCode code, const char* why) {
    ++parts_.counters.bad_messages;
    answers_->End(grpc::Status(code, why));
  }

  void TakeParcel(const SampleRequest& request) const;

  const PeerService::Parts parts_;
  const NodeNumber node_;
  const std::shared_ptr<Answers> answers_;
  grpc::ByteBuffer received_;
  grpc::ByteBuffer message_;  // being written
};

void Answers::OnTaken(const Wanted& wanted, Result<Tier::EntryRef> entry,
                      std::shared_ptr<LeasedSamples::Lease> lease) {
  if (!entry.ok()) return Add(SampleWriter(wanted.number, wanted.bytes, entry.status()));
  if (entry.value().bytes() != wanted.bytes) {
    return Add(
        SampleWriter(wanted.number, wanted.bytes,
                     Status(StatusCode::kFailedPrecondition,
                            "sample " + std::to_string(wanted.sample) +
                                ": the other node asks for " + std::to_string(wanted.bytes) +
                                " bytes, this one holds " + std::to_string(entry.value().bytes()) +
                                ": they read different datasets; give all nodes the same")));
  }
  SampleWriter writer(wanted.number, std::move(lease), std::move(entry).value());
  if (writer.in_memory()) return Add(std::move(writer));
  auto reading = std::make_shared<SampleWriter>(std::move(writer));
  reading->Read([answers = shared_from_this(), reading] { answers->Add(std::move(*reading)); });
}

void SampleStream::TakeParcel(const SampleRequest& request) const {
  const peers::v1::ParcelPart& part = request.parcel();
  const Answers::Wanted wanted{.number = request.number(), .sample = 0, .bytes = request.bytes()};
  parts_.leased.TakeParcel(
      node_,
      {.round = part.round(),
       .parcel = part.parcel(),
       .first = part.first(),
       .count = part.count(),
       .ids = part.ids()},
      [answers = answers_, wanted, samples = part.count()](Result<OwnedBytes> bytes) {
        answers->OnTaken(wanted, samples, std::move(bytes));
      });
}

void Answers::OnTaken(const Wanted& wanted, std::uint32_t samples, Result<OwnedBytes> bytes) {
  Status why = bytes.status();
  if (bytes.ok() && bytes.value().size != wanted.bytes) {
    why = Status(StatusCode::kFailedPrecondition,
                 "the other node asks for " + std::to_string(wanted.bytes) +
                     " bytes, this one has " + std::to_string(bytes.value().size) +
                     ": they read different datasets; give all nodes the same");
  }
  if (!why.ok()) return Add(SampleWriter(wanted.number, wanted.bytes, std::move(why)));
  Add(SampleWriter(wanted.number, samples, std::move(bytes).value()));
}

void Answers::Add(SampleWriter writer) {
  {
    MutexLock lock(mutex_);
    if (stream_ != nullptr) {
      const auto goes_first = [](const SampleWriter& each) { return !each.ahead(); };
      const auto place =
          writer.ahead() ? ready_.end() : std::ranges::partition_point(ready_, goes_first);
      ready_.insert(place, std::move(writer));
    }
  }
  Pump();
}

bool Answers::Pump() {
  std::deque<SampleWriter> done;  // Their entries go back to the tier without the lock.
  bool ends = false;
  {
    MutexLock lock(mutex_);
    if (stream_ == nullptr || writing_) return false;
    ends = ready_.empty() && input_ended_ && open_ == 0;
    if (!ready_.empty()) {
      if (!parts_.giving.MayPass(MonotonicClock().NowNanos())) return false;  // See Sweep().
      Write(done);
      return true;
    }
  }
  if (ends) End(grpc::Status::OK);
  return false;
}

// Writes one message of what is ready. Adds to `done` the samples that are written whole.
void Answers::Write(std::deque<SampleWriter>& done) {
  writing_ = true;
  std::size_t size = 0;
  std::uint64_t part_bytes = 0;
  std::size_t count = 0;
  // The parts of the last of them that follow are other messages.
  for (; count < std::min(ready_.size(), kSampleAnswersMax) && part_bytes < kPeerMessageBytes &&
         size < 2 * kPeerMessageBytes;
       ++count) {
    const std::uint64_t bytes = ready_[count].PartBytes();
    part_bytes += bytes;
    size += SampleAnswersWriter::kAnswerBytesMax +
            std::max<std::uint64_t>(bytes, SampleAnswersWriter::kReasonBytesMax);
  }
  const grpc::Slice memory(size);
  // gRPC gives new slices out as constant ones.
  SampleAnswersWriter message(
      {reinterpret_cast<std::byte*>(const_cast<std::uint8_t*>(memory.begin())), memory.size()});
  for (std::size_t i = 0; i < count; ++i) {
    SampleWriter& writer = ready_.front();
    writer.Write(message);
    if (!writer.done()) break;  // Of the others that were counted, the next message has the parts.
    --open_;
    open_bytes_ -= writer.asked_bytes();
    if (writer.given()) {
      parts_.counters.given_samples += writer.samples();
      parts_.counters.given_bytes += writer.asked_bytes();
    } else {
      ++parts_.counters.not_given;
    }
    (writer.is_owned() ? written_ : done).push_back(std::move(writer));
    ready_.pop_front();
  }
  parts_.giving.Pass(message.size(), MonotonicClock().NowNanos());
  const grpc::Slice written = memory.sub(0, message.size());
  stream_->message_ = grpc::ByteBuffer(&written, 1);
  stream_->StartWrite(&stream_->message_);
}

void Answers::OnWritten(bool ok) {
  if (!ok) return End(grpc::Status::CANCELLED);
  std::deque<SampleWriter> done;  // Their memory comes back without the lock.
  {
    MutexLock lock(mutex_);
    writing_ = false;
    done.swap(written_);
  }
  done.clear();
  Pump();
}

void Answers::End(const grpc::Status& status) {
  std::deque<SampleWriter> dropped;
  std::deque<SampleWriter> written;
  SampleStream* stream = nullptr;
  {
    MutexLock lock(mutex_);
    stream = std::exchange(stream_, nullptr);
    dropped.swap(ready_);
    written.swap(written_);
  }
  if (stream != nullptr) stream->Finish(status);
}

void Answers::Withdraw() {
  std::deque<SampleWriter> dropped;  // Their entries go back to the tier without the lock.
  {
    MutexLock lock(mutex_);
    for (SampleWriter& writer : ready_) {
      if (!writer.given() || !writer.is_entry()) continue;
      dropped.push_back(std::exchange(
          writer, writer.Refusal({StatusCode::kUnavailable, "this node gives nothing now"})));
    }
  }
}

void Answers::OnInputEnd() {
  {
    MutexLock lock(mutex_);
    input_ended_ = true;
  }
  Pump();
}

Result<PlannedSteps> StepsOf(const peers::v1::Plan& plan) {
  PlannedSteps steps{.round = plan.round(), .epoch = plan.epoch(), .step = plan.step(), .sums = {}};
  constexpr int kFields = PlannedSteps::kFields;
  if (plan.sums_size() % kFields != 0) {
    return Status(StatusCode::kInvalidArgument,
                  "node " + std::to_string(plan.node()) + " says what it plans: got " +
                      std::to_string(plan.sums_size()) + " numbers, must be " +
                      std::to_string(kFields) + " a step");
  }
  for (int i = 0; i < plan.sums_size(); i += kFields) {
    PlannedSteps::Sums& sums = steps.sums.emplace_back();
    for (int field = 0; field < kFields; ++field) {
      sums[static_cast<std::size_t>(field)] = plan.sums(i + field);
    }
  }
  return steps;
}

}  // namespace

void PeerService::Open(Job job, Agreement& agreement, PlanLedger& ledger) {
  MutexLock lock(mutex_);
  job_ = std::move(job);
  agreement_ = &agreement;
  ledger_ = &ledger;
}

void PeerService::Heard(NodeNumber node, std::uint64_t process) {
  MutexLock lock(mutex_);
  processes_[node] = process;
}

void PeerService::Sweep() {
  std::vector<std::shared_ptr<Served>> served;
  {
    MutexLock lock(mutex_);
    std::erase_if(served_, [](const auto& each) { return each.expired(); });
    for (const auto& each : served_) served.push_back(each.lock());
  }
  const bool withdraws = parts_.leased.withdraws();
  round_robin_.Visit(served, [withdraws](const std::shared_ptr<Served>& each) {
    if (each == nullptr) return false;
    if (withdraws) each->Withdraw();
    return each->Pump();
  });
}

grpc::Status PeerService::Admit(const grpc::CallbackServerContext& context) {
  MutexLock lock(mutex_);
  if (agreement_ == nullptr) {
    return {grpc::StatusCode::UNAVAILABLE, "the node does not know its job yet"};
  }
  const auto found = context.client_metadata().find(kPeerTokenKey);
  const bool right = found != context.client_metadata().end() &&
                     SameSecret({found->second.data(), found->second.size()}, job_.token);
  if (right) return grpc::Status::OK;
  ++parts_.counters.bad_messages;
  ++parts_.counters.wrong_tokens;
  return {grpc::StatusCode::UNAUTHENTICATED, "the call does not have the token of the job"};
}

grpc::ServerReadReactor<AgreePart>* PeerService::Agree(grpc::CallbackServerContext* context,
                                                       peers::v1::AgreeReply* /*reply*/) {
  const grpc::Status admitted = Admit(*context);
  if (!admitted.ok()) return new RefusedAgree(admitted);
  MutexLock lock(mutex_);
  return new AgreeStream(*this, *agreement_, parts_.counters);
}

grpc::ServerUnaryReactor* PeerService::Compare(grpc::CallbackServerContext* context,
                                               const peers::v1::Plan* plan,
                                               peers::v1::CompareReply* /*reply*/) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const grpc::Status admitted = Admit(*context);
  if (!admitted.ok()) {
    reactor->Finish(admitted);
    return reactor;
  }
  PlanLedger* ledger = nullptr;
  {
    MutexLock lock(mutex_);
    ledger = ledger_;
  }
  const Result<PlannedSteps> steps = StepsOf(*plan);
  const Status said = steps.ok() ? ledger->Say(plan->node(), steps.value()) : steps.status();
  if (!said.ok()) ++parts_.counters.bad_messages;
  reactor->Finish(said.ok() ? grpc::Status::OK
                            : grpc::Status(static_cast<grpc::StatusCode>(said.code()),
                                           std::string(said.message())));
  return reactor;
}

grpc::ServerUnaryReactor* PeerService::Takes(grpc::CallbackServerContext* context,
                                             const peers::v1::TakesQuestion* question,
                                             peers::v1::TakesReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const grpc::Status admitted = Admit(*context);
  if (admitted.ok()) {
    MutexLock lock(mutex_);
    const auto known = processes_.find(question->node());
    reply->set_takes(question->round() == taken_round_ && known != processes_.end() &&
                     known->second == question->process());
  }
  reactor->Finish(admitted);
  return reactor;
}

// Who asks on a stream; kNoNode: no other node of the job.
NodeNumber PeerService::NodeOf(const grpc::CallbackServerContext& context) const {
  const auto said = context.client_metadata().find(kPeerNodeKey);
  if (said == context.client_metadata().end()) return kNoNode;
  NodeNumber node = kNoNode;
  const char* const end = said->second.data() + said->second.size();
  const auto [stop, error] = std::from_chars(said->second.data(), end, node);
  const bool is_number = error == std::errc() && stop == end;
  return is_number && node < job_.nodes && node != job_.node ? node : kNoNode;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* PeerService::Samples(
    grpc::CallbackServerContext* context) {
  const grpc::Status admitted = Admit(*context);
  if (!admitted.ok()) return new RefusedSamples(admitted);
  auto answers = std::make_shared<Answers>(parts_);
  MutexLock lock(mutex_);
  served_.push_back(answers);
  return new SampleStream(parts_, NodeOf(*context), std::move(answers));
}

}  // namespace headrace
