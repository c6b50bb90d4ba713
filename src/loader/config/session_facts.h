#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/batch/batch.h"
#include "plan/order_factory.h"
#include "plan/quality/labels.h"

namespace headrace {

// What is fixed once a session is open, for every rank of it.
struct SessionFacts {
  std::vector<BatchField> schema;  // of batches; at the client of a node process without codecs
  std::uint64_t steps_per_epoch = 0;
  // The order's parameters with all defaults filled in. A saved state contains them.
  OrderParameters order_parameters;
  // The origin of each parameter, in words: see ResolvedOrder::origins().
  OrderParameters order_origins;
  // The inflation that the order is expected to cause on this dataset. std::nullopt: none is
  // expected, or no closed form is known.
  std::optional<ExpectedInflation> inflation;
};

}  // namespace headrace
