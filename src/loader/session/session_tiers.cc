#include "loader/session/session_tiers.h"

#include <string>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/hash.h"
#include "engine/tiers/fill_progress.h"
#include "headrace/index.h"
#include "loader/config/resolved_order.h"
#include "loader/ending/reaper.h"
#include "loader/machine/thread_executor.h"
#include "loader/session/other_nodes.h"
#include "loader/session/retained_tiers.h"
#include "plan/placement/readers/storage_readers.h"
#include "plan/placement/step_sums.h"
#include "tier/ram_tier.h"
#include "tier/ssd_tier.h"

namespace headrace {
namespace {

// What an entry is made of: the dataset, and which of its fields, in order; and whether it was
// compared with the index's checksum, for it is not when it is taken from a tier.
std::string Fingerprint(const Index& index, std::span<const BatchField> schema, bool verified) {
  std::string text = index.fingerprint();
  if (!verified) text.append("/unverified");
  for (const BatchField& field : schema) {
    if (!field.is_inline()) text.append("/").append(index.fields()[field.index_field].name);
  }
  return text;
}

}  // namespace

SessionTiers::SessionTiers(const PlacementFactory* factory, const AskPolicy* policy,
                           std::shared_ptr<const ResolvedOrder> order, std::uint64_t horizon_epochs,
                           const TierSharing& sharing)
    : factory_(factory),
      order_(std::move(order)),
      horizon_epochs_(horizon_epochs),
      ask_policy_(policy),
      nodes_(sharing.nodes),
      by_model_(sharing.by_model) {}

Result<std::unique_ptr<SessionTiers>> SessionTiers::Open(const std::shared_ptr<const Index>& index,
                                                         std::span<const BatchField> schema,
                                                         const TiersSpec& spec,
                                                         std::shared_ptr<const ResolvedOrder> order,
                                                         bool verified, TierSharing sharing) {
  HEADRACE_ASSIGN_OR_RETURN(const PlacementFactory* const factory,
                            Placements().Get(spec.placement));
  HEADRACE_ASSIGN_OR_RETURN(const AskPolicy* const policy, AskPolicies().Get(spec.ask));
  std::unique_ptr<SessionTiers> node(
      new SessionTiers(factory, policy, std::move(order), spec.horizon_epochs, sharing));
  HEADRACE_ASSIGN_OR_RETURN(node->room_, MakeTierRoom(index, spec, *node->order_));
  std::string fingerprint = Fingerprint(*index, schema, verified);
  if (spec.decoded_images != nullptr) {
    const std::uint64_t sizes = Hash64(std::as_bytes(std::span(*spec.decoded_images)));
    fingerprint.append(fmt::format("/decoded-{:x}", sizes));
  }
  node->retained_ = std::move(sharing.retained);
  HEADRACE_RETURN_IF_ERROR(node->OpenTiers(spec, fingerprint));
  return node;
}

SessionTiers::~SessionTiers() {
  for (std::size_t i = 0; retained_ != nullptr && i < tiers_.size(); ++i) {
    // An empty tier is useless to others, and would take the place of one with entries.
    if (keys_[i].empty() || tiers_[i]->stats().entries == 0) continue;
    retained_->Put(std::move(keys_[i]), std::move(tiers_[i]));
  }
}

Status SessionTiers::OpenTiers(const TiersSpec& spec, const std::string& fingerprint) {
  const std::uint64_t unit_bytes = room_.blocks->unit_bytes();
  for (const TierSpec& each : spec.tiers) {
    std::string& key = keys_.emplace_back();
    if (each.path.empty()) {
      key = fmt::format("{}/{}/{}/{}", fingerprint, each.capacity_bytes, unit_bytes,
                        order_->job().rank);
      if (std::unique_ptr<Tier> retained = retained_ != nullptr ? retained_->Take(key) : nullptr) {
        tiers_.push_back(std::move(retained));
        continue;
      }
      HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<RamTier> tier,
                                RamTier::Make(each.capacity_bytes, unit_bytes));
      tiers_.push_back(std::move(tier));
      continue;
    }
    HEADRACE_ASSIGN_OR_RETURN(
        std::unique_ptr<ThreadExecutor> executor,
        ThreadExecutor::Make({.threads = each.threads, .name = "headrace-tier"}));
    const std::string folder = each.path + "/rank-" + std::to_string(order_->job().rank);
    Result<std::unique_ptr<SsdTier>> opened = SsdTier::Open({.folder = folder,
                                                             .capacity_bytes = each.capacity_bytes,
                                                             .unit_bytes = unit_bytes,
                                                             .dataset = fingerprint},
                                                            *executor);
    if (opened.status().code() == StatusCode::kFailedPrecondition && ReaperHolds(folder)) {
      return Status(StatusCode::kFailedPrecondition,
                    "SSD tier '" + folder +
                        "': reads of a closed loader of this process are still out, and it keeps "
                        "the folder until storage answers; wait for that, or use another folder");
    }
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<SsdTier> tier, std::move(opened));
    folders_.push_back(folder);
    executors_.push_back(std::move(executor));
    tiers_.push_back(std::move(tier));
  }
  return Status();
}

Result<std::unique_ptr<TierCache>> SessionTiers::Begin(Position start) {
  return Begin(MakePlacementRequest(order_, room_, horizon_epochs_, start), start);
}

