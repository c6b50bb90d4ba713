#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace headrace {

// The table of the implementations of one interface. An entry has a `name()`; only the table and
// the entry's own file contain that name (tests/python/test_registries.py checks it).
//
// Thread safety: every method may be called from any thread.
// Ownership: entries live as long as the table.
template <typename Entry>
class Registry {
 public:
  // `kind` names the entries in errors, such as "order". The first of `rows` is the default.
  Registry(std::string_view kind, std::vector<const Entry*> rows)
      : kind_(kind), rows_(std::move(rows)) {}

  [[nodiscard]] std::span<const Entry* const> rows() const { return rows_; }
  [[nodiscard]] std::string default_name() const { return std::string(rows_.front()->name()); }

  // Null if no entry has that name.
  [[nodiscard]] const Entry* Find(std::string_view name) const {
    for (const Entry* entry : rows_) {
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
    for (const Entry* entry : rows_) {
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
  mutable std::vector<const Entry*> rows_;  // only tests change it
};

}  // namespace headrace
