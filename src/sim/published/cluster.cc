#include "sim/published/cluster.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/format/errors.h"

namespace headrace {
namespace {

Status CheckAbove(std::string_view name, double value) {
  if (value > 0) return Status();  // Not NaN, either.
  return InvalidArgument("cluster: {} is {}, must be above 0", name, value);
}

Status CheckAtLeast0(std::string_view name, double value) {
  if (value >= 0 && std::isfinite(value)) return Status();
  return InvalidArgument("cluster: {} is {}, must be a number of at least 0", name, value);
}

Status CheckBytes(std::string_view name, double bytes) {
  if (bytes >= 0 && std::isfinite(bytes)) return Status();
  return InvalidArgument("cluster: {} is {}, must be a number of bytes of at least 0", name, bytes);
}

}  // namespace

std::string DecimalBytes(double bytes) {
  constexpr std::string_view kUnits[] = {"bytes", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  for (; bytes >= 999.95 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1000;
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

Status Cluster::Check() const {
  HEADRACE_RETURN_IF_ERROR(CheckAbove("nodes", nodes));
  HEADRACE_RETURN_IF_ERROR(CheckAbove("compute_rate", compute_rate));
  HEADRACE_RETURN_IF_ERROR(CheckAbove("sample_rate", sample_rate));
  HEADRACE_RETURN_IF_ERROR(CheckAbove("preprocess_rate", preprocess_rate));
  HEADRACE_RETURN_IF_ERROR(CheckAtLeast0("allreduce_seconds", allreduce_seconds));
  HEADRACE_RETURN_IF_ERROR(CheckAtLeast0("allreduce_noise", allreduce_noise));
  HEADRACE_RETURN_IF_ERROR(CheckAbove("storage_link_rate", storage_link_rate));
  HEADRACE_RETURN_IF_ERROR(CheckAtLeast0("storage_latency_seconds", storage_latency_seconds));
  HEADRACE_RETURN_IF_ERROR(CheckAbove("network_rate", network_rate));
  HEADRACE_RETURN_IF_ERROR(CheckBytes("staging_bytes", staging_bytes));
  HEADRACE_RETURN_IF_ERROR(CheckAbove("staging_threads", staging_threads));
  HEADRACE_RETURN_IF_ERROR(CheckAbove("staging_rate", staging_rate));
  if (tiers.size() > kTiersMax) {
    return InvalidArgument("cluster: got {} tiers, must be at most {}", tiers.size(), kTiersMax);
  }
  for (const Tier& tier : tiers) {
    HEADRACE_RETURN_IF_ERROR(CheckBytes("a tier's bytes", tier.bytes));
    HEADRACE_RETURN_IF_ERROR(CheckAbove("a tier's threads", tier.threads));
    HEADRACE_RETURN_IF_ERROR(CheckAbove("a tier's rate", tier.rate));
  }
  return Status();
}

double Cluster::Allreduce(double bytes, double seconds) const {
  const double busy = bytes / network_rate / nodes;  // seconds, of each node's link
  const double share = seconds > 0 ? std::min(1.0, busy / seconds) : 0;
  return allreduce_seconds * (1 + allreduce_noise * share);
}

double Cluster::NodeFromStorage(std::uint32_t readers) const {
  return 1 / std::min(storage.RateEach(readers), storage_link_rate);
}

double Cluster::StorageWait(double bytes, std::uint32_t readers) const {
  const double alone = storage_latency_seconds + bytes * NodeFromStorage(readers);
  return std::max(0.0, alone - bytes * FromStorage(readers));
}

double Cluster::FromTier(std::size_t tier) const { return 1 / tiers[tier].rate; }

double Cluster::FromPeer(std::size_t tier) const {
  return std::max(1 / network_rate, FromTier(tier));
}

double Cluster::ToStaging() const {
  return std::max(1 / preprocess_rate, static_cast<double>(staging_threads) / staging_rate);
}

}  // namespace headrace
