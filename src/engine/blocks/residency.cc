#include "engine/blocks/residency.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/format/errors.h"
#include "engine/batch/row_rooms.h"

namespace headrace {
namespace {

// Whose samples have come: rows, and those that go to other nodes. `outbox`: null, or of these.
void Tell(std::vector<KeptBytes>& come, ResidencyClient& rows, ResidencyClient* outbox) {
  if (come.empty()) return;
  if (outbox == nullptr) return rows.OnKept(come);
  const auto sent = std::stable_partition(
      come.begin(), come.end(), [](const KeptBytes& kept) { return kept.row.step != nullptr; });
  if (sent != come.begin()) rows.OnKept({come.begin(), sent});
  if (sent != come.end()) outbox->OnKept({sent, come.end()});
}

}  // namespace

Residency::Residency(LoopContext& loop, BlockMemory memory, TierFiller* tiers,
                     ResidencyClient& client)
    : loop_(loop),
      memory_(std::move(memory)),
      tiers_(tiers),
      client_(client),
      parts_(loop, memory_, tiers, *this, counts_),
      copier_(loop, memory_.residents.get()),
      parcels_(loop, parts_) {}

// A first step may bring thousands: what one needs beside its record is made when its turn comes.
void Residency::Queue(std::vector<BlockRead> reads, std::span<const Release> releases) {
  for (BlockRead& read : reads) {
    HEADRACE_CHECK(memory_.residents != nullptr);
    HEADRACE_CHECK(read.number == blocks_begin_ + blocks_.size());
    auto block = std::make_unique<BlockWork>();
    block->deadline = loop_.FirstDeadline();
    block->samples.resize(read.kept.empty() ? read.count : read.kept.size());
    block->samples_left = block->samples.size();
    block->plan = std::move(read);
    if (tiers_ != nullptr) FindInTiers(*block);
    blocks_.push_back(std::move(block));
  }
  for (const Release& release : releases) Drop(release);
}

void Residency::FindInTiers(BlockWork& block) const {
  const auto samples = static_cast<std::uint32_t>(block.samples.size());
  block.nodes = tiers_->FindForBlock(block.plan, samples, loop_.asks_nodes, block.entries);
}

std::pair<BlockWork*, std::uint32_t> Residency::FindKept(std::uint64_t number, SampleId sample) {
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
const BlockWork* Residency::FindBlock(const Delivery& delivery) const {
  const std::uint64_t place = delivery.block_read - blocks_begin_;
  return place < blocks_.size() ? blocks_[place].get() : nullptr;
}

void Residency::Prefetch(const Step& step) const {
  if (blocks_.empty()) return;
  for (const Delivery& delivery : step.deliveries) __builtin_prefetch(FindBlock(delivery));
  for (const Delivery& delivery : step.deliveries) {
    const BlockWork* const block = FindBlock(delivery);
    if (block == nullptr || block->in_storage || !block->plan.kept.empty()) continue;
    const std::uint64_t position = Raw(delivery.sample) - Raw(block->plan.first);
    __builtin_prefetch(block->samples.data() + std::min(position, block->samples.size()), 1);
  }
}

void Residency::Drop(const Release& release) {
  const auto [block, place] = FindKept(release.block_read, release.sample);
  if (block->in_storage) {
    --block->samples_left;
    return ForgetBlock(*block);
  }
  KeptSample& sample = block->samples[place];
  HEADRACE_CHECK(sample.waiter == 0 && sample.state != KeptSample::State::kUnwanted &&
                 sample.state != KeptSample::State::kGone);
  // Its bytes are on their way to its cells; or its home keeps them until this node takes them.
  const bool comes = block->planned || block->plan.home != kNoNode;
  if (sample.state == KeptSample::State::kExpected && comes) {
    sample.state = KeptSample::State::kUnwanted;
    return;
  }
  Forget(*block, sample);
  ForgetBlock(*block);
}

void Residency::Forget(BlockWork& block, KeptSample& sample) {
  if (sample.cells != kNoCells) {
    memory_.residents->Release(std::exchange(sample.cells, kNoCells));
  }
  sample.state = KeptSample::State::kGone;
  --block.samples_left;
}

void Residency::ForgetBlock(const BlockWork& block) {
  const std::uint64_t number = block.plan.number;
  if (block.samples_left > 0 || block.parts_left > 0 || number >= next_block_) return;
  blocks_[number - blocks_begin_].reset();
  for (; !blocks_.empty() && blocks_.front() == nullptr; ++blocks_begin_) blocks_.pop_front();
}

bool Residency::HaveCome(std::uint64_t number) {
  for (; come_ < number; ++come_) {
    if (come_ >= next_block_) return false;
    if (come_ < blocks_begin_) continue;
    const BlockWork* const block = blocks_[come_ - blocks_begin_].get();
    if (block != nullptr && block->parts_left > 0) return false;
  }
  return true;
}

bool Residency::Take(std::uint64_t block_read, SampleId sample_id, KeptBytes& kept) {
  const auto [block, place] = FindKept(block_read, sample_id);
  if (block->in_storage) {
    HEADRACE_CHECK(block->samples_left > 0);
    kept.in_storage = true;
    --block->samples_left;
    ForgetBlock(*block);
    return true;
  }
  KeptSample& sample = block->samples[place];
  if (sample.state == KeptSample::State::kExpected) {
    HEADRACE_CHECK(sample.waiter == 0);
    block->waiters.push_back(kept.row);
    sample.waiter = static_cast<std::uint32_t>(block->waiters.size());
    return false;
  }
  Give(*block, sample, kept);
  ForgetBlock(*block);
  return true;
}

// Makes the cells of a sample the row's, or its error.
void Residency::Give(BlockWork& block, KeptSample& sample, KeptBytes& to) {
  if (sample.state == KeptSample::State::kFailed) {
    const auto place = static_cast<std::uint32_t>(&sample - block.samples.data());
    to.error = std::move(block.failures.extract(place).mapped());
  } else {
    HEADRACE_CHECK(sample.state == KeptSample::State::kResident);
    to.cells = std::exchange(sample.cells, kNoCells);
    to.bytes = sample.bytes;
  }
  Forget(block, sample);
}

Status Residency::IssueReads() {
  Status status;
  while (!loop_.ended && MayReadNext()) {
    if (queued_.empty()) {
      const Result<bool> begun = BeginBlock();
      status = begun.status();
      if (!status.ok() || !begun.value()) break;
      continue;
    }
    BlockPart& part = *queued_.front();
    if (part.in_memory) {
      SubmitCopy(part);
      queued_.pop_front();
      continue;
    }
    Fetch* const fetch = &part;
    const Fetcher::Memory memory =
        loop_.fetcher.Acquire({&fetch, 1}, loop_.staging, {.keep_bytes = loop_.KeptBytes(part)});
    if (memory == Fetcher::Memory::kWait) break;
    queued_.pop_front();
    part.reading = true;
    if (memory == Fetcher::Memory::kNone) {
      loop_.fetcher.Refuse(part);
      continue;
    }
    const std::uint64_t bytes = part.bytes();
    if (part.in_storage()) {
      (part.block->plan.again ? counts_.reread_bytes : counts_.bytes) += bytes;
    }
    if (part.in_storage() && bytes > 0 && loop_.storage.MayReadNow()) {
      loop_.fetcher.Begin(part);
      loop_.Submit(part.deadline, [this, &part] { ReadNowOrRead(part); });
    } else {
      loop_.fetcher.Start(part);
    }
  }
  loop_.fetcher.Flush();
  if (loop_.parcels != nullptr) parcels_.Issue([this](BlockPart& part) { SubmitCopy(part); });
  return status;
}

// Whether one more read may be in flight, now that others have what they need earlier.
bool Residency::MayReadNext() {
  if (!queued_.empty() && queued_.front()->at_node()) return true;
  if (tiers_ != nullptr && !queued_.empty() && !queued_.front()->in_memory) {
    tiers_->BringBefore(queued_.front()->deadline);
  }
  return loop_.fetcher.has_room();
}

// Gives cells to all samples of the next block read, and lines up its reads. False: there is none,
// or not now.
Result<bool> Residency::BeginBlock() {
  if (next_block_ == blocks_begin_ + blocks_.size()) return false;
  BlockWork& block = *blocks_[next_block_ - blocks_begin_];
  if (!block.planned && MayStay(block)) {
    LeaveInStorage(block);
    return true;
  }
  if (!block.planned) PlanBlock(block);
  CellPool& cells = *memory_.residents;
  if (block.demand_cells > cells.capacity_units()) {
    return Status(StatusCode::kInternal,
                  fmt::format("planning block read {}: its samples take {} cells of memory, the "
                              "lane has {}; report this defect of headrace",
                              block.plan.number, block.demand_cells, cells.capacity_units()));
  }
  std::vector<CellRun> runs(block.demand.size());
  if (!cells.Take(block.demand, runs)) return false;
  if (blocks_to_read_ > 0) --blocks_to_read_;
  for (std::size_t i = 0; i < runs.size(); ++i) block.samples[i].cells = runs[i];
  block.demand = {};
  ++next_block_;
  ++counts_.reads;
  const bool is_parcel = block.plan.home != kNoNode;
  if (is_parcel) ++counts_.parcels;
  for (const std::unique_ptr<BlockPart>& part : block.parts) {
    if (is_parcel) {
      parcels_.Queue(*part);
    } else {
      queued_.push_back(part.get());
    }
  }
  ForgetBlock(block);
  return true;
}

// Whether the page cache holds all samples of a block read, and rows may copy from there: small
// ones are then copied once in place of three times. It may have to be read sample by sample after
// all, so not where the page cache has just lost some.
bool Residency::MayStay(const BlockWork& block) const {
  const StoredFields& fields = loop_.fields;
  if (blocks_to_read_ > 0 || tiers_ != nullptr || fields.empty()) return false;
  if (loop_.parcels != nullptr) return false;  // Other nodes get samples from cells.
  std::uint64_t row_bytes = 0;
  for (std::size_t field = 0; field < fields.size(); ++field) {
    if (fields[field].ragged || !CostsACopy(fields[field])) return false;
    row_bytes += fields[field].row_bytes;
  }
  if (row_bytes > loop_.options.decode_task_bytes) return false;
  for (std::size_t field = 0; field < fields.size(); ++field) {
    if (!IsHeld(block, fields[field].index_field)) return false;
  }
  return true;
}

// Whether the page cache holds one field of all samples of a block read.
bool Residency::IsHeld(const BlockWork& block, std::size_t index_field) const {
  const Index& index = loop_.fields.index();
  const std::uint32_t last_place = static_cast<std::uint32_t>(block.samples.size()) - 1;
  const auto first = index.extent(index_field, KeptSampleId(block.plan, 0));
  const auto last = index.extent(index_field, KeptSampleId(block.plan, last_place));
  if (!first.ok() || !last.ok() || first.value().object != last.value().object) return false;
  const std::uint64_t begin = first.value().range.offset;
  const std::uint64_t end = last.value().range.end();
  // Otherwise the block lies in pieces.
  if (begin >= end ||
      end - begin > std::uint64_t{2} * block.plan.count * first.value().range.size) {
    return false;
  }
  return loop_.storage.HoldsNow({first.value().object, {begin, end - begin}});
}

void Residency::LeaveInStorage(BlockWork& block) {
  block.planned = true;
  block.in_storage = true;
  ++next_block_;
  ++counts_.reads;
  ++counts_.left_in_storage;
  std::vector<KeptBytes> come;
  for (const RowRef row : block.waiters) come.push_back({.row = row, .in_storage = true});
  block.samples_left -= come.size();
  std::vector<RowRef>().swap(block.waiters);
  std::vector<KeptSample>().swap(block.samples);
  ForgetBlock(block);
  Tell(come, client_, outbox_);
}

// Finds out where the samples lie that are still wanted, and which cells they need.
void Residency::PlanBlock(BlockWork& block) {
  block.planned = true;
  block.demand.assign(block.samples.size(), 0);
  std::vector<BlockPiece> pieces;
  pieces.reserve(block.samples.size() * loop_.fields.size());
  std::vector<KeptBytes> failed;
  for (std::uint32_t place = 0; place < block.samples.size(); ++place) {
    KeptSample& sample = block.samples[place];
    if (sample.state == KeptSample::State::kGone) continue;
    const SampleId id = KeptSampleId(block.plan, place);
    const std::size_t before = pieces.size();
    std::uint64_t bytes = 0;
    Status status = loop_.fields.VisitExtents(id, [&](std::uint32_t field, const Extent& extent) {
      pieces.push_back(
          {.extent = extent, .sample = id, .place = place, .field = field, .cells_offset = bytes});
      bytes += extent.range.size;
    });
    if (!status.ok()) {
      pieces.resize(before);
      sample.pieces_left = 1;
      FinishPiece(block, place, std::move(status), failed);
      continue;
    }
    sample.pieces_left = static_cast<std::uint16_t>(loop_.fields.size());
    sample.bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, KeptSample::kLarge));
    const std::uint64_t cells = memory_.residents->Units(bytes);
    block.demand[place] = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(cells, std::numeric_limits<std::uint32_t>::max()));
    block.demand_cells += cells;
  }
  if (block.plan.home == kNoNode) {
    parts_.MakeAll(block, std::move(pieces));
  } else {
    parts_.MakeOfParcel(block, pieces);
  }
  Tell(failed, client_, outbox_);
}

