#include "engine/rows/rows.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "engine/batch/batch.h"
#include "engine/decode/stand_in.h"
#include "plan/left_out.h"
#include "store/decoded/coded_catalog.h"

namespace headrace {
namespace {

bool IsAligned(const std::byte* buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer) % kBufferAlignment == 0;
}

}  // namespace

Rows::Rows(LoopContext& loop, LaneQueues& queues, const DecodeParts& parts)
    : loop_(loop),
      queues_(queues),
      residents_(parts.residents),
      warm_(loop, queues, *this),
      reader_(loop, queues, *this),
      decoder_(loop, queues, parts, *this) {}

void Rows::Connect(TierFiller* tiers, Residency* blocks) {
  tiers_ = tiers;
  reader_.Connect(tiers);
  blocks_ = blocks;
}

void Rows::FindInTiers(StepWork& work) const {
  for (std::uint32_t slot = 0; slot < work.samples.size(); ++slot) {
    if (work.plan.deliveries[slot].block_read != kNoBlockRead) continue;
    const SampleId sample = work.plan.deliveries[slot].sample;
    SampleWork& row = work.samples[slot];
    row.entry = tiers_->Find(sample, loop_.asks_nodes() ? &row.nodes : nullptr);
  }
}

// With one stored field, samples that lie near each other are one read. With several, the reads of
// a sample are one group, whose memory is taken together: samples that each hold a part of the
// memory and wait for the rest would wait for ever.
void Rows::Plan(StepWork& work) {
  std::vector<RowReader::Piece> pieces;
  pieces.reserve(work.pieces.size());
  std::vector<std::uint32_t> without_reads;
  std::vector<std::uint32_t> resident;
  std::vector<std::uint32_t> tried;
  std::optional<bool> may_try;
  KeptBytes kept;
  if (blocks_ != nullptr) blocks_->Prefetch(work.plan);
  for (std::uint32_t slot = 0; slot < work.samples.size(); ++slot) {
    const Delivery& delivery = work.plan.deliveries[slot];
    if (delivery.block_read != kNoBlockRead) {
      HEADRACE_CHECK(blocks_ != nullptr);
      kept = {.row = {&work, slot}};
      if (!blocks_->Take(delivery.block_read, delivery.sample, kept)) continue;
      if (kept.in_storage) {
        tried.push_back(slot);
      } else if (TakeKept(kept)) {
        resident.push_back(slot);
      }
      continue;
    }
    if (tiers_ != nullptr && PlanFromTier(work, slot, resident)) continue;
    if (!may_try.has_value()) may_try = warm_.MayTry();
    if (*may_try && work.samples[slot].insert_into == nullptr && warm_.IsSmall(work, slot)) {
      tried.push_back(slot);
      continue;
    }
    const std::size_t before = pieces.size();
    if (Status status = FindPieces(work, slot, pieces); !status.ok()) {
      pieces.resize(before);
      work.MarkRead(loop_.now_ns);
      Fail(work, slot, status);
      continue;
    }
    work.samples[slot].pieces_left = static_cast<std::uint32_t>(loop_.fields.size());
    if (loop_.fields.empty()) without_reads.push_back(slot);
    if (loop_.fields.size() > 1) {
      queues_.AddReads(work, reader_.MakeReads(work, std::span(pieces).subspan(before)));
      pieces.clear();
    }
  }
  if (!without_reads.empty()) {
    work.MarkRead(loop_.now_ns, without_reads.size());
    decoder_.Submit(work, without_reads);
  }
  decoder_.Submit(work, resident);
  warm_.Try(work, tried);
  for (RowRead* const read : reader_.MakeReads(work, pieces)) queues_.AddReads(work, {read});
}

void Rows::OnWarm(WarmTask& task) {
  StepWork& work = *task.work;
  loop_.fetcher.CountNow(task.slots.size(), task.stored_bytes);
  work.issued_bytes -= task.missed_bytes;
  work.copying_bytes -= task.stored_bytes + task.missed_bytes;
  work.MarkRead(loop_.now_ns, task.slots.size());
  if (!loop_.ended) PlanMissed(work, task);
  OnDecoded(task);
}

