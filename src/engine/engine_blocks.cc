// Engine: block reads, from the plan to cells, and their samples, from cells to rows.
//
// Block reads are issued in the order of their numbers, each once there are cells for all samples
// that it keeps. The samples wait in these cells for their deliveries. There is no deadlock:
//   - Staging memory waits only for reads and tasks. A block read has its cells before it takes
//     staging memory, and each part of it gives its staging memory back independently.
//   - Cells that the plan delivers or releases before a block read become free without that read:
//     their steps are admitted by then, their reads were issued, and decoding waits for nothing.
//     The other cells hold what the plan keeps resident, and the plan leaves room for the block
//     read beside that.

#include <algorithm>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/units.h"
#include "engine/engine.h"
#include "engine/engine_work.h"
#include "fetch/coalesce.h"

namespace headrace {

// Takes what a step has to say of block reads. A first step may bring thousands: what one needs
// beside its record is made when its turn comes.
void Engine::QueueBlockReads(Step& step) {
  for (BlockRead& read : step.reads) {
    HEADRACE_CHECK(parts_.residents != nullptr);
    HEADRACE_CHECK(read.number == blocks_begin_ + blocks_.size());
    auto block = std::make_unique<BlockWork>();
    block->deadline = FirstDeadline(sequence_);
    block->samples.resize(read.kept.empty() ? read.count : read.kept.size());
    block->samples_left = block->samples.size();
    block->plan = std::move(read);
    if (tiers_ != nullptr) FindInTiers(*block);
    blocks_.push_back(std::move(block));
  }
  for (const Release& release : step.releases) ReleaseKept(release);
}

std::pair<Engine::BlockWork*, std::uint32_t> Engine::FindKept(std::uint64_t number,
                                                              SampleId sample) {
  HEADRACE_CHECK(number >= blocks_begin_ && number - blocks_begin_ < blocks_.size());
  BlockWork* const block = blocks_[number - blocks_begin_].get();
  HEADRACE_CHECK(block != nullptr);  // Else the plan names a sample that it has named before.
  const BlockRead& read = block->plan;
  HEADRACE_CHECK(sample >= read.first && Raw(sample) - Raw(read.first) < read.count);
  const auto position = static_cast<std::uint32_t>(Raw(sample) - Raw(read.first));
  if (read.kept.empty()) return {block, position};
  const auto found = std::lower_bound(read.kept.begin(), read.kept.end(), position);
  HEADRACE_CHECK(found != read.kept.end() && *found == position);
  return {block, static_cast<std::uint32_t>(found - read.kept.begin())};
}

// Null: it comes with none, or all of that is done.
const Engine::BlockWork* Engine::FindBlock(const Delivery& delivery) const {
  const std::uint64_t place = delivery.block_read - blocks_begin_;
  return place < blocks_.size() ? blocks_[place].get() : nullptr;
}

// The records of a step's samples lie anywhere in memory: fetched all at once, they cost a tenth.
void Engine::PrefetchKept(const Step& step) const {
  for (const Delivery& delivery : step.deliveries) __builtin_prefetch(FindBlock(delivery));
  for (const Delivery& delivery : step.deliveries) {
    const BlockWork* const block = FindBlock(delivery);
    if (block == nullptr || !block->plan.kept.empty()) continue;
    const std::uint64_t position = Raw(delivery.sample) - Raw(block->plan.first);
    __builtin_prefetch(block->samples.data() + std::min(position, block->samples.size()), 1);
  }
}

void Engine::ReleaseKept(const Release& release) {
  const auto [block, kept] = FindKept(release.block_read, release.sample);
  KeptSample& sample = block->samples[kept];
  HEADRACE_CHECK(sample.waiter == 0 && sample.state != KeptSample::State::kUnwanted &&
                 sample.state != KeptSample::State::kGone);
  if (sample.state == KeptSample::State::kExpected && block->planned) {
    sample.state = KeptSample::State::kUnwanted;  // Its bytes are on their way to its cells.
    return;
  }
  Forget(*block, sample);
  ForgetBlock(*block);
}

void Engine::Forget(BlockWork& block, KeptSample& sample) {
  if (sample.cells != kNoCells) {
    parts_.residents->Release(std::exchange(sample.cells, kNoCells));
  }
  sample.state = KeptSample::State::kGone;
  --block.samples_left;
}

void Engine::ForgetBlock(const BlockWork& block) {
  const std::uint64_t number = block.plan.number;
  if (block.samples_left > 0 || block.units_left > 0 || number >= next_block_) return;
  blocks_[number - blocks_begin_].reset();
  for (; !blocks_.empty() && blocks_.front() == nullptr; ++blocks_begin_) blocks_.pop_front();
}

// Whether all block reads numbered below `number` are done, with success or not.
bool Engine::HaveCome(std::uint64_t number) {
  for (; come_ < number; ++come_) {
    if (come_ >= next_block_) return false;
    if (come_ < blocks_begin_) continue;
    const BlockWork* const block = blocks_[come_ - blocks_begin_].get();
    if (block != nullptr && block->units_left > 0) return false;
  }
  return true;
}

// True: the bytes of the row are there. False: they will come later, or it failed.
bool Engine::AwaitKept(StepWork& work, std::uint32_t slot) {
  const Delivery& delivery = work.plan.deliveries[slot];
  const auto [block, kept] = FindKept(delivery.block_read, delivery.sample);
  KeptSample& sample = block->samples[kept];
  if (sample.state == KeptSample::State::kExpected) {
    HEADRACE_CHECK(sample.waiter == 0);
    block->waiters.emplace_back(&work, slot);
    sample.waiter = static_cast<std::uint32_t>(block->waiters.size());
    return false;
  }
  const bool resident = TakeKept(*block, kept, work, slot);
  ForgetBlock(*block);
  return resident;
}

// Makes the cells of a sample the row's, or fails the row.
bool Engine::TakeKept(BlockWork& block, std::uint32_t kept, StepWork& work, std::uint32_t slot) {
  KeptSample& sample = block.samples[kept];
  work.MarkRead(now_ns_);
  if (sample.state == KeptSample::State::kFailed) {
    Status status = std::move(block.failures.extract(kept).mapped());
    Forget(block, sample);
    SampleFailed(work, slot, std::move(status));
    return false;
  }
  HEADRACE_CHECK(sample.state == KeptSample::State::kResident);
  work.samples[slot].cells = std::exchange(sample.cells, kNoCells);
  Forget(block, sample);
  // The index has its sizes, too, in memory that was last used when the block was read.
  if (stored_fields_.size() == 1 && sample.bytes != KeptSample::kLarge) {
    work.pieces[slot].size = sample.bytes;
    return true;
  }
  std::uint64_t offset = 0;
  for (std::size_t field = 0; field < stored_fields_.size(); ++field) {
    const std::size_t index_field = parts_.schema[stored_fields_[field]].index_field;
    const Result<Extent> extent = parts_.index->extent(index_field, work.batch->samples[slot]);
    HEADRACE_CHECK(extent.ok());  // It was when the read was planned.
    work.pieces[slot * stored_fields_.size() + field] = {.offset = offset,
                                                         .size = extent.value().range.size};
    offset += extent.value().range.size;
  }
  return true;
}

void Engine::IssueBlockReads() {
  while (!ended_ && fetcher_.has_room()) {
    if (block_units_.empty()) {
      if (!BeginBlock()) break;
      continue;
    }
    BlockUnit& unit = *block_units_.front();
    if (unit.is_pinned) {
      SubmitCopy(unit);
      block_units_.pop_front();
      continue;
    }
    Fetch* const fetch = &unit;
    const Fetcher::Memory memory = fetcher_.Acquire({&fetch, 1}, *parts_.staging);
    if (memory == Fetcher::Memory::kWait) break;
    block_units_.pop_front();
    unit.reading = true;
    if (memory == Fetcher::Memory::kNone) {
      fetcher_.Refuse(unit);
      continue;
    }
    const std::uint64_t bytes = unit.extent.range.size;
    if (unit.entry == nullptr) {
      (unit.block->plan.again ? stats_.reread_bytes : stats_.block_bytes) += bytes;
    }
    if (bytes > 0 && unit.source->MayReadNow()) {
      fetcher_.Begin(unit);
      inbox_->BeginWork();
      parts_.executor->Submit(unit.deadline, [this, &unit] { BlockReadNowOrRead(unit); });
    } else {
      fetcher_.Start(unit);
    }
  }
  fetcher_.Flush();
}

// Gives cells to all samples of the next block read, and lines up its reads. False: there is none,
// or not now.
bool Engine::BeginBlock() {
  if (next_block_ == blocks_begin_ + blocks_.size()) return false;
  BlockWork& block = *blocks_[next_block_ - blocks_begin_];
  if (!block.planned) PlanBlock(block);
  if (block.demand_units > parts_.residents->capacity_units()) {
    End(Status(StatusCode::kInternal,
               "block read " + std::to_string(block.plan.number) +
                   " of the plan: its samples take " + std::to_string(block.demand_units) +
                   " cells, there are " + std::to_string(parts_.residents->capacity_units())));
    return false;
  }
  std::vector<CellRun> runs(block.demand.size());
  if (!parts_.residents->Take(block.demand, runs)) return false;
  for (std::size_t i = 0; i < runs.size(); ++i) block.samples[i].cells = runs[i];
  block.demand = {};
  ++next_block_;
  ++stats_.block_reads;
  for (const std::unique_ptr<BlockUnit>& unit : block.units) block_units_.push_back(unit.get());
  ForgetBlock(block);
  return true;
}

// Finds out where the samples lie that are still wanted, and which cells they need.
void Engine::PlanBlock(BlockWork& block) {
  block.planned = true;
  block.demand.assign(block.samples.size(), 0);
  std::vector<BlockPiece> pieces;
  pieces.reserve(block.samples.size() * stored_fields_.size());
  for (std::uint32_t kept = 0; kept < block.samples.size(); ++kept) {
    KeptSample& sample = block.samples[kept];
    if (sample.state == KeptSample::State::kGone) continue;
    const SampleId id = KeptSampleId(block.plan, kept);
    const std::size_t before = pieces.size();
    std::uint64_t bytes = 0;
    Status status;
    for (std::uint32_t field = 0; field < stored_fields_.size() && status.ok(); ++field) {
      const BatchField& stored = parts_.schema[stored_fields_[field]];
      const Result<Extent> extent = parts_.index->extent(stored.index_field, id);
      status = extent.status();
      if (!status.ok()) break;
      pieces.push_back({.extent = extent.value(),
                        .sample = id,
                        .kept = kept,
                        .field = field,
                        .cells_offset = bytes});
      bytes += extent.value().range.size;
    }
    if (!status.ok()) {
      pieces.resize(before);
      sample.pieces_left = 1;
      (void)FinishPiece(block, kept, std::move(status));
      continue;
    }
    sample.pieces_left = static_cast<std::uint16_t>(stored_fields_.size());
    sample.bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, KeptSample::kLarge));
    const std::uint64_t units = parts_.residents->Units(bytes);
    block.demand[kept] = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(units, std::numeric_limits<std::uint32_t>::max()));
    block.demand_units += units;
  }
  MakeBlockUnits(block, std::move(pieces));
}

