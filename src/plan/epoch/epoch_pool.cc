#include "plan/epoch/epoch_pool.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace headrace {

__extension__ using Uint128 = unsigned __int128;

EpochSequence::EpochSequence(const BlockMap& blocks, EpochHomes::Blocks own,
                             const EpochStretches& stretches, Permutation order)
    : blocks_(blocks), own_(own), stretches_(stretches), permutation_(std::move(order)) {
  starts_.reserve(stretches.pools);
  std::uint64_t before = 0;  // samples of the blocks before `at`
  for (std::uint64_t at = 0; starts_.size() < stretches.pools; ++at) {
    HEADRACE_CHECK(at < own_.size());
    const std::uint64_t end = before + Block(at).count;
    while (starts_.size() < stretches.pools && stretches.Begin(starts_.size()) < end) {
      const std::uint64_t offset = stretches.Begin(starts_.size()) - before;
      starts_.push_back({.at = at, .offset = static_cast<std::uint32_t>(offset)});
    }
    before = end;
  }
}

EpochSequence::Cursor EpochSequence::Begin(std::uint64_t pool) const {
  return {.at = starts_[pool].at, .offset = starts_[pool].offset, .left = stretches_.Length(pool)};
}

EpochSequence::Piece EpochSequence::Take(Cursor* cursor) const {
  const BlockMap::Block block = Block(cursor->at);
  const std::uint64_t count = std::min<std::uint64_t>(block.count - cursor->offset, cursor->left);
  const Piece piece{.first = SampleId{Raw(block.first) + cursor->offset},
                    .count = static_cast<std::uint32_t>(count)};
  *cursor = {.at = cursor->at + 1, .offset = 0, .left = cursor->left - count};
  return piece;
}

const EpochSequence& EpochPoolPlan::Sequence(std::uint64_t epoch) {
  std::optional<Made>& made = made_[epoch % 2];
  if (!made.has_value() || made->epoch != epoch) {
    made.reset();  // Freed before the new one is made: two permutations at a time, not three.
    const EpochHomes::Blocks own =
        options_.homes == nullptr
            ? EpochHomes::Blocks(0, 1, options_.blocks->block_count(), nullptr)
            : options_.homes->blocks(options_.home);
    Permutation order(own.size(), options_.seed, epoch, RandomStream::kOrder,
                      options_.bijection_from, options_.home);
    made.emplace(
        Made{epoch, EpochSequence(*options_.blocks, own, options_.stretches, std::move(order))});
  }
  return made->sequence;
}

std::uint64_t EpochPoolPlan::FirstFillJoin(std::uint64_t epoch, std::uint64_t units) const {
  const std::uint64_t at_once = epoch == 0 ? options_.full_join_of_run : options_.full_join;
  if (epoch == 0 && options_.first_join != 0) {
    if (units <= at_once) return 0;
    return static_cast<std::uint64_t>(Uint128{units - at_once} * options_.first_join /
                                      (options_.budget - at_once));
  }
  if (units <= at_once || options_.budget == options_.full_join) return 0;
  return static_cast<std::uint64_t>(Uint128{units - at_once} * options_.delay /
                                    (options_.budget - options_.full_join));
}

EpochPool::EpochPool(EpochPoolPlan* plan, std::uint64_t pool, std::uint64_t epoch,
                     std::uint64_t end_epoch)
    : budget_(plan->options().budget),
      words_(plan->options().seed, epoch, RandomStream::kPool, plan->Number(pool)),
      plan_(plan),
      pool_(pool),
      end_epoch_(end_epoch),
      epoch_(epoch),
      issue_epoch_(epoch),
      cursor_(plan->Sequence(epoch).Begin(pool)) {
  PrepareNext();
}

void EpochPool::PrepareNext() {
  next_units_ = kNever;
  while (cursor_.left == 0) {
    if (issue_epoch_ > epoch_ || issue_epoch_ + 1 >= end_epoch_) return;
    ++issue_epoch_;
    cursor_ = plan_->Sequence(issue_epoch_).Begin(pool_);
    issue_units_ = 0;
    last_join_ = 0;
  }
  const EpochSequence::Piece taken = plan_->Sequence(issue_epoch_).Take(&cursor_);
  if (free_.empty()) {
    next_ = static_cast<std::uint32_t>(pieces_.size());
    pieces_.emplace_back();
  } else {
    next_ = free_.back();
    free_.pop_back();
  }
  Piece& piece = pieces_[next_];
  piece.first = Raw(taken.first);
  piece.count = taken.count;
  piece.units.resize(taken.count);
  plan_->options().blocks->Charges(taken.first, piece.units);
  std::uint64_t sum = 0;
  bool equal = true;
  for (const std::uint32_t units : piece.units) {
    sum += units;
    equal = equal && units == piece.units.front();
  }
  piece.each = equal ? piece.units.front() : 0;
  if (piece.each != 0) piece.units = {};
  next_units_ = sum;
}

