#pragma once

// The options of a loader. Each has a default; Loader::Open() checks them all, and its error names
// the option that is wrong. docs/loader.md explains them under the names that Python has. Plain
// structs.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/machine_model.h"
#include "headrace/members.h"
#include "headrace/order_options.h"
#include "headrace/part_options.h"

namespace headrace {

// What a loader uses where its options name nothing else: the first order, placement, way to ask
// other nodes and lane policy of the library's tables. May be called from any thread.
std::string DefaultOrder();
std::string DefaultPlacement();
std::string DefaultAskPolicy();
std::string DefaultLanePolicy();

// A field of the dataset, and its form in batches.
struct LoaderField {
  std::string name;
  std::optional<ImageTransform> image;  // for images; std::nullopt: batches have the encoded bytes
  // Whether to check encoded images: those that do not decode fail with DataLoss.
  EncodedImages encoded = EncodedImages::kUnchecked;
  // For bytes that are encoded sounds; std::nullopt: batches have the bytes.
  std::optional<SoundTransform> sound = std::nullopt;
};
HEADRACE_MEMBERS(LoaderField, name, image, encoded, sound)

// The order, and its inputs besides the job.
struct OrderSpec {
  std::string name = DefaultOrder();
  // Set by the user; defaults come from the order, the dataset and the memory. Orders that read
  // blocks have one more, "block_samples": neighbours that are read together. Default 0: the blocks
  // of the dataset or, if it has none, of about 1 MiB, at most 64 samples.
  OrderParameters parameters;
  SampleTable homes;
  SampleTable costs;
  // Numbers of samples that no epoch has, ascending; null: none. Other samples keep their numbers;
  // a list for StartList() must have none of these.
  SampleTable left_out;
  // The dataset's samples come in proportion to weights; null: each once an epoch. Only of orders
  // that take mixtures.
  std::shared_ptr<const MixtureOptions> mixture;

  [[nodiscard]] std::uint64_t left_out_count() const {
    return left_out == nullptr ? 0 : left_out->size();
  }
};
HEADRACE_MEMBERS(OrderSpec, name, parameters, homes, costs, left_out, mixture)

// A tier that a user requests.
struct TierSpec {
  std::string path;  // of a folder; empty: memory
  std::uint64_t capacity_bytes = 0;
  int threads = 4;  // threads that read and write a folder
};
HEADRACE_MEMBERS(TierSpec, path, capacity_bytes, threads)

// The tiers of a node and the plan for them.
struct TiersSpec {
  std::vector<TierSpec> tiers;  // fastest first; empty: no tiers
  std::string placement = DefaultPlacement();
  std::uint64_t horizon_epochs = 16;     // how many epochs the plan looks ahead
  std::string ask = DefaultAskPolicy();  // how this node decides which other one it asks
  // Whether batches wait for a disk that is slower than storage. If not, it keeps fewer samples.
  bool await_inserts = false;
  // By sample the bytes of its image in a tier that holds images decoded: 8, and 3 for each pixel.
  // 0: this image stays as stored. Null: tiers hold what is stored.
  SampleTable decoded_images;
  std::string decoded_field;  // of these images; with decoded_images

  // Total capacity of the tiers in memory.
  [[nodiscard]] std::uint64_t memory_bytes() const {
    std::uint64_t bytes = 0;
    for (const TierSpec& tier : tiers) {
      if (tier.path.empty()) bytes += tier.capacity_bytes;
    }
    return bytes;
  }
};
HEADRACE_MEMBERS(TiersSpec, tiers, placement, horizon_epochs, ask, await_inserts, decoded_images,
                 decoded_field)

// What one rank sets. The ranks of one node process set the same, but for `job.rank`.
struct LoaderOptions {
  std::vector<LoaderField> fields;  // in this order; empty: every field of the dataset, as stored
  // sample_count, exchange and bijection_from are filled in; a Loader sets ranks = 1.
  OrderOptions job;
  OrderSpec order;
  // Budget of everything; 0: as much as is useful, at most a quarter of RAM.
  std::uint64_t memory_bytes = 0;
  // Batches in work or ready, at most; std::nullopt: at most 64, as memory allows. What follows is
  // Budget::batches_max in the statistics.
  std::optional<std::uint32_t> prefetch;
  int threads = 0;                          // decode threads; 0: one for each usable core
  std::string io = std::string(kAnyStore);  // the store that reads, by its name
  FileRemedies remedies;  // the advice in error messages; depends on the dataset's format
  OnError on_error = OnError::kRaise;
  bool verify = true;           // compare samples with their checksums
  bool worker_results = false;  // whether to budget for results of Python workers
  // Batches lie in memory that other processes can map.
  bool shared_batches = false;
  // By how many batches the training loop may lag behind the batches taken: workers take batches
  // ahead of it.
  std::uint32_t batches_behind = 0;
  TiersSpec tiers;
  // Measurements of the machine, tiers in the order of `tiers`: the fastest source is read.
  // std::nullopt: assume that tiers are faster than storage.
  std::optional<MachineModel> model;
  // How ranks of a node share reads and decode threads: the name of a policy, or the path of a
  // schedule that was written for this job.
  std::string schedule = DefaultLanePolicy();
  // Where the node process listens for the other nodes of the job, which then give each other what
  // their tiers hold. std::nullopt: other nodes are not asked, the only choice of a Loader.
  std::optional<PeerListen> nodes;
  // Preprocessing times of earlier runs, from a machine profile. A run updates them.
  std::vector<PreprocessRow> preprocess;
};
HEADRACE_MEMBERS(LoaderOptions, fields, job, order, memory_bytes, prefetch, threads, io, remedies,
                 on_error, verify, worker_results, shared_batches, batches_behind, tiers, model,
                 schedule, nodes, preprocess)

}  // namespace headrace
