#pragma once

#include <atomic>

#include "base/check.h"
#include "base/registry/registry.h"

namespace headrace {

// One more entry of a table, at its end, while this lives. Not thread-safe: no other thread may use
// the table when this is made or destroyed.
template <typename Entry>
class ScopedEntry {
 public:
  ScopedEntry(Registry<Entry>& table, const Entry& entry) : table_(table) {
    HEADRACE_CHECK(table_.Add(entry).ok() && table_.rows().back() == &entry);
  }
  ~ScopedEntry() { table_.count_.fetch_sub(1, std::memory_order_relaxed); }
  ScopedEntry(const ScopedEntry&) = delete;
  ScopedEntry& operator=(const ScopedEntry&) = delete;

 private:
  Registry<Entry>& table_;
};

}  // namespace headrace
