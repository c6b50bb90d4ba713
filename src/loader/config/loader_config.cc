#include "loader/config/loader_config.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "base/coding/decompress.h"
#include "base/format/errors.h"
#include "base/memory/buffer_pool.h"
#include "base/units.h"
#include "codec/codec.h"
#include "engine/batch/row_rooms.h"
#include "engine/decode/field_decoding.h"
#include "engine/lanes/lane_policies.h"
#include "headrace/index.h"
#include "loader/config/budget.h"
#include "loader/config/resolved_order.h"
#include "loader/config/schema.h"
#include "loader/machine/machine.h"
#include "store/object_memory.h"
#include "store/store_table.h"

namespace headrace {
namespace {

constexpr int kThreadsMax = 1024;

// Least scratch budget of a rank: enough for images of moderate size.
constexpr std::uint64_t kScratchBytesLeast = 512 * kKiB;
// Largest useful scratch budget, in decodes of the largest sample: half of it is reserved for
// threads.
constexpr std::uint64_t kScratchOfLargest = 2;

// Of the scratch budget, a quarter is for decodes of all threads at once that do not ask: see
// ScratchBudget.
constexpr std::uint64_t kScratchOfThreads = 4;

// Largest useful scratch budget of one rank; 0 if it decodes nothing.
std::uint64_t ScratchBytesMax(const Index& index, const std::vector<BatchField>& schema,
                              std::uint64_t threads) {
  std::uint64_t bytes = 0;
  for (const BatchField& field : schema) {
    if (field.is_inline()) continue;
    const FieldInfo& info = index.fields()[field.index_field];
    bytes = std::max(bytes, kScratchOfLargest * DecodeScratchBytesMax(field, info));
    // Small samples are to be decompressed without asking.
    bytes = std::max(bytes, kScratchOfThreads * threads * DecompressBytesMax(field.coding));
  }
  return bytes;
}

// The largest block read that staging memory holds two of: one is copied while the next arrives.
std::uint64_t BlockReadBytes(std::uint64_t staging_bytes) {
  const std::uint64_t half = std::max<std::uint64_t>(staging_bytes / 2, 1);
  // Rounded down to what a buffer is charged: see BufferPool.
  const std::uint64_t buffer = half - half % std::max(kBufferAlignment, std::bit_floor(half) / 8);
  return buffer - std::min<std::uint64_t>(buffer, kWideningMax);
}

Status CheckThreads(int threads) {
  if (threads >= 0 && threads <= kThreadsMax) return Status();
  return InvalidArgument("threads: got {}, must be in [0, {}]", threads, kThreadsMax);
}

Status CheckTiers(const LoaderOptions& options) {
  if (options.tiers.tiers.empty() || ReadsStorage(options.io)) return Status();
  return InvalidArgument(
      "tiers with EngineOptions(io='{}'): this store reads nothing that tiers could keep; leave "
      "one of them out",
      options.io);
}

// Of tiers that hold images decoded; Python's messages say which of these it is.
Status CheckDecoded(const NodeOptions& options, const std::vector<BatchField>& schema,
                    bool reads_blocks) {
  const TiersSpec& tiers = options.tiers;
  if (tiers.decoded_images == nullptr || tiers.tiers.empty()) return Status();
  const auto decodes = [](const BatchField& field) {
    return !field.is_inline() && field.codec->decoded_form() != nullptr;
  };
  const auto image = std::ranges::find_if(schema, decodes);
  const bool known = std::ranges::count_if(schema, decodes) == 1 &&
                     image->name == tiers.decoded_field && !image->is_compressed();
  const bool in_memory = tiers.tiers.size() == 1 && tiers.tiers.front().path.empty();
  if (known && in_memory && !reads_blocks && !options.nodes.has_value()) return Status();
  return InvalidArgument(
      "tiers of decoded images: must be one tier in memory, of which other nodes ask nothing, for "
      "the one field '{}' that is decoded, in an order that reads no blocks; leave form='decoded' "
      "out",
      tiers.decoded_field);
}

Status CheckLeftOut(const Index& index, const LoaderOptions& options) {
  const std::uint64_t count = options.order.left_out_count();
  if (count == 0) return Status();
  if (count >= index.sample_count()) {
    return InvalidArgument("leaving out {}: the dataset has {}, so that none is left",
                           Counted(count, "sample"), index.sample_count());
  }
  if (options.tiers.tiers.empty()) return Status();
  return InvalidArgument(
      "tiers of a dataset that leaves out {}: tiers keep blocks with all their samples; leave "
      "tiers= out, or open the dataset without skip= and give the loader on_error='substitute'",
      Counted(count, "sample"));
}

// Whether the ranks of this loader are all of a node that other nodes of the job can ask.
bool HasPeers(const NodeOptions& options) {
  return options.nodes.has_value() && options.job.world_size > options.job.ranks;
}

// Of an order whose nodes exchange samples.
Status CheckExchange(const NodeOptions& options) {
  if (!options.job.exchange) return Status();
  if (!options.tiers.tiers.empty()) {
    return InvalidArgument(
        "tiers with order '{}' on {} nodes: each node reads its own blocks and sends samples to "
        "the others, which tiers take no part in; leave tiers= out or, on storage that all nodes "
        "share, use order 'exact', 'batch', or 'epoch' without homes",
        options.order.name, options.job.nodes());
  }
  if (options.on_error == OnError::kSubstitute) {
    return InvalidArgument(
        "on_error='substitute' with order '{}' on {} nodes: the sample that stands in may lie on "
        "another node, which does not send it; use on_error='raise'",
        options.order.name, options.job.nodes());
  }
  return Status();
}

// The memory that the store takes for the objects that it decodes as a whole.
Result<DecodedMemory> DecodedMemoryOf(const Index& index, std::string_view io) {
  DecodedMemory memory;
  const StoreFactory* store = FindStore(io, {.scheme = std::string(SchemeOf(index.root()))});
  if (store == nullptr || !store->MemoryOf({}, 0).has_value()) return memory;
  for (std::uint64_t i = 0; i < index.object_count(); ++i) {
    HEADRACE_ASSIGN_OR_RETURN(const ObjectInfo object, index.object(ObjectId{i}));
    memory.Add(store->MemoryOf(object.name, object.size).value_or(ObjectMemory{}));
  }
  return memory;
}

Result<std::vector<BatchField>> SchemaOf(const Index& index, const LoaderOptions& options) {
  HEADRACE_ASSIGN_OR_RETURN(std::vector<BatchField> schema, MakeSchema(index, options.fields));
  // Memory of several processes has small pages, but where root lets it have others.
  for (BatchField& field : schema) field.may_read_in_place = !options.shared_batches;
  return schema;
}

Result<NodeOptions> ForAllRanks(const Index& index, const LoaderOptions& options) {
  HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t epoch_samples, EpochSamples(index, options.order));
  NodeOptions node{.fields = options.fields,
                   .job = options.job,
                   .order = options.order,
                   .threads = UsableCores(),
                   .io = options.io,
                   .remedies = options.remedies,
                   .on_error = options.on_error,
                   .verify = options.verify,
                   .shared_batches = options.shared_batches,
                   .tiers = options.tiers,
                   .model = options.model,
                   .schedule = options.schedule,
                   .nodes = options.nodes,
                   .preprocess = options.preprocess};
  const std::uint32_t ranks = options.job.ranks;
  node.job.sample_count = epoch_samples;
  if (options.threads != 0) {
    node.threads = static_cast<int>(std::min<std::uint64_t>(
        std::uint64_t{ranks} * static_cast<std::uint64_t>(options.threads), kThreadsMax));
  }
  for (TierSpec& tier : node.tiers.tiers) tier.capacity_bytes *= ranks;
  return node;
}

// A name that is no policy's is that of a schedule file, which lets them read. Without one a single
// rank has all there is.
bool IdleThreadsRead(const NodeOptions& options) {
  const LanePolicyFactory* const policies = LanePolicies().Find(options.schedule);
  return policies == nullptr || (options.job.ranks > 1 && policies->idle_threads_read());
}

// Of an average read: of a sample, or of a block where the order reads those.
std::uint64_t ReadBytes(const ResolvedOrder& order, std::uint64_t sample_bytes,
                        const StoreNeeds& store) {
  if (!order.reads_blocks()) return sample_bytes;
  return std::max(sample_bytes, std::min(order.mean_block_bytes(), store.block_read_bytes_max));
}

std::uint32_t ReadsInFlight(const StoreNeeds& store, std::uint64_t read_bytes, std::uint32_t least,
                            std::uint32_t most) {
  const std::uint64_t reads = store.bytes_in_flight / std::max<std::uint64_t>(read_bytes, 1);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(reads, least, most));
}

}  // namespace

