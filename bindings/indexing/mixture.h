#pragma once

#include <memory>

#include "headrace/order_options.h"
#include "plan/mixture/mixture.h"

namespace headrace::bindings {

// A mixture of Python's, and what it was made of.
struct PyMixture {
  std::shared_ptr<const MixtureOptions> options;
  std::shared_ptr<const Mixture> made;
};

}  // namespace headrace::bindings