// Plans the reads of rows that were tried in vain.
void Rows::PlanMissed(StepWork& work, const WarmTask& task) {
  std::array<std::vector<RowReader::Piece>, 2> pieces;  // by whether the page cache lacks the row
  for (const auto& [slot, not_held] : task.missed) {
    if (not_held && work.plan.deliveries[slot].block_read != kNoBlockRead) blocks_->OnLeftCache();
    std::vector<RowReader::Piece>& alike = pieces[not_held ? 1 : 0];
    const std::size_t before = alike.size();
    if (const Status status = FindPieces(work, slot, alike); !status.ok()) {
      alike.resize(before);
      work.MarkRead(loop_.now_ns);
      Fail(work, slot, status);
      continue;
    }
    work.samples[slot].pieces_left = static_cast<std::uint32_t>(loop_.fields.size());
    if (loop_.fields.size() == 1) continue;
    queues_.AddReads(work, MakeMissed(work, alike, not_held), /*early=*/true);
    alike.clear();
  }
  for (const bool not_held : {false, true}) {
    for (RowRead* const read : MakeMissed(work, pieces[not_held ? 1 : 0], not_held)) {
      queues_.AddReads(work, {read}, /*early=*/true);
    }
  }
}

RowReader::Reads Rows::MakeMissed(StepWork& work, std::span<RowReader::Piece> pieces,
                                  bool not_held) {
  RowReader::Reads reads = reader_.MakeReads(work, pieces);
  for (RowRead* const read : reads) {
    read->tried = true;
    read->not_held = not_held;
  }
  return reads;
}

// Whether a row's bytes come from a tier, or will be in one soon. Adds it to `resident` if they are
// there. Else they come from storage, and go into a tier on the way where the plan wants that.
bool Rows::PlanFromTier(StepWork& work, std::uint32_t slot, std::vector<std::uint32_t>& resident) {
  SampleWork& row = work.samples[slot];
  const SampleId sample = work.batch->samples[slot];
  if (row.entry && TakeEntry(work, slot)) {
    work.batch->sources[slot] = tiers_->CountUse(sample, row.entry);
    if (row.entry.tier()->in_memory()) {
      work.MarkRead(loop_.now_ns);
      resident.push_back(slot);
    } else {
      queues_.AddReads(work, {reader_.MakeEntryRead(work, slot)});
    }
    return true;
  }
  row.entry.Reset();
  if (tiers_->Await(sample, {&work, slot})) return true;
  if (row.nodes.first != kNoNode && PlanFromNode(work, slot)) return true;
  row.insert_into = tiers_->TierForMiss(sample);
  return false;
}

// Whether a row's bytes come from the node that the plan names. They lie as in an entry of a tier.
bool Rows::PlanFromNode(StepWork& work, std::uint32_t slot) {
  SampleWork& row = work.samples[slot];
  const Result<std::uint64_t> bytes = LayOut(work, slot);
  if (!bytes.ok() || bytes.value() == 0) {  // Storage reports it; or there is nothing to ask for.
    row.nodes = {};
    return false;
  }
  FitRows(work, slot);
  work.batch->sources[slot] = kFromNode;
  row.insert_into = tiers_->TierForMiss(work.batch->samples[slot], bytes.value());
  queues_.AddReads(work, {reader_.MakeNodeRead(work, slot, bytes.value())});
  return true;
}

// Says of the row's pieces that they lie one after the other, in cells or in an entry. Returns how
// many bytes they are.
Result<std::uint64_t> Rows::LayOut(StepWork& work, std::uint32_t slot) const {
  StoredPiece* const pieces = work.pieces.data() + slot * loop_.fields.size();
  std::uint64_t bytes = 0;
  HEADRACE_RETURN_IF_ERROR(loop_.fields.VisitExtents(
      work.batch->samples[slot], [&](std::uint32_t field, const Extent& extent) {
        pieces[field] = {.offset = bytes, .size = extent.range.size};
        bytes += extent.range.size;
      }));
  return bytes;
}

// Whether the entry that was found is the sample's: then the row's pieces are in it.
bool Rows::TakeEntry(StepWork& work, std::uint32_t slot) const {
  const Tier::EntryRef& entry = work.samples[slot].entry;
  const Result<std::uint64_t> bytes = LayOut(work, slot);
  if (!bytes.ok()) return false;
  if (bytes.value() != entry.bytes()) {
    entry.tier()->Erase(work.batch->samples[slot]);
    return false;
  }
  FitRows(work, slot);
  return true;
}

