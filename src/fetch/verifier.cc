#include "fetch/verifier.h"

#include <cstdint>
#include <optional>

#include "base/format/errors.h"
#include "base/hash.h"

namespace headrace {

Verifier::Verifier(const Index& index, bool verify) : index_(index), verify_(verify) {
  for (const FieldInfo& field : index.fields()) {
    has_checksums_.push_back(verify && field.has_checksums);
  }
}

Status Verifier::Check(std::size_t field, SampleId sample,
                       std::span<const std::byte> stored) const {
  if (field >= has_checksums_.size() || !has_checksums_[field]) return Status();
  const std::optional<std::uint64_t> expected = index_.checksum(field, sample);
  if (!expected.has_value() || Hash64(stored) == *expected) return Status();
  return DataLoss(
      "field {}: its checksum differs from the index's; the stored {} bytes are damaged, or "
      "changed since they were indexed: restore them, or index the dataset again (headrace index)",
      index_.fields()[field].name, stored.size());
}

}  // namespace headrace
