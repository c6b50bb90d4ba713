// Bytes of any sort are a message, or an error: never a crash, and no memory beyond what they fill.
// What is read is written as it was.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "runtime/node/messages.h"

namespace {

template <typename Decoded>
void CheckWrittenAgain(const Decoded& decoded, std::span<const std::byte> bytes) {
  if (!decoded.ok()) {
    HEADRACE_CHECK(!decoded.status().message().empty());
    return;
  }
  const std::vector<std::byte> again = headrace::Encode(decoded.value());
  // A hello of another protocol is read as far as its number.
  const bool is_whole = again.size() == bytes.size();
  HEADRACE_CHECK(is_whole || again.size() == 5 || headrace::DecodeClientMessage(again).ok() ||
                 headrace::DecodeNodeMessage(again).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  CheckWrittenAgain(headrace::DecodeClientMessage(bytes), bytes);
  CheckWrittenAgain(headrace::DecodeNodeMessage(bytes), bytes);
  return 0;
}
