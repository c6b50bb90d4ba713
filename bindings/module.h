#pragma once

// bindings/ is the only place that sees Python: one file a subject, each adding its part to the
// extension module `headrace._core`. The module is private: python/headrace/ is what users import.

#include <nanobind/nanobind.h>

namespace headrace::bindings {

// status_codes.
void BindStatus(nanobind::module_& module);

// Index, hashes.
void BindIndex(nanobind::module_& module);

// Homes. After BindIndex.
void BindHomes(nanobind::module_& module);

// Mixture, join_indexes.
void BindMixture(nanobind::module_& module);

// IndexContents, IndexBuilder, build_folder_index.
void BindIndexWriting(nanobind::module_& module);

// ImageTransform, decode_image.
void BindCodec(nanobind::module_& module);

// OrderSpec, LoaderOptions, NodeAddress. After BindIndex and BindMixture.
void BindLoaderOptions(nanobind::module_& module);

// Functions that the atexit hook and threads at exit call.
void BindExit(nanobind::module_& module);

// Loader, Batch, permutation. After BindLoaderOptions.
void BindLoader(nanobind::module_& module);

// Blocks, OrderStream, resolve_order.
void BindOrder(nanobind::module_& module);

// QualityMeter, and how far labels are clustered. After BindIndex and BindOrder.
void BindQuality(nanobind::module_& module);

// StoredReader. After BindIndex.
void BindStored(nanobind::module_& module);

// MachineModel.
void BindModel(nanobind::module_& module);

// StorageProbe, DecodeProbe, FolderProbe, measure_copy. After BindIndex and BindCodec.
void BindProfile(nanobind::module_& module);

// EpochPlanner. After BindIndex and BindLoader.
void BindPlan(nanobind::module_& module);

// run_published.
void BindSimulation(nanobind::module_& module);

// WorkerPool, WorkerChannel. After BindLoader.
void BindWorkers(nanobind::module_& module);

}  // namespace headrace::bindings
