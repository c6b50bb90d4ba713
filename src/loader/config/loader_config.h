#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/loop/engine_options.h"
#include "headrace/batch.h"
#include "headrace/loader_options.h"
#include "headrace/loader_stats.h"
#include "headrace/status.h"
#include "store/byte_store.h"
#include "store/object_memory.h"

namespace headrace {

class Index;
class ResolvedOrder;

// Reads in flight of samples of this mean size, or of blocks: more, the smaller they are.
std::uint32_t SampleReadsInFlight(const StoreNeeds& store, std::uint64_t read_bytes);
std::uint32_t BlockReadsInFlight(const StoreNeeds& store, std::uint64_t read_bytes);

// The options of all ranks of a node, which one engine serves. None is left to be chosen.
struct NodeOptions {
  std::vector<LoaderField> fields;
  OrderOptions job;
  OrderSpec order;
  int threads = 1;  // that decode
  std::string io;
  FileRemedies remedies;
  OnError on_error = OnError::kRaise;
  bool verify = true;
  bool shared_batches = false;
  TiersSpec tiers;  // none if the index has all that batches hold
  std::optional<MachineModel> model;
  std::string schedule;
  std::optional<PeerListen> nodes;
  std::vector<PreprocessRow> preprocess;
};

// Options resolved for one dataset and one machine: every default filled in, the memory divided.
struct LoaderConfig {
  NodeOptions options;
  StoreNeeds store;
  std::vector<BatchField> schema;
  std::uint64_t steps_per_epoch = 0;
  std::shared_ptr<const ResolvedOrder> order;
  Budget budget;
  // For parcels that other nodes send, and as many for those on their way to them, beside `budget`.
  std::uint64_t parcel_bytes = 0;
  std::uint32_t reads_in_flight = 0;  // that memory is divided for; the engine may have more
  double scratch_share = 1;           // bytes of memory= that give one byte of budget.scratch_bytes
  DecodedLimits decoded;              // for the store, of budget.decoded_bytes
  RequestLimits requests;             // for the store, of budget.request_bytes

  // Bytes of the machine's memory that a session of this configuration takes.
  [[nodiscard]] std::uint64_t memory_bytes() const;
  [[nodiscard]] EngineOptions engine_options() const;
};

// `options`: of the node's first rank, `options.job.rank`; others differ in their rank alone. Opens
// no file and starts no thread: files that the options name need not exist.
//
// Errors: InvalidArgument  invalid options, which the message names; a budget below their needs
Result<LoaderConfig> ResolveConfig(const std::shared_ptr<const Index>& index,
                                   const LoaderOptions& options);

}  // namespace headrace
