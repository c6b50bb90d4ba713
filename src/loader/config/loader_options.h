#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/members.h"
#include "codec/image/image_codec.h"
#include "codec/image/whole_image.h"
#include "codec/sound/sound_codec.h"
#include "engine/lanes/lane_policies.h"
#include "engine/loop/engine_options.h"
#include "loader/config/tiers_spec.h"
#include "model/machine_model.h"
#include "model/preprocess_model.h"
#include "peer/peer_options.h"
#include "plan/order_factory.h"
#include "plan/order_options.h"
#include "store/store_table.h"

namespace headrace {

// Structs of the layers below.
HEADRACE_MEMBERS(RandomResizedCrop, scale, ratio)
HEADRACE_MEMBERS(ImageTransform, random_resized_crop, resize_shorter, flip_probability, height,
                 width, to_float, mean, std, channels_first, exact, pixels_max)
HEADRACE_MEMBERS(SoundTransform, frames, random_begin, channels, rate)
HEADRACE_MEMBERS(OrderOptions, sample_count, world_size, batch_size, rank, ranks, exchange, seed,
                 shuffle, drop_last, epochs, bijection_from)
HEADRACE_MEMBERS(FileRemedies, changed, broken_link, special)
HEADRACE_MEMBERS(Curve::Point, users, rate)
HEADRACE_MEMBERS(SizedRates::Size, bytes, rate)
HEADRACE_MEMBERS(StorageModel, rate, rate_max, shared)
HEADRACE_MEMBERS(LinkModel, rate, asked)
HEADRACE_MEMBERS(TierModel, read, write, threads)
HEADRACE_MEMBERS(MachineModel, storage, readers, tiers, staging, link, decode, copy,
                 preprocess_rate)
HEADRACE_MEMBERS(PreprocessModel::Row, transform, bytes, threads, count, seconds)

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
  std::string name = Orders().default_name();
  // Set by the user; defaults come from the order, the dataset and the memory. Orders that read
  // blocks have one more, "block_samples": neighbours that are read together. Default 0: see
  // MakeIndexBlocks.
  OrderParameters parameters;
  SampleTable homes;
  SampleTable costs;
  // Numbers of samples that no epoch has, ascending; null: none. See LeftOut. Other samples keep
  // their numbers; a list of samples that somebody else decided must have none of these.
  SampleTable left_out;

  [[nodiscard]] std::uint64_t left_out_count() const {
    return left_out == nullptr ? 0 : left_out->size();
  }
};
HEADRACE_MEMBERS(OrderSpec, name, parameters, homes, costs, left_out)

// What one rank sets; LoaderConfig has what follows from it for all ranks of its node.
struct LoaderOptions {
  std::vector<LoaderField> fields;  // in this order; empty: every field of the dataset, as stored
  OrderOptions job;                 // sample_count is filled in
  OrderSpec order;
  // Budget of everything; 0: as much as is useful, at most a quarter of RAM.
  std::uint64_t memory_bytes = 0;
  // Batches in work or ready, at most; std::nullopt: the memory alone limits them. What follows is
  // Budget::batches_max.
  std::optional<std::uint32_t> prefetch;
  int threads = 0;                          // decode threads; 0: one for each usable core
  std::string io = std::string(kAnyStore);  // the store that reads: see OpenStoreOptions
  FileRemedies remedies;  // the advice in error messages; depends on the dataset's format
  OnError on_error = OnError::kRaise;
  bool verify = true;           // compare samples with their checksums
  bool worker_results = false;  // whether to budget for results of Python workers
  // Batches lie in memory that other processes can map: Buffer::place().
  bool shared_batches = false;
  // By how many batches the training loop may lag behind the batches taken: workers take batches
  // ahead of it.
  std::uint32_t batches_behind = 0;
  TiersSpec tiers;
  // Measurements of the machine, tiers in the order of `tiers`: the fastest source is read.
  // std::nullopt: assume that tiers are faster than storage.
  std::optional<MachineModel> model;
  // How ranks of a node share reads and decode threads: a name of LanePolicies(), or the path of
  // a schedule that WriteSchedule() wrote for this job.
  std::string schedule = LanePolicies().default_name();
  // Where the node process listens for the other nodes of the job, which then give each other what
  // their tiers hold. std::nullopt: other nodes are not asked.
  std::optional<PeerListen> nodes;
  // Preprocessing times of earlier runs, from a machine profile. A run updates them.
  std::vector<PreprocessModel::Row> preprocess;
};
HEADRACE_MEMBERS(LoaderOptions, job, order, fields, memory_bytes, prefetch, threads, io, remedies,
                 on_error, verify, worker_results, shared_batches, batches_behind, tiers, model,
                 schedule, nodes, preprocess)

}  // namespace headrace