// A task. Bytes that need no device are read and copied in one go; others take the usual way.
void Residency::ReadNowOrRead(BlockPart& part) {
  const std::span<std::byte> target = part.buffer.bytes().first(part.bytes());
  if (!loop_.fetcher.ReadNow(part, target)) {
    Fetch* const fetch = &part;
    return loop_.ReadFromTask({&fetch, 1});
  }
  part.data = target;
  Copy(part);
}

void Residency::SubmitCopy(BlockPart& part) {
  loop_.Submit(part.block->deadline, [this, &part] { Copy(part); });
}

// A task.
void Residency::Copy(BlockPart& part) {
  const auto copied = [this, &part] { OnCopied(part); };
  copier_.CopyToCells(part);
  copier_.CopyToTiers(part, copied);
  loop_.Post(copied);
}

void Residency::OnFetched(Fetch& fetch, Result<std::span<std::byte>> data) {
  auto& part = static_cast<BlockPart&>(fetch);
  part.reading = false;
  if (loop_.ended) return part.buffer.Reset();
  if (data.ok()) {
    part.data = data.value();
    return SubmitCopy(part);
  }
  part.buffer.Reset();
  part.inserts.clear();
  part.block->to_be_pinned = false;
  if (part.of_parcel()) {
    parcels_.OnFailed(part, data.status());
    return FinishPart(part);
  }
  for (std::size_t i = 0; i < part.pieces.size(); ++i) part.failures.emplace_back(i, data.status());
  // One of several samples may be the cause: each alone, so that the others are not lost with it.
  if (part.has_next_source() || part.pieces.size() > 1) parts_.ReadAgain(part, queued_);
  FinishPart(part);
}

