#pragma once

// Reads an index file from bytes in memory: what Index::Open() does once the file is mapped.
// Internal to index/: for Open, and for tests and fuzzers, which have no file.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/memory/mapped_file.h"
#include "headrace/index.h"
#include "headrace/status.h"

namespace headrace::internal {

// Checks `bytes` as Index::Open() does. `path` is the file that they come from: its folder resolves
// a relative root, and messages name it.
//
// Ownership: `owner` keeps `bytes` alive as long as the Index; null if the caller does.
// Alignment: none required of `bytes`.
// Errors: those of Index::Open() except NotFound
Result<std::shared_ptr<const Index>> OpenIndexInMemory(std::span<const std::byte> bytes,
                                                       std::string path,
                                                       std::shared_ptr<const void> owner);

// The same of a file that is mapped.
Result<std::shared_ptr<const Index>> OpenMappedIndex(std::shared_ptr<const MappedFile> file,
                                                     std::string path);

// An index file as it is; Index::Open() opens the parts of one that stands for others
// (joined_index.h).
//
// Errors: those of Index::Open()
Result<std::shared_ptr<const Index>> OpenIndexFile(const std::string& path);

}  // namespace headrace::internal
