// Engine: reads samples from tiers, and fills tiers.
//
// Tiers hold samples as they are stored. A sample that a tier holds is read from the tier. A sample
// that the placement assigns to a tier is inserted when it is read from storage, or prefetched
// while there is nothing else to read. If a tier fails to return or to accept a sample, storage
// serves it: tiers change where bytes come from, never which bytes. Rows wait for a sample that is
// being inserted; that insert waits only for a read, a task and the tier.

#include <algorithm>
#include <map>
#include <string>

#include "base/check.h"
#include "base/units.h"
#include "engine/engine.h"
#include "engine/engine_work.h"

namespace headrace {
namespace {

// Of the reads in flight, what nobody waits for may be one in so many.
constexpr std::uint32_t kReadsToAFill = 4;
constexpr std::size_t kFillsMax = 32;

// A disk with more inserts than this ahead of it is slower than storage: what comes then is not
// kept this time, so that no batch waits longer for it.
constexpr std::uint32_t kInsertsMax = 256;

}  // namespace

// Pins what the tiers have of a lane's part of a step; only after that the plan may evict it.
void Engine::FindInTiers(StepWork& work) {
  for (std::uint32_t slot = 0; slot < work.samples.size(); ++slot) {
    if (work.plan.deliveries[slot].block_read != kNoBlockRead) continue;
    work.samples[slot].entry = tiers_->Find(work.plan.deliveries[slot].sample);
  }
}

// Whether a row's bytes come from a tier, or will be in one soon. Adds it to `resident` if they are
// there. Else they are storage's, and kept on the way where the plan wants it.
bool Engine::PlanFromTier(StepWork& work, std::uint32_t slot,
                          std::vector<std::uint32_t>& resident) {
  SampleWork& sample = work.samples[slot];
  const SampleId id = work.batch->samples[slot];
  const bool passed_over = sample.entry && PassOver(sample.entry);
  if (sample.entry && !passed_over && TakeEntry(work, slot)) {
    CountUse(id, sample.entry);
    work.batch->sources[slot] = tiers_->NumberOf(sample.entry.tier());
    if (sample.entry.tier()->in_memory()) {
      work.MarkRead(now_ns_);
      resident.push_back(slot);
    } else {
      PlanEntryRead(work, slot);
    }
    return true;
  }
  sample.entry.Reset();
  const auto keeping = keeping_.find(Raw(id));
  if (keeping != keeping_.end()) {
    ++stats_.tiers.waits;
    keeping->second.emplace_back(&work, slot);
    return true;
  }
  ++stats_.tiers.storage_uses;
  if (passed_over) return false;
  sample.keep = tiers_->Wanted(id);
  if (sample.keep != nullptr) keeping_.try_emplace(Raw(id));
  return false;
}

// Whether storage gives the entry's bytes faster than the tier that has them.
bool Engine::PassOver(const Tier::Pin& entry) const {
  return parts_.model != nullptr && StorageIsFaster(*parts_.model, tiers_->NumberOf(entry.tier()),
                                                    static_cast<double>(entry.bytes()));
}

// Says of the row's pieces where in the entry they lie. False: it is not the sample's.
bool Engine::TakeEntry(StepWork& work, std::uint32_t slot) {
  const Tier::Pin& entry = work.samples[slot].entry;
  const SampleId id = work.batch->samples[slot];
  Piece* const pieces = work.pieces.data() + slot * stored_fields_.size();
  std::uint64_t offset = 0;
  for (std::size_t field = 0; field < stored_fields_.size(); ++field) {
    const BatchField& stored = parts_.schema[stored_fields_[field]];
    const Result<Extent> extent = parts_.index->extent(stored.index_field, id);
    if (!extent.ok()) return false;
    pieces[field] = {.offset = offset, .size = extent.value().range.size};
    offset += pieces[field].size;
  }
  if (offset != entry.bytes()) {
    entry.tier()->Erase(id);
    return false;
  }
  // Only now: storage reads straight into rows, whose room is larger than they are.
  for (std::size_t field = 0; field < stored_fields_.size(); ++field) {
    const BatchField& stored = parts_.schema[stored_fields_[field]];
    if (!stored.ragged) continue;
    std::span<std::byte>& row = work.batch->fields[stored_fields_[field]].rows[slot];
    row = row.first(std::min<std::size_t>(row.size(), stored.codec->RowBytes(pieces[field].size)));
  }
  return true;
}

void Engine::PlanEntryRead(StepWork& work, std::uint32_t slot) {
  auto unit = std::make_unique<ReadUnit>();
  unit->source = &entries_;
  unit->client = row_reads_.get();
  unit->deadline = work.deadline;
  unit->work = &work;
  unit->entry = &work.samples[slot].entry;
  unit->checked = true;
  unit->extent.range.size = unit->entry->bytes();
  for (std::uint32_t field = 0; field < stored_fields_.size(); ++field) {
    unit->pieces.push_back({slot, field});
    work.pieces[slot * stored_fields_.size() + field].read = unit.get();
  }
  unit->pieces_left = unit->pieces.size();
  work.samples[slot].pieces_left = static_cast<std::uint32_t>(unit->pieces.size());
  work.lane->to_read.push_back({unit.get()});
  work.units.push_back(std::move(unit));
}

// A row whose sample was on its way into a tier, and is there now, or not.
void Engine::PlanAgain(const Row& row, Tier& tier) {
  if (ended_) return;
  StepWork& work = *row.first;
  const std::uint32_t slot = row.second;
  work.samples[slot].entry = tier.Find(work.batch->samples[slot]);
  std::vector<std::uint32_t> resident;
  if (PlanFromTier(work, slot, resident)) return SubmitDecodes(work, resident);
  work.MarkRead(now_ns_);
  PlanSampleReads(work, slot);
}

// What a tier could not give is storage's, and kept anew.
void Engine::FallBack(StepWork& work, std::uint32_t slot) {
  ++stats_.tiers.fallbacks;
  work.batch->sources[slot] = kNoTier;
  const SampleId sample = work.batch->samples[slot];
  Tier* const tier = tiers_->Wanted(sample);
  if (tier == nullptr || !keeping_.try_emplace(Raw(sample)).second) return;
  work.samples[slot].keep = tier;
}

// A task, after the sample was verified and decoded: gives its stored bytes to the tier.
void Engine::KeepSample(DecodeTask& task, std::uint32_t slot) {
  StepWork& work = *task.work;
  SampleWork& sample = work.samples[slot];
  std::vector<std::span<const std::byte>> parts;
  for (std::size_t field = 0; field < stored_fields_.size(); ++field) {
    const Piece& piece = work.pieces[slot * stored_fields_.size() + field];
    HEADRACE_CHECK(piece.read != nullptr);
    parts.push_back(piece.read->in_row ? piece.read->data
                                       : piece.read->data.subspan(piece.offset, piece.size));
  }
  const SampleId id = work.batch->samples[slot];
  if (sample.keep->in_memory()) {
    Status kept;
    sample.keep->Insert(id, std::move(parts), [&kept](Status status) { kept = std::move(status); });
    task.kept.emplace_back(slot, std::move(kept));
    return;
  }
  if (inserts_.fetch_add(1) >= kInsertsMax) {
    inserts_.fetch_sub(1);
    task.kept.emplace_back(slot, Status(StatusCode::kResourceExhausted, "the disk is behind"));
    return;
  }
  sample.ends_left = 2;  // Its bytes have to stay until the tier has them.
  inbox_->BeginWork();
  sample.keep->Insert(id, std::move(parts), [this, row = Row(&work, slot)](Status status) {
    inserts_.fetch_sub(1);
    Event event{.kind = Event::Kind::kKept};
    event.row = row;
    if (!status.ok()) event.data = std::move(status);
    inbox_->Post(std::move(event));
  });
}

// The row's sample will not get into its tier.
void Engine::DropKeep(StepWork& work, std::uint32_t slot) {
  SampleWork& sample = work.samples[slot];
  if (sample.keep == nullptr) return;
  FinishKeep(work.batch->samples[slot], std::exchange(sample.keep, nullptr),
             Status(StatusCode::kCancelled, "it could not be read"));
}

// A sample is in its tier, or will not be: goes on with the rows that wait for it.
void Engine::FinishKeep(SampleId sample, Tier* tier, const Status& status) {
  stats_.tiers.not_kept += !status.ok();
  const auto keeping = keeping_.extract(Raw(sample));
  if (!keeping.empty()) {
    for (const Row& row : keeping.mapped()) PlanAgain(row, *tier);
  }
  if (status.ok()) tiers_->Settle(sample, *tier);
}

void Engine::CountUse(SampleId sample, const Tier::Pin& entry) {
  TierUses& uses = stats_.tiers.uses.at(tiers_->NumberOf(entry.tier()));
  ++uses.samples;
  uses.bytes += entry.bytes();
  uses.ahead += tiers_->TakeAheadMark(sample);
}

// Moves samples from tier to tier: at once, for they keep room in the tier that they leave. What
// cannot be moved now is given up.
void Engine::IssueMoves() {
  while (std::optional<TierCache::Move> move = tiers_->NextMove()) {
    if (tiers_->Wanted(move->sample) != move->to) continue;
    auto fill = std::make_unique<TierFill>();
    fill->sample = move->sample;
    fill->from = std::move(move->pin);
    fill->to = move->to;
    fill->reads.resize(1);
    fill->reads.front().source = &entries_;
    fill->reads.front().entry = &fill->from;
    const bool may = fills_.size() < kFillsMax && !keeping_.contains(Raw(move->sample));
    if (may && AcquireFill(*fill)) {
      IssueFill(std::move(fill));
    } else {
      ++stats_.tiers.not_kept;
    }
  }
}

// Fetches ahead, while there is nothing to read that somebody waits for.
void Engine::IssueAhead() {
  while (fills_.size() * kReadsToAFill < options_.reads_in_flight_max && fetcher_.has_room()) {
    std::unique_ptr<TierFill> fill = NextAhead();
    if (fill == nullptr) return;
    if (!AcquireFill(*fill)) return tiers_->PutBackAhead(fill->sample);
    IssueFill(std::move(fill));
  }
}

// Null: there is none.
std::unique_ptr<Engine::TierFill> Engine::NextAhead() {
  auto fill = std::make_unique<TierFill>();
  while (const auto ahead = tiers_->NextAhead()) {
    if (keeping_.contains(Raw(ahead->first))) continue;
    fill->sample = ahead->first;
    fill->to = ahead->second;
    std::vector<FillRead> reads(stored_fields_.size());
    Status status;
    for (std::size_t field = 0; field < reads.size() && status.ok(); ++field) {
      const Result<Extent> extent =
          parts_.index->extent(parts_.schema[stored_fields_[field]].index_field, fill->sample);
      status = extent.status();
      if (status.ok()) reads[field].extent = extent.value();
    }
    if (!status.ok()) continue;  // The row that delivers the sample reports it.
    for (FillRead& read : reads) read.source = &storage_;
    fill->reads = std::move(reads);
    return fill;
  }
  return nullptr;
}

void Engine::IssueFill(std::unique_ptr<TierFill> fill) {
  keeping_.try_emplace(Raw(fill->sample));
  fills_.push_back(std::move(fill));
  ReadFill(*fills_.back());
}

bool Engine::AcquireFill(TierFill& fill) {
  std::vector<Fetch*> fetches;
  for (FillRead& read : fill.reads) {
    read.client = fill_reads_.get();
    read.deadline = LastDeadline(sequence_);
    read.fill = &fill;
    fetches.push_back(&read);
  }
  fill.reads_left = fetches.size();
  return fetcher_.AcquireWithin(fetches, *parts_.staging);
}

void Engine::ReadFill(TierFill& fill) {
  FillRead& first = fill.reads.front();
  // The tier it goes to gives it a checksum of its own: what changed here must not get there. Out
  // of memory it is copied and checked inside the call: work for a task.
  if (first.entry != nullptr && first.entry->tier()->in_memory()) {
    fetcher_.Begin(first);
    inbox_->BeginWork();
    return parts_.executor->Submit(first.deadline, [this, fetch = static_cast<Fetch*>(&first)] {
      fetcher_.Read({&fetch, 1});
    });
  }
  for (FillRead& read : fill.reads) fetcher_.Start(read);
  fetcher_.Flush();
}

void Engine::OnFillRead(FillRead& read, Result<std::span<std::byte>> data) {
  TierFill& fill = *read.fill;
  if (data.ok()) {
    read.data = data.value();
  } else if (fill.error.ok()) {
    fill.error = data.status();
  }
  if (--fill.reads_left > 0) return;
  if (ended_ && fill.error.ok()) fill.error = Status(StatusCode::kCancelled, "the run has ended");
  if (!fill.error.ok()) return OnFilled(fill, fill.error);
  inbox_->BeginWork();
  parts_.executor->Submit(LastDeadline(sequence_), [this, &fill] { RunFill(fill); });
}

// A task: verifies what was read, and gives it to the tier.
void Engine::RunFill(TierFill& fill) {
  const auto done = [this, &fill](Status status) {
    Event event{.kind = Event::Kind::kFilled};
    event.fill = &fill;
    if (!status.ok()) event.data = std::move(status);
    inbox_->Post(std::move(event));
  };
  std::vector<std::span<const std::byte>> parts;
  for (const FillRead& read : fill.reads) {
    if (read.entry == nullptr) {
      const BatchField& field = parts_.schema[stored_fields_[parts.size()]];
      Status status = verifier_.Check(field.index_field, fill.sample, read.data);
      if (!status.ok()) return done(std::move(status));
    }
    parts.emplace_back(read.data);
  }
  fill.to->Insert(fill.sample, std::move(parts), done);
}

void Engine::OnFilled(TierFill& fill, const Status& status) {
  const auto here = std::find_if(fills_.begin(), fills_.end(),
                                 [&](const auto& each) { return each.get() == &fill; });
  HEADRACE_CHECK(here != fills_.end());
  const std::unique_ptr<TierFill> done = std::move(*here);
  fills_.erase(here);
  if (status.ok()) {
    ++(done->from ? stats_.tiers.moved : stats_.tiers.fetched_ahead);
    if (!done->from) tiers_->MarkAhead(done->sample);
  }
  FinishKeep(done->sample, done->to, status);
}

// Pins what the tiers have of a block read, before the plan may evict it.
void Engine::FindInTiers(BlockWork& block) {
  for (std::uint32_t kept = 0; kept < block.samples.size(); ++kept) {
    Tier::Pin entry = tiers_->Find(KeptSampleId(block.plan, kept));
    if (!entry || PassOver(entry)) continue;
    if (block.entries.empty()) block.entries.resize(block.samples.size());
    block.entries[kept] = std::move(entry);
  }
}

// Takes those of `pieces` that tiers have: what is in memory is copied at once, what is not is read
// sample by sample.
void Engine::MakeEntryUnits(BlockWork& block, std::vector<BlockPiece>& pieces) {
  std::vector<std::uint64_t> bytes(block.samples.size());
  for (const BlockPiece& piece : pieces) bytes[piece.kept] += piece.extent.range.size;
  std::vector<BlockPiece> in_memory;
  std::map<std::uint32_t, std::vector<BlockPiece>> on_disk;
  for (BlockPiece& piece : pieces) {
    const Tier::Pin& entry = block.entries[piece.kept];
    if (piece.pinned != nullptr || !entry || entry.bytes() != bytes[piece.kept]) continue;
    piece.entry = &entry;
    if (entry.tier()->in_memory()) {
      in_memory.push_back(piece);
    } else {
      on_disk[piece.kept].push_back(piece);
    }
    if (piece.cells_offset == 0 && piece.field == 0) CountUse(piece.sample, entry);
  }
  std::erase_if(pieces, [](const BlockPiece& piece) { return piece.entry != nullptr; });
  if (!in_memory.empty()) {
    MakeBlockUnit(block, in_memory.front().extent, in_memory)->is_pinned = true;
  }
  for (const auto& [kept, of_sample] : on_disk) {
    Extent extent = of_sample.front().extent;
    extent.range.size = block.entries[kept].bytes();
    MakeBlockUnit(block, extent, of_sample);
  }
}

// What tiers are to take of a read: samples that come with it whole.
void Engine::PlanKeeps(const BlockWork& block, BlockUnit& unit) {
  std::map<std::uint32_t, std::vector<std::size_t>> by_sample;
  for (std::size_t i = 0; i < unit.pieces.size(); ++i) {
    by_sample[unit.pieces[i].kept].push_back(i);
  }
  for (auto& [kept, positions] : by_sample) {
    const SampleId sample = unit.pieces[positions.front()].sample;
    // Once a sample, in however many reads it comes.
    stats_.tiers.storage_uses +=
        std::any_of(positions.begin(), positions.end(),
                    [&](std::size_t i) { return unit.pieces[i].field == 0; });
    Tier* const tier = tiers_->Wanted(sample);
    if (tier == nullptr || (!block.entries.empty() && block.entries[kept])) continue;
    if (positions.size() != stored_fields_.size()) {
      ++stats_.tiers.not_kept;  // Its fields come in several reads.
      continue;
    }
    std::sort(positions.begin(), positions.end(), [&](std::size_t a, std::size_t b) {
      return unit.pieces[a].field < unit.pieces[b].field;
    });
    unit.keeps.push_back({.sample = sample, .tier = tier, .pieces = std::move(positions)});
  }
}

// A task, after CopyToCells(): gives the tiers what they are to take.
void Engine::CopyToTiers(BlockUnit& unit) {
  if (stop_.stop_requested()) return;
  const auto failed = [&unit](std::size_t piece) {
    return std::any_of(unit.failures.begin(), unit.failures.end(),
                       [piece](const auto& failure) { return failure.first == piece; });
  };
  std::erase_if(unit.keeps, [&](const BlockKeep& keep) {
    return std::any_of(keep.pieces.begin(), keep.pieces.end(), failed);
  });
  const auto on_disk = static_cast<std::uint64_t>(
      std::count_if(unit.keeps.begin(), unit.keeps.end(),
                    [](const BlockKeep& keep) { return !keep.tier->in_memory(); }));
  unit.ends_left += on_disk;  // All before the first can come back to the machine.
  inbox_->BeginWork(on_disk);
  for (BlockKeep& keep : unit.keeps) {
    std::vector<std::span<const std::byte>> parts;
    for (const std::size_t i : keep.pieces) {
      const ByteRange range = unit.pieces[i].extent.range;
      parts.push_back(unit.data.subspan(range.offset - unit.extent.range.offset, range.size));
    }
    keep.tier->Insert(keep.sample, std::move(parts), [this, &unit, &keep](Status status) {
      keep.status = std::move(status);
      if (!keep.tier->in_memory())
        inbox_->Post({.kind = Event::Kind::kCopied, .block_unit = &unit});
    });
  }
}

void Engine::FinishKeeps(BlockUnit& unit) {
  for (const BlockKeep& keep : unit.keeps) FinishKeep(keep.sample, keep.tier, keep.status);
  unit.keeps.clear();
}

// The pieces of a unit that a tier has and could not give come from storage, each alone.
void Engine::RetryFromStorage(BlockUnit& unit) {
  std::vector<BlockPiece> left;
  auto failure = unit.failures.begin();
  for (std::size_t i = 0; i < unit.pieces.size(); ++i) {
    BlockPiece piece = unit.pieces[i];
    if (failure == unit.failures.end() || failure->first != i) {
      left.push_back(piece);
      continue;
    }
    ++failure;
    stats_.tiers.fallbacks += piece.field == 0;
    piece.entry = nullptr;
    block_units_.push_front(MakeBlockUnit(*unit.block, piece.extent, {&piece, 1}));
  }
  unit.pieces = std::move(left);
  unit.failures.clear();
}

}  // namespace headrace