// A part is in its cells, or a sample of it in a tier.
void Residency::OnCopied(BlockPart& part) {
  if (std::exchange(part.reading, false)) loop_.fetcher.Finish();
  if (--part.ends_left > 0) return;
  if (loop_.ended) return part.buffer.Reset();
  for (const BlockInsert& each : part.inserts) {
    tiers_->Finish(each.sample, *each.tier, each.status);
  }
  part.inserts.clear();
  if (!part.failures.empty() && part.has_next_source()) parts_.ReadAgain(part, queued_);
  if (!part.block->to_be_pinned) part.buffer.Reset();
  FinishPart(part);
}

// Tells the samples of a part that their bytes are in cells, or why not. The part may be gone after
// that.
void Residency::FinishPart(BlockPart& part) {
  BlockWork& block = *part.block;
  std::vector<KeptBytes> come;
  auto failure = part.failures.begin();
  for (std::size_t i = 0; i < part.pieces.size(); ++i) {
    const BlockPiece& piece = part.pieces[i];
    Status status;
    if (failure != part.failures.end() && failure->first == i) {
      status = std::move((failure++)->second);
      block.to_be_pinned = false;
    } else if (part.of_parcel()) {
      counts_.parcel_bytes += piece.extent.range.size;
      if (piece.field == 0) ++counts_.parcel_samples;
    } else {
      counts_.kept_bytes += piece.extent.range.size;
    }
    FinishPiece(block, piece.place, std::move(status), come);
  }
  Tell(come, client_, outbox_);
  if (--block.parts_left > 0) return;
  FinishBlock(block);
}

