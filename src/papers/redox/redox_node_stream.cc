#include "papers/redox/redox_node_stream.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace headrace {

RedoxNodeStream::RedoxNodeStream(const RedoxOrderOptions& options,
                                 std::shared_ptr<const RedoxLayout> layout)
    : layout_(std::move(layout)),
      node_(options.job.node()),
      nodes_(options.nodes),
      whole_(options.read == RedoxOrderOptions::Reading::kChunk),
      split_(options.framing == RedoxOrderOptions::Framing::kSplit),
      next_to_(nodes_),
      next_from_(nodes_),
      kept_by_(layout_->sample_count()) {}

void RedoxNodeStream::Enter(std::vector<RedoxHeld> residents, Step& step) {
  // First what was sent along: a home reads a chunk of it as soon as what it read before is sent,
  // so that no node holds more than it did. Last what is at home.
  std::ranges::sort(residents, {}, [](const RedoxHeld& each) {
    return std::tuple(each.node == each.home, each.home, each.node, each.sample);
  });
  std::vector<std::uint32_t> samples;
  for (std::size_t begin = 0; begin < residents.size();) {
    const RedoxHeld& first = residents[begin];
    samples.clear();
    std::size_t end = begin;
    for (; end < residents.size() && residents[end].home == first.home &&
           residents[end].node == first.node;
         ++end) {
      samples.push_back(residents[end].sample);
    }
    begin = end;
    const auto [home, node] = std::pair(first.home, first.node);
    if (home == node_) ReadAgain(samples, step);
    if (home == node) continue;
    if (home == node_) SendParcel(node, samples, step);
    if (node == node_) {
      ExpectParcel(home, samples, true, step);
      for (const std::uint32_t sample : samples) along_units_ += layout_->units(sample);
    }
  }
  peak_along_units_ = along_units_;
}

void RedoxNodeStream::ReadAgain(std::span<const std::uint32_t> samples, Step& step) {
  const BlockMap& blocks = layout_->blocks();
  std::size_t first = step.reads.size();
  for (const std::uint32_t sample : samples) {
    const BlockRead* const last = step.reads.size() == first ? nullptr : &step.reads.back();
    if (last == nullptr || sample >= Raw(last->first) + last->count) {
      const BlockMap::Block block = blocks.block(blocks.Find(SampleId{sample}));
      BlockRead& read = step.reads.emplace_back();
      read.number = issued_++;
      read.first = block.first;
      read.count = block.count;
      read.again = true;
      ++read_again_;
    }
    BlockRead& read = step.reads.back();
    read.kept.push_back(sample - static_cast<std::uint32_t>(Raw(read.first)));
    Keep(sample);
  }
  for (; first < step.reads.size(); ++first) {
    BlockRead& read = step.reads[first];
    if (read.kept.size() == read.count) read.kept.clear();
  }
}

void RedoxNodeStream::Read(std::uint32_t home, std::uint32_t chunk,
                           std::span<const std::uint32_t> kept, Step& step) {
  if (home != node_) return;
  const BlockMap::Block block = layout_->blocks().block(chunk);
  BlockRead& read = step.reads.emplace_back();
  read.number = issued_++;
  read.first = block.first;
  read.count = block.count;
  read.whole = whole_;
  for (const std::uint32_t position : kept) {
    Keep(static_cast<std::uint32_t>(Raw(block.first)) + position);
  }
  ++chunk_reads_;
  if (kept.size() == read.count) return;
  read.kept.assign(kept.begin(), kept.end());
  std::ranges::sort(read.kept);
}

void RedoxNodeStream::Send(std::uint32_t home, std::uint32_t node, std::uint32_t answer,
                           std::span<const RedoxResident> along, Step& step) {
  if (home != node_ && node != node_) return;
  samples_.assign(1, answer);
  for (const RedoxResident& each : along) samples_.push_back(each.sample);
  const std::span<std::uint32_t> all(samples_);
  if (split_ && !along.empty()) {
    Pass(home, node, all.first(1), /*ahead=*/false, step);
    Pass(home, node, all.subspan(1), /*ahead=*/true, step);
  } else {
    Pass(home, node, all, /*ahead=*/false, step);
  }
  if (node != node_) return;
  for (const RedoxResident& each : along) along_units_ += layout_->units(each.sample);
  peak_along_units_ = std::max(peak_along_units_, along_units_);
}