// The reads of a block read. What is pinned needs none.
void Engine::MakeBlockUnits(BlockWork& block, std::vector<BlockPiece> pieces) {
  const auto extent_of = [](const BlockPiece& piece) -> const Extent& { return piece.extent; };
  const auto by_place = [](const BlockPiece& a, const BlockPiece& b) {
    return LiesBefore(a.extent, b.extent);
  };
  if (!std::is_sorted(pieces.begin(), pieces.end(), by_place)) {
    std::sort(pieces.begin(), pieces.end(), by_place);
  }
  if (parts_.pinned != nullptr) {
    std::vector<BlockPiece> pinned;
    for (BlockPiece& piece : pieces) {
      if (piece.extent.range.size == 0) continue;
      const auto bytes = parts_.pinned->Find(piece.extent);
      if (!bytes.has_value()) continue;
      piece.pinned = bytes->data();
      pinned.push_back(piece);
      stats_.pinned_bytes += piece.extent.range.size;
    }
    if (!pinned.empty()) {
      MakeBlockUnit(block, pinned.front().extent, pinned)->is_pinned = true;
      ++stats_.pinned_reads;
    }
    std::erase_if(pieces, [](const BlockPiece& piece) { return piece.pinned != nullptr; });
  }
  if (!block.entries.empty()) MakeEntryUnits(block, pieces);
  const CoalesceLimits limits{options_.block_gap_bytes, options_.block_read_bytes_max};
  Coalesce(
      std::span<const BlockPiece>(pieces), limits, extent_of,
      [](const BlockPiece&) { return false; },
      [&](const Extent& extent, std::span<const BlockPiece> together) {
        BlockUnit* const unit = MakeBlockUnit(block, extent, together);
        if (tiers_ != nullptr) PlanKeeps(block, *unit);
      });
  PinBlock(block);
}