// Only of rows that are not read from storage: that reads straight into rows, whose room is larger
// than they are.
void Rows::FitRows(StepWork& work, std::uint32_t slot) const {
  for (std::size_t field = 0; field < loop_.fields.size(); ++field) {
    const BatchField& stored = loop_.fields[field];
    if (!stored.ragged) continue;
    std::span<std::byte>& row = work.batch->fields[loop_.fields.position(field)].rows[slot];
    const std::uint64_t size = work.pieces[slot * loop_.fields.size() + field].size;
    const Result<std::uint64_t> content =
        ContentBytes(loop_.fields.index(), stored, work.batch->samples[slot], size);
    if (!content.ok()) continue;  // An error when it is decoded.
    row = row.first(std::min<std::size_t>(row.size(), stored.codec->RowBytes(content.value())));
  }
}

Status Rows::FindPieces(const StepWork& work, std::uint32_t slot,
                        std::vector<RowReader::Piece>& pieces) const {
  return loop_.fields.VisitExtents(work.batch->samples[slot],
                                   [&](std::uint32_t field, const Extent& extent) {
                                     pieces.emplace_back(extent, PieceRef{slot, field});
                                   });
}

// Plans the reads of one row ahead of all others, where another sample stands in or a tier failed:
// its step is older.
void Rows::PlanFromStorage(StepWork& work, std::uint32_t slot) {
  std::vector<RowReader::Piece> pieces;
  Status status = FindPieces(work, slot, pieces);
  for (std::size_t i = 0; i < pieces.size() && status.ok(); ++i) status = MakeRoom(work, pieces[i]);
  if (!status.ok()) return Fail(work, slot, status);
  work.samples[slot].pieces_left = static_cast<std::uint32_t>(pieces.size());
  ++work.samples_unread;
  queues_.AddReads(work, reader_.MakeReads(work, pieces), /*early=*/true);
}

// Gives a ragged row as much room as the bytes of `piece` need.
Status Rows::MakeRoom(StepWork& work, const RowReader::Piece& piece) const {
  const auto& [extent, ref] = piece;
  const BatchField& out = loop_.fields[ref.field];
  if (!out.ragged) return Status();
  Fetch fetch;
  fetch.from = extent;
  const ByteRange range = extent.range;
  HEADRACE_ASSIGN_OR_RETURN(
      const std::uint64_t content,
      ContentBytes(loop_.fields.index(), out, work.batch->samples[ref.slot], range.size));
  const ByteRange room = RowRoom(out, content, loop_.storage.BufferBytes(fetch), 0);
  std::span<std::byte>& row = work.batch->fields[loop_.fields.position(ref.field)].rows[ref.slot];
  // Decoded rows are exactly as long as they have to be; buffers to read into may be longer.
  const bool fits = ReadInPlace(out, range.size) ? IsAligned(row.data()) && row.size() >= room.size
                                                 : row.size() == room.size;
  return fits ? Status() : TakeRoom(work, room.size, row);
}

// Gives the ragged rows of inline fields the room of a sample that stands in.
Status Rows::MakeInlineRoom(StepWork& work, std::uint32_t slot) const {
  const std::span<const BatchField> schema = loop_.fields.schema();
  for (std::size_t position = 0; position < schema.size(); ++position) {
    const BatchField& field = schema[position];
    if (!field.is_inline() || !field.ragged) continue;
    HEADRACE_ASSIGN_OR_RETURN(
        const std::span<const std::byte> value,
        loop_.fields.index().inline_value(field.index_field, work.batch->samples[slot]));
    std::span<std::byte>& row = work.batch->fields[position].rows[slot];
    if (row.size() >= value.size()) {
      row = row.first(value.size());
      continue;
    }
    HEADRACE_RETURN_IF_ERROR(TakeRoom(work, value.size(), row));
  }
  return Status();
}

// Gives `row` memory beside that of its batch.
Status Rows::TakeRoom(StepWork& work, std::uint64_t bytes, std::span<std::byte>& row) const {
  BufferPool& memory = *queues_.parts(work).batch_memory;
  std::optional<Buffer> extra = memory.Acquire(bytes);
  // Its step is the oldest: waiting for room may be in vain.
  if (!extra.has_value()) extra = memory.AcquireBeyond(bytes);
  if (!extra.has_value()) {
    return ResourceExhausted("a row of {}: the system has no memory", FormatBytes(bytes));
  }
  row = extra->bytes().first(bytes);
  work.batch->extra.push_back(*std::move(extra));
  return Status();
}