void RedoxNodeStream::Pass(std::uint32_t home, std::uint32_t node, std::span<std::uint32_t> samples,
                           bool ahead, Step& step) {
  std::ranges::sort(samples);
  if (home != node_) return ExpectParcel(home, samples, false, step);
  SendParcel(node, samples, step).ahead = ahead;
  if (ahead) ++parcels_sent_ahead_;
}

Parcel& RedoxNodeStream::SendParcel(std::uint32_t to, std::span<const std::uint32_t> samples,
                                    Step& step) {
  Parcel& parcel = step.parcels.emplace_back();
  parcel.node = to;
  parcel.number = next_to_[to]++;
  for (const std::uint32_t sample : samples) {
    parcel.samples.push_back({.block_read = Drop(sample), .sample = SampleId{sample}});
    units_sent_ += layout_->units(sample);
  }
  ++parcels_sent_;
  samples_sent_ += samples.size();
  return parcel;
}

void RedoxNodeStream::ExpectParcel(std::uint32_t home, std::span<const std::uint32_t> samples,
                                   bool again, Step& step) {
  BlockRead& read = step.reads.emplace_back();
  read.number = issued_++;
  read.first = SampleId{samples.front()};
  read.count = samples.back() - samples.front() + 1;
  if (samples.size() != read.count) {
    for (const std::uint32_t sample : samples) read.kept.push_back(sample - samples.front());
  }
  read.again = again;
  read.home = home;
  read.parcel = next_from_[home]++;
  for (const std::uint32_t sample : samples) Keep(sample);
  ++parcels_received_;
}

std::optional<std::uint64_t> RedoxNodeStream::Take(std::uint32_t node, std::uint32_t sample,
                                                   bool sent_along) {
  if (node != node_) return std::nullopt;
  if (sent_along) along_units_ -= layout_->units(sample);
  return Drop(sample);
}

std::optional<std::uint64_t> RedoxNodeStream::TakeAnew(std::uint32_t node, std::uint32_t sample,
                                                       Step& step) {
  const std::uint32_t home = layout_->slots()[layout_->slots_of_samples()[sample]].home;
  if (home == node_ && node != node_) {
    BlockRead& read = step.reads.emplace_back();
    read.number = issued_++;
    read.first = SampleId{sample};
    read.count = 1;
    Keep(sample);
    SendParcel(node, std::span(&sample, 1), step);
  }
  if (node != node_) return std::nullopt;
  if (home == node_) return kNoBlockRead;
  ExpectParcel(home, std::span(&sample, 1), false, step);
  return Drop(sample);
}

// The newest read has number issued_ - 1.
void RedoxNodeStream::Keep(std::uint32_t sample) {
  kept_by_[sample] = static_cast<std::uint32_t>(issued_ - 1);
  units_ += layout_->units(sample);
  peak_units_ = std::max(peak_units_, units_);
}

std::uint64_t RedoxNodeStream::Drop(std::uint32_t sample) {
  HEADRACE_CHECK(units_ >= layout_->units(sample));
  units_ -= layout_->units(sample);
  // Fewer than 2^32 reads have samples in memory.
  return issued_ - (static_cast<std::uint32_t>(issued_) - kept_by_[sample]);
}

void RedoxNodeStream::AddCounters(double unit_bytes,
                                  std::map<std::string, double>& counters) const {
  const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
  counters["parcels_sent"] = number(parcels_sent_);
  counters["parcels_sent_ahead"] = number(parcels_sent_ahead_);
  counters["parcels_received"] = number(parcels_received_);
  counters["samples_sent"] = number(samples_sent_);
  counters["bytes_sent"] = number(units_sent_) * unit_bytes;
  counters["node_misses"] = number(chunk_reads_);
  counters["node_peak_remote_bytes"] = number(peak_along_units_) * unit_bytes;
  counters["node_peak_resident_bytes"] = number(peak_units_) * unit_bytes;
}

}  // namespace headrace
