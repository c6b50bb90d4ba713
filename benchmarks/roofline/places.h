#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "read_files.h"

namespace headrace {

class Places;

// A block of a file.
struct Place {
  std::size_t file = 0;
  std::uint64_t offset = 0;
};

// All whole blocks of the files, in the order in which one thread reads its part.
class Walk {
 public:
  // Empty at the end: after the last block of the part, if each block is read only once.
  std::optional<Place> Next();

 private:
  friend class Places;
  const Places* places_ = nullptr;
  std::uint64_t next_ = 0;
  std::uint64_t left_ = 0;
};

// The blocks of the files, from begin to end or in a random order.
//
// Thread safety: const calls may be concurrent.
class Places {
 public:
  // `files` outlive it. A seed gives the random order, and where the walks start.
  Places(const ReadFiles& files, std::uint64_t block_bytes, bool random, std::uint64_t seed);

  [[nodiscard]] std::uint64_t count() const { return ends_.empty() ? 0 : ends_.back(); }

  // The walk of one of `threads` threads, which start at equal distances. `once`: ends where the
  // next thread started; otherwise goes round for ever.
  [[nodiscard]] Walk Begin(int thread, int threads, bool once) const;

  // Walks begin so many blocks later: what was read last is read again last.
  void Skip(std::uint64_t blocks);

 private:
  friend class Walk;
  [[nodiscard]] Place At(std::uint64_t number) const;

  const std::uint64_t block_bytes_;
  std::vector<std::uint64_t> ends_;   // of each file's blocks
  std::vector<std::uint32_t> order_;  // empty: from begin to end
  std::uint64_t start_ = 0;
};

}  // namespace headrace
