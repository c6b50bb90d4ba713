#include "store/share/share_table.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {

std::optional<ShareTable::Job> ShareTable::Join(const std::string& dataset, Charge charge) {
  const auto free = std::ranges::find_if(jobs_, [](const auto& each) { return !each.has_value(); });
  if (free == jobs_.end()) return std::nullopt;
  const Job job = static_cast<Job>(free - jobs_.begin());
  free->emplace(JobState{.dataset = dataset, .charge = std::move(charge)});
  Dataset& joined = datasets_[dataset];
  joined.readers |= Bit(job);
  for (auto next = unwanted_.begin(); next != unwanted_.end();) {
    const ShareEntry id = *next++;  // Before the entry goes into another list.
    Entry& entry = entries_.at(id);
    if (entry.dataset == &joined) Sort(id, entry);
  }
  return job;
}

void ShareTable::Leave(Job job) {
  Dataset& dataset = datasets_.at(jobs_[job]->dataset);
  dataset.readers &= ~Bit(job);
  std::vector<ShareEntry> ids;
  for (const auto& [place, id] : dataset.entries) ids.push_back(id);
  std::ranges::sort(ids);  // The older ones first.
  for (const ShareEntry id : ids) {
    Entry& entry = entries_.at(id);
    entry.used &= ~Bit(job);
    if (entry.owner == job) {
      Count(entry, false);
      entry.owner.reset();
    }
    if (entry.in != nullptr) Sort(id, entry);
  }
  HEADRACE_CHECK(jobs_[job]->kept.empty());
  jobs_[job].reset();
  EraseIfUnused(dataset);
}

std::vector<SharePiece> ShareTable::Take(Job job, const Extent& extent, std::uint64_t gap_bytes,
                                         std::int64_t now_ns) {
  ++takes_;
  Dataset& dataset = datasets_.at(jobs_[job]->dataset);
  const std::vector<ShareEntry> known = Overlapping(dataset, extent);
  bool late = false;
  for (const ShareEntry id : known) {
    Entry& entry = entries_.at(id);
    entry.used |= Bit(job);
    entry.taken_by = takes_;
    if (entry.in != nullptr) {
      Sort(id, entry);
    } else {
      late = late || now_ns - entry.since_ns > options_.wait_max_ns;
    }
  }
  if (late) return {};
  std::vector<ShareEntry> replaced;
  const std::vector<ByteRange> absent = Absent(extent, known, gap_bytes, replaced);
  std::uint64_t bytes = 0;
  for (const ByteRange& range : absent) bytes += jobs_[job]->charge(range);
  for (const ShareEntry id : replaced) entries_.at(id).taken_by = 0;
  if (!absent.empty() && !MakeRoom(job, bytes, (dataset.readers & ~Bit(job)) != 0)) return {};
  for (const ShareEntry id : replaced) Drop(id);
  for (const ByteRange& range : absent) Add(job, dataset, extent.object, range, now_ns);
  std::vector<SharePiece> pieces;
  for (const ShareEntry id : Overlapping(dataset, extent)) {
    const Entry& entry = entries_.at(id);
    pieces.push_back({.entry = id,
                      .range = {entry.place.second, entry.size},
                      .is_new = entry.made_by == takes_});
  }
  return pieces;
}

void ShareTable::Held(ShareEntry id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  HEADRACE_CHECK(found->second.in == nullptr);
  Sort(id, found->second);
}

void ShareTable::Drop(ShareEntry id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  Count(entry, false);
  if (entry.in != nullptr) entry.in->erase(entry.at);
  used_bytes_ -= entry.charged;
  Dataset& dataset = *entry.dataset;
  dataset.entries.erase(entry.place);
  entries_.erase(found);
  gone_.push_back(id);
  EraseIfUnused(dataset);
}

std::vector<ShareEntry> ShareTable::Find(Job job, const Extent& extent) const {
  std::vector<ShareEntry> found = Overlapping(datasets_.at(jobs_[job]->dataset), extent);
  std::erase_if(found, [&](ShareEntry id) { return entries_.at(id).in == nullptr; });
  return found;
}

std::uint64_t ShareTable::quota() const {
  std::uint64_t sharing = 0;
  for (const std::optional<JobState>& job : jobs_) {
    if (!job.has_value()) continue;
    const Jobs readers = datasets_.at(job->dataset).readers;
    sharing += (readers & (readers - 1)) != 0 ? 1 : 0;  // There is a second one.
  }
  return options_.capacity_bytes / std::max<std::uint64_t>(sharing, 1);
}

std::vector<ShareEntry> ShareTable::Overlapping(const Dataset& dataset,
                                                const Extent& extent) const {
  std::vector<ShareEntry> found;
  const std::uint64_t object = Raw(extent.object);
  auto next = dataset.entries.upper_bound({object, extent.range.offset});
  if (next != dataset.entries.begin()) {
    const auto before = std::prev(next);
    const Entry& entry = entries_.at(before->second);
    if (before->first.first == object && entry.end() > extent.range.offset) next = before;
  }
  for (; next != dataset.entries.end() && next->first < Place{object, extent.range.end()}; ++next) {
    found.push_back(next->second);
  }
  return found;
}

