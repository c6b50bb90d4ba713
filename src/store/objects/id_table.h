#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"

namespace headrace {

// Values with numbers that are not used twice, within 2^32 uses of an entry. `Id` is an enum of 64
// bits: an entry in the low half, above it how often the entry was used. Memory: that of the most
// values at a time.
//
// Thread safety: that of a vector. Cost: O(1) a call.
template <typename Id, typename T>
class IdTable {
 public:
  Id Add(T value) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(entries_.size()));
      entries_.emplace_back();
    }
    const std::uint32_t number = free_.back();
    free_.pop_back();
    entries_[number].value = std::move(value);
    return static_cast<Id>(std::uint64_t{entries_[number].uses} << 32U | number);
  }

  // Null: it was removed.
  T* Find(Id id) {
    HEADRACE_CHECK(static_cast<std::uint32_t>(id) < entries_.size());
    Entry& entry = entries_[static_cast<std::uint32_t>(id)];
    const bool same = entry.uses == static_cast<std::uint64_t>(id) >> 32U;
    return same && entry.value ? &*entry.value : nullptr;
  }

  // Of a value that is there.
  T& At(Id id) {
    T* value = Find(id);
    HEADRACE_CHECK(value != nullptr);
    return *value;
  }
  T Remove(Id id) {
    T value = std::move(At(id));
    Entry& entry = entries_[static_cast<std::uint32_t>(id)];
    entry.value.reset();
    ++entry.uses;
    free_.push_back(static_cast<std::uint32_t>(id));
    return value;
  }

  [[nodiscard]] std::size_t size() const { return entries_.size() - free_.size(); }

 private:
  struct Entry {
    std::optional<T> value;
    std::uint32_t uses = 0;
  };

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
};

}  // namespace headrace
