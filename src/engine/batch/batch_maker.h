#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/memory/buffer_pool.h"
#include "headrace/batch.h"
#include "headrace/index.h"
#include "headrace/status.h"
#include "plan/order.h"
#include "store/byte_store.h"

namespace headrace {

// Makes empty batches: lays out the rows of a step and takes the memory for them.
//
// Thread safety: as its arguments; it has no state of its own.
// Ownership: the arguments of the constructor outlive it.
class BatchMaker {
 public:
  // What to do when the pool has no room for a batch.
  enum class WhenFull : std::uint8_t {
    kWait,          // somebody will release memory
    kBeyondIfFree,  // take memory beyond the budget if the pool is unused, so that it is too small
    kBeyond,        // take memory beyond the budget
  };

  BatchMaker(const Index& index, std::span<const BatchField> schema, const ByteStore& store)
      : index_(index), schema_(schema), store_(store) {}

  // A batch for the deliveries of `step`, without sources. Null: there is no memory now.
  //
  // Errors: ResourceExhausted  the system has no memory
  Result<std::shared_ptr<Batch>> Make(const Step& step, BufferPool& memory,
                                      WhenFull when_full) const;

 private:
  [[nodiscard]] std::vector<ByteRange> LayOutRows(const Step& step) const;

  const Index& index_;
  const std::span<const BatchField> schema_;
  const ByteStore& store_;
};

}  // namespace headrace
