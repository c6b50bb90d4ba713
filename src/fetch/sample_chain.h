#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "fetch/fetch.h"
#include "tier/tier.h"

namespace headrace {

// Where a sample's bytes can come from, in the order in which sources are tried.
enum class SampleSource : std::uint8_t {
  kMemory,   // its entry in a tier in memory
  kDisk,     // its entry in a tier on a disk
  kNode,     // another node
  kShare,    // its extents, as jobs share them
  kStorage,  // its extents in storage; the last
};

// The sources of one sample that are left to try. One that fails, or whose bytes are damaged, is
// dropped, and the next is read. Only the error of storage is an error of the sample.
//
// Thread safety: none.
// Ownership: holds the reference to the entry. The tier outlives it.
class SampleChain {
 public:
  SampleChain() = default;  // Storage alone.
  // `entry` empty: no tier of this node has it. No `nodes`: no other node is asked.
  SampleChain(Tier::EntryRef entry, const std::optional<Holders>& nodes)
      : entry_(std::move(entry)), nodes_(nodes) {}

  [[nodiscard]] SampleSource first() const {
    if (entry_) return entry_.tier()->in_memory() ? SampleSource::kMemory : SampleSource::kDisk;
    if (nodes_.has_value()) return SampleSource::kNode;
    return shares_ ? SampleSource::kShare : SampleSource::kStorage;
  }
  [[nodiscard]] const Tier::EntryRef& entry() const { return entry_; }
  [[nodiscard]] const std::optional<Holders>& nodes() const { return nodes_; }

  // The first source cannot give the sample. False: it was storage, and none is left.
  bool DropFirst() {
    if (first() == SampleSource::kStorage) return false;
    if (entry_) {
      entry_.Reset();
    } else if (nodes_.has_value()) {
      nodes_.reset();
    } else {
      shares_ = false;
    }
    return true;
  }
  // Leaves storage alone.
  void Reset() {
    entry_.Reset();
    nodes_.reset();
    shares_ = false;
  }
  // Reads of storage are shared with other jobs, until DropFirst().
  void Share() { shares_ = true; }

 private:
  Tier::EntryRef entry_;
  std::optional<Holders> nodes_;
  bool shares_ = false;
};

// Whether another source has what `from` reads: an error of it is not one of the sample.
inline bool HasNextSource(const FetchFrom& from) {
  return std::holds_alternative<const Tier::EntryRef*>(from) ||
         std::holds_alternative<SampleAtNode>(from);
}

}  // namespace headrace
