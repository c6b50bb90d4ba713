#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/memory/buffer_pool.h"
#include "headrace/status.h"
#include "workers/transformed_batch.h"

namespace headrace {

// The memory of results, and how many batches may be in transformation at once: one until the first
// result shows the size of results, then as many as leave room for the two that a consumer holds.
//
// Thread safety: none. Batches may free their memory on any thread.
class ResultMemory {
 public:
  struct Options {
    std::optional<std::uint64_t> bytes = 0;  // at most; nothing: batches_max is the only limit
    std::uint32_t batches_max = 1;           // in transformation; at least 1
    bool twice = false;  // workers buffer results that they may not write yet: as much memory again
  };

  // `on_free` runs after every release, on the releasing thread; not after the destructor.
  ResultMemory(Options options, std::function<void()> on_free)
      : options_(options), on_free_(std::move(on_free)) {}
  ~ResultMemory();
  ResultMemory(const ResultMemory&) = delete;
  ResultMemory& operator=(const ResultMemory&) = delete;

  [[nodiscard]] std::size_t BatchesMax() const;
  [[nodiscard]] bool is_limited() const { return options_.bytes.has_value(); }

  // Gives `batch` memory for its layout. Returns false if there is none now. Exceeds the limit if
  // `beyond`, and for a batch larger than the limit once all memory is free.
  //
  // Errors: ResourceExhausted  the system has none
  //         those of BufferPool::MakeShared()
  Result<bool> Give(TransformedBatch& batch, bool beyond);

  // Later batches get other memory than earlier ones, which a forked process may read.
  void Renew();
  // Returns memory that no batch uses to the system.
  void ReturnFree();

  [[nodiscard]] BufferStats stats() const;

 private:
  [[nodiscard]] Result<std::shared_ptr<BufferPool>> MakePool() const;

  const Options options_;
  const std::function<void()> on_free_;
  std::shared_ptr<BufferPool> pool_;  // null until the first result
  std::uint64_t batch_bytes_ = 0;     // of the largest; 0: none yet
};

}  // namespace headrace
