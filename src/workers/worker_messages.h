#pragma once

// What passes between the host of workers and a worker, one message a line, as ipc/wire.h has it.
// Strings and lists go behind a count. A message begins with its kind and the head of that name
// below, and then has what is listed here. Python reads and writes the worker's side
// (python/headrace/_workers/worker/protocol.py), by the kinds and heads that it finds here.
//
//   host -> worker
//     new memories: list of (number, bytes); gone ones: list of numbers; a string: empty, or
//     kCompute  ComputeHead; layout: a string, as kShaped has it, or empty; ids; of each field
//     where its rows lie: fixed (memory, offset of the first), ragged
//               (memory, offset, bytes) each; with a layout: memory, offset of the first row of
//               each leaf
//     kWrite    WriteHead; of each leaf kind, then kRows (memory, offset), kPadded (memory, offset,
//               dims), kList (memory, offset of each row)
//   worker -> host
//     kReady    ReadyHead; again if the number of its threads changes
//     kFailed   strings: text, pickle
//     kError    ErrorHead; strings: text, pickle
//     kUnlike   UnlikeHead: the rows cannot be written as rows of a batch
//     kDone     DoneHead; a string: objects
//     kShaped   ShapedHead; layout: a string, the tree; list of leaves: LeafHead, dtype (a string),
//               rank of 32 bits, list of dims, of one row or of all
//
// A worker answers kCompute by kDone (written into its place), kShaped (it buffers the results
// until kWrite), kError or kUnlike; and kWrite of leaves by kDone or kError. It may answer tasks in
// any order.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "headrace/members.h"
#include "headrace/status.h"
#include "ipc/message.h"
#include "ipc/wire.h"
#include "workers/layout.h"

namespace headrace {

// Limits of what a worker says; Python's side asks for them (bindings/workers.cc).
inline constexpr std::size_t kLeavesMax = 4096;     // of a result
inline constexpr std::uint32_t kItemBytesMax = 64;  // of an element of an array
inline constexpr std::uint64_t kReplyBytesMax = kIpcMessageBytesMax;

// The number of the memory of rows that have no bytes, in a batch that has none. Others are
// greater.
inline constexpr std::uint64_t kNoMemory = 0;

enum class TaskMessage : std::uint64_t { kCompute = 1, kWrite = 2 };
enum class ReplyMessage : std::uint64_t { kReady = 1, kFailed, kError, kDone, kShaped, kUnlike };

struct ComputeHead {
  std::uint64_t task = 0;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t first_slot = 0;
  std::uint64_t rows = 0;
  bool whole = false;  // they are a batch, and its result is one
};
HEADRACE_MEMBERS(ComputeHead, task, epoch, step, first_slot, rows, whole)
struct WriteHead {
  std::uint64_t task = 0;
  std::uint64_t leaves = 0;  // 0: forget the task's results
};
HEADRACE_MEMBERS(WriteHead, task, leaves)
struct ReadyHead {
  std::uint32_t threads = 0;  // tasks that it works on at a time
};
HEADRACE_MEMBERS(ReadyHead, threads)
struct ErrorHead {
  std::uint64_t task = 0;
  std::uint32_t slot = 0;
};
HEADRACE_MEMBERS(ErrorHead, task, slot)
struct DoneHead {
  std::uint64_t task = 0;
  std::uint64_t busy_ns = 0;
  std::uint64_t ran_ns = 0;  // of busy_ns: it ran, or waited for a processor
};
HEADRACE_MEMBERS(DoneHead, task, busy_ns, ran_ns)
struct ShapedHead {
  std::uint64_t task = 0;
  std::uint64_t busy_ns = 0;
  std::uint64_t ran_ns = 0;
  std::uint32_t rows = 0;
};
HEADRACE_MEMBERS(ShapedHead, task, busy_ns, ran_ns, rows)
struct UnlikeHead {
  std::uint64_t task = 0;
};
HEADRACE_MEMBERS(UnlikeHead, task)
struct LeafHead {
  bool object = false;
  std::uint32_t item_bytes = 0;
};
HEADRACE_MEMBERS(LeafHead, object, item_bytes)

template <typename Head>
void PutHead(const Head& head, WireWriter& writer) {
  const auto put = [&](const char* /*name*/, auto number) {
    if constexpr (sizeof(number) == 8) writer.PutU64(number);
    if constexpr (sizeof(number) == 4) writer.PutU32(number);
    if constexpr (sizeof(number) == 1) writer.PutBool(number);
  };
  ForEachMember(put, head);
}

// A head in the notation of Python's module struct: "QI".
template <typename Head>
std::string FormatOf(const Head& head = {}) {
  std::string format;
  const auto add = [&](const char* /*name*/, auto number) {
    format += sizeof(number) == 8 ? 'Q' : sizeof(number) == 4 ? 'I' : '?';
  };
  ForEachMember(add, head);
  return format;
}

// What a worker said. What a message does not have is empty.
struct WorkerReply {
  ReplyMessage kind = ReplyMessage::kReady;
  std::uint64_t task = 0;
  std::uint64_t slot = 0;
  std::uint64_t busy_ns = 0;
  std::uint64_t ran_ns = 0;
  std::uint32_t threads = 1;  // of kReady; at least 1
  std::string text;           // of an error, for people
  std::string pickle;         // of the exception; empty: it cannot be pickled
  std::string objects;        // leaves that are no arrays, pickled
  TaskShapes shapes;
};

// Parses a worker's message; trusts nothing in it.
//
// Errors: DataLoss  it is none
Result<WorkerReply> ParseReply(std::span<const std::byte> message);

// Appends the leaves and the tree of a plain layout as kShaped has them, with one row's dims.
void AppendLayout(const OutputLayout& layout, WireWriter& writer);

}  // namespace headrace
