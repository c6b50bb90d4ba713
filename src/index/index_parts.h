#pragma once

// The parts of an index file in memory. Internal to index/.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/memory/mapped_file.h"
#include "headrace/index.h"
#include "headrace/status.h"
#include "index/index_format.h"

namespace headrace::internal {

// Spans lie inside `file`, which `owner` keeps alive.
struct IndexParts {
  struct Column {
    std::span<const std::byte> entries;        // extents or inline values
    std::span<const std::byte> ends;           // of inline values; empty if they have one length
    std::span<const std::byte> decoded_sizes;  // may be empty
    std::span<const std::byte> checksums;      // may be empty
  };
  // The sections by purpose.
  struct Tables {
    std::vector<Column> columns;  // one a field
    std::span<const std::byte> objects;
    std::span<const std::byte> name_offsets;
    std::span<const std::byte> name_bytes;
    std::span<const std::byte> blocks;
  };

  std::string path;
  std::shared_ptr<const void> owner;
  std::shared_ptr<const MappedFile> mapped;  // null: `file` is in memory, or of no file
  std::span<const std::byte> file;
  IndexHeader header;
  std::vector<Section> sections;
  std::vector<FieldInfo> fields;
  std::vector<Attribute> attributes;
  std::string root;
  Tables tables;
};

// Reads the parts of `parts.file`; requires path, owner and file. Checks the header, the section
// table, the small sections, and that every section lies inside the file; no entry of a large one.
//
// Errors: those of Index::Open() except NotFound
Status ReadParts(IndexParts& parts);

// DataLoss with the name of the index, and of the entry of a section.
Status Damaged(const IndexParts& parts, const std::string& why);
Status DamagedEntry(const IndexParts& parts, SectionKind kind, std::size_t field,
                    std::uint64_t entry, const std::string& why);

// Reads the whole file, whose parts `index` has, as Index::VerifyAll() specifies.
//
// Errors: DataLoss  the message names the section or the entry
Status VerifyParts(const IndexParts& parts, const Index& index);

}  // namespace headrace::internal
