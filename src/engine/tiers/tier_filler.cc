#include "engine/tiers/tier_filler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "engine/tiers/entry_form.h"

namespace headrace {
namespace {

// Of the reads in flight, what nobody waits for may be one in so many.
constexpr std::uint32_t kReadsToAFill = 4;
constexpr std::size_t kFillsMax = 32;

// Samples that wait for other nodes: beyond that these ask storage themselves.
constexpr std::size_t kBroughtMax = 8192;

// The deadline of a fill's tasks: a row of a step that is due may wait for them, or come to wait,
// and they copy, where others decode.
constexpr std::uint64_t kAtOnce = 0;

// Of so many reads one at least is this node's own, and one for others, while both have some.
constexpr std::uint32_t kTurns = 4;

}  // namespace

// One read of a fill.
struct TierFiller::FillRead : Fetch {
  Fill* fill = nullptr;
};

// A sample on its way into a tier that nobody waits for: fetched ahead of its first use, or moved
// from another tier.
struct TierFiller::Fill {
  TierCache::Ahead ahead;       // the sample, its tier, and another node that it comes from
  Tier::EntryRef from;          // empty: not from another tier
  std::vector<FillRead> reads;  // one a stored field, or one of the entry or the node
  std::size_t reads_left = 0;
  std::uint64_t deadline = 0;
  bool brought = false;  // another node asked for it
  Status error;
};

TierFiller::TierFiller(LoopContext& loop, TierCache& cache, const MachineModel* model,
                       TierFillerClient& client)
    : loop_(loop), cache_(cache), choice_(model, cache, loop.fields), client_(client) {
  counts_.uses.resize(cache.tiers().size());
}

TierFiller::~TierFiller() = default;

SampleChain TierFiller::Choose(SampleId sample, Tier::EntryRef entry, bool asks) {
  if (!entry && inserting_.contains(Raw(sample))) {  // The row waits for it.
    return {{}, asks ? cache_.HoldersOf(sample).nodes : std::nullopt};
  }
  const SourceChoice::Sources from = choice_.Choose(sample, entry, asks);
  if (entry && from.tier) return {std::move(entry), {}};
  if (entry) {
    ++counts_.tiers_passed;
  } else if (asks && !from.nodes.has_value()) {
    counts_.nodes_passed += cache_.HoldersOf(sample).nodes.has_value();
  }
  return {{}, from.nodes};
}

std::optional<Holders> TierFiller::FindForBlock(const BlockRead& block, std::uint32_t samples,
                                                bool asks, std::vector<Tier::EntryRef>& entries) {
  const SampleId first = KeptSampleId(block, 0);
  const SourceChoice::Sources from =
      choice_.ChooseForBlock(block, samples, loop_.options.block_read_bytes_max, asks);
  for (std::uint32_t place = 0; place < samples; ++place) {
    Tier::EntryRef entry = cache_.Find(KeptSampleId(block, place));
    if (entry && from.tier) {
      if (entries.empty()) entries.resize(samples);
      entries[place] = std::move(entry);
    } else if (entry) {
      ++counts_.tiers_passed;
    } else if (choice_.by_model() && asks && !from.nodes.has_value()) {
      counts_.nodes_passed += cache_.HoldersOf(first).nodes.has_value();
    }
  }
  return from.nodes;
}

Tier* TierFiller::TierToFill(SampleId sample) const {
  Tier* const tier = cache_.Wanted(sample);
  // Without a model what a tier has is taken from there.
  if (tier != nullptr && choice_.by_model() && tier->Find(sample)) return nullptr;
  return tier;
}

TierNumber TierFiller::CountUse(SampleId sample, const Tier::EntryRef& entry) {
  const TierNumber number = cache_.NumberOf(entry.tier());
  TierUses& uses = counts_.uses.at(number);
  ++uses.samples;
  uses.bytes += entry.bytes();
  uses.ahead += cache_.TakeAheadMark(sample);
  return number;
}

bool TierFiller::Await(SampleId sample, RowRef row) {
  const auto inserting = inserting_.find(Raw(sample));
  if (inserting == inserting_.end()) return false;
  ++counts_.waits;
  inserting->second.waiting.push_back(row);
  return true;
}

Tier* TierFiller::TierForMiss(SampleId sample, RowRef row, std::uint64_t node_bytes) {
  ++(node_bytes > 0 ? counts_.node_uses : counts_.storage_uses);
  counts_.node_bytes += node_bytes;
  Tier* const tier = TierToFill(sample);
  if (tier != nullptr) inserting_.try_emplace(Raw(sample), Inserting{.reader = row});
  return tier;
}

Tier* TierFiller::FallBack(SampleId sample, RowRef row, SampleSource failed) {
  const bool from_node = failed == SampleSource::kNode;
  ++(from_node ? counts_.node_fallbacks : counts_.fallbacks);
  Tier* const tier = from_node ? TierToFill(sample) : cache_.Wanted(sample);
  if (tier == nullptr) return nullptr;
  return inserting_.try_emplace(Raw(sample), Inserting{.reader = row}).second ? tier : nullptr;
}

std::optional<Status> TierFiller::Insert(Tier& tier, SampleId sample,
                                         std::vector<std::span<const std::byte>> parts,
                                         RowRef row) {
  if (tier.in_memory()) {
    Status inserted;
    tier.Insert(sample, std::move(parts),
                [&inserted](Status status) { inserted = std::move(status); });
    return inserted;
  }
  const std::uint32_t most = loop_.options.tier_inserts_max;
  if (inserts_.fetch_add(1) >= most) {
    inserts_.fetch_sub(1);
    return ResourceExhausted(
        "inserting sample {} into a tier: {} inserts wait for its disk already", Raw(sample), most);
  }
  loop_.inbox.BeginWork();
  tier.Insert(sample, std::move(parts), [this, &tier, sample, row](Status status) {
    inserts_.fetch_sub(1);
    loop_.Post([this, &tier, sample, row, status = std::move(status)] {
      Finish(sample, tier, status);
      client_.OnInserted(row);
    });
  });
  return std::nullopt;
}

void TierFiller::Finish(SampleId sample, Tier& tier, const Status& status) {
  counts_.not_kept += !status.ok();
  const auto inserted = inserting_.extract(Raw(sample));
  if (!brought_.empty())
    AnswerBrought(sample, status);  // Before the plan may take the sample out again.
  if (!inserted.empty() && !loop_.ended) {
    for (const RowRef& row : inserted.mapped().waiting) client_.OnArrived(row, tier);
  }
  if (!status.ok()) return;
  cache_.OnArrived(sample, tier);
  if (!loop_.ended) IssueMoves();
}

void TierFiller::IssueMoves() {
  while (std::optional<TierMove> move = cache_.NextMove()) {
    Tier* const to = cache_.Wanted(move->sample);
    if (to == nullptr) continue;
    auto fill = std::make_unique<Fill>();
    fill->ahead = {.sample = move->sample, .tier = to};
    fill->deadline = loop_.LastDeadline();
    fill->from = std::move(move->entry);
    fill->reads.resize(1);
    fill->reads.front().from = &fill->from;
    const bool may =
        fills_.size() - bringing_ < kFillsMax && !inserting_.contains(Raw(move->sample));
    if (may && AcquireWithin(*fill)) {
      Issue(std::move(fill));
    } else {
      ++counts_.not_kept;
    }
  }
  loop_.fetcher.Flush();
}

void TierFiller::IssueReads(bool idle) {
  while (may_bring() && loop_.fetcher.has_room()) {
    if (IssueNextBrought() == Issued::kNoMemory) break;
  }
  if (idle) IssueAhead();
  loop_.fetcher.Flush();  // Of all together: those that one other node gives are one request.
}

void TierFiller::IssueAhead() {
  const Fetcher& fetcher = loop_.fetcher;
  while (fills_.size() * kReadsToAFill < fetcher.in_flight_max() && fetcher.has_room()) {
    std::unique_ptr<Fill> fill = NextAhead();
    if (fill == nullptr) return;
    if (!AcquireWithin(*fill)) return cache_.PutBackAhead(fill->ahead);
    Issue(std::move(fill));
  }
}

// Null: there is none.
std::unique_ptr<TierFiller::Fill> TierFiller::NextAhead() {
  while (const auto ahead = cache_.NextAhead()) {
    if (inserting_.contains(Raw(ahead->sample))) continue;
    auto fill = Make(*ahead, loop_.LastDeadline());
    if (fill.ok())
      return std::move(fill).value();  // Else the row that delivers the sample reports it.
  }
  return nullptr;
}

// Errors: those of the index, which has no place of its bytes
Result<std::unique_ptr<TierFiller::Fill>> TierFiller::Make(const TierCache::Ahead& ahead,
                                                           std::uint64_t deadline) {
  auto fill = std::make_unique<Fill>();
  fill->ahead = ahead;
  fill->deadline = deadline;
  fill->reads = std::vector<FillRead>(loop_.fields.size());
  std::uint64_t bytes = 0;
  HEADRACE_RETURN_IF_ERROR(
      loop_.fields.VisitExtents(ahead.sample, [&](std::uint32_t field, const Extent& extent) {
        fill->reads[field].from = extent;
        bytes += extent.range.size;
      }));
  if (!ahead.node.has_value() || !loop_.asks_nodes || bytes == 0) return fill;
  if (choice_.StorageIsFaster(ahead.node->tier, bytes)) {
    fill->ahead.node.reset();
    ++counts_.nodes_passed;
    return fill;
  }
  fill->reads = std::vector<FillRead>(1);
  fill->reads.front().from =
      SampleAtNode{.nodes = {.first = ahead.node->node}, .sample = ahead.sample, .bytes = bytes};
  return fill;
}

// Somebody waits for it: now, not when there is nothing else to read.
void TierFiller::Bring(SampleId sample, std::uint64_t deadline, TakenEntry done) {
  const auto refuse = [&](Status why) { done(std::move(why)); };
  if (loop_.ended) return refuse(Status(StatusCode::kCancelled, "the run has ended"));
  if (Raw(sample) >= loop_.fields.index().sample_count()) {
    return refuse(InvalidArgument("bringing sample {}: the dataset has {}", Raw(sample),
                                  loop_.fields.index().sample_count()));
  }
  Tier* const tier = cache_.Wanted(sample);
  if (tier != nullptr) {
    if (Tier::EntryRef entry = tier->Find(sample)) return done(std::move(entry));
  } else if (loop_.sequence > 0) {
    return refuse(NotFound("bringing sample {}: the plan does not keep it now", Raw(sample)));
  }
  if (brought_.size() >= kBroughtMax) {
    return refuse(ResourceExhausted("bringing sample {}: {} others wait to be brought", Raw(sample),
                                    brought_.size()));
  }
  brought_.emplace(Raw(sample), std::move(done));
  // The engine issues it, after what is due earlier; also where a row is to read it, maybe much
  // later.
  to_bring_.emplace(deadline, sample);
}

void TierFiller::BringBefore(std::uint64_t deadline) {
  while (may_bring() && loop_.fetcher.has_room()) {
    const bool due = to_bring_.begin()->first <= deadline;
    if (due ? brought_in_row_ + 1 >= kTurns : own_in_row_ + 1 < kTurns) break;
    const Issued issued = IssueNextBrought();
    if (issued == Issued::kNoMemory) break;
    if (issued == Issued::kNoRead) continue;
    ++brought_in_row_;
    own_in_row_ = 0;
  }
  if (!may_bring()) {
    brought_in_row_ = own_in_row_ = 0;
  } else if (loop_.fetcher.has_room()) {  // The read of this node's own begins.
    ++own_in_row_;
    brought_in_row_ = 0;
  }
}

// Of the first in to_bring_, which it takes out unless there is no memory.
TierFiller::Issued TierFiller::IssueNextBrought() {
  const auto [deadline, sample] = *to_bring_.begin();
  auto issued = Issued::kNoRead;
  if (brought_.contains(Raw(sample))) {
    Tier* const tier = cache_.Wanted(sample);
    if (tier == nullptr || tier->Find(sample)) {
      AnswerBrought(sample, Status());
    } else {
      issued = IssueBrought(sample, *tier, deadline);
    }
  }
  if (issued != Issued::kNoMemory) to_bring_.erase(to_bring_.begin());
  return issued;
}

TierFiller::Issued TierFiller::IssueBrought(SampleId sample, Tier& tier, std::uint64_t deadline) {
  if (const auto inserting = inserting_.find(Raw(sample)); inserting != inserting_.end()) {
    const std::optional<RowRef> row = inserting->second.reader;
    if (!row.has_value()) return Issued::kNoRead;
    const auto memory = client_.IssueNow(*row);
    if (memory == Fetcher::Memory::kWait) return Issued::kNoMemory;
    return memory == Fetcher::Memory::kTaken ? Issued::kRead : Issued::kNoRead;
  }
  auto made = Make({.sample = sample, .tier = &tier}, deadline);
  if (!made.ok()) {
    AnswerBrought(sample, made.status());
    return Issued::kNoRead;
  }
  std::unique_ptr<Fill> fill = std::move(made).value();
  const auto memory = loop_.fetcher.Acquire(Prepare(*fill), loop_.staging, {.any = true});
  if (memory == Fetcher::Memory::kWait) return Issued::kNoMemory;
  if (memory == Fetcher::Memory::kNone) {
    AnswerBrought(sample,
                  ResourceExhausted("bringing sample {}: the system has no memory", Raw(sample)));
    return Issued::kNoRead;
  }
  fill->brought = true;
  ++bringing_;
  ++counts_.brought;
  Issue(std::move(fill));
  return Issued::kRead;
}

void TierFiller::AnswerBrought(SampleId sample, const Status& status) {
  const auto [begin, end] = brought_.equal_range(Raw(sample));
  for (auto each = begin; each != end; ++each) {
    Tier::EntryRef entry;
    if (status.ok()) entry = cache_.Find(sample);
    if (entry) {
      each->second(std::move(entry));
    } else {
      each->second(status.ok() ? NotFound("bringing sample {}: the plan has gone on", Raw(sample))
                               : status);
    }
  }
  brought_.erase(begin, end);
}

std::vector<TakenEntry> TierFiller::DropBrought() {
  to_bring_.clear();
  std::vector<TakenEntry> waiting;
  for (auto& [sample, done] : std::exchange(brought_, {})) waiting.push_back(std::move(done));
  return waiting;
}

std::vector<Fetch*> TierFiller::Prepare(Fill& fill) {
  std::vector<Fetch*> fetches;
  for (FillRead& read : fill.reads) {
    read.client = this;
    read.deadline = fill.deadline;
    read.fill = &fill;
    fetches.push_back(&read);
  }
  fill.reads_left = fetches.size();
  return fetches;
}

bool TierFiller::AcquireWithin(Fill& fill) {
  const std::vector<Fetch*> fetches = Prepare(fill);
  return loop_.fetcher.AcquireWithin(fetches, loop_.staging,
                                     {.keep_bytes = loop_.KeptBytes(*fetches.front())});
}

void TierFiller::Issue(std::unique_ptr<Fill> fill) {
  inserting_.try_emplace(Raw(fill->ahead.sample));
  Fill& issued = *fills_.emplace_back(std::move(fill));
  FillRead& first = issued.reads.front();
  // The tier it goes to gives it a checksum of its own: what changed here must not get there. Out
  // of memory it is copied and checked inside the call: work for a task.
  if (issued.from && issued.from.tier()->in_memory()) {
    loop_.fetcher.Begin(first);
    return loop_.Submit(kAtOnce, [this, fetch = static_cast<Fetch*>(&first)] {
      loop_.ReadFromTask({&fetch, 1});
    });
  }
  for (FillRead& read : issued.reads) loop_.fetcher.Start(read);
}

void TierFiller::OnFetched(Fetch& fetch, Result<std::span<std::byte>> data) {
  auto& read = static_cast<FillRead&>(fetch);
  Fill& fill = *read.fill;
  if (data.ok()) {
    read.data = data.value();
  } else if (fill.error.ok()) {
    fill.error = data.status();
  }
  if (--fill.reads_left > 0) return;
  if (loop_.ended && fill.error.ok()) {
    fill.error = Status(StatusCode::kCancelled, "the run has ended");
  }
  if (!fill.error.ok()) return OnFilled(fill, fill.error);
  loop_.Submit(kAtOnce, [this, &fill] { Run(fill); });
}

// A task: verifies what was read, and gives it to the tier.
void TierFiller::Run(Fill& fill) {
  const auto done = [this, &fill](Status status) {
    loop_.Post([this, &fill, status = std::move(status)] { OnFilled(fill, status); });
  };
  std::vector<std::span<const std::byte>> parts;
  if (fill.from) {  // A tier has compared it with a checksum of its own.
    parts.emplace_back(fill.reads.front().data);
  } else if (Status status = Verify(fill, parts); !status.ok()) {
    return done(std::move(status));
  }
  // Out of a tier it has the form of entries already.
  std::optional<Result<EntryForm::Memory>> memory;
  if (!fill.from && loop_.entry_form.decodes()) {
    memory.emplace(loop_.entry_form.Make(fill.ahead.sample, parts));
    if (!memory->ok()) return done(memory->status());
  }
  fill.ahead.tier->Insert(fill.ahead.sample, std::move(parts), done);
}

// Compares what was read with the index. Adds the bytes of each stored field to `parts`.
Status TierFiller::Verify(const Fill& fill, std::vector<std::span<const std::byte>>& parts) const {
  if (!fill.reads.front().at_node()) {
    for (const FillRead& read : fill.reads) parts.emplace_back(read.data);
  } else {  // All fields, one after the other.
    std::span<const std::byte> rest = fill.reads.front().data;
    const auto take = [&](std::uint32_t /*field*/, const Extent& extent) {
      parts.push_back(rest.first(extent.range.size));
      rest = rest.subspan(extent.range.size);
    };
    HEADRACE_RETURN_IF_ERROR(loop_.fields.VisitExtents(fill.ahead.sample, take));
  }
  for (std::size_t field = 0; field < parts.size(); ++field) {
    HEADRACE_RETURN_IF_ERROR(
        loop_.verifier.Check(loop_.fields[field].index_field, fill.ahead.sample, parts[field]));
  }
  return {};
}

void TierFiller::OnFilled(Fill& fill, const Status& status) {
  const auto here = std::find_if(fills_.begin(), fills_.end(),
                                 [&](const auto& each) { return each.get() == &fill; });
  HEADRACE_CHECK(here != fills_.end());
  const std::unique_ptr<Fill> done = std::move(*here);
  fills_.erase(here);
  if (done->brought) --bringing_;
  if (status.ok()) {
    if (!done->brought) ++(done->from ? counts_.moved : counts_.fetched_ahead);
    if (!done->from) cache_.MarkAhead(done->ahead.sample);
  }
  Finish(done->ahead.sample, *done->ahead.tier, status);
}

TierCounts TierFiller::counts() const {
  TierCounts counts = counts_;
  const std::span<const std::uint64_t> planned = cache_.planned_uses();
  counts.planned.assign(planned.begin(), planned.end());
  counts.to_keep = cache_.counts().to_keep;
  counts.not_kept += cache_.counts().moves_dropped;
  return counts;
}

}  // namespace headrace
