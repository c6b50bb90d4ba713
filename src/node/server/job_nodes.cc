#include "node/server/job_nodes.h"

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

std::string EncodeSays(const NodeSays& says) {
  WireWriter writer;
  WirePut put(writer);
  put(says);
  return {reinterpret_cast<const char*>(writer.bytes().data()), writer.bytes().size()};
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
                                                 std::function<bool()> keep_waiting) {
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<PeerNode> peers, PeerNode::Listen(*open.options.nodes));
  return std::shared_ptr<JobNodes>(new JobNodes(open, std::move(keep_waiting), std::move(peers)));
}

JobNodes::JobNodes(const OpenSession& open, std::function<bool()> keep_waiting,
                   std::unique_ptr<PeerNode> peers)
    : open_(ForOtherNodes(open)),
      keep_waiting_(std::move(keep_waiting)),
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
  return peers_->Connect(std::move(group));
}

void JobNodes::SetParameters(OrderParameters parameters) {
  MutexLock lock(mutex_);
  parameters_ = std::move(parameters);
}

FetchSource& JobNodes::source() { return peers_->source(); }

Result<std::vector<NodeFacts>> JobNodes::Agree(const NodeFacts& own) {
  NodeSays says{.open = open_, .parameters = {}, .facts = own};
  std::uint64_t round = 0;
  {
    MutexLock lock(mutex_);
    says.parameters = parameters_;
    round = ++round_;
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
          "{}: their orders have other parameters, as their memory differs; give both the same "
          "memory= or the order's parameters",
          doing);
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

void JobNodes::Give(HeldSamples* held) { peers_->Give(held); }

NodeTraffic JobNodes::traffic() const { return peers_->traffic(); }

}  // namespace headrace