Engine::BlockUnit* Engine::MakeBlockUnit(BlockWork& block, const Extent& extent,
                                         std::span<const BlockPiece> pieces) {
  auto unit = std::make_unique<BlockUnit>();
  unit->entry = pieces.front().entry;
  unit->source = unit->entry == nullptr ? static_cast<FetchSource*>(&storage_) : &entries_;
  unit->client = block_reads_.get();
  unit->deadline = block.deadline;
  unit->extent = extent;
  unit->block = &block;
  unit->pieces.assign(pieces.begin(), pieces.end());
  ++block.units_left;
  return block.units.emplace_back(std::move(unit)).get();
}

// A whole block is read straight into pinned memory, while there is room for all of it. Not one of
// which a tier has a sample: what a tier reads is laid out as an entry, not as the block is.
void Engine::PinBlock(BlockWork& block) {
  if (parts_.pinned == nullptr || !block.plan.kept.empty() || !block.failures.empty()) return;
  if (!block.entries.empty()) return;
  for (const std::unique_ptr<BlockUnit>& unit : block.units) {
    std::optional<Buffer> buffer;
    if (!unit->is_pinned) {
      buffer = parts_.pinned->Acquire(parts_.store->BufferBytes(unit->extent.range));
    }
    if (!buffer.has_value()) {
      for (const std::unique_ptr<BlockUnit>& taken : block.units) taken->buffer.Reset();
      return;
    }
    unit->buffer = *std::move(buffer);
  }
  block.pinning = true;
}

