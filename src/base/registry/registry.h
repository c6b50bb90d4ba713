#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/mutex.h"
#include "headrace/status.h"

namespace headrace {

// The table of the implementations of one interface. An entry has a `name()`; only the table and
// the entry's own file contain that name (tests/python/test_registries.py checks it). Code outside
// the core adds entries of its own at run time, before it makes objects that use them.
//
// Thread safety: every method may be called from any thread. A reader sees an entry when Add() has
// returned; spans that rows() gave before stay valid, without it.
// Ownership: entries outlive the table.
template <typename Entry>
class Registry {
 public:
  static constexpr std::size_t kRowsMax = 64;

  // `kind` names the entries in errors, such as "order". The first of `rows` is the default.
  Registry(std::string_view kind, std::initializer_list<const Entry*> rows)
      : kind_(kind), count_(rows.size()) {
    HEADRACE_CHECK(rows.size() <= kRowsMax);
    std::copy(rows.begin(), rows.end(), rows_.begin());
  }

  // Adds a row at the end. An entry that the table has already changes nothing.
  //
  // Errors: InvalidArgument    another entry has that name
  //         ResourceExhausted  the table has kRowsMax rows
  Status Add(const Entry& entry) HEADRACE_LOCKS_EXCLUDED(adding_) {
    MutexLock lock(adding_);
    const Entry* const same_name = Find(entry.name());
    if (same_name == &entry) return Status();
    const std::string adding =
        "adding '" + std::string(entry.name()) + "' to the table of " + std::string(kind_) + "s: ";
    if (same_name != nullptr) {
      return Status(StatusCode::kInvalidArgument,
                    adding + "another entry has that name; use a new one");
    }
    const std::size_t count = count_.load(std::memory_order_relaxed);
    if (count == kRowsMax) {
      return Status(StatusCode::kResourceExhausted,
                    adding + "it has " + std::to_string(kRowsMax) + " rows, which is the most");
    }
    rows_[count] = &entry;
    count_.store(count + 1, std::memory_order_release);
    return Status();
  }

  [[nodiscard]] std::span<const Entry* const> rows() const {
    return std::span(rows_).first(count_.load(std::memory_order_acquire));
  }
  [[nodiscard]] std::string default_name() const { return std::string(rows_.front()->name()); }

  // Null if no entry has that name.
  [[nodiscard]] const Entry* Find(std::string_view name) const {
    for (const Entry* entry : rows()) {
      if (entry->name() == name) return entry;
    }
    return nullptr;
  }

  // Errors: InvalidArgument  no entry has that name; the message lists all names
  [[nodiscard]] Result<const Entry*> Get(std::string_view name) const {
    if (const Entry* entry = Find(name)) return entry;
    return Status(StatusCode::kInvalidArgument, std::string(kind_) + ": got '" + std::string(name) +
                                                    "', must be one of " + Names());
  }

  // "'one', 'other'": all names, or those of the entries for which `wanted` returns true.
  template <typename Wanted>
  [[nodiscard]] std::string Names(const Wanted& wanted) const {
    std::string names;
    for (const Entry* entry : rows()) {
      if (!wanted(*entry)) continue;
      names.append(names.empty() ? "'" : ", '").append(entry->name()).append("'");
    }
    return names;
  }
  [[nodiscard]] std::string Names() const {
    return Names([](const Entry&) { return true; });
  }

 private:
  template <typename>
  friend class ScopedEntry;  // base/registry/testing/scoped_entry.h

  const std::string_view kind_;
  Mutex adding_;
  std::array<const Entry*, kRowsMax> rows_{};  // up to count_ constant, but for ScopedEntry
  std::atomic<std::size_t> count_;
};

}  // namespace headrace
