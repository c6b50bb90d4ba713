// Bytes of any sort are what a worker says, or an error: never a crash, and no memory beyond what
// they fill. Shapes make a batch's layout, or a text why not; one that is sent to workers is read
// back as it was written.
//
// Input: a byte whose lowest bit says whether the rest is the message; else the rest are edits of a
// valid one, 2 bytes each: position (modulo the size), value.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "workers/worker_messages.h"

namespace {

using headrace::OutputLayout;
using headrace::OutputLeaf;
using headrace::ParseReply;
using headrace::ReplyMessage;
using headrace::Result;
using headrace::TaskShapes;
using headrace::WireWriter;
using headrace::WorkerReply;

constexpr std::uint64_t kRowsMax = 1000;

WireWriter Shaped(const OutputLayout& layout) {
  WireWriter writer;
  writer.PutU64(static_cast<std::uint64_t>(ReplyMessage::kShaped));
  writer.PutU64(0);
  writer.PutU64(0);
  writer.PutU64(0);
  writer.PutU32(static_cast<std::uint32_t>(layout.rows));
  AppendLayout(layout, writer);
  return writer;
}

std::vector<std::byte> ValidMessage() {
  const WireWriter writer =
      Shaped({.tree = "t",
              .leaves = {{.dtype = "float32", .item_bytes = 4, .rank = 2, .dims = {3, 4}},
                         {.kind = OutputLeaf::Kind::kObject},
                         {.dtype = "int8", .item_bytes = 1, .rank = 1, .dims = {5}}},
              .rows = 2});
  return {writer.bytes().begin(), writer.bytes().end()};
}

void CheckWrittenAgain(const OutputLayout& layout) {
  const Result<WorkerReply> again = ParseReply(Shaped(layout).bytes());
  HEADRACE_CHECK(again.ok());
  OutputLayout read;
  headrace::ShapeMismatch mismatch;
  HEADRACE_CHECK(
      MakeOutputLayout({&again.value().shapes, 1}, headrace::RaggedRows::kError, read, mismatch));
  HEADRACE_CHECK(read.tree == layout.tree && read.bytes == layout.bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::span<const std::byte> rest = std::as_bytes(std::span(data + 1, size - 1));
  std::vector<std::byte> message(rest.begin(), rest.end());
  if ((data[0] & 1) == 0) {
    message = ValidMessage();
    for (; rest.size() >= 2; rest = rest.subspan(2)) {
      message[std::to_integer<std::size_t>(rest[0]) % message.size()] = rest[1];
    }
  }
  const Result<WorkerReply> reply = ParseReply(message);
  if (!reply.ok()) {
    HEADRACE_CHECK(!reply.status().message().empty());
    return 0;
  }
  const TaskShapes& shapes = reply.value().shapes;
  // The pool goes on with as many rows only as it asked for.
  if (shapes.rows == 0 || shapes.rows > kRowsMax) return 0;
  OutputLayout layout;
  headrace::ShapeMismatch mismatch;
  for (const auto ragged :
       {headrace::RaggedRows::kError, headrace::RaggedRows::kPad, headrace::RaggedRows::kList}) {
    if (!MakeOutputLayout({&shapes, 1}, ragged, layout, mismatch)) {
      HEADRACE_CHECK(!mismatch.text.empty());
    } else if (layout.is_plain()) {
      CheckWrittenAgain(layout);
    }
  }
  return 0;
}