// A task, as ReadNowOrRead() is for reads of single samples.
void Engine::BlockReadNowOrRead(BlockUnit& unit) {
  const std::span<std::byte> target = unit.buffer.bytes().first(unit.extent.range.size);
  const ReadNowAnswer answer =
      stop_.stop_requested() ? ReadNowAnswer::kNotAsked : unit.source->ReadNow(unit, target);
  if (answer != ReadNowAnswer::kRead) {
    unit.not_held = answer == ReadNowAnswer::kNotHeld;
    Fetch* const fetch = &unit;
    return ReadFromTask({&fetch, 1});
  }
  unit.data = target;
  CopyToCells(unit);
  CopyToTiers(unit);
  inbox_->Post({.kind = Event::Kind::kCopied, .block_unit = &unit});
}

void Engine::SubmitCopy(BlockUnit& unit) {
  inbox_->BeginWork();
  parts_.executor->Submit(unit.block->deadline, [this, &unit] {
    CopyToCells(unit);
    CopyToTiers(unit);
    inbox_->Post({.kind = Event::Kind::kCopied, .block_unit = &unit});
  });
}

// A task: verifies the samples while their bytes are hot, and copies them.
void Engine::CopyToCells(BlockUnit& unit) const {
  std::vector<std::byte> scratch;
  for (std::size_t i = 0; i < unit.pieces.size(); ++i) {
    if (stop_.stop_requested()) return;
    if (Status status = CopyToCells(unit, unit.pieces[i], scratch); !status.ok()) {
      unit.failures.emplace_back(i, std::move(status));
    }
  }
}