// Others' lists are not known: a node that is alone.
Result<std::unique_ptr<TierCache>> SessionTiers::Begin(const ListOrderOptions& list) {
  const Position start{.epoch = list.epoch, .step = list.first_step};
  PlacementRequest request = MakePlacementRequest(order_, room_, /*horizon_epochs=*/1, start);
  request.node = 0;
  request.capacity_units.resize(1);
  request.uses = [list] { return Result<std::unique_ptr<UseStream>>(MakeListUses(list)); };
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<TierCache> tiers, Begin(std::move(request), start));
  MutexLock lock(mutex_);
  request_.reset();  // Its steps are not those of the session's own order.
  return tiers;
}

Result<std::unique_ptr<TierCache>> SessionTiers::Begin(PlacementRequest request, Position start) {
  const std::vector<std::vector<std::uint32_t>> held = TakeHeld();
  request.held.assign(request.capacity_units.size(),
                      std::vector<std::vector<std::uint32_t>>(tiers_.size()));
  request.held[request.node] = held;
  const bool several = request.held.size() > 1;
  const bool shared = nodes_ != nullptr && several;
  if (shared) HEADRACE_RETURN_IF_ERROR(AddOthers(request, start));
  request.numbers_inserts = shared && ask_policy_->guesses();
  request.fastest_peer = shared && by_model_;
  Result<std::unique_ptr<Placement>> placement =
      shared ? MakeSummedPlacement(*factory_, request,
                                   [nodes = nodes_](const StepSums& sums) { nodes->Plan(sums); })
             : factory_->Make(request);
  HEADRACE_RETURN_IF_ERROR(placement.status());
  if (several && by_model_) {
    placement = MakeCountedPlacement(std::move(placement).value(), request, shared);
    HEADRACE_RETURN_IF_ERROR(placement.status());
  }
  if (!request.numbers_inserts) {
    return MakeCache(std::move(request), start, std::move(placement).value(), held);
  }
  const auto progress = std::make_shared<FillProgress>(room_.blocks->sample_count());
  std::unique_ptr<Placement> guess = ask_policy_->Guess(std::move(placement).value(), request.node,
                                                        [progress] { return progress->filled(); });
  std::unique_ptr<TierCache> cache = MakeCache(std::move(request), start, std::move(guess), held);
  cache->Report(progress);
  return cache;
}

Result<std::unique_ptr<TierCache>> SessionTiers::Follow(Position start, Position first,
                                                        const ScheduledRun::Place& place) {
  PlacementRequest request = MakePlacementRequest(order_, room_, horizon_epochs_, first);
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Placement> inner, factory_->Make(request));
  const std::vector<std::vector<std::uint32_t>> held = TakeHeld();
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Placement> placement, place(std::move(inner), held));
  return MakeCache(std::move(request), start, std::move(placement), held);
}

// Every node plans with what all nodes hold, so that all come to the same plan.
Status SessionTiers::AddOthers(PlacementRequest& request, Position start) const {
  HEADRACE_ASSIGN_OR_RETURN(std::vector<NodeFacts> all,
                            nodes_->Agree({.start = start,
                                           .capacity_units = room_.capacity_units,
                                           .held = request.held[request.node]}));
  HEADRACE_CHECK(all.size() == request.held.size());
  for (std::size_t node = 0; node < all.size(); ++node) {
    if (node == request.node) continue;
    request.capacity_units[node] = std::move(all[node].capacity_units);
    request.held[node] = std::move(all[node].held);
  }
  return Status();
}

std::vector<std::vector<std::uint32_t>> SessionTiers::TakeHeld() const {
  std::vector<Tier*> tiers;
  for (const std::unique_ptr<Tier>& tier : tiers_) tiers.push_back(tier.get());
  return TakeHeldBlocks(tiers, *room_.blocks, room_.capacity_units);
}

std::unique_ptr<TierCache> SessionTiers::MakeCache(
    PlacementRequest request, Position start, std::unique_ptr<Placement> placement,
    std::span<const std::vector<std::uint32_t>> held) {
  std::vector<Tier*> tiers;
  for (const std::unique_ptr<Tier>& tier : tiers_) tiers.push_back(tier.get());
  MutexLock lock(mutex_);
  request_ = std::move(request);
  start_ = start;
  const bool asks = nodes_ != nullptr && request_->capacity_units.size() > 1;
  return std::make_unique<TierCache>(std::move(tiers), room_.blocks, std::move(placement), held,
                                     asks ? request_->node : kNoNode,
                                     static_cast<std::uint32_t>(request_->capacity_units.size()));
}

Result<std::optional<std::vector<PlannedUse>>> SessionTiers::Planned(Position position) const {
  std::optional<PlacementRequest> request;
  Position start;
  {
    MutexLock lock(mutex_);
    request = request_;
    start = start_;
  }
  if (!request.has_value() || position < start) {
    return std::optional<std::vector<PlannedUse>>();
  }
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Placement> placement, factory_->Make(*request));
  while (std::optional<PlacedStep> step = placement->Next()) {
    if (step->at == position) return std::optional(std::move(step->uses));
    if (position < step->at) break;
  }
  return std::optional<std::vector<PlannedUse>>();
}

}  // namespace headrace
