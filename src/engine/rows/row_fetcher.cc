#include "engine/rows/row_fetcher.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/check.h"
#include "engine/tiers/entry_form.h"
#include "headrace/batch.h"

namespace headrace {

RowFetcher::RowFetcher(LoopContext& loop, LaneQueues& queues, std::shared_ptr<CellPool> residents,
                       RowFetcherClient& client)
    : loop_(loop),
      queues_(queues),
      residents_(std::move(residents)),
      client_(client),
      ragged_(loop, queues),
      warm_(loop, queues, *this),
      reader_(loop, queues, *this) {}

void RowFetcher::Connect(TierFiller* tiers, Residency* blocks) {
  tiers_ = tiers;
  reader_.Connect(tiers);
  blocks_ = blocks;
}

void RowFetcher::FindInTiers(StepWork& work) const {
  for (std::uint32_t slot = 0; slot < work.samples.size(); ++slot) {
    if (work.plan.deliveries[slot].block_read != kNoBlockRead) continue;
    const SampleId sample = work.plan.deliveries[slot].sample;
    work.samples[slot].chain = tiers_->Find(sample, loop_.asks_nodes);
  }
}

// With one stored field, samples that lie near each other are one read. With several, the reads of
// a sample are one group, whose memory is taken together: samples that each hold a part of the
// memory and wait for the rest would wait for ever.
void RowFetcher::Plan(StepWork& work) {
  std::vector<RowReader::Piece> pieces;
  pieces.reserve(work.pieces.size());
  std::vector<std::uint32_t> without_reads;
  std::vector<std::uint32_t> resident;
  std::vector<std::uint32_t> tried;
  std::optional<bool> may_try;
  KeptBytes kept;
  if (blocks_ != nullptr) blocks_->Prefetch(work.plan);
  const bool shares = loop_.storage.shares();
  for (std::uint32_t slot = 0; slot < work.samples.size(); ++slot) {
    const Delivery& delivery = work.plan.deliveries[slot];
    if (shares) work.samples[slot].chain.Share();
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
    if (tiers_ != nullptr && PlanFromChain(work, slot, /*early=*/false, resident)) continue;
    if (!may_try.has_value()) may_try = warm_.MayTry();
    if (*may_try && work.samples[slot].insert_into == nullptr && warm_.IsSmall(work, slot)) {
      tried.push_back(slot);
      continue;
    }
    const std::size_t before = pieces.size();
    if (Status status = FindPieces(work, slot, pieces); !status.ok()) {
      pieces.resize(before);
      work.MarkRead(loop_.now_ns);
      OnReadFailed(work, slot, status);
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
    client_.OnRead(work, without_reads);
  }
  if (!resident.empty()) client_.OnRead(work, resident);
  warm_.Try(work, tried);
  for (RowRead* const read : reader_.MakeReads(work, pieces)) queues_.AddReads(work, {read});
}

void RowFetcher::OnWarm(WarmTask& task) {
  StepWork& work = *task.work;
  loop_.fetcher.CountNow(task.slots.size(), task.stored_bytes);
  work.issued_bytes -= task.missed_bytes;
  work.copying_bytes -= task.stored_bytes + task.missed_bytes;
  work.MarkRead(loop_.now_ns, task.slots.size());
  if (!loop_.ended) PlanMissed(work, task);
  client_.OnDecoded(task);
}

// Plans the reads of rows that were tried in vain.
void RowFetcher::PlanMissed(StepWork& work, const WarmTask& task) {
  std::array<std::vector<RowReader::Piece>, 2> pieces;  // by whether the page cache lacks the row
  for (const auto& [slot, not_held] : task.missed) {
    if (not_held && work.plan.deliveries[slot].block_read != kNoBlockRead) blocks_->OnLeftCache();
    std::vector<RowReader::Piece>& alike = pieces[not_held ? 1 : 0];
    const std::size_t before = alike.size();
    if (const Status status = FindPieces(work, slot, alike); !status.ok()) {
      alike.resize(before);
      work.MarkRead(loop_.now_ns);
      OnReadFailed(work, slot, status);
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

RowReads RowFetcher::MakeMissed(StepWork& work, std::span<RowReader::Piece> pieces, bool not_held) {
  RowReads reads = reader_.MakeReads(work, pieces);
  for (RowRead* const read : reads) {
    read->tried = true;
    read->not_held = not_held;
  }
  return reads;
}

// Whether a row's bytes come from its tier or another node, or will be in a tier soon. Adds it to
// `resident` if they are there. Else they come from storage, and go into a tier on the way where
// the plan wants that.
bool RowFetcher::PlanFromChain(StepWork& work, std::uint32_t slot, bool early,
                               std::vector<std::uint32_t>& resident) {
  SampleWork& row = work.samples[slot];
  const SampleId sample = work.batch->samples[slot];
  if (row.chain.entry()) {
    if (TakeEntry(work, slot)) {
      work.batch->sources[slot] = tiers_->CountUse(sample, row.chain.entry());
      if (row.chain.first() == SampleSource::kMemory) {
        work.MarkRead(loop_.now_ns);
        resident.push_back(slot);
      } else {
        queues_.AddReads(work, {reader_.MakeEntryRead(work, slot)}, early);
      }
      return true;
    }
    row.chain.DropFirst();
  }
  if (tiers_->Await(sample, {&work, slot})) return true;
  if (row.chain.first() == SampleSource::kNode) {
    if (const auto bytes = ReadFromNode(work, slot, early); bytes.has_value()) {
      row.insert_into = tiers_->TierForMiss(sample, {&work, slot}, *bytes);
      return true;
    }
  }
  row.insert_into = tiers_->TierForMiss(sample, {&work, slot});
  return false;
}

// Plans the read of a row's sample from the node that is the first of its chain. Its bytes lie as
// in an entry of a tier. Returns how many they are; nothing: there is none to ask for, and storage
// is next.
std::optional<std::uint64_t> RowFetcher::ReadFromNode(StepWork& work, std::uint32_t slot,
                                                      bool early) {
  const Result<std::uint64_t> bytes = LayOut(work, slot);
  if (!bytes.ok() || bytes.value() == 0) {  // Storage reports it.
    work.samples[slot].chain.DropFirst();
    return std::nullopt;
  }
  ragged_.Fit(work, slot);
  work.batch->sources[slot] = kFromNode;
  queues_.AddReads(work, {reader_.MakeNodeRead(work, slot, bytes.value())}, early);
  return bytes.value();
}

// Says of the row's pieces that they lie one after the other, in cells or in an entry. Returns how
// many bytes they are.
Result<std::uint64_t> RowFetcher::LayOut(StepWork& work, std::uint32_t slot, bool in_entry) const {
  StoredPiece* const pieces = work.pieces.data() + slot * loop_.fields.size();
  const SampleId sample = work.batch->samples[slot];
  const bool decodes = in_entry && loop_.entry_form.decodes();
  std::uint64_t bytes = 0;
  HEADRACE_RETURN_IF_ERROR(loop_.fields.VisitExtents(sample, [&](std::uint32_t field,
                                                                 const Extent& extent) {
    std::optional<std::uint64_t> decoded;
    if (decodes) decoded = loop_.entry_form.DecodedBytes(sample, field);
    pieces[field] = {.offset = bytes, .size = extent.range.size, .form_bytes = decoded.value_or(0)};
    bytes += decoded.value_or(extent.range.size);
  }));
  return bytes;
}

// Whether the entry that was found is the sample's: then the row's pieces are in it.
bool RowFetcher::TakeEntry(StepWork& work, std::uint32_t slot) const {
  const Tier::EntryRef& entry = work.samples[slot].chain.entry();
  const Result<std::uint64_t> bytes = LayOut(work, slot, /*in_entry=*/true);
  if (!bytes.ok()) return false;
  if (bytes.value() != entry.bytes()) {
    entry.tier()->Erase(work.batch->samples[slot]);
    return false;
  }
  ragged_.Fit(work, slot);
  return true;
}

Status RowFetcher::FindPieces(const StepWork& work, std::uint32_t slot,
                              std::vector<RowReader::Piece>& pieces) const {
  return loop_.fields.VisitExtents(work.batch->samples[slot],
                                   [&](std::uint32_t field, const Extent& extent) {
                                     pieces.emplace_back(extent, PieceRef{slot, field});
                                   });
}

bool RowFetcher::ReadFromNext(StepWork& work, std::uint32_t slot) {
  SampleWork& row = work.samples[slot];
  const SampleId sample = work.batch->samples[slot];
  const SampleSource failed = row.chain.first();
  const bool is_left = row.chain.DropFirst();
  GiveBack(work, slot);
  if (row.insert_into != nullptr) {
    tiers_->Finish(sample, *std::exchange(row.insert_into, nullptr),
                   Status(StatusCode::kCancelled, "the sample could not be read from storage"));
  }
  if (!is_left || loop_.ended) return false;
  work.batch->sources[slot] = kNoTier;
  if (failed != SampleSource::kShare) {
    row.insert_into = tiers_->FallBack(sample, {&work, slot}, failed);  // It is inserted anew.
  }
  if (row.chain.first() == SampleSource::kNode) {
    if (const auto bytes = ReadFromNode(work, slot, /*early=*/true); bytes.has_value()) {
      ++work.samples_unread;
      tiers_->Count(&TierCounts::node_uses);
      tiers_->Count(&TierCounts::node_bytes, *bytes);
      return true;
    }
  }
  ReadFromStorage(work, slot);
  return true;
}

void RowFetcher::ReadStandIn(StepWork& work, std::uint32_t slot) {
  if (Status room = ragged_.MakeInlineRoom(work, slot); !room.ok()) {
    return client_.OnReadFailed(work, slot, std::move(room));
  }
  if (loop_.fields.empty()) {
    client_.OnRead(work, {&slot, 1});
  } else {
    ReadFromStorage(work, slot);
  }
}

// Ahead of all others: its step is older.
void RowFetcher::ReadFromStorage(StepWork& work, std::uint32_t slot) {
  std::vector<RowReader::Piece> pieces;
  Status status = FindPieces(work, slot, pieces);
  for (std::size_t i = 0; i < pieces.size() && status.ok(); ++i) {
    status = ragged_.MakeRoom(work, pieces[i]);
  }
  if (!status.ok()) return OnReadFailed(work, slot, std::move(status));
  work.samples[slot].pieces_left = static_cast<std::uint32_t>(pieces.size());
  ++work.samples_unread;
  const RowReads reads = reader_.MakeReads(work, pieces);
  const bool past_share = work.samples[slot].chain.first() == SampleSource::kStorage;
  for (RowRead* const read : reads) read->past_share = past_share;
  queues_.AddReads(work, reads, /*early=*/true);
}

void RowFetcher::OnReadFailed(StepWork& work, std::uint32_t slot, Status status) {
  // Bytes may be damaged in memory that jobs share; errors are of this job's own reads.
  SampleChain& chain = work.samples[slot].chain;
  if (chain.first() == SampleSource::kShare && status.code() != StatusCode::kDataLoss) {
    chain.DropFirst();
  }
  if (!ReadFromNext(work, slot)) client_.OnReadFailed(work, slot, std::move(status));
}

// Makes the bytes that a block read kept the row's. False: it failed.
bool RowFetcher::TakeKept(KeptBytes& kept) {
  StepWork& work = *kept.row.step;
  const std::uint32_t slot = kept.row.slot;
  work.MarkRead(loop_.now_ns);
  if (!kept.error.ok()) {
    OnReadFailed(work, slot, std::exchange(kept.error, Status()));
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

void RowFetcher::OnKept(std::span<KeptBytes> kept) {
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
      client_.OnRead(work, slots);
    }
  }
}

void RowFetcher::Insert(DecodeTask& task, std::uint32_t slot,
                        std::vector<std::span<const std::byte>> parts) {
  StepWork& work = *task.work;
  SampleWork& row = work.samples[slot];
  row.ends_left = 2;  // Its bytes have to stay until the tier has them.
  std::optional<Status> inserted =
      tiers_->Insert(*row.insert_into, work.batch->samples[slot], std::move(parts), {&work, slot});
  if (!inserted.has_value()) return;
  row.ends_left = 1;
  task.inserted.emplace_back(slot, *std::move(inserted));
}

void RowFetcher::FinishInserts(DecodeTask& task) {
  StepWork& work = *task.work;
  for (const auto& [slot, status] : task.inserted) {
    Tier* const tier = std::exchange(work.samples[slot].insert_into, nullptr);
    tiers_->Finish(work.batch->samples[slot], *tier, status);
  }
}

void RowFetcher::OnArrived(RowRef row, Tier& tier) {
  StepWork& work = *row.step;
  const std::uint32_t slot = row.slot;
  SampleChain& chain = work.samples[slot].chain;
  chain = SampleChain(tier.Find(work.batch->samples[slot]), chain.nodes());
  if (loop_.storage.shares()) chain.Share();
  std::vector<std::uint32_t> resident;
  // Later steps have lined up meanwhile.
  if (!PlanFromChain(work, slot, /*early=*/true, resident)) {
    work.MarkRead(loop_.now_ns);
    ReadFromStorage(work, slot);
  } else if (!resident.empty()) {
    client_.OnRead(work, resident);
  }
}

void RowFetcher::OnInserted(RowRef row) {
  row.step->samples[row.slot].insert_into = nullptr;
  client_.OnInserted(row);
}

void RowFetcher::GiveBack(StepWork& work, std::uint32_t slot) const {
  SampleWork& row = work.samples[slot];
  if (row.cells != kNoCells) residents_->Release(std::exchange(row.cells, kNoCells));
  for (std::size_t field = 0; field < loop_.fields.size(); ++field) {
    StoredPiece& piece = work.pieces[slot * loop_.fields.size() + field];
    auto* const read = static_cast<RowRead*>(std::exchange(piece.read, nullptr));
    if (read != nullptr && --read->pieces_left == 0) read->buffer.Reset();
  }
}

void RowFetcher::ReleaseCells(StepWork& work) const {
  for (SampleWork& row : work.samples) {
    if (row.cells != kNoCells) residents_->Release(std::exchange(row.cells, kNoCells));
  }
}

}  // namespace headrace