// Makes the bytes that a block read kept the row's. False: it failed.
bool Rows::TakeKept(KeptBytes& kept) {
  StepWork& work = *kept.row.step;
  const std::uint32_t slot = kept.row.slot;
  work.MarkRead(loop_.now_ns);
  if (!kept.error.ok()) {
    Fail(work, slot, std::exchange(kept.error, Status()));
    return false;
  }
  work.samples[slot].cells = kept.cells;
  // The index has its sizes, too, in memory that was last used when the block was read.
  if (loop_.fields.size() == 1 && kept.bytes != KeptSample::kLarge) {
    work.pieces[slot].size = kept.bytes;
    return true;
  }
  HEADRACE_CHECK(LayOut(work, slot).ok());  // It was when the read was planned.
  return true;
}

void Rows::OnKept(std::span<KeptBytes> kept) {
  const bool in_storage = !kept.empty() && kept.front().in_storage;  // all of a block, or none
  std::vector<RowRef> ready;
  for (KeptBytes& each : kept) {
    if (in_storage || TakeKept(each)) ready.push_back(each.row);
  }
  // Rows of one step together: they may be one task.
  std::stable_sort(ready.begin(), ready.end(), [](const RowRef& a, const RowRef& b) {
    return a.step->deadline != b.step->deadline ? a.step->deadline < b.step->deadline
                                                : a.step->lane < b.step->lane;
  });
  std::vector<std::uint32_t> slots;
  for (std::size_t begin = 0; begin < ready.size();) {
    StepWork& work = *ready[begin].step;
    slots.clear();
    for (; begin < ready.size() && ready[begin].step == &work; ++begin) {
      slots.push_back(ready[begin].slot);
    }
    if (in_storage) {
      warm_.Try(work, slots);
    } else {
      decoder_.Submit(work, slots);
    }
  }
}

void Rows::OnReadFailed(StepWork& work, std::uint32_t slot, Status status) {
  Fail(work, slot, status);
}

void Rows::InsertRow(DecodeTask& task, std::uint32_t slot) {
  StepWork& work = *task.work;
  SampleWork& row = work.samples[slot];
  std::vector<std::span<const std::byte>> parts;
  for (std::size_t field = 0; field < loop_.fields.size(); ++field) {
    const StoredPiece& piece = work.pieces[slot * loop_.fields.size() + field];
    HEADRACE_CHECK(piece.read != nullptr);
    parts.push_back(piece.read->data.subspan(piece.offset, piece.size));
  }
  row.ends_left = 2;  // Its bytes have to stay until the tier has them.
  std::optional<Status> inserted =
      tiers_->Insert(*row.insert_into, work.batch->samples[slot], std::move(parts), {&work, slot});
  if (!inserted.has_value()) return;
  row.ends_left = 1;
  task.inserted.emplace_back(slot, *std::move(inserted));
}

void Rows::OnDecoded(DecodeTask& task) {
  StepWork& work = *task.work;
  decoder_.Count(task);
  for (const auto& [slot, status] : task.inserted) {
    Tier* const tier = std::exchange(work.samples[slot].insert_into, nullptr);
    tiers_->Finish(work.batch->samples[slot], *tier, status);
  }
  task.lease.Reset();
  std::size_t next_large = 0;
  std::size_t next_failure = 0;
  for (const std::uint32_t slot : task.slots) {
    if (next_large < task.large.size() && task.large[next_large].first == slot) {
      const std::uint64_t bytes = task.large[next_large++].second;
      if (!loop_.ended) decoder_.AddLarge({&work, slot}, bytes);
    } else if (next_failure < task.failures.size() && task.failures[next_failure].first == slot) {
      Fail(work, slot, task.failures[next_failure++].second);
    } else {
      EndRow(work, slot);
    }
  }
  decoder_.StartLarge();
}

void Rows::OnArrived(RowRef row, Tier& tier) {
  StepWork& work = *row.step;
  const std::uint32_t slot = row.slot;
  work.samples[slot].entry = tier.Find(work.batch->samples[slot]);
  std::vector<std::uint32_t> resident;
  if (PlanFromTier(work, slot, resident)) return decoder_.Submit(work, resident);
  work.MarkRead(loop_.now_ns);
  PlanFromStorage(work, slot);
}

void Rows::OnInserted(RowRef row) {
  row.step->samples[row.slot].insert_into = nullptr;
  EndRow(*row.step, row.slot);
}