std::uint32_t SampleReadsInFlight(const StoreNeeds& store, std::uint64_t read_bytes) {
  return ReadsInFlight(store, read_bytes, store.sample_reads_min, store.sample_reads_max);
}

std::uint32_t BlockReadsInFlight(const StoreNeeds& store, std::uint64_t read_bytes) {
  return ReadsInFlight(store, read_bytes, store.block_reads_min, store.block_reads_max);
}

Result<LoaderConfig> ResolveConfig(const std::shared_ptr<const Index>& index,
                                   const LoaderOptions& options) {
  HEADRACE_RETURN_IF_ERROR(CheckLeftOut(*index, options));
  HEADRACE_ASSIGN_OR_RETURN(NodeOptions node, ForAllRanks(*index, options));
  HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t steps, StepsPerEpoch(node.job));
  HEADRACE_ASSIGN_OR_RETURN(std::vector<BatchField> schema, SchemaOf(*index, options));
  HEADRACE_RETURN_IF_ERROR(CheckThreads(options.threads));
  HEADRACE_RETURN_IF_ERROR(CheckStore(options.io, SchemeOf(index->root())));
  const StoreNeeds store = NeedsOf(options.io, SchemeOf(index->root()));
  HEADRACE_RETURN_IF_ERROR(CheckTiers(options));
  const std::uint32_t ranks = node.job.ranks;
  if (node.model.has_value()) HEADRACE_RETURN_IF_ERROR(CheckModel(*node.model));
  HEADRACE_ASSIGN_OR_RETURN(ResolvedOrder made,
                            ResolvedOrder::Make(index, node.job, node.order, HasPeers(node),
                                                node.model.has_value() ? &*node.model : nullptr));
  const auto order = std::make_shared<ResolvedOrder>(std::move(made));
  node.job.exchange = order->job().exchange;
  HEADRACE_RETURN_IF_ERROR(CheckExchange(node));
  HEADRACE_RETURN_IF_ERROR(CheckDecoded(node, schema, order->reads_blocks()));
  if (std::ranges::all_of(schema, &BatchField::is_inline)) {
    node.tiers.tiers.clear();  // All is in the index: there is nothing to keep.
  }
  HEADRACE_ASSIGN_OR_RETURN(const DecodedMemory decoded, DecodedMemoryOf(*index, node.io));
  const SampleSizes sizes = LookAtSizes(*index, schema);
  const std::uint64_t rows = std::min(node.job.batch_size, node.job.sample_count);
  const std::uint64_t batch_bytes = FixedBatchBytes(schema, rows) + sizes.row_bytes_mean * rows;
  const std::uint64_t read_bytes = ReadBytes(*order, sizes.read_bytes_mean, store);
  const std::uint64_t read_bytes_max = std::max(sizes.read_bytes_max, read_bytes);
  const std::uint64_t scratch_bytes_max =
      ScratchBytesMax(*index, schema, static_cast<std::uint64_t>(node.threads) / ranks + 1);
  const std::uint64_t stand_in_bytes =
      node.on_error == OnError::kSubstitute ? sizes.stand_in_bytes_max : 0;
  const auto needs_of = [&](std::uint32_t count) {
    return BudgetNeeds{
        .memory_bytes = options.memory_bytes * count,
        .memory_limit_bytes = MemoryLimitBytes(),
        .batch_bytes = BufferPool::ChargedBytes(batch_bytes) * count,
        .batch_size = rows * count,
        .read_bytes = BufferPool::ChargedBytes(read_bytes + kWideningMax),
        .read_bytes_max = BufferPool::ChargedBytes(read_bytes_max + kWideningMax),
        .prefetch = options.prefetch,
        .reads_in_flight = order->reads_blocks() ? BlockReadsInFlight(store, read_bytes)
                                                 : SampleReadsInFlight(store, read_bytes),
        .stand_in_bytes = stand_in_bytes * count,
        .tier_bytes = node.tiers.memory_bytes() / ranks * count,
        .scratch_bytes_least = scratch_bytes_max == 0 ? 0 : kScratchBytesLeast * count,
        .scratch_bytes_max = scratch_bytes_max * count,
        .results = options.worker_results,
        .decoded_bytes_least = decoded.least(),
        .decoded_bytes_useful = decoded.useful(),
        .request_bytes_least = store.request_memory_least,
        .request_bytes_useful = store.request_memory_max};
  };
  HEADRACE_RETURN_IF_ERROR(order->Settle(ResidentRoom(needs_of(1), node.job.world_size)));
  BudgetNeeds needs = needs_of(ranks);
  order->AddNeeds(needs);
  if (!node.tiers.tiers.empty()) needs.pinned_bytes = 0;  // A tier does that, and more.
  HEADRACE_ASSIGN_OR_RETURN(Budget budget, MakeBudget(needs));
  const std::uint64_t parcel_bytes = node.job.exchange ? ParcelBytes(budget.staging_bytes) : 0;
  budget.staging_bytes -= 2 * parcel_bytes;
  return LoaderConfig{.options = std::move(node),
                      .store = store,
                      .schema = std::move(schema),
                      .steps_per_epoch = steps,
                      .order = order,
                      .budget = budget,
                      .parcel_bytes = parcel_bytes,
                      .reads_in_flight = needs.reads_in_flight,
                      .scratch_share = MemoryPerScratch(needs, budget) / ranks,
                      .decoded = decoded.Divide(budget.decoded_bytes),
                      .requests = DivideRequests(store, budget.request_bytes)};
}

