#pragma once

// What passes between the host of workers and a worker, one message a line: words of 64 bits, in
// the order of bytes of the machine, then bytes. Python reads and writes the worker's side
// (python/headrace/_workers/_protocol.py).
//
//   host -> worker
//     [new memories: count, (number, bytes) each; gone ones: count, number each], then
//     kCompute  task epoch step first_slot rows direct layout_bytes; ids; of each field where its
//               rows lie: fixed (memory, offset of the first), ragged (memory, offset, bytes) each;
//               if direct: memory, offset of the first row of each leaf; bytes: the layout, as
//               kShaped has it
//     kWrite    task leaves (0: forget the task's results); of each leaf kind, then kRows (memory,
//               offset), kPadded (memory, offset, dims), kList (memory, offset of each row)
//   worker -> host
//     kReady
//     kFailed   text_bytes pickle_bytes; text; pickle
//     kError    task slot text_bytes pickle_bytes; text; pickle
//     kDone     task busy_ns objects_bytes; objects
//     kShaped   task busy_ns rows tree_bytes leaves; of each leaf: object, item_bytes, dtype (2
//               words), rank, 1 or rows, dims that often; tree
//
// A worker answers kCompute by kDone (written where it was told to), kShaped (it keeps the results
// until kWrite) or kError; and kWrite of leaves by kDone or kError.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "runtime/workers/layout.h"

namespace headrace {

enum class TaskMessage : std::uint64_t { kCompute = 1, kWrite = 2 };
enum class ReplyMessage : std::uint64_t { kReady = 1, kFailed, kError, kDone, kShaped };

// Words, then bytes, of a message to be sent.
class MessageWriter {
 public:
  void Word(std::uint64_t word);
  void Words(std::span<const std::uint64_t> words);
  void Bytes(std::string_view bytes);
  void Append(const MessageWriter& other);
  [[nodiscard]] std::span<const std::byte> message() const { return message_; }

 private:
  std::vector<std::byte> message_;
};

// What a worker said. What a message does not have is empty.
struct WorkerReply {
  ReplyMessage kind = ReplyMessage::kReady;
  std::uint64_t task = 0;
  std::uint64_t slot = 0;
  std::uint64_t busy_ns = 0;
  std::string text;     // of an error, for people
  std::string pickle;   // of the exception; empty: it can not be pickled
  std::string objects;  // leaves that are no arrays, pickled
  TaskShapes shapes;
};

// Parses a worker's message; trusts nothing in it.
//
// Errors: DataLoss  it is none
Result<WorkerReply> ParseReply(std::span<const std::byte> message);

// Appends the leaves and the tree of a plain layout as kShaped has them, with one row's dims.
void AppendLayout(const OutputLayout& layout, MessageWriter& writer);

}  // namespace headrace
