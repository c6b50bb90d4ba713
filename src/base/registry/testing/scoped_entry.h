#pragma once

#include "base/registry/registry.h"

namespace headrace {

// One more entry of a table, at its end, while this lives. Not thread-safe: no other thread may use
// the table when this is made or destroyed.
template <typename Entry>
class ScopedEntry {
 public:
  ScopedEntry(const Registry<Entry>& table, const Entry& entry) : table_(table) {
    table_.rows_.push_back(&entry);
  }
  ~ScopedEntry() { table_.rows_.pop_back(); }
  ScopedEntry(const ScopedEntry&) = delete;
  ScopedEntry& operator=(const ScopedEntry&) = delete;

 private:
  const Registry<Entry>& table_;
};

}  // namespace headrace
