#include "node/protocol/wire_forms.h"

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace headrace {

// Structured bindings name every member of what may grow: a new one that is not put on the wire
// does not compile.

// Options.

template <typename Codec, Of<RandomResizedCrop> T>
void Fields(Codec& codec, T& crop) {
  codec(crop.scale, crop.ratio);
}

template <typename Codec, Of<ImageTransform> T>
void Fields(Codec& codec, T& image) {
  auto& [crop, shorter, flip, height, width, to_float, mean, std, first, exact, pixels] = image;
  codec(crop, shorter, flip, height, width, to_float, mean, std, first, exact, pixels);
}

template <typename Codec, Of<LoaderField> T>
void Fields(Codec& codec, T& field) {
  codec(field.name, field.image);
  codec.Enum(field.encoded, EncodedImages::kDecodableOrOtherKind);
}

template <typename Codec, Of<OrderOptions> T>
void Fields(Codec& codec, T& job) {
  auto& [samples, batch_size, world_size, rank, ranks, seed, shuffle, drop_last, epochs] = job;
  codec(samples, batch_size, world_size, rank, ranks, seed, shuffle, drop_last, epochs);
}

// A parameter as it travels: one of the two is not used.
struct WireParameter {
  std::string name;
  bool is_text = false;
  std::int64_t number = 0;
  std::string text;
};

template <typename Codec, Of<WireParameter> T>
void Fields(Codec& codec, T& parameter) {
  codec(parameter.name, parameter.is_text);
  if (parameter.is_text) {
    codec(parameter.text);
  } else {
    codec(parameter.number);
  }
}

void Fields(WirePut& codec, const OrderParameters& parameters) {
  std::vector<WireParameter> list;
  for (const auto& [name, value] : parameters) {
    WireParameter& each = list.emplace_back(WireParameter{.name = name});
    each.is_text = std::holds_alternative<std::string>(value);
    if (each.is_text) {
      each.text = std::get<std::string>(value);
    } else {
      each.number = std::get<std::int64_t>(value);
    }
  }
  codec(list);
}

void Fields(WireTake& codec, OrderParameters& parameters) {
  std::vector<WireParameter> list;
  codec.List(list, 1024);
  parameters.clear();
  for (WireParameter& each : list) {
    if (each.is_text) {
      parameters[std::move(each.name)] = std::move(each.text);
    } else {
      parameters[std::move(each.name)] = each.number;
    }
  }
}

void PutTable(WirePut& codec, const SampleTable& table) {
  codec(table != nullptr);
  if (table != nullptr) codec.LongList(*table);
}

void TakeTable(WireTake& codec, SampleTable& table) {
  bool present = false;
  codec(present);
  table = nullptr;
  if (!present) return;
  std::vector<std::uint32_t> values;
  codec.LongList(values);
  table = std::make_shared<const std::vector<std::uint32_t>>(std::move(values));
}

template <typename Codec, Of<OrderSpec> T>
void Fields(Codec& codec, T& order) {
  auto& [name, parameters, homes, costs] = order;
  codec(name, parameters);
  if constexpr (Codec::kTakes) {
    TakeTable(codec, homes);
    TakeTable(codec, costs);
  } else {
    PutTable(codec, homes);
    PutTable(codec, costs);
  }
}

template <typename Codec, Of<TierSpec> T>
void Fields(Codec& codec, T& tier) {
  codec(tier.path, tier.capacity_bytes, tier.threads);
}

template <typename Codec, Of<TiersSpec> T>
void Fields(Codec& codec, T& spec) {
  auto& [tiers, placement, horizon_epochs] = spec;
  codec.List(tiers, 1024);
  codec(placement, horizon_epochs);
}

// What was measured.

template <typename Codec, Of<Curve::Point> T>
void Fields(Codec& codec, T& point) {
  codec(point.users, point.rate);
}

void Fields(WirePut& codec, const Curve& curve) { codec.List(curve.points()); }

void Fields(WireTake& codec, Curve& curve) {
  std::vector<Curve::Point> points;
  codec.List(points, 4096);
  if (!codec.ok() || points.empty()) return;
  Result<Curve> made = Curve::Make(std::move(points));
  if (!made.ok()) return codec.Refuse(made.status().message());
  curve = std::move(made).value();
}

template <typename Codec, Of<SizedRates::Size> T>
void Fields(Codec& codec, T& size) {
  codec(size.bytes, size.rate);
}

void Fields(WirePut& codec, const SizedRates& rates) { codec.List(rates.sizes()); }

void Fields(WireTake& codec, SizedRates& rates) {
  std::vector<SizedRates::Size> sizes;
  codec.List(sizes, 4096);
  if (!codec.ok() || sizes.empty()) return;
  Result<SizedRates> made = SizedRates::Make(std::move(sizes));
  if (!made.ok()) return codec.Refuse(made.status().message());
  rates = std::move(made).value();
}

template <typename Codec, Of<StorageModel> T>
void Fields(Codec& codec, T& storage) {
  codec(storage.rate, storage.rate_max);
}

template <typename Codec, Of<TierModel> T>
void Fields(Codec& codec, T& tier) {
  codec(tier.read, tier.write, tier.threads);
}

template <typename Codec, Of<MachineModel> T>
void Fields(Codec& codec, T& model) {
  auto& [storage, readers, tiers, staging, peer_rate, decode, copy, preprocess_rate] = model;
  codec(storage, readers);
  codec.List(tiers, 1024);
  codec(staging, peer_rate, decode, copy, preprocess_rate);
}

template <typename Codec, Of<PreprocessModel::Row> T>
void RowOfModel(Codec& codec, T& row) {
  auto& [transform, bytes, threads, count, seconds] = row;
  codec(transform, bytes, threads, count, seconds);
}

void Fields(WirePut& codec, const PreprocessModel::Row& row) { RowOfModel(codec, row); }
void Fields(WireTake& codec, PreprocessModel::Row& row) { RowOfModel(codec, row); }

template <typename Codec, Of<LoaderOptions> T>
void OptionsFields(Codec& codec, T& options) {
  auto& [fields, job, order, memory_bytes, batches_ahead, threads, io, remedies, on_error, verify,
         results, shared, behind, tiers, model, schedule, preprocess] = options;
  codec.List(fields, 4096);
  codec(job, order, memory_bytes, batches_ahead, threads, io);
  codec(remedies.changed, remedies.broken_link, remedies.special);
  codec.Enum(on_error, OnError::kSubstitute);
  codec(verify, results, shared, behind, tiers, model, schedule, preprocess);
}

void Fields(WirePut& codec, const LoaderOptions& options) { OptionsFields(codec, options); }
void Fields(WireTake& codec, LoaderOptions& options) { OptionsFields(codec, options); }

// Statistics.

template <typename Codec, Of<ByteRange> T>
void Fields(Codec& codec, T& range) {
  codec(range.offset, range.size);
}

template <typename Codec, Of<Substitution> T>
void SubstitutionFields(Codec& codec, T& each) {
  codec(each.epoch, each.step, each.slot, each.wanted, each.given, each.reason);
}

void Fields(WirePut& codec, const Substitution& each) { SubstitutionFields(codec, each); }
void Fields(WireTake& codec, Substitution& each) { SubstitutionFields(codec, each); }

template <typename Codec, Of<Delivered> T>
void Fields(Codec& codec, T& delivered) {
  auto& [batches, samples, substituted, substitutions] = delivered;
  codec(batches, samples, substituted, substitutions);
}

template <typename Codec, Of<BufferPool::Stats> T>
void Fields(Codec& codec, T& pool) {
  auto& [capacity, used, used_peak, beyond, beyond_peak, beyond_count] = pool;
  codec(capacity, used, used_peak, beyond, beyond_peak, beyond_count);
}

template <typename Codec, Of<CellPool::Stats> T>
void Fields(Codec& codec, T& cells) {
  auto& [unit_bytes, capacity, used, used_peak] = cells;
  codec(unit_bytes, capacity, used, used_peak);
}

template <typename Codec, Of<TierUses> T>
void Fields(Codec& codec, T& uses) {
  codec(uses.samples, uses.bytes, uses.ahead);
}

template <typename Codec, Of<TierCounts> T>
void Fields(Codec& codec, T& counts) {
  auto& [uses, storage_uses, waits, fetched_ahead, moved, not_kept, fallbacks, planned] = counts;
  codec(uses, storage_uses, waits, fetched_ahead, moved, not_kept, fallbacks, planned);
}

template <typename Codec, Of<LaneStats> T>
void Fields(Codec& codec, T& lane) {
  auto& [batches, samples, sample_bytes, copied_bytes, decode_ns, busy_ns, stall_ns, held_up_ns,
         ready, in_work, queued, gone, batch] = lane;
  codec(batches, samples, sample_bytes, copied_bytes, decode_ns, busy_ns, stall_ns, held_up_ns,
        ready, in_work, queued, gone, batch);
}

template <typename Codec, Of<ScratchBudget::Stats> T>
void Fields(Codec& codec, T& scratch) {
  auto& [capacity, used, used_peak, large] = scratch;
  codec(capacity, used, used_peak, large);
}

template <typename Codec, Of<EngineStats> T>
void Fields(Codec& codec, T& engine) {
  auto& [reads, read_bytes, substituted, substitutions, block_reads, block_bytes, reread_bytes,
         kept_bytes, pinned_reads, pinned_bytes, in_flight, in_work, staging, batch, resident,
         pinned, scratch, tiers, lanes] = engine;
  codec(reads, read_bytes, substituted, substitutions, block_reads, block_bytes, reread_bytes,
        kept_bytes, pinned_reads, pinned_bytes, in_flight, in_work, staging, batch, resident,
        pinned, scratch, tiers, lanes);
}

template <typename Codec, Of<StoreStats> T>
void Fields(Codec& codec, T& store) {
  auto& [name, note, reads, bytes, direct, page_cache, retries, failures] = store;
  codec(name, note, reads, bytes, direct, page_cache, retries, failures);
}

template <typename Codec, Of<Budget> T>
void Fields(Codec& codec, T& budget) {
  auto& [staging, batch, batches_max, resident, pinned, scratch, results] = budget;
  codec(staging, batch, batches_max, resident, pinned, scratch, results);
}

template <typename Codec, Of<TierStats> T>
void Fields(Codec& codec, T& tier) {
  auto& [capacity, used, used_peak, entries, inherited, inserts, refused, failed, erased, read,
         written, corrupt, reads_failed, degraded, reason] = tier;
  codec(capacity, used, used_peak, entries, inherited, inserts, refused, failed, erased, read,
        written, corrupt, reads_failed, degraded, reason);
}

void Fields(WirePut& codec, const NamedTierStats& tier) { codec(tier.name, tier.stats); }
void Fields(WireTake& codec, NamedTierStats& tier) { codec(tier.name, tier.stats); }

template <typename Codec, Of<ScheduleStats> T>
void Fields(Codec& codec, T& schedule) {
  auto& [name, stragglers, corrections, planned_steps, decode_threads] = schedule;
  codec(name, stragglers, corrections, planned_steps, decode_threads);
}

template <typename Codec, Of<Percentiles> T>
void Fields(Codec& codec, T& of) {
  auto& [count, p50_ns, p95_ns, p99_ns] = of;
  codec(count, p50_ns, p95_ns, p99_ns);
}

template <typename Codec, Of<LaneFigures> T>
void Fields(Codec& codec, T& figures) {
  auto& [step, wait, spanned_ns, stall_ns] = figures;
  codec(step, wait, spanned_ns, stall_ns);
}

template <typename Codec, Of<Imbalance> T>
void Fields(Codec& codec, T& imbalance) {
  auto& [iterations, late, busy] = imbalance;
  codec(iterations, late, busy);
}

template <typename Codec, Of<LoaderStats> T>
void StatsFields(Codec& codec, T& stats) {
  auto& [lane, delivered, engine, store, budget, threads, cores, message_bytes, running_ns,
         device_read_bytes, index_bytes, awaited, tiers, schedule, figures, imbalance] = stats;
  codec(lane, delivered, engine, store, budget, threads, cores, message_bytes, running_ns,
        device_read_bytes, index_bytes, awaited, tiers, schedule, figures, imbalance);
}

void Fields(WirePut& codec, const LoaderStats& stats) { StatsFields(codec, stats); }
void Fields(WireTake& codec, LoaderStats& stats) { StatsFields(codec, stats); }

// Rows and schemas.

template <typename Codec, Of<PlannedRow> T>
void RowFields(Codec& codec, T& row) {
  auto& [slot, sample, field, source, actual, object, range] = row;
  codec(slot, sample, field, source, actual, object, range);
}

void Fields(WirePut& codec, const PlannedRow& row) { RowFields(codec, row); }
void Fields(WireTake& codec, PlannedRow& row) { RowFields(codec, row); }

template <typename Codec, Of<BatchField> T>
void SchemaFields(Codec& codec, T& field) {
  codec(field.name);
  codec.Enum(field.dtype, DType::kBool);
  codec(field.shape, field.ragged, field.row_bytes);
}

void Fields(WirePut& codec, const BatchField& field) { SchemaFields(codec, field); }
void Fields(WireTake& codec, BatchField& field) { SchemaFields(codec, field); }

template <typename Codec, Of<ExpectedInflation> T>
void InflationFields(Codec& codec, T& inflation) {
  auto& [sharing, of_blocks, correlation, of_labels, of_blocks_first, of_labels_first] = inflation;
  codec(sharing, of_blocks, correlation, of_labels, of_blocks_first, of_labels_first);
}

void Fields(WirePut& codec, const ExpectedInflation& inflation) {
  InflationFields(codec, inflation);
}
void Fields(WireTake& codec, ExpectedInflation& inflation) { InflationFields(codec, inflation); }

}  // namespace headrace
