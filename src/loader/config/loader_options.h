#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codec/image/image_codec.h"
#include "codec/image/whole_image.h"
#include "engine/engine_options.h"
#include "engine/lanes/lane_policies.h"
#include "loader/config/tiers_spec.h"
#include "model/machine_model.h"
#include "model/preprocess_model.h"
#include "plan/order_factory.h"
#include "plan/order_options.h"
#include "store/store_table.h"

namespace headrace {

// A field of the dataset as it is to appear in batches.
struct LoaderField {
  std::string name;
  std::optional<ImageTransform> image;  // for images; without it, their encoded bytes
  // The check of encoded images: images that do not decode fail with DataLoss.
  EncodedImages encoded = EncodedImages::kUnchecked;
};

// Which order, and what fixes it beside the job.
struct OrderSpec {
  std::string name = Orders().default_name();
  // Given; defaults come from the order, the dataset, the memory. Orders that read blocks have one
  // more here, "block_samples": neighbours read together; 0, the default: see MakeIndexBlocks.
  OrderParameters parameters;
  SampleTable homes;
  SampleTable costs;
};

struct LoaderOptions {
  std::vector<LoaderField> fields;  // in this order; empty: every field of the dataset, as stored
  OrderOptions job;                 // sample_count is filled in
  OrderSpec order;
  std::uint64_t memory_bytes =
      0;  // budget of everything; 0: what is useful, a quarter of RAM at most
  std::uint32_t batches_ahead = 0;          // 0: what the memory allows
  int threads = 0;                          // that decode; 0: one a usable core
  std::string io = std::string(kAnyStore);  // which store reads: see OpenStoreOptions
  FileRemedies remedies;                    // what errors advise: the dataset's format knows
  OnError on_error = OnError::kRaise;
  bool verify = true;           // samples against their checksums
  bool worker_results = false;  // whether to budget for results of Python workers
  bool shared_batches = false;  // in memory that other processes can map: Buffer::place()
  // How many batches the training loop may lag behind the batches taken: workers take ahead.
  std::uint32_t batches_behind = 0;
  TiersSpec tiers;
  // What was measured of the machine, tiers in the order of `tiers`: reads come from what is
  // fastest. Nothing: tiers are faster than storage.
  std::optional<MachineModel> model;
  // How ranks of a node share reads and decode threads: a name of LanePolicies(), or the path of
  // a schedule that WriteSchedule() wrote for this job.
  std::string schedule = LanePolicies().default_name();
  // What preprocessing was seen to take in runs before, from a machine profile; it is learned anew.
  std::vector<PreprocessModel::Row> preprocess;
};

}  // namespace headrace
