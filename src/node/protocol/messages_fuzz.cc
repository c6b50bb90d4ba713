// Bytes of any sort are a message, or an error: never a crash, and no memory beyond what they fill.
// What is read can be written, and read again as the same.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "node/protocol/messages.h"

namespace {

template <typename Decode>
void CheckWrittenAgain(Decode decode, std::span<const std::byte> bytes) {
  const auto read = decode(bytes);
  if (!read.ok()) {
    HEADRACE_CHECK(!read.status().message().empty());
    return;
  }
  // Not the same bytes: of a hello of another protocol no more is read than its number.
  const std::vector<std::byte> written = headrace::Encode(read.value());
  const auto again = decode(written);
  HEADRACE_CHECK(again.ok());
  HEADRACE_CHECK(headrace::Encode(again.value()) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  CheckWrittenAgain([](auto any) { return headrace::DecodeClientMessage(any); }, bytes);
  CheckWrittenAgain(headrace::DecodeNodeMessage, bytes);
  return 0;
}
