#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "headrace/loader.h"

namespace headrace::bindings {

// What a headrace._core.Loader runs. Throws if it is closed. The GIL must be held.
std::shared_ptr<BatchSource> LoaderOf(nanobind::handle loader);

}  // namespace headrace::bindings