std::vector<ByteRange> ShareTable::Absent(const Extent& extent, std::span<const ShareEntry> known,
                                          std::uint64_t gap_bytes,
                                          std::vector<ShareEntry>& replaced) const {
  std::vector<ByteRange> absent;
  std::vector<ShareEntry> between;  // since the newest of `absent`
  bool may_replace = true;
  const auto add = [&](std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    if (!absent.empty() && may_replace && begin - absent.back().end() < gap_bytes) {
      absent.back().size = end - absent.back().offset;
      replaced.insert(replaced.end(), between.begin(), between.end());
    } else {
      absent.push_back({begin, end - begin});
    }
    between.clear();
    may_replace = true;
  };
  std::uint64_t at = extent.range.offset;
  for (const ShareEntry id : known) {
    const Entry& entry = entries_.at(id);
    add(at, entry.place.second);
    at = entry.end();
    between.push_back(id);
    may_replace = may_replace && entry.in != nullptr;
  }
  add(at, extent.range.end());
  return absent;
}

bool ShareTable::MakeRoom(Job job, std::uint64_t bytes, bool wanted) {
  if (bytes > options_.capacity_bytes) return false;
  if (used_bytes_ + bytes <= options_.capacity_bytes) return true;
  const bool own = wanted && jobs_[job]->refusals + 1 == kOwnEvery;
  while (used_bytes_ + bytes > options_.capacity_bytes) {
    const std::optional<ShareEntry> victim = Victim(job, bytes, wanted, own);
    if (!victim.has_value()) {
      jobs_[job]->refusals = (jobs_[job]->refusals + 1) % kOwnEvery;
      return false;
    }
    Drop(*victim);
  }
  if (own) jobs_[job]->refusals = 0;
  return true;
}

std::optional<ShareEntry> ShareTable::Victim(Job job, std::uint64_t bytes, bool wanted,
                                             bool own) const {
  std::optional<ShareEntry> victim = OldestOf(unwanted_);
  if (victim.has_value() || !wanted) return victim;
  victim = OldestOf(ownerless_);
  if (victim.has_value()) return victim;
  const std::uint64_t quota = this->quota();
  if (jobs_[job]->bytes + bytes <= quota) {
    std::uint64_t most = 0;
    for (Job other = 0; other < kShareJobsMax; ++other) {
      if (!jobs_[other].has_value() || other == job ||
          jobs_[other]->bytes < std::max(quota, most)) {
        continue;
      }
      const std::optional<ShareEntry> oldest = OldestOf(jobs_[other]->kept);
      if (!oldest.has_value()) continue;
      if (jobs_[other]->bytes - entries_.at(*oldest).charged < quota) continue;
      most = jobs_[other]->bytes;
      victim = oldest;
    }
    if (victim.has_value()) return victim;
  }
  return own ? OldestOf(jobs_[job]->kept) : std::nullopt;
}

std::optional<ShareEntry> ShareTable::OldestOf(const List& list) const {
  const auto oldest =
      std::ranges::find_if(list, [&](ShareEntry id) { return entries_.at(id).taken_by != takes_; });
  return oldest == list.end() ? std::nullopt : std::optional(*oldest);
}

void ShareTable::Add(Job job, Dataset& dataset, ObjectId object, ByteRange range,
                     std::int64_t now_ns) {
  const ShareEntry id{++next_entry_};
  Entry entry{.dataset = &dataset,
              .place = {Raw(object), range.offset},
              .size = range.size,
              .charged = jobs_[job]->charge(range),
              .used = Bit(job),
              .owner = job,
              .since_ns = now_ns,
              .made_by = takes_};
  dataset.entries.emplace(entry.place, id);
  used_bytes_ += entry.charged;
  Count(entry, true);
  entries_.emplace(id, entry);
}

void ShareTable::Sort(ShareEntry id, Entry& entry) {
  const bool wanted = (entry.dataset->readers & ~entry.used) != 0;
  List* const list = !wanted                   ? &unwanted_
                     : entry.owner.has_value() ? &jobs_[*entry.owner]->kept
                                               : &ownerless_;
  Count(entry, wanted && entry.owner.has_value());
  if (entry.in == list) return;
  if (entry.in == nullptr) {
    entry.at = list->insert(list->end(), id);
  } else {
    list->splice(list->end(), *entry.in, entry.at);
  }
  entry.in = list;
}

void ShareTable::Count(Entry& entry, bool counted) {
  if (entry.counted == counted) return;
  entry.counted = counted;
  std::uint64_t& bytes = jobs_[*entry.owner]->bytes;
  bytes = counted ? bytes + entry.charged : bytes - entry.charged;
}

void ShareTable::EraseIfUnused(const Dataset& dataset) {
  if (dataset.readers != 0 || !dataset.entries.empty()) return;
  std::erase_if(datasets_, [&](const auto& each) { return &each.second == &dataset; });
}

}  // namespace headrace
