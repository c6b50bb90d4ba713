#include "node/server/job_nodes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/format/errors.h"
#include "ipc/wire.h"
#include "node/protocol/wire_codec.h"
#include "node/protocol/wire_forms.h"
#include "node/server/open_request.h"
#include "peer/grpc/peer_node.h"

namespace headrace {

// What a node says before a run.
struct NodeSays {
  OpenSession open;
  OrderParameters parameters;
  NodeFacts facts;
};
HEADRACE_MEMBERS(NodeSays, open, parameters, facts)

namespace {

// Of StepSums, as JobNodes::Plan() has them.
constexpr std::array<std::string_view, PlannedSteps::kFields> kFieldNames = {
    "ids (which samples all nodes use)", "users (which node uses which sample)",
    "owners (what the tiers of the nodes are to have)"};

std::string EncodeSays(const NodeSays& says) {
  WireWriter writer;
  WirePut put(writer);
  put(says);
  return {reinterpret_cast<const char*>(writer.bytes().data()), writer.bytes().size()};
}

std::string Shown(const OrderParameters& parameters, const std::string& name) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) return "none";
  if (const auto* word = std::get_if<std::string>(&found->second)) return *word;
  return std::to_string(std::get<std::int64_t>(found->second));
}

// The first parameter that differs, with both values.
std::string FirstDifference(const OrderParameters& here, const OrderParameters& there) {
  OrderParameters all = here;
  all.insert(there.begin(), there.end());
  for (const auto& [name, value] : all) {
    const std::string own = Shown(here, name);
    const std::string other = Shown(there, name);
    if (own != other) return fmt::format("{}: {} here, {} there", name, own, other);
  }
  return "";
}

Result<NodeSays> DecodeSays(NodeNumber node, const std::string& bytes) {
  const std::string what = fmt::format("what node {} says of its run", node);
  WireReader reader(what, std::as_bytes(std::span(bytes)));
  WireTake take(reader);
  NodeSays says;
  take(says);
  HEADRACE_RETURN_IF_ERROR(reader.Finish());
  return says;
}

}  // namespace

Result<std::shared_ptr<JobNodes>> JobNodes::Make(const OpenSession& open,
                                                 std::function<bool()> keep_waiting,
                                                 std::stop_token hurry) {
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<PeerNode> peers, PeerNode::Listen(*open.options.nodes));
  return std::shared_ptr<JobNodes>(
      new JobNodes(open, std::move(keep_waiting), std::move(hurry), std::move(peers)));
}

JobNodes::JobNodes(const OpenSession& open, std::function<bool()> keep_waiting,
                   std::stop_token hurry, std::unique_ptr<PeerNode> peers)
    : open_(ForOtherNodes(open)),
      keep_waiting_(std::move(keep_waiting)),
      hurry_(std::move(hurry)),
      node_(static_cast<NodeNumber>((open.options.job.rank - open.lane) / open.lanes)),
      nodes_(static_cast<NodeNumber>(open.options.job.world_size / open.lanes)),
      peers_(std::move(peers)) {}

JobNodes::~JobNodes() = default;

const std::string& JobNodes::address() const { return peers_->address(); }

Status JobNodes::Connect(PeerGroup group) {
  if (group.addresses.size() != nodes_ || group.node != node_) {
    return InvalidArgument(
        "connecting node {}: got {} addresses for node {}; the job has {} nodes, by its world size "
        "and the ranks on this node",
        node_, group.addresses.size(), group.node, nodes_);
  }
  patience_ns_ = group.begin_ns;
  return peers_->Connect(std::move(group));
}

void JobNodes::SetParameters(OrderParameters parameters) {
  MutexLock lock(mutex_);
  parameters_ = std::move(parameters);
}

FetchSource& JobNodes::source() { return peers_->source(); }

Result<std::vector<NodeFacts>> JobNodes::Agree(const NodeFacts& own) {
  HEADRACE_RETURN_IF_ERROR(TakeDifference());
  NodeSays says{.open = open_, .parameters = {}, .facts = own};
  std::uint64_t round = 0;
  {
    MutexLock lock(mutex_);
    says.parameters = parameters_;
    round = ++round_;
    planned_ = {};
    steps_told_ = 1;
  }
  HEADRACE_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                            peers_->Agree(round, EncodeSays(says), keep_waiting_));
  std::vector<NodeFacts> facts;
  for (NodeNumber node = 0; node < all.size(); ++node) {
    HEADRACE_ASSIGN_OR_RETURN(NodeSays other, DecodeSays(node, all[node]));
    const std::string doing = fmt::format("node {} begins a run with node {}", node_, node);
    HEADRACE_RETURN_IF_ERROR(CompareNodes(says.open, other.open).WithContext(doing));
    if (other.parameters != says.parameters) {
      return FailedPrecondition(
          "{}: their orders have other parameters ({}), as their memory or their profiles differ; "
          "give both the same memory= and EngineOptions.profile, or the order's parameters",
          doing, FirstDifference(says.parameters, other.parameters));
    }
    if (other.facts.start != own.start) {
      return FailedPrecondition(
          "{}: this node begins at epoch {} step {}, the other at epoch {} step {}; all ranks must "
          "iterate alike, from the same state",
          doing, own.start.epoch, own.start.step, other.facts.start.epoch, other.facts.start.step);
    }
    if (other.facts.capacity_units != own.capacity_units) {
      return FailedPrecondition("{}: their tiers have other capacities; give all nodes the same",
                                doing);
    }
    facts.push_back(std::move(other.facts));
  }
  return facts;
}

std::uint64_t JobNodes::round() const {
  MutexLock lock(mutex_);
  return round_;
}

void JobNodes::StopTaking(std::uint64_t round) { peers_->StopTaking(round); }

bool JobNodes::AnyTakes() { return !hurry_.stop_requested() && peers_->AnyTakes(); }

void JobNodes::Plan(const StepSums& sums) {
  PlannedSteps told;
  {
    MutexLock lock(mutex_);
    if (planned_.sums.empty()) {
      planned_ = {.round = round_, .epoch = sums.at.epoch, .step = sums.at.step, .sums = {}};
    }
    planned_.sums.push_back({sums.ids, sums.users, sums.owners});
    if (planned_.sums.size() < steps_told_ && !sums.ends_epoch) return;
    steps_told_ = std::min(2 * steps_told_, kStepsTold);
    told = std::exchange(planned_, {});
  }
  peers_->Plan(told);
}

Status JobNodes::TakeDifference() {
  const std::optional<PlanDifference> found = peers_->TakeDifference();
  if (!found.has_value()) return Status();
  const auto text = [](const PlannedAt& at) {
    return StepText({.epoch = at.first, .step = at.second});
  };
  return FailedPrecondition(
      "node {} plans like node {}: their plans differ at {} in {}, {}; nodes that plan differently "
      "may deliver samples twice or not at all: see that all run the same version of headrace, and "
      "go on from a state that was saved before",
      node_, found->node, text(found->at), kFieldNames.at(found->field),
      found->agreed.has_value() ? "and were equal at " + text(*found->agreed)
                                : std::string("the first that was compared"));
}

void JobNodes::Give(HeldSamples* held) { peers_->Give(held); }

NodeTraffic JobNodes::traffic() const { return peers_->traffic(); }

}  // namespace headrace