std::uint64_t LoaderConfig::memory_bytes() const {
  return budget.staging_bytes + 2 * parcel_bytes + budget.batch_bytes + budget.resident_bytes +
         budget.pinned_bytes + budget.scratch_bytes + budget.results_bytes + budget.decoded_bytes +
         budget.request_bytes + options.tiers.memory_bytes();
}

EngineOptions LoaderConfig::engine_options() const {
  const bool reads_storage = ReadsStorage(options.io);
  EngineOptions engine;
  engine.batches_max = budget.batches_max;
  engine.reads_in_flight_max = std::max(engine.reads_in_flight_max, reads_in_flight);
  if (IdleThreadsRead(options)) {
    engine.reads_in_flight_max =
        std::max(engine.reads_in_flight_max,
                 EngineOptions().reads_in_flight_max + static_cast<std::uint32_t>(options.threads));
  }
  engine.coalesce_gap_bytes = store.row_gap_bytes;
  engine.coalesce_bytes_max = std::min(store.row_read_bytes_max, budget.staging_bytes / 4);
  engine.block_gap_bytes = store.block_gap_bytes;
  engine.block_read_bytes_max =
      std::min(store.block_read_bytes_max, BlockReadBytes(budget.staging_bytes));
  engine.read_growth_max = store.read_growth_max;
  if (!reads_storage) engine.coalesce_bytes_max = 0;  // Each made-up read holds one sample.
  if (!reads_storage) engine.block_read_bytes_max = 0;
  engine.on_error = options.on_error;
  engine.verify = options.verify && reads_storage;
  engine.seed = options.job.seed;
  if (options.tiers.await_inserts) {
    engine.tier_inserts_max = std::numeric_limits<std::uint32_t>::max();
  }
  engine.left_out = order->left_out();
  return engine;
}

}  // namespace headrace
