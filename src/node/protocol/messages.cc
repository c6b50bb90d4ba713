#include "node/protocol/messages.h"

#include <string_view>
#include <type_traits>
#include <utility>

#include "node/protocol/wire_forms.h"

namespace headrace {

template <typename Codec, Of<ClientHello> T>
void Fields(Codec& codec, T& hello) {
  codec(hello.protocol);
  if (hello.protocol == kNodeProtocol) {
    codec(hello.library);
    codec.Enum(hello.role, NodeRole::kRank);
    codec(hello.pid, hello.rank);
  } else if constexpr (Codec::kTakes) {
    codec.Skip();
  }
}

template <typename Codec, Of<OpenJob> T>
void Fields(Codec& codec, T& open) {
  codec(open.job, open.local_rank, open.local_ranks, open.index_path, open.fingerprint,
        open.options);
}

template <typename Codec, Of<Position> T>
void Fields(Codec& codec, T& position) {
  codec(position.epoch, position.step);
}

template <typename Codec, Of<StartRun> T>
void Fields(Codec& codec, T& start) {
  codec(start.start, start.position);
}

template <typename Codec, Of<ListOrderOptions> T>
void Fields(Codec& codec, T& options) {
  auto& [ids, batch_ends, epoch, first_step, rank] = options;
  codec.LongList(ids);
  codec.LongList(batch_ends);
  codec(epoch, first_step, rank);
}

template <typename Codec, Of<StartListRun> T>
void Fields(Codec& codec, T& start) {
  codec(start.start, start.list);
}

template <typename Codec, Of<StopRun> T>
void Fields(Codec& /*codec*/, T& /*stop*/) {}

template <typename Codec, Of<TakenBatch> T>
void Fields(Codec& codec, T& taken) {
  codec(taken.number, taken.at_ns);
}

template <typename Codec, Of<BatchNote> T>
void Fields(Codec& codec, T& note) {
  codec(note.taken, note.let_go, note.waiting);
}

template <typename Codec, Of<AskStats> T>
void Fields(Codec& codec, T& ask) {
  codec(ask.call);
}

template <typename Codec, Of<AskSteps> T>
void Fields(Codec& codec, T& ask) {
  codec(ask.call);
}

template <typename Codec, Of<AskRows> T>
void Fields(Codec& codec, T& ask) {
  codec(ask.call, ask.position);
}

template <typename Codec, Of<AskRowsOf> T>
void Fields(Codec& codec, T& ask) {
  codec(ask.call);
  codec.LongList(ask.samples);
}

template <typename Codec, Of<CloseJob> T>
void Fields(Codec& /*codec*/, T& /*close*/) {}

template <typename Codec, Of<StillWaiting> T>
void Fields(Codec& codec, T& still) {
  codec(still.start, still.waited_ns);
}

template <typename Codec, Of<Refused> T>
void Fields(Codec& codec, T& refused) {
  codec(refused.status);
}

template <typename Codec, Of<JobOpened> T>
void Fields(Codec& codec, T& opened) {
  codec(opened.schema, opened.steps_per_epoch, opened.batches_ahead, opened.order_parameters,
        opened.order_origins, opened.inflation);
}

template <typename Codec, Of<NewMemory> T>
void Fields(Codec& codec, T& memory) {
  codec(memory.memory, memory.bytes, memory.apart);
}

template <typename Codec, Of<BytesPlace> T>
void Fields(Codec& codec, T& place) {
  codec(place.memory, place.offset, place.size);
}

template <typename Codec, Of<BatchTimes> T>
void Fields(Codec& codec, T& times) {
  auto& [admitted_ns, read_ns, done_ns, busy_ns, handed_ns, stall_ns, sample_bytes] = times;
  codec(admitted_ns, read_ns, done_ns, busy_ns, handed_ns, stall_ns, sample_bytes);
}

template <typename Codec, Of<BatchReady> T>
void Fields(Codec& codec, T& batch) {
  codec(batch.start, batch.number, batch.epoch, batch.step, batch.ends_epoch, batch.beyond_budget,
        batch.times, batch.samples, batch.substitutions, batch.sources, batch.fields);
}

template <typename Codec, Of<RunEnded> T>
void Fields(Codec& codec, T& ended) {
  codec(ended.start, ended.status);
}

template <typename Codec, Of<StatsReply> T>
void Fields(Codec& codec, T& reply) {
  codec(reply.call, reply.status, reply.stats, reply.learned);
}

template <typename Codec, Of<StepTime> T>
void Fields(Codec& codec, T& step) {
  auto& [run, epoch, at, lane, admitted_ns, read_ns, done_ns, busy_ns, handed_ns, taken_ns,
         stall_ns, samples, bytes] = step;
  codec(run, epoch, at, lane, admitted_ns, read_ns, done_ns, busy_ns, handed_ns, taken_ns, stall_ns,
        samples, bytes);
}

template <typename Codec, Of<StepsReply> T>
void Fields(Codec& codec, T& reply) {
  codec(reply.call, reply.status, reply.steps);
}

template <typename Codec, Of<RowsReply> T>
void Fields(Codec& codec, T& reply) {
  codec(reply.call, reply.status, reply.rows);
}

template <typename Codec, Of<TierTrouble> T>
void Fields(Codec& codec, T& trouble) {
  codec(trouble.tiers);
}

namespace {

// A message is the position of its type among the alternatives, and its fields.
template <typename Message>
std::vector<std::byte> EncodeAny(const Message& message,
                                 std::vector<std::span<const std::byte>>* apart = nullptr) {
  WireWriter writer;
  writer.PutU8(static_cast<std::uint8_t>(message.index()));
  WirePut codec(writer, apart);
  std::visit([&](const auto& alternative) { codec(alternative); }, message);
  return {writer.bytes().begin(), writer.bytes().end()};
}

// Makes `message` the alternative number `kind`, with its fields; false: there is none.
template <std::size_t I = 0, typename Message>
bool TakeAlternative(std::size_t kind, WireTake& codec, Message& message) {
  if constexpr (I < std::variant_size_v<Message>) {
    if (kind != I) return TakeAlternative<I + 1>(kind, codec, message);
    codec(message.template emplace<I>());
    return true;
  } else {
    return false;
  }
}

template <typename Message>
Result<Message> DecodeAny(std::string_view what, std::span<const std::byte> bytes,
                          std::span<const UniqueFd> fds = {}) {
  WireReader reader(what, bytes);
  const std::uint8_t kind = reader.TakeU8();
  Message message;
  WireTake codec(reader, fds);
  if (reader.ok() && !TakeAlternative(kind, codec, message)) {
    reader.Refuse("a message of kind " + std::to_string(kind) + ", known are those below " +
                  std::to_string(std::variant_size_v<Message>));
  }
  // Its mistakes first: what it did not read is no further one.
  HEADRACE_RETURN_IF_ERROR(reader.Finish());
  return message;
}

}  // namespace

std::vector<std::byte> Encode(const ClientMessage& message) { return EncodeAny(message); }
std::vector<std::byte> Encode(const NodeMessage& message) { return EncodeAny(message); }

Result<IpcMessage> Pack(const ClientMessage& message) {
  std::vector<std::span<const std::byte>> apart;
  IpcMessage packed{.bytes = EncodeAny(message, &apart), .fds = {}};
  for (const std::span<const std::byte> list : apart) {
    HEADRACE_ASSIGN_OR_RETURN(packed.fds.emplace_back(), MakeSealed(list));
  }
  return packed;
}

Result<ClientMessage> DecodeClientMessage(std::span<const std::byte> bytes,
                                          std::span<const UniqueFd> fds) {
  return DecodeAny<ClientMessage>("a message of a rank", bytes, fds);
}

Result<NodeMessage> DecodeNodeMessage(std::span<const std::byte> bytes) {
  return DecodeAny<NodeMessage>("a message of the node process", bytes);
}

}  // namespace headrace
