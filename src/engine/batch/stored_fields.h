#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/batch.h"
#include "headrace/ids.h"
#include "headrace/index.h"
#include "headrace/status.h"

namespace headrace {

// The fields of a schema that are read and decoded, all but the inline ones, and where the samples'
// bytes of them lie.
//
// Thread safety: every method may be called from any thread.
// Ownership: the arguments of the constructor outlive it.
class StoredFields {
 public:
  StoredFields(const Index& index, std::span<const BatchField> schema)
      : index_(index), schema_(schema) {
    for (std::size_t i = 0; i < schema.size(); ++i) {
      if (!schema[i].is_inline()) positions_.push_back(i);
    }
  }

  [[nodiscard]] std::size_t size() const { return positions_.size(); }
  [[nodiscard]] bool empty() const { return positions_.empty(); }
  [[nodiscard]] const BatchField& operator[](std::size_t field) const {
    return schema_[positions_[field]];
  }
  // The position of a stored field in the schema, and in Batch::fields.
  [[nodiscard]] std::size_t position(std::size_t field) const { return positions_[field]; }
  [[nodiscard]] std::span<const BatchField> schema() const { return schema_; }
  [[nodiscard]] const Index& index() const { return index_; }

  // Calls visit(field, extent) for each field of `sample`, in order, up to one that the index
  // refuses.
  //
  // Errors: those of Index::extent()
  template <typename Visit>
  Status VisitExtents(SampleId sample, Visit visit) const {
    for (std::uint32_t field = 0; field < positions_.size(); ++field) {
      const Result<Extent> extent = index_.extent(schema_[positions_[field]].index_field, sample);
      if (!extent.ok()) return extent.status();
      visit(field, extent.value());
    }
    return Status();
  }

 private:
  const Index& index_;
  const std::span<const BatchField> schema_;
  std::vector<std::size_t> positions_;
};

}  // namespace headrace
