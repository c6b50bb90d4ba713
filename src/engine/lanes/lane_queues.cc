#include "engine/lanes/lane_queues.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace headrace {
namespace {

// Takes what `bytes` took into an average of lately, an eighth of which is the newest.
void Learn(std::int64_t ns, std::uint64_t bytes, double& ns_per_byte) {
  if (ns <= 0 || bytes == 0) return;
  const double now = static_cast<double>(ns) / static_cast<double>(bytes);
  ns_per_byte = ns_per_byte == 0 ? now : ns_per_byte + (now - ns_per_byte) / 8;
}

}  // namespace

LaneQueues::LaneQueues(std::vector<EngineLane> lanes, LanePolicy* policy)
    : policy_(policy), queues_(lanes.size()) {
  if (policy != nullptr) shares_.resize(lanes.size());
  for (std::size_t i = 0; i < lanes.size(); ++i) queues_[i].parts = std::move(lanes[i]);
}

void LaneQueues::AddReads(const StepWork& work, RowReads reads, bool early) {
  std::deque<RowReads>& queue = queues_[work.lane].to_read;
  auto place = queue.end();
  if (early) {
    place = std::find_if(queue.begin(), queue.end(), [&](const RowReads& each) {
      return each.front()->work->deadline >= work.deadline;
    });
  }
  queue.insert(place, std::move(reads));
  ++waiting_;
}

std::optional<WaitingReads> LaneQueues::NextReads() const {
  std::optional<WaitingReads> next;
  const auto deadline = [](const RowReads& reads) {
    const StepWork& work = *reads.front()->work;
    return work.Deadline(work.issued_bytes);
  };
  for (std::size_t lane = 0; lane < queues_.size(); ++lane) {
    const Queue& queue = queues_[lane];
    if (queue.to_read.empty() || queue.held) continue;
    if (!shares_.empty() && queue.reads_in_flight >= shares_[lane].reads) continue;
    const RowReads& reads = queue.to_read.front();
    if (next.has_value() && deadline(reads) >= deadline(*next->reads)) continue;
    next = {.reads = &reads, .lane = lane, .place = 0};
  }
  return next;
}

RowReads LaneQueues::TakeReads(const WaitingReads& waiting) {
  Queue& queue = queues_[waiting.lane];
  const auto at = queue.to_read.begin() + static_cast<std::ptrdiff_t>(waiting.place);
  RowReads taken = std::move(*at);
  queue.to_read.erase(at);
  --waiting_;
  queue.reads_in_flight += static_cast<std::uint32_t>(taken.size());
  return taken;
}

std::optional<WaitingReads> LaneQueues::ReadsWith(const RowRead& read) const {
  const std::deque<RowReads>& queue = queues_[read.work->lane].to_read;
  const auto of_step = std::partition_point(queue.begin(), queue.end(), [&](const RowReads& reads) {
    return reads.front()->work->deadline < read.work->deadline;
  });
  for (auto at = of_step; at != queue.end() && at->front()->work == read.work; ++at) {
    if (std::find(at->begin(), at->end(), &read) == at->end()) continue;
    return WaitingReads{.reads = &*at,
                        .lane = read.work->lane,
                        .place = static_cast<std::size_t>(at - queue.begin())};
  }
  return std::nullopt;
}

void LaneQueues::ResumeLanes() {
  for (Queue& queue : queues_) queue.held = false;
}

void LaneQueues::LearnRead(const RowRead& read, std::int64_t ns) {
  Queue& queue = queues_[read.work->lane];
  std::int64_t& sum = queue.read_ns.Of(read);
  sum += std::min(ns, std::numeric_limits<std::int64_t>::max() - sum);  // Simulated: centuries.
  Learn(ns, read.bytes(), queue.read_ns_per_byte.Of(read));
}

void LaneQueues::AddDecode(std::unique_ptr<DecodeTask> task, bool first) {
  std::deque<std::unique_ptr<DecodeTask>>& queue = queues_[task->work->lane].to_decode;
  if (first) {
    queue.push_front(std::move(task));
  } else {
    queue.push_back(std::move(task));
  }
}

void LaneQueues::CountDecode(const DecodeTask& task) {
  Queue& queue = queues_[task.work->lane];
  queue.decode_ns += task.decode_ns;
  queue.sample_bytes += task.stored_bytes;
  queue.copied_bytes += task.copied_bytes;
  Learn(task.decode_ns, task.stored_bytes, queue.decode_ns_per_byte);
}

Status LaneQueues::Split(Position at, std::vector<LaneWork> loads) {
  if (policy_ == nullptr) return Status();
  for (std::size_t lane = 0; lane < queues_.size(); ++lane) {
    const Queue& queue = queues_[lane];
    for (const RowReads& reads : queue.to_read) {
      for (const RowRead* const read : reads) loads[lane].queued_bytes.Of(*read) += read->bytes();
    }
    loads[lane].read_ns_per_byte = queue.read_ns_per_byte;
    loads[lane].decode_ns_per_byte = queue.decode_ns_per_byte;
  }
  Status status = policy_->Split(at, loads, shares_);
  for (const LaneShare& share : shares_) HEADRACE_CHECK(share.reads > 0 && share.decodes > 0);
  return status;
}

void LaneQueues::Drop() {
  for (Queue& queue : queues_) {
    queue.to_read.clear();
    queue.to_decode.clear();
  }
  waiting_ = 0;
}

void LaneQueues::AddTo(std::span<LaneStats> lanes) const {
  for (std::size_t lane = 0; lane < queues_.size(); ++lane) {
    const Queue& queue = queues_[lane];
    lanes[lane].sample_bytes = queue.sample_bytes;
    lanes[lane].copied_bytes = queue.copied_bytes;
    lanes[lane].decode_ns = queue.decode_ns;
    lanes[lane].tier_read_ns = queue.read_ns.tier;
    lanes[lane].node_read_ns = queue.read_ns.node;
    lanes[lane].storage_read_ns = queue.read_ns.storage;
    lanes[lane].queued_reads = queue.to_read.size();
  }
}

}  // namespace headrace