// A row is decoded, or is in its tier: done when both are.
void Rows::EndRow(StepWork& work, std::uint32_t slot) {
  if (--work.samples[slot].ends_left > 0) return;
  Release(work, slot);
  work.MarkDone(loop_.now_ns);
}

// The staging memory of a read goes back with the last row that lies in it, cells with theirs.
void Rows::Release(StepWork& work, std::uint32_t slot) const {
  SampleWork& row = work.samples[slot];
  row.entry.Reset();
  if (row.cells != kNoCells) residents_->Release(std::exchange(row.cells, kNoCells));
  for (std::size_t field = 0; field < loop_.fields.size(); ++field) {
    StoredPiece& piece = work.pieces[slot * loop_.fields.size() + field];
    auto* const read = static_cast<RowRead*>(std::exchange(piece.read, nullptr));
    if (read != nullptr && --read->pieces_left == 0) read->buffer.Reset();
  }
}

void Rows::ReleaseCells(StepWork& work) const {
  for (SampleWork& row : work.samples) {
    if (row.cells != kNoCells) residents_->Release(std::exchange(row.cells, kNoCells));
  }
}

void Rows::Fail(StepWork& work, std::uint32_t slot, const Status& status) {
  SampleWork& row = work.samples[slot];
  const bool from_node = std::exchange(row.nodes, {}).first != kNoNode;
  const bool from_tier = static_cast<bool>(row.entry);
  Release(work, slot);
  if (row.insert_into != nullptr) {
    tiers_->Finish(work.batch->samples[slot], *std::exchange(row.insert_into, nullptr),
                   Status(StatusCode::kCancelled, "the sample could not be read from storage"));
  }
  if ((from_tier || from_node) && !loop_.ended) {  // It comes from storage, and is inserted anew.
    work.batch->sources[slot] = kNoTier;
    row.insert_into = tiers_->FallBack(work.batch->samples[slot], from_node);
    return PlanFromStorage(work, slot);
  }
  const SampleId wanted = work.plan.deliveries[slot].sample;
  const LeftOut* const left_out = loop_.options.left_out.get();
  const std::uint64_t sample_count =
      left_out == nullptr ? loop_.fields.index().sample_count() : left_out->places();
  const bool substitute = loop_.options.on_error == OnError::kSubstitute &&
                          IsErrorOfSample(status.code()) && !loop_.ended && sample_count > 1 &&
                          row.draws < loop_.options.substitutes_max;
  if (!substitute) {
    if (!work.error.has_value() || slot < work.error->first) {
      const bool gives_up = row.draws > 0 && row.draws == loop_.options.substitutes_max;
      const Status last =
          gives_up ? WithoutStandIn(status, wanted, row.draws, sample_count) : WithRemedy(status);
      work.error.emplace(slot, last.WithContext(Describe(work, slot)));
    }
    work.MarkDone(loop_.now_ns);
    return;
  }
  if (row.reason.ok()) row.reason = status.WithContext(Describe(work, slot));
  const auto draw = [&](SampleId one) {
    return DrawStandIn(loop_.options.seed, work.plan.epoch, one, row.draws++, sample_count);
  };
  work.batch->samples[slot] = left_out == nullptr
                                  ? draw(wanted)
                                  : left_out->At(draw(SampleId{left_out->PlacesBefore(wanted)}));
  if (const Status room = MakeInlineRoom(work, slot); !room.ok()) return Fail(work, slot, room);
  if (loop_.fields.empty()) {
    decoder_.Submit(work, {&slot, 1});
  } else {
    PlanFromStorage(work, slot);
  }
}

// "epoch 0 step 3 sample 42 (n01/x.jpg)"
std::string Rows::Describe(const StepWork& work, std::uint32_t slot) const {
  const SampleId sample = work.batch->samples[slot];
  std::string text =
      fmt::format("epoch {} step {} sample {}", work.plan.epoch, work.plan.step, Raw(sample));
  if (loop_.fields.empty()) return text;
  const Index& index = loop_.fields.index();
  const Result<Extent> extent = index.extent(loop_.fields[0].index_field, sample);
  if (!extent.ok()) return text;
  const Result<ObjectInfo> object = index.object(extent.value().object);
  if (object.ok())
    text.append(" (").append(FileName(index.root(), object.value().name)).append(")");
  return text;
}

}  // namespace headrace
