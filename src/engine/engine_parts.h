#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/cell_pool.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/memory/buffer_pool.h"
#include "engine/lanes/lane_parts.h"
#include "engine/lanes/lane_policy.h"
#include "engine/memory/pinned_blocks.h"
#include "engine/memory/scratch_budget.h"
#include "fetch/fetch.h"
#include "headrace/batch.h"
#include "headrace/index.h"
#include "headrace/machine_model.h"
#include "headrace/order_options.h"
#include "headrace/status.h"
#include "store/byte_store.h"

namespace headrace {

// What an engine is put together from.
struct EngineParts {
  const Index* index = nullptr;
  std::span<const BatchField> schema;
  ByteStore* store = nullptr;
  Executor* executor = nullptr;
  const Clock* clock = nullptr;
  std::vector<EngineLane> lanes;        // at least one; of ranks first_rank, first_rank + 1, ...
  std::shared_ptr<BufferPool> staging;  // for bytes read and not decoded yet
  std::shared_ptr<CellPool> residents;  // for samples of block reads; null: the plan has none
  std::shared_ptr<PinnedBlocks> pinned_blocks;  // null: no block stays in memory
  std::shared_ptr<ScratchBudget> scratch;       // for decodes; null: no limit
  SampleTable decoded_images;                   // TiersSpec::decoded_images
  const MachineModel* model = nullptr;  // says when storage is faster than a tier; null: never
  std::uint32_t first_rank = 0;
  LanePolicy* policy = nullptr;        // null: lanes share everything, earliest deadline first
  DecodeObserver* observer = nullptr;  // null: none
  FetchSource* nodes = nullptr;        // reads samples of other nodes; null: they are not asked
  // If nodes exchange samples by the plan: parcels of other nodes, and the memory for them.
  // Null: this node reads all that it delivers.
  FetchSource* parcels = nullptr;
  std::shared_ptr<BufferPool> parcel_memory;
  // Memory for parts of parcels on their way to other nodes. Null: the plan sends nothing.
  std::shared_ptr<BufferPool> sent_memory;
  // Called when a part was sent and its memory returned, on any thread. May be empty.
  std::function<void()> sent_gone;
  std::uint64_t round = 0;  // ParcelPart::round
};

}  // namespace headrace
