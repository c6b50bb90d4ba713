#include "node/protocol/messages.h"

#include <string_view>
#include <type_traits>
#include <utility>

#include "node/protocol/wire_forms.h"

namespace headrace {

namespace {

// A message is the position of its type among the alternatives, and its fields.
template <typename Message>
std::vector<std::byte> EncodeAny(const Message& message,
                                 std::vector<std::span<const std::byte>>* out_of_band = nullptr) {
  WireWriter writer;
  writer.PutU8(static_cast<std::uint8_t>(message.index()));
  WirePut codec(writer, out_of_band);
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
  std::vector<std::span<const std::byte>> out_of_band;
  IpcMessage packed{.bytes = EncodeAny(message, &out_of_band), .fds = {}};
  for (const std::span<const std::byte> list : out_of_band) {
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
