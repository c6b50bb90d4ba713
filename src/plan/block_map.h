#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "headrace/ids.h"
#include "headrace/status.h"

namespace headrace {

class Index;

// Divides a dataset into blocks and gives the memory that each sample takes while it is resident:
// the input of orders that read blocks. Immutable.
//
// Memory is counted in *units*, the cells of CellPool. A sample takes whole units, at least one. So
// a budget that the plan keeps in units holds in memory, too, whatever the sample sizes.
//
// Thread safety: every method may be called from any thread.
class BlockMap {
 public:
  // Samples first, first + 1, ..., contiguous in storage.
  struct Block {
    SampleId first{};
    std::uint32_t count = 0;  // at least 1
  };

  virtual ~BlockMap() = default;

  [[nodiscard]] virtual std::uint64_t sample_count() const = 0;
  // Blocks 0, 1, ... hold the samples 0, 1, ..., each once.
  [[nodiscard]] virtual std::uint64_t block_count() const = 0;
  [[nodiscard]] virtual Block block(std::uint64_t position) const = 0;
  // The block that holds `sample`, which must be below sample_count(). The default is a binary
  // search; maps with equal blocks override it.
  [[nodiscard]] virtual std::uint64_t Find(SampleId sample) const;

  [[nodiscard]] virtual std::uint64_t unit_bytes() const = 0;
  // Units of samples first, first + 1, ..., one for each element of `units`.
  virtual void Charges(SampleId first, std::span<std::uint32_t> units) const = 0;
  [[nodiscard]] virtual std::uint64_t total_units() const = 0;     // of all samples
  [[nodiscard]] virtual std::uint64_t largest_block() const = 0;   // units
  [[nodiscard]] virtual std::uint64_t largest_sample() const = 0;  // units
};

// Blocks without data, for tests and simulation: `block_samples` samples each, the last may be
// shorter; a sample is one unit of one byte. `sample_count` and `block_samples` are at least 1,
// block_samples below 2^32.
std::shared_ptr<const BlockMap> MakeUniformBlocks(std::uint64_t sample_count,
                                                  std::uint64_t block_samples);

// The least bytes of a unit.
inline constexpr std::uint64_t kUnitBytesMin = 64;

// The blocks of a dataset. With `block_samples` each block is that many consecutive samples. With 0
// it uses the blocks of the index or, if it has none, blocks of kBlockBytes on average, at most
// kNeighboursMax samples. A block that is not of the index ends where the next sample has another
// home (index/homes/), so that every block lies at one home.
//
// A sample's bytes are those of all its stored fields, whether the loader reads them or not: the
// fields that a loader reads must not change its order. A unit is the largest power of two in [64,
// 4096] bytes that is at most an eighth of the mean sample, or `unit_bytes_min`, a power of two, if
// that is more. Takes O(samples). `sample_bytes`: BlockFacts::sample_bytes, if it is known: then
// the sizes of all samples are read once less.
//
// Errors: InvalidArgument  block_samples beyond 2^32 - 1, or no field is stored
//         DataLoss         the index's blocks are not all samples, in order
Result<std::shared_ptr<const BlockMap>> MakeIndexBlocks(
    std::shared_ptr<const Index> index, std::uint64_t block_samples,
    std::uint64_t unit_bytes_min = kUnitBytesMin,
    std::optional<std::uint64_t> sample_bytes = std::nullopt);

// The same of blocks of `block_samples` samples, counted in units of `unit_bytes`, a power of two,
// however small: for who counts only. Both are at least 1.
std::shared_ptr<const BlockMap> MakeBlocksInUnits(std::shared_ptr<const Index> index,
                                                  std::uint64_t block_samples,
                                                  std::uint64_t unit_bytes);

// Blocks of one sample each, of these many bytes, counted in units of `unit_bytes`, a power of two:
// for tiers that hold samples in another form.
std::shared_ptr<const BlockMap> MakeSampleBlocks(std::span<const std::uint64_t> sample_bytes,
                                                 std::uint64_t unit_bytes);

// What an order may choose the size of its blocks by, where the dataset has none of its own.
struct BlockFacts {
  std::uint64_t samples = 0;
  std::uint64_t sample_bytes = 0;           // on average, all stored fields; at least 1
  std::uint32_t nodes = 1;                  // that each have blocks of their own
  std::function<double(double)> read_rate;  // of storage, bytes a second, in reads of so many bytes
};

// Of a dataset without blocks of its own; std::nullopt: it has some. Takes O(samples).
std::optional<BlockFacts> FactsForBlocks(const Index& index);

// The most samples a block that is chosen where nobody says how many.
inline constexpr std::uint64_t kNeighboursMax = 64;

// Stored bytes of every sample, over all its fields; 2^32 - 1 stands for more.
std::vector<std::uint32_t> StoredBytes(const Index& index);

inline constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

}  // namespace headrace
