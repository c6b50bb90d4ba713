#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/prng.h"
#include "headrace/index.h"

namespace headrace {

// An index in tables that a test fills as it likes, and the bytes that belong to it.
class TableIndex final : public Index {
 public:
  struct Column {
    FieldInfo info;
    std::vector<Extent> extents;
    std::vector<std::uint64_t> checksums = {};
    std::vector<std::uint64_t> decoded_sizes = {};
  };

  std::uint64_t samples = 0;
  std::vector<Column> columns;       // stored fields
  std::vector<std::string> objects;  // their bytes
  std::vector<FieldInfo> infos;      // of `columns`, then the inline label, and maybe a note
  std::vector<std::int64_t> labels;  // one a sample
  std::vector<std::string> notes;    // inline, of any length; one a sample, or none

  std::string place;  // root()

  mutable std::uint64_t sizes_read = 0;  // of samples, by SampleBytes()

  // Sample `id` of stored field number `column`, as the index says it is.
  [[nodiscard]] std::string Payload(std::size_t column, SampleId id) const {
    const Extent& extent = columns[column].extents[Raw(id)];
    return objects[Raw(extent.object)].substr(extent.range.offset, extent.range.size);
  }

  [[nodiscard]] std::uint64_t sample_count() const override { return samples; }
  [[nodiscard]] std::span<const FieldInfo> fields() const override { return infos; }
  [[nodiscard]] std::uint64_t object_count() const override { return objects.size(); }
  [[nodiscard]] std::uint64_t block_count() const override { return 0; }
  [[nodiscard]] const std::string& root() const override { return place; }
  [[nodiscard]] const std::string& fingerprint() const override { return text_; }
  [[nodiscard]] std::span<const Attribute> attributes() const override { return {}; }
  [[nodiscard]] std::uint64_t file_bytes() const override { return 0; }
  [[nodiscard]] Result<ObjectInfo> object(ObjectId id) const override {
    static constexpr std::string_view kNames[] = {"a", "b", "c", "d"};
    return ObjectInfo{.name = kNames[Raw(id) % 4], .size = objects[Raw(id)].size()};
  }
  [[nodiscard]] Result<BlockInfo> block(std::uint64_t) const override {
    return Status(StatusCode::kOutOfRange, "no blocks");
  }
  [[nodiscard]] Result<Extent> extent(std::size_t field, SampleId id) const override {
    if (Raw(id) >= samples) return Status(StatusCode::kOutOfRange, "no such sample");
    return columns[field].extents[Raw(id)];
  }
  [[nodiscard]] Result<std::span<const std::byte>> inline_value(std::size_t field,
                                                                SampleId id) const override {
    if (field > columns.size()) return std::as_bytes(std::span(notes[Raw(id)]));
    return std::as_bytes(std::span(&labels[Raw(id)], 1));
  }
  [[nodiscard]] Result<std::uint64_t> decoded_bytes(std::size_t field, SampleId id) const override {
    if (columns[field].decoded_sizes.empty()) return Index::decoded_bytes(field, id);
    return columns[field].decoded_sizes[Raw(id)];
  }
  [[nodiscard]] std::optional<std::uint64_t> checksum(std::size_t field,
                                                      SampleId id) const override {
    const Column& column = columns[field];
    if (column.checksums.empty()) return std::nullopt;
    return column.checksums[Raw(id)];
  }
  void SampleBytes(SampleId first, std::span<std::uint64_t> bytes) const override {
    sizes_read += bytes.size();
    Index::SampleBytes(first, bytes);
  }
  [[nodiscard]] Status VerifyAll() const override { return Status(); }

 private:
  std::string text_;
};

}  // namespace headrace
