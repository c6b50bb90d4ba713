#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "headrace/ids.h"
#include "headrace/index.h"
#include "headrace/status.h"

namespace headrace {

// Compares stored bytes with the checksums of an index.
//
// Thread safety: every method may be called from any thread.
// Ownership: the index outlives it.
class Verifier {
 public:
  // `verify` false: everything is taken as it is.
  Verifier(const Index& index, bool verify);

  [[nodiscard]] bool verifies() const { return verify_; }

  // `field`: position in Index::fields(). OK where the index has no checksum.
  //
  // Errors: DataLoss  they differ
  [[nodiscard]] Status Check(std::size_t field, SampleId sample,
                             std::span<const std::byte> stored) const;

 private:
  const Index& index_;
  const bool verify_;
  std::vector<bool> has_checksums_;  // by field; all false without `verify`
};

}  // namespace headrace