Status Engine::CopyToCells(const BlockUnit& unit, const BlockPiece& piece,
                           std::vector<std::byte>& scratch) const {
  const ByteRange range = piece.extent.range;
  std::span<const std::byte> bytes;
  if (piece.pinned != nullptr) {
    bytes = std::span(piece.pinned, range.size);
  } else if (piece.entry == nullptr) {
    bytes = unit.data.subspan(range.offset - unit.extent.range.offset, range.size);
  } else if (!piece.entry->tier()->in_memory()) {
    bytes = unit.data.subspan(piece.cells_offset, range.size);
  } else {
    Tier& tier = *piece.entry->tier();
    if (options_.verify) HEADRACE_RETURN_IF_ERROR(tier.Check(*piece.entry));
    const auto view = tier.View(*piece.entry, piece.cells_offset, range.size);
    if (!view.has_value()) {
      scratch.resize(range.size);
      tier.CopyOut(*piece.entry, piece.cells_offset, scratch);
    }
    bytes = view.has_value() ? *view : std::span<const std::byte>(scratch);
  }
  if (piece.entry == nullptr) {  // A tier has compared its own checksum.
    const BatchField& field = parts_.schema[stored_fields_[piece.field]];
    HEADRACE_RETURN_IF_ERROR(verifier_.Check(field.index_field, piece.sample, bytes));
  }
  parts_.residents->CopyIn(unit.block->samples[piece.kept].cells, piece.cells_offset, bytes);
  return Status();
}

void Engine::OnBlockRead(BlockUnit& unit, Result<std::span<std::byte>> data) {
  if (ended_) return unit.buffer.Reset();
  if (data.ok()) {
    unit.data = data.value();
    return SubmitCopy(unit);
  }
  BlockWork& block = *unit.block;
  unit.buffer.Reset();
  unit.keeps.clear();
  block.pinning = false;
  if (unit.pieces.front().entry != nullptr) {
    for (std::size_t i = 0; i < unit.pieces.size(); ++i) unit.failures.emplace_back(i, Status());
    RetryFromStorage(unit);
  } else if (unit.pieces.size() > 1) {
    // One of several samples may be the cause: each alone, so that the others are not lost with it.
    for (auto piece = unit.pieces.rbegin(); piece != unit.pieces.rend(); ++piece) {
      block_units_.push_front(MakeBlockUnit(block, piece->extent, {&*piece, 1}));
    }
    unit.pieces.clear();
  } else {
    unit.failures.emplace_back(0, data.status());
  }
  FinishUnit(unit);
}

void Engine::OnCopied(BlockUnit& unit) {
  if (--unit.ends_left > 0) return;
  if (ended_) return unit.buffer.Reset();
  if (!unit.keeps.empty()) FinishKeeps(unit);
  if (!unit.pieces.empty() && unit.pieces.front().entry != nullptr) RetryFromStorage(unit);
  if (!unit.block->pinning) unit.buffer.Reset();
  FinishUnit(unit);
}

