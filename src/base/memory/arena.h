#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/shared_memory.h"

namespace headrace {

// Cuts pieces of any size out of one mapping and takes them back, without a system call and
// without new pages in the steady state. Pages in memory never pass `resident_max`, as long as the
// pieces in use do not: free pages beyond it are returned to the system.
//
// New pages are expensive, and a huge page of which a part is returned is one no longer. So pieces
// of nearly one size get places of one size, which fit each of them: a place given back is used
// again with its pages. For that the mapping is larger than what it may fill.
//
// Thread safety: none. Pieces are whole pages; of `resident_max` the whole pages count.
class Arena {
 public:
  // Maps nothing if the system refuses: then it has no pieces.
  explicit Arena(std::uint64_t resident_max);
  // The same in memory that other processes can map: all of `memory`, which is the arena's alone to
  // fill and has MappedBytes(resident_max). Null, where that is 0: it has no pieces.
  Arena(std::uint64_t resident_max, std::shared_ptr<SharedMemory> memory);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // What an arena maps, to have room enough for its pieces. 0: nothing, or more than there can be.
  static std::uint64_t MappedBytes(std::uint64_t resident_max);

  // A piece of `bytes`, where `used_bytes` are in use already, here or elsewhere, that count
  // against resident_max. Null if there is no place; then no free page is in memory either.
  std::byte* Take(std::uint64_t bytes, std::uint64_t used_bytes);
  // The same; std::nullopt, and nothing done, if pages would have to be returned to the system.
  std::optional<std::byte*> TakeReady(std::uint64_t bytes, std::uint64_t used_bytes);

  void GiveBack(std::byte* piece, std::uint64_t bytes);
  // Returns all free pages to the system, but for those that it refuses to take.
  void ReturnFreePages();

  [[nodiscard]] std::span<std::byte> mapping() const { return {base_, mapped_bytes_}; }

  [[nodiscard]] bool Owns(const std::byte* piece) const {
    return piece >= base_ && piece < base_ + mapped_bytes_;
  }

  // Where the pieces lie, and where in it; null: in memory of this process.
  [[nodiscard]] const std::shared_ptr<SharedMemory>& memory() const { return memory_; }
  [[nodiscard]] std::uint64_t OffsetOf(const std::byte* piece) const {
    return static_cast<std::uint64_t>(piece - base_);
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  // Parts of the mapping by offset; neighbours are one.
  class Ranges {
   public:
    void Add(std::uint64_t offset, std::uint64_t bytes);
    // Takes out what lies in a part of the mapping.
    void Remove(std::uint64_t offset, std::uint64_t bytes);
    // How much that would be.
    [[nodiscard]] std::uint64_t BytesIn(std::uint64_t offset, std::uint64_t bytes) const;
    // Up to `bytes` from the end: offset, bytes.
    std::pair<std::uint64_t, std::uint64_t> TakeLast(std::uint64_t bytes);
    // The first range of `bytes` that `accepts(offset)`: kNone, or its offset.
    template <typename Accepts>
    [[nodiscard]] std::uint64_t FindFirst(std::uint64_t bytes, Accepts accepts) const;
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

   private:
    std::map<std::uint64_t, std::uint64_t> sizes_;
    std::uint64_t bytes_ = 0;
  };
  struct Place {
    std::uint64_t offset = kNone;
    std::uint64_t bytes = 0;
    bool returns_pages = false;  // those of other places
  };

  void UseMapping(void* memory, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t PlaceBytes(std::uint64_t bytes) const;
  [[nodiscard]] Place FindPlace(std::uint64_t bytes, std::uint64_t used_bytes) const;
  std::byte* TakeAt(const Place& place, std::uint64_t bytes, std::uint64_t used_bytes);
  std::byte* TakeRecent(std::uint64_t bytes);
  void ForgetRecent();
  void ReturnPages(std::uint64_t bytes);

  const std::uint64_t resident_max_;
  const std::shared_ptr<SharedMemory> memory_;
  std::byte* base_ = nullptr;
  std::uint64_t mapped_bytes_ = 0;
  Ranges free_;                                    // places
  Ranges filled_;                                  // in no piece, with pages
  std::map<std::uint64_t, std::uint64_t> places_;  // of pieces in larger ones: offset, bytes
  // Given back and not yet in free_ and filled_: the next piece of the size is taken from here, for
  // a fiftieth of the work. Offset, bytes of the piece.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> recent_;
  std::set<std::uint64_t> sizes_;  // that pieces have had, the largest of each kind
};

}  // namespace headrace
