#include "plan/epoch/epoch_parcels.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace headrace {

EpochParcels::EpochParcels(std::uint32_t node, std::uint32_t nodes, std::uint64_t limit)
    : node_(node),
      limit_(limit),
      held_(nodes),
      outgoing_(nodes),
      arriving_(nodes),
      arriving_units_(nodes),
      sent_parcels_(nodes),
      received_parcels_(nodes) {}

void EpochParcels::Send(const Sent& sent, Step* step, std::uint64_t* reads) {
  HEADRACE_CHECK(sent.units <= limit_ && sent.home != sent.to);
  if (held_[sent.home] + sent.units > limit_) Flush(sent.home, step, reads);
  held_[sent.home] += sent.units;
  if (sent.home == node_) {
    outgoing_[sent.to].push_back({.block_read = sent.block_read, .sample = sent.sample});
    ++sent_.samples;
    sent_.units += sent.units;
    peak_ = std::max(peak_, held_[node_]);
  } else if (sent.to == node_) {
    arriving_[sent.home].push_back({.sample = sent.sample, .delivery = sent.delivery});
    arriving_units_[sent.home] += sent.units;
  }
}

void EpochParcels::FlushAll(Step* step, std::uint64_t* reads) {
  for (std::uint32_t home = 0; home < held_.size(); ++home) Flush(home, step, reads);
}

void EpochParcels::Flush(std::uint32_t home, Step* step, std::uint64_t* reads) {
  if (home == node_) {
    SendOwn(step);
  } else if (!arriving_[home].empty()) {
    Receive(home, step, reads);
  }
  held_[home] = 0;
}

void EpochParcels::SendOwn(Step* step) {
  for (std::uint32_t node = 0; node < outgoing_.size(); ++node) {
    if (outgoing_[node].empty()) continue;
    std::ranges::sort(outgoing_[node], {}, &Release::sample);
    step->parcels.push_back({.node = node,
                             .number = sent_parcels_[node]++,
                             .samples = std::exchange(outgoing_[node], {})});
    ++sent_.parcels;
  }
}

void EpochParcels::Receive(std::uint32_t home, Step* step, std::uint64_t* reads) {
  std::vector<Arriving>& arriving = arriving_[home];
  std::ranges::sort(arriving, {}, &Arriving::sample);
  const std::uint64_t first = Raw(arriving.front().sample);
  BlockRead read{.number = (*reads)++,
                 .first = arriving.front().sample,
                 .count = static_cast<std::uint32_t>(Raw(arriving.back().sample) - first + 1),
                 .home = home,
                 .parcel = received_parcels_[home]++};
  read.kept.reserve(arriving.size());
  for (const Arriving& each : arriving) {
    read.kept.push_back(static_cast<std::uint32_t>(Raw(each.sample) - first));
    step->deliveries[each.delivery].block_read = read.number;
  }
  step->reads.push_back(std::move(read));
  peak_ = std::max(peak_, held_[node_] + arriving_units_[home]);
  ++received_.parcels;
  received_.samples += arriving.size();
  received_.units += arriving_units_[home];
  arriving_units_[home] = 0;
  arriving.clear();
}

void EpochParcels::Sort(Step* step) {
  std::ranges::sort(step->parcels, {},
                    [](const Parcel& parcel) { return std::tuple(parcel.node, parcel.number); });
}

}  // namespace headrace