// Tells the samples of a unit that their bytes are in cells, or why not. The unit may be gone after
// that.
void Engine::FinishUnit(BlockUnit& unit) {
  BlockWork& block = *unit.block;
  std::vector<Row> ready;
  auto failure = unit.failures.begin();
  for (std::size_t i = 0; i < unit.pieces.size(); ++i) {
    const BlockPiece& piece = unit.pieces[i];
    Status status;
    if (failure != unit.failures.end() && failure->first == i) {
      status = std::move((failure++)->second);
      block.pinning = false;
    } else {
      stats_.kept_bytes += piece.extent.range.size;
    }
    const std::optional<Row> row = FinishPiece(block, piece.kept, std::move(status));
    if (row.has_value()) ready.push_back(*row);
  }
  // Rows of one step together: they may be one task.
  std::stable_sort(ready.begin(), ready.end(), [](const Row& a, const Row& b) {
    return a.first->deadline != b.first->deadline ? a.first->deadline < b.first->deadline
                                                  : a.first->lane->number < b.first->lane->number;
  });
  std::vector<std::uint32_t> slots;
  for (std::size_t begin = 0; begin < ready.size();) {
    StepWork& work = *ready[begin].first;
    slots.clear();
    for (; begin < ready.size() && ready[begin].first == &work; ++begin) {
      slots.push_back(ready[begin].second);
    }
    SubmitDecodes(work, slots);
  }
  if (--block.units_left > 0) return;
  FinishBlock(block);
}

// The row that waits for the sample, if all of its bytes are in cells now.
std::optional<Engine::Row> Engine::FinishPiece(BlockWork& block, std::uint32_t kept,
                                               Status&& status) {
  KeptSample& sample = block.samples[kept];
  if (!status.ok()) block.failures.try_emplace(kept, std::move(status));
  if (--sample.pieces_left > 0) return std::nullopt;
  if (sample.state == KeptSample::State::kUnwanted) {
    block.failures.erase(kept);
    Forget(block, sample);
    return std::nullopt;
  }
  sample.state = KeptSample::State::kResident;
  if (block.failures.contains(kept)) {
    sample.state = KeptSample::State::kFailed;
    if (sample.cells != kNoCells) {
      parts_.residents->Release(std::exchange(sample.cells, kNoCells));
    }
  }
  if (sample.waiter == 0) return std::nullopt;
  const Row row = block.waiters[sample.waiter - 1];
  if (!TakeKept(block, kept, *row.first, row.second)) return std::nullopt;
  return row;
}

// All of a block read is done: its samples wait in cells, if any are left.
void Engine::FinishBlock(BlockWork& block) {
  if (block.pinning) {
    std::vector<PinnedBlocks::Part> parts;
    for (const std::unique_ptr<BlockUnit>& unit : block.units) {
      if (unit->data.empty()) continue;
      parts.push_back({unit->extent, std::move(unit->buffer), unit->data});
    }
    parts_.pinned->Keep(std::move(parts));
  }
  // The block may have to live long.
  std::vector<std::unique_ptr<BlockUnit>>().swap(block.units);
  std::vector<Row>().swap(block.waiters);
  std::vector<Tier::Pin>().swap(block.entries);
  ForgetBlock(block);
}

// For Close(): nothing is in flight.
void Engine::ReleaseAllCells() {
  for (const std::unique_ptr<BlockWork>& block : blocks_) {
    if (block == nullptr) continue;
    for (KeptSample& sample : block->samples) {
      if (sample.cells != kNoCells) parts_.residents->Release(sample.cells);
    }
  }
  blocks_.clear();
  block_units_.clear();
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    for (const std::unique_ptr<StepWork>& work : lane->steps) {
      for (SampleWork& sample : work->samples) {
        if (sample.cells == kNoCells) continue;
        parts_.residents->Release(std::exchange(sample.cells, kNoCells));
      }
    }
  }
}

}  // namespace headrace
