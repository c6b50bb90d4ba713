// Reads arbitrary bytes as an arbitrary sequence of values; and writes a sequence, reads it back
// and expects the same.
//
// Input: a byte, the number of following bytes that each select a value to read; the rest is the
// message.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "ipc/wire.h"

namespace {

using headrace::Status;
using headrace::WireReader;
using headrace::WireWriter;

constexpr std::size_t kStringBytesMax = 100;
constexpr std::size_t kCountMax = 1000;

// Reads one value of `kind` and writes it again.
void TakeAndPut(std::uint8_t kind, WireReader& reader, WireWriter& writer) {
  const auto put = [&](auto value, auto method) {
    if (reader.ok()) (writer.*method)(value);
  };
  switch (kind % 10) {
    case 0:
      return put(reader.TakeU8(), &WireWriter::PutU8);
    case 1:
      return put(reader.TakeU32(), &WireWriter::PutU32);
    case 2:
      return put(reader.TakeU64(), &WireWriter::PutU64);
    case 3:
      return put(reader.TakeI64(), &WireWriter::PutI64);
    case 4:
      return put(reader.TakeF64(), &WireWriter::PutF64);
    case 5:
      return put(reader.TakeBool(), &WireWriter::PutBool);
    case 6: {
      const std::string text = reader.TakeString(kStringBytesMax);
      HEADRACE_CHECK(text.size() <= kStringBytesMax);
      return put(text, &WireWriter::PutString);
    }
    case 7:
      return put(reader.TakeBytes(kStringBytesMax), &WireWriter::PutBytes);
    case 8: {
      const auto numbers =
          reader.TakeVector(kCountMax, 4, [](WireReader& from) { return from.TakeU32(); });
      HEADRACE_CHECK(numbers.size() <= kCountMax);
      if (reader.ok()) {
        writer.PutVector(numbers, [](WireWriter& to, std::uint32_t n) { to.PutU32(n); });
      }
      return;
    }
    default: {
      Status status;
      reader.TakeStatus(status, kStringBytesMax);
      // An OK with a message reads as OK: the only value that changes.
      if (reader.ok() && status.ok()) {
        reader.Refuse("a status that is OK");
      } else if (reader.ok()) {
        writer.PutStatus(status);
      }
      return;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::uint8_t> input(data + 1, size - 1);
  const std::size_t kinds = std::min<std::size_t>(data[0], input.size());
  // A copy of exactly this size, so that a read past the end leaves the allocation.
  const auto rest = std::as_bytes(input.subspan(kinds));
  const std::vector<std::byte> message(rest.begin(), rest.end());
  WireReader reader("a fuzzer's message", message);
  WireWriter writer;
  for (const std::uint8_t kind : input.first(kinds)) TakeAndPut(kind, reader, writer);
  const bool whole = reader.ok();
  const std::size_t read_bytes = message.size() - reader.remaining_bytes();
  HEADRACE_CHECK(read_bytes <= message.size());
  HEADRACE_CHECK(reader.Finish().ok() == (whole && read_bytes == message.size()));
  if (!whole) return 0;
  HEADRACE_CHECK(std::ranges::equal(writer.bytes(), std::span(message).first(read_bytes)));
  return 0;
}