// Adds to `come` what the row gets that waits for the sample, once all of its pieces are finished.
void Residency::FinishPiece(BlockWork& block, std::uint32_t place, Status&& status,
                            std::vector<KeptBytes>& come) {
  KeptSample& sample = block.samples[place];
  if (!status.ok()) block.failures.try_emplace(place, std::move(status));
  if (--sample.pieces_left > 0) return;
  if (sample.state == KeptSample::State::kUnwanted) {
    block.failures.erase(place);
    Forget(block, sample);
    return;
  }
  sample.state = KeptSample::State::kResident;
  if (block.failures.contains(place)) {
    sample.state = KeptSample::State::kFailed;
    if (sample.cells != kNoCells) {
      memory_.residents->Release(std::exchange(sample.cells, kNoCells));
    }
  }
  if (sample.waiter == 0) return;
  come.push_back({.row = block.waiters[sample.waiter - 1]});
  Give(block, sample, come.back());
}

// All of a block read is done: its samples wait in cells, if any are left.
void Residency::FinishBlock(BlockWork& block) {
  if (block.to_be_pinned) {
    std::vector<PinnedBlocks::Part> parts;
    for (const std::unique_ptr<BlockPart>& part : block.parts) {
      if (part->data.empty()) continue;
      parts.push_back({part->extent(), std::move(part->buffer), part->data});
    }
    memory_.pinned_blocks->Add(std::move(parts));
  }
  // The block may have to live long.
  std::vector<std::unique_ptr<BlockPart>>().swap(block.parts);
  std::vector<RowRef>().swap(block.waiters);
  std::vector<Tier::EntryRef>().swap(block.entries);
  ForgetBlock(block);
}

void Residency::ReleaseAll() {
  for (const std::unique_ptr<BlockWork>& block : blocks_) {
    if (block == nullptr) continue;
    for (const KeptSample& sample : block->samples) {
      if (sample.cells != kNoCells) memory_.residents->Release(sample.cells);
    }
  }
  blocks_.clear();
  queued_.clear();
}

}  // namespace headrace