BlockRead EpochPool::Issue(std::uint64_t number) {
  HEADRACE_CHECK(CanIssue());
  Piece& piece = pieces_[next_];
  piece.number = number;
  piece.left = piece.count;
  piece.ordinal = issued_++;
  resident_ += next_units_;
  issue_units_ += next_units_;
  // Only the first fill of the next epoch is ever issued early: all of it is still resident.
  const std::uint64_t join = issue_units_ <= budget_
                                 ? plan_->FirstFillJoin(issue_epoch_, issue_units_)
                                 : draw_ + plan_->options().delay;
  last_join_ = std::max(last_join_, join);
  waiting_.push_back({.epoch = issue_epoch_, .join = last_join_, .piece = next_});
  if (waiting_.size() == 1) UpdateDue();
  BlockRead read{.number = number, .first = SampleId{piece.first}, .count = piece.count};
  PrepareNext();
  return read;
}

void EpochPool::UpdateDue() {
  due_ = !waiting_.empty() && waiting_.front().epoch == epoch_ ? waiting_.front().join : kNever;
}

void EpochPool::JoinFirstWaiting() {
  HEADRACE_CHECK(due_ != kNever);
  const std::uint32_t piece = waiting_.front().piece;
  for (std::uint32_t offset = 0; offset < pieces_[piece].count; ++offset) {
    joined_.push_back({.piece = piece, .offset = offset});
  }
  waiting_.pop_front();
  UpdateDue();
}

void EpochPool::Choose() {
  while (due_ <= draw_) JoinFirstWaiting();
  if (joined_.empty()) {
    JoinFirstWaiting();
    ++early_joins_;
  }
  chosen_ = words_.Below(joined_.size());
  __builtin_prefetch(&joined_[chosen_], 1);
}

void EpochPool::Locate() { __builtin_prefetch(&pieces_[joined_[chosen_].piece], 1); }

EpochPool::Drawn EpochPool::Take() {
  const Entry entry = joined_[chosen_];
  joined_[chosen_] = joined_.back();
  joined_.pop_back();
  ++draw_;
  Piece& piece = pieces_[entry.piece];
  const std::uint64_t units = piece.each != 0 ? piece.each : piece.units[entry.offset];
  resident_ -= units;
  if (--piece.left == 0) free_.push_back(entry.piece);
  return {
      .sample = SampleId{piece.first + entry.offset}, .block_read = piece.number, .units = units};
}

void EpochPool::BeginNextEpoch() {
  HEADRACE_CHECK(joined_.empty() && due_ == kNever && epoch_ + 1 < end_epoch_);
  ++epoch_;
  draw_ = 0;
  words_ = Prng(plan_->options().seed, epoch_, RandomStream::kPool, plan_->Number(pool_));
  UpdateDue();
  if (next_units_ == kNever) PrepareNext();
}

std::vector<EpochPool::Resident> EpochPool::Residents() const {
  std::vector<Resident> residents;
  std::vector<std::size_t> of_piece(pieces_.size(), 0);
  for (std::uint32_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    if (piece.left == 0) continue;
    of_piece[i] = residents.size();
    residents.push_back(
        {.read = {.number = piece.number, .first = SampleId{piece.first}, .count = piece.count},
         .ordinal = piece.ordinal,
         .piece = i});
  }
  for (const Entry& entry : joined_) {
    const Piece& piece = pieces_[entry.piece];
    if (piece.left == piece.count) continue;
    residents[of_piece[entry.piece]].read.kept.push_back(entry.offset);
  }
  const std::uint64_t draws = plan_->options().stretches.Length(pool_);
  for (const Waiting& waiting : waiting_) {
    const std::uint64_t epochs_ahead = waiting.epoch - epoch_;
    residents[of_piece[waiting.piece]].join = waiting.join + epochs_ahead * draws;
  }
  for (Resident& resident : residents) std::ranges::sort(resident.read.kept);
  std::ranges::sort(residents, {}, &Resident::ordinal);
  return residents;
}

std::uint64_t EnteredPools::Enter(EpochPool* pool, std::uint64_t draws, bool first_step,
                                  bool reads) {
  const auto issue = [pool] {
    while (pool->CanIssue()) pool->Issue(0);
  };
  issue();
  for (std::uint64_t draw = 0; draw < draws; ++draw) {
    issue();
    pool->Draw();
  }
  const std::uint64_t again = first_step ? 0 : pool->issued();
  issue();
  if (reads) {
    for (EpochPool::Resident& resident : pool->Residents()) {
      resident.read.again = resident.ordinal < again;
      reads_.push_back({.resident = std::move(resident), .pool = pool, .turn = pools_});
    }
    ++pools_;
  }
  return pool->early_joins();
}

std::vector<BlockRead> EnteredPools::Reads(std::uint64_t* number) {
  // Stable: keeps each pool's order of issue.
  std::ranges::stable_sort(reads_, {}, [](const Read& read) {
    return std::tuple(!read.resident.read.again, read.resident.join, read.turn);
  });
  std::vector<BlockRead> reads;
  reads.reserve(reads_.size());
  for (Read& read : reads_) {
    read.pool->SetNumber(read.resident.piece, *number);
    read.resident.read.number = (*number)++;
    reads.push_back(std::move(read.resident.read));
  }
  reads_.clear();
  return reads;
}

}  // namespace headrace
