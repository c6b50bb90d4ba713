#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "base/shared_memory.h"
#include "base/status.h"
#include "engine/batch/batch.h"
#include "ipc/message.h"
#include "node/protocol/messages.h"

namespace headrace {

// Maps the node's memories, and makes batches whose rows lie in them. Nothing that the node says is
// taken on trust.
//
// Thread safety: none.
class BatchMapper {
 public:
  // Maps a memory; its descriptor came with `message`.
  //
  // Errors: DataLoss  not one descriptor; those of SharedMemory::Map
  Status Add(const NewMemory& memory, IpcMessage& message);

  // Forgets the memories that were for this batch alone.
  //
  // Errors: DataLoss  other fields or rows than `schema` has; bytes outside of a known memory
  Result<std::shared_ptr<Batch>> Map(BatchReady ready, std::span<const BatchField> schema);

 private:
  using Used = std::set<std::shared_ptr<SharedMemory>>;
  Result<std::span<std::byte>> Find(const BytesPlace& place, Used& used) const;

  std::map<std::uint32_t, std::shared_ptr<SharedMemory>> memories_;
  std::set<std::uint32_t> apart_;  // of the batch that comes next
};

// The node process broke the protocol.
Status WrongMessage(const std::string& what);

}  // namespace headrace
