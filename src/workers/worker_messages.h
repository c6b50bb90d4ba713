#pragma once

// What passes between the host of workers and a worker, one message a line, as ipc/wire.h has it.
// Numbers are of 64 bits, those in brackets of 32; strings and lists go behind a count. Python
// reads and writes the worker's side (python/headrace/_workers/_protocol.py).
//
//   host -> worker
//     new memories: list of (number, bytes); gone ones: list of numbers; a string: empty, or
//     kCompute  task epoch step first_slot rows; layout: a string, as kShaped has it, or empty;
//               ids; of each field where its rows lie: fixed (memory, offset of the first), ragged
//               (memory, offset, bytes) each; with a layout: memory, offset of the first row of
//               each leaf
//     kWrite    task leaves (0: forget the task's results); of each leaf kind, then kRows (memory,
//               offset), kPadded (memory, offset, dims), kList (memory, offset of each row)
//   worker -> host
//     kReady
//     kFailed   strings: text, pickle
//     kError    task [slot]; strings: text, pickle
//     kDone     task busy_ns; a string: objects
//     kShaped   task busy_ns [rows]; layout: a string, the tree; list of leaves: object (a byte),
//               [item_bytes], dtype (a string), [rank], list of dims, of one row or of all
//
// A worker answers kCompute by kDone (written into its place), kShaped (it keeps the results
// until kWrite) or kError; and kWrite of leaves by kDone or kError.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "ipc/message.h"
#include "ipc/wire.h"
#include "workers/layout.h"

namespace headrace {

// Limits of what a worker says; Python's side asks for them (bindings/workers.cc).
inline constexpr std::size_t kLeavesMax = 4096;     // of a result
inline constexpr std::uint32_t kItemBytesMax = 64;  // of an element of an array
inline constexpr std::uint64_t kReplyBytesMax = kIpcMessageBytesMax;

enum class TaskMessage : std::uint64_t { kCompute = 1, kWrite = 2 };
enum class ReplyMessage : std::uint64_t { kReady = 1, kFailed, kError, kDone, kShaped };

// What a worker said. What a message does not have is empty.
struct WorkerReply {
  ReplyMessage kind = ReplyMessage::kReady;
  std::uint64_t task = 0;
  std::uint64_t slot = 0;
  std::uint64_t busy_ns = 0;
  std::string text;     // of an error, for people
  std::string pickle;   // of the exception; empty: it cannot be pickled
  std::string objects;  // leaves that are no arrays, pickled
  TaskShapes shapes;
};

// Parses a worker's message; trusts nothing in it.
//
// Errors: DataLoss  it is none
Result<WorkerReply> ParseReply(std::span<const std::byte> message);

// Appends the leaves and the tree of a plain layout as kShaped has them, with one row's dims.
void AppendLayout(const OutputLayout& layout, WireWriter& writer);

}  // namespace headrace
