#include "model/epoch_prediction.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/check.h"
#include "base/format/errors.h"

namespace headrace {
namespace {

Status Wrong(std::string_view what, double value, std::string_view must) {
  return InvalidArgument("predicting an epoch: {}: got {:f}, must be {}", what, value, must);
}

struct Named {
  std::string_view name;
  double value;
};

Status CheckReads(const std::string& what, const std::vector<ReadCount>& reads) {
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const std::string which = fmt::format("{} {}", what, i);
    if (!(reads[i].reads >= 0) || !std::isfinite(reads[i].reads)) {
      return Wrong(which + " count", reads[i].reads, "at least 0 and finite");
    }
    if (!(reads[i].read_bytes > 0) || !std::isfinite(reads[i].read_bytes)) {
      return Wrong(which + " bytes of a read", reads[i].read_bytes, "above 0 and finite");
    }
  }
  return {};
}

Status CheckWork(const MachineModel& model, const EpochWork& work) {
  for (const auto& [name, value] : {Named{"samples", work.samples},
                                    {"decode_bytes", work.decode_bytes},
                                    {"copy_bytes", work.copy_bytes}}) {
    if (!(value >= 0) || !std::isfinite(value)) return Wrong(name, value, "at least 0 and finite");
  }
  for (const auto& [name, value] : {Named{"threads", work.threads},
                                    {"reads_in_flight", work.reads_in_flight},
                                    {"storage_sharers", work.storage_sharers}}) {
    if (!(value > 0) || !std::isfinite(value)) return Wrong(name, value, "above 0 and finite");
  }
  if (!(work.demand > 0)) return Wrong("demand", work.demand, "above 0 samples a second");
  HEADRACE_RETURN_IF_ERROR(CheckReads("storage reads", work.storage));
  HEADRACE_RETURN_IF_ERROR(CheckReads("peer reads", work.peers));
  for (std::size_t i = 0; i < work.tiers.size(); ++i) {
    const std::string tier = fmt::format("tier {}", i);
    HEADRACE_RETURN_IF_ERROR(CheckReads(tier + " reads", work.tiers[i].reads));
    HEADRACE_RETURN_IF_ERROR(CheckReads(tier + " writes", work.tiers[i].writes));
  }
  if (work.tiers.size() > model.tiers.size()) {
    return Wrong("tiers", static_cast<double>(work.tiers.size()),
                 fmt::format("at most the model's {}", model.tiers.size()));
  }
  if (!work.peers.empty() && !model.link.has_value()) {
    return InvalidArgument(
        "predicting an epoch: peer reads: got {}, must be none: the model has no link to other "
        "nodes",
        work.peers.size());
  }
  return {};
}

// One kind of reads after the other; we get `share` of the device's rate.
double SecondsOf(const SizedRates& rates, const std::vector<ReadCount>& reads, double users,
                 double rate_max, double share) {
  double seconds = 0;
  for (const ReadCount& each : reads) {
    if (each.reads <= 0) continue;
    const double rate = std::min(rates.Rate(each.read_bytes, users) * share, rate_max);
    seconds += each.reads * each.read_bytes / rate;
  }
  return seconds;
}

}  // namespace

std::string ResourceName(const ResourceSeconds& resource) {
  switch (resource.resource) {
    case Resource::kStorage:
      return "storage";
    case Resource::kTier:
      return fmt::format("tier {}", resource.tier);
    case Resource::kPeers:
      return "peers";
    case Resource::kDecode:
      return "decode";
    case Resource::kCopy:
      return "copy";
    case Resource::kConsumer:
      break;
  }
  return "consumer";
}

Result<EpochPrediction> PredictEpoch(const MachineModel& model, const EpochWork& work) {
  HEADRACE_RETURN_IF_ERROR(CheckModel(model));
  HEADRACE_RETURN_IF_ERROR(CheckWork(model, work));
  EpochPrediction prediction;
  const auto add = [&](Resource resource, double seconds, std::size_t tier = 0) {
    prediction.resources.push_back({.resource = resource, .tier = tier, .seconds = seconds});
  };
  if (!work.storage.empty()) {
    add(Resource::kStorage,
        SecondsOf(model.storage.rate, work.storage, work.reads_in_flight * work.storage_sharers,
                  model.storage.rate_max, 1 / work.storage_sharers));
  }
  for (std::size_t i = 0; i < work.tiers.size(); ++i) {
    const TierModel& tier = model.tiers[i];
    add(Resource::kTier,
        SecondsOf(tier.read, work.tiers[i].reads, tier.threads, kUnlimited, 1) +
            SecondsOf(tier.write, work.tiers[i].writes, tier.threads, kUnlimited, 1),
        i);
  }
  if (!work.peers.empty()) {
    add(Resource::kPeers,
        SecondsOf(model.link->rate, work.peers, model.link->asked, kUnlimited, 1));
  }
  const double decode = work.decode_bytes / model.decode.Rate(work.threads);
  const double copy = work.copy_bytes / model.copy.Rate(work.threads);
  if (work.decode_bytes > 0) add(Resource::kDecode, decode);
  if (work.copy_bytes > 0) add(Resource::kCopy, copy);
  if (std::isfinite(work.demand)) add(Resource::kConsumer, work.samples / work.demand);

  const Resource threads_do = copy > decode ? Resource::kCopy : Resource::kDecode;
  prediction.bound = {.resource = Resource::kConsumer};
  for (const ResourceSeconds& each : prediction.resources) {
    const double busy = each.resource == threads_do ? decode + copy : each.seconds;
    if (busy > prediction.seconds) {
      prediction.seconds = busy;
      prediction.bound = each;
    }
  }
  return prediction;
}

StreamClock::StreamClock(const MachineModel& model, double compute_rate)
    : model_(model), compute_rate_(compute_rate) {
  HEADRACE_CHECK(compute_rate > 0);
}

double StreamClock::Add(double bytes, Source source) {
  const double fetch = SecondsFrom(model_, source, bytes);
  fetch_[static_cast<std::size_t>(source.kind)] += fetch;
  available_ += (fetch + SecondsToStage(model_, bytes)) / model_.staging.threads;
  const double begin = std::max(available_, end_);
  stall_ += begin - end_;
  const double compute = bytes / compute_rate_;
  compute_ += compute;
  end_ = begin + compute;
  return begin;
}

void StreamClock::WaitUntil(double seconds) { end_ = std::max(end_, seconds); }

}  // namespace headrace
