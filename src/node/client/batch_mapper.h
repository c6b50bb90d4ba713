#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "base/shared_memory.h"
#include "headrace/batch.h"
#include "headrace/status.h"
#include "ipc/message.h"
#include "node/protocol/messages.h"

namespace headrace {

// Maps the node's memories, and makes batches whose rows lie in them. Checks everything that the
// node sends.
//
// Thread safety: none.
class BatchMapper {
 public:
  // Maps a memory, whose descriptor came with `message`.
  //
  // Errors: DataLoss  not exactly one descriptor; those of SharedMemory::Map
  Status Add(const NewMemory& memory, IpcMessage& message);

  // Makes a batch. Forgets the memories that are for this batch alone.
  //
  // Errors: DataLoss  other fields or rows than `schema` has; bytes outside of a known memory
  Result<std::shared_ptr<Batch>> Map(BatchReady ready, std::span<const BatchField> schema);

 private:
  using Used = std::set<std::shared_ptr<SharedMemory>>;
  Result<std::span<std::byte>> Find(const BytesPlace& place, Used& used) const;

  std::map<std::uint32_t, std::shared_ptr<SharedMemory>> memories_;
  std::set<std::uint32_t> dedicated_;  // memories for the next batch alone
};

// Copies the rows of a batch that was mapped into memory of its own, and drops its lease.
//
// Errors: ResourceExhausted  no memory
Status OwnRows(Batch& batch);

// The error that says that the node process broke the protocol.
Status WrongMessage(const std::string& what);

}  // namespace headrace
