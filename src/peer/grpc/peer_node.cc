#include "peer/grpc/peer_node.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/format/errors.h"
#include "base/mutex.h"
#include "base/units.h"
#include "peer/agreement.h"
#include "peer/grpc/node_link.h"
#include "peer/grpc/parcel_takers.h"
#include "peer/grpc/peer_service.h"
#include "peer/grpc/peer_wire.h"
#include "peer/grpc/plan_teller.h"
#include "peer/leased_samples.h"
#include "peer/round_robin.h"

namespace headrace {
namespace {

constexpr std::int64_t kSweepNs = 20 * kNsPerMs;
constexpr std::int64_t kTryAgainNs = 200 * kNsPerMs;
constexpr std::size_t kFactsPartBytes = std::size_t{1} << 20;
constexpr std::size_t kTellersMax = 16;  // nodes that are called at once
// How long calls of others may take to end when this node goes.
constexpr std::int64_t kShutdownMs = 500;

// Of both sides of a connection. gRPC's defaults are for small messages: frames of 16 KiB, reads of
// 8 KiB.
constexpr std::array<std::pair<const char*, int>, 4> kBulkArguments = {{
    {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20},
    {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20},
    {GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 1 << 20},
    {GRPC_ARG_TCP_READ_CHUNK_SIZE, 256 << 10},
}};

bool IsLoopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.");
}

// "host" of "host:port" or "host".
std::string_view HostOf(std::string_view address) {
  if (address.starts_with('[')) return address.substr(0, address.find(']') + 1);
  const std::size_t colon = address.rfind(':');
  return colon == std::string_view::npos || address.find(':') != colon ? address
                                                                       : address.substr(0, colon);
}

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) {
    return FailedPrecondition(
        "reading '{}', a file of the nodes' certificates: it cannot be read, "
        "or is empty; write it again, or correct its name",
        path);
  }
  return text.str();
}

// The texts of the files, or nothing where there are none.
struct Certificates {
  std::string authority;
  std::string certificate;
  std::string key;
};

Result<std::optional<Certificates>> ReadCertificates(const PeerListen& options) {
  const bool any =
      !options.authority.empty() || !options.certificate.empty() || !options.key.empty();
  if (!any) return std::optional<Certificates>();
  if (options.authority.empty() || options.certificate.empty() || options.key.empty()) {
    return InvalidArgument(
        "certificates of the nodes: authority '{}', certificate '{}', key '{}': give all three",
        options.authority, options.certificate, options.key);
  }
  Certificates read;
  HEADRACE_ASSIGN_OR_RETURN(read.authority, ReadFile(options.authority));
  HEADRACE_ASSIGN_OR_RETURN(read.certificate, ReadFile(options.certificate));
  HEADRACE_ASSIGN_OR_RETURN(read.key, ReadFile(options.key));
  return std::optional(std::move(read));
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(
    const std::optional<Certificates>& certificates) {
  if (!certificates.has_value()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions ssl(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  ssl.pem_root_certs = certificates->authority;
  ssl.pem_key_cert_pairs = {{certificates->key, certificates->certificate}};
  return grpc::SslServerCredentials(ssl);
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(
    const std::optional<Certificates>& certificates) {
  if (!certificates.has_value()) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials(
      {certificates->authority, certificates->key, certificates->certificate});
}

}  // namespace

struct PeerNode::Impl {
  // Hands fetches to the link of their node.
  class Source final : public FetchSource {
   public:
    explicit Source(Impl& impl) : impl_(impl) {}
    [[nodiscard]] std::size_t BufferBytes(const Fetch& fetch) const override {
      return fetch.bytes();
    }
    void Read(std::span<Fetch* const> fetches, const std::stop_token& stop,
              const Done& done) override {
      std::vector<Fetch*> sorted(fetches.begin(), fetches.end());
      std::ranges::stable_sort(sorted, {}, &Fetch::node);
      for (auto begin = sorted.begin(); begin != sorted.end();) {
        const NodeNumber node = (*begin)->node().value();
        const auto end =
            std::find_if(begin, sorted.end(), [node](const Fetch* f) { return f->node() != node; });
        NodeLink* const link = impl_.LinkOf(node);
        if (link != nullptr) {
          link->Read({begin, end}, stop, done);
        } else {
          for (auto each = begin; each != end; ++each) {
            done(**each,
                 Status(StatusCode::kUnavailable, fmt::format("node {} is not known", node)));
          }
        }
        begin = end;
      }
    }

   private:
    Impl& impl_;
  };

  NodeLink* LinkOf(NodeNumber node) {
    MutexLock lock(mutex);
    return node < links.size() ? links[node].get() : nullptr;
  }
  // Asks the second nodes of fetches for them.
  void AskSecond(std::vector<NodeLink::Handed> handed) {
    std::ranges::stable_sort(handed, {}, &NodeLink::Handed::node);
    for (std::span<NodeLink::Handed> rest = handed; !rest.empty();) {
      const NodeNumber node = rest.front().node;
      const auto end = std::ranges::find_if(
          rest, [node](const NodeLink::Handed& each) { return each.node != node; });
      const auto count = static_cast<std::size_t>(end - rest.begin());
      NodeLink* const link = LinkOf(node);
      HEADRACE_CHECK(link != nullptr);  // The link lets no others through.
      link->ReadSecond(rest.first(count));
      rest = rest.subspan(count);
    }
  }
  std::vector<std::shared_ptr<NodeLink>> Links() const {
    MutexLock lock(mutex);
    return links;
  }

  void Pause(std::int64_t ns) const {
    MutexLock lock(pause_mutex);
    static_cast<void>(pause.WaitFor(pause_mutex, ns));
  }

  void Watch(const std::stop_token& stop) {
    const std::stop_callback wake(stop, [this] { pause.NotifyAll(); });
    const MonotonicClock clock;
    RoundRobin round_robin;
    while (!stop.stop_requested()) {
      Pause(kSweepNs);
      round_robin.Visit(Links(), [&](const std::shared_ptr<NodeLink>& link) {
        return link != nullptr && link->Sweep(clock.NowNanos());
      });
      service.Sweep();
      teller.Sweep();
      takers.Sweep(clock.NowNanos());
    }
  }

  // Of calls that had another token or none: anyone may make them, so they end no run. Empty: there
  // were none of these.
  std::string RefusedHere() const {
    const std::uint64_t count = counters.wrong_tokens;
    if (count == 0) return "";
    return fmt::format(
        "; also check HEADRACE_TOKEN: this node refused {} that had another one, or none",
        Counted(count, "call"));
  }
  Status Tell(NodeLink& link, std::uint64_t round, const std::string& facts, std::int64_t until_ns,
              const std::function<bool()>& keep_waiting) const;
  Status TellAll(std::uint64_t round, const std::string& facts,
                 const std::function<bool()>& keep_waiting);

  PeerListen options;
  std::optional<Certificates> certificates;
  std::string address;
  PeerCounters counters;
  LeasedSamples leased;
  RateBudget asking;
  RateBudget giving;
  mutable Mutex mutex;
  PeerGroup group HEADRACE_GUARDED_BY(mutex);
  std::unique_ptr<Agreement> agreement HEADRACE_GUARDED_BY(mutex);  // null: not connected
  std::unique_ptr<PlanLedger> ledger HEADRACE_GUARDED_BY(mutex);    // null: not connected
  PeerService service{{.leased = leased, .counters = counters, .giving = giving}};  // uses both
  Source source{*this};
  // By node; null: this one.
  std::vector<std::shared_ptr<NodeLink>> links HEADRACE_GUARDED_BY(mutex);

  // Distinguishes this process from one that another launch has here.
  const std::uint64_t process = static_cast<std::uint64_t>(MonotonicClock().NowNanos());
  std::uint64_t newest_round HEADRACE_GUARDED_BY(mutex) = 0;

  PlanTeller teller;
  ParcelTakers takers;
  mutable Mutex pause_mutex;
  mutable CondVar pause;
  std::unique_ptr<grpc::Server> server;
  std::jthread watch;  // Last: uses the links.
};

Result<std::unique_ptr<PeerNode>> PeerNode::Listen(const PeerListen& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  HEADRACE_ASSIGN_OR_RETURN(impl->certificates, ReadCertificates(options));
  const std::string host(HostOf(options.address));
  if (!IsLoopback(host) && !impl->certificates.has_value() && !options.open_network) {
    return InvalidArgument(
        "listening for other nodes on '{}': without certificates, whoever is on that network can "
        "read the samples; give certificates (Node(certificate=, key=, authority=)), or say that "
        "the network is private (Node(open_network=True))",
        options.address);
  }
  grpc::ServerBuilder builder;
  int port = 0;
  const std::string address = host == options.address ? host + ":0" : options.address;
  builder.AddListeningPort(address, ServerCredentialsOf(impl->certificates), &port);
  builder.RegisterService(&impl->service);
  builder.SetMaxReceiveMessageSize(kPeerMessageBytesMax);
  builder.SetMaxSendMessageSize(kPeerMessageBytesMax);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  for (const auto& [name, value] : kBulkArguments) builder.AddChannelArgument(name, value);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || port == 0) {
    return Status(StatusCode::kUnavailable,
                  fmt::format("listening for other nodes on '{}': the address is not this "
                              "machine's, or its port is in use; give another one",
                              address));
  }
  impl->address = fmt::format("{}:{}", host, port);
  impl->watch = std::jthread([raw = impl.get()](const std::stop_token& stop) { raw->Watch(stop); });
  return std::unique_ptr<PeerNode>(new PeerNode(std::move(impl)));
}

PeerNode::PeerNode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PeerNode::~PeerNode() {
  impl_->teller.Close();
  impl_->takers.Close();
  for (const std::shared_ptr<NodeLink>& link : impl_->Links()) {
    if (link != nullptr) link->Close();
  }
  impl_->server->Shutdown(std::chrono::system_clock::now() +
                          std::chrono::milliseconds(kShutdownMs));
  impl_->server->Wait();
}

const std::string& PeerNode::address() const { return impl_->address; }

bool PeerNode::connected() const {
  MutexLock lock(impl_->mutex);
  return impl_->agreement != nullptr;
}

Status PeerNode::Connect(PeerGroup group) {
  const auto nodes = static_cast<NodeNumber>(group.addresses.size());
  if (group.node >= nodes || group.token.empty()) {
    return InvalidArgument("node {} of {}, with a token of {} bytes: must be a node, with a token",
                           group.node, nodes, group.token.size());
  }
  for (NodeNumber node = 0; node < nodes; ++node) {
    if (group.addresses[node].empty())
      return InvalidArgument("node {}: no address; each node must have one", node);
  }
  MutexLock lock(impl_->mutex);
  if (impl_->agreement != nullptr) {
    return FailedPrecondition("node {} knows the nodes of its job already; connect it once",
                              group.node);
  }
  for (NodeNumber node = 0; node < nodes; ++node) {
    std::shared_ptr<NodeLink>& link = impl_->links.emplace_back();
    if (node == group.node) continue;
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kPeerMessageBytesMax);
    arguments.SetMaxSendMessageSize(kPeerMessageBytesMax);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
    for (const auto& [name, value] : kBulkArguments) arguments.SetInt(name, value);
    if (!impl_->options.name.empty()) {
      arguments.SetSslTargetNameOverride(impl_->options.name);
    }
    link = std::make_shared<NodeLink>(
        NodeLink::Options{.node = node,
                          .own = group.node,
                          .nodes = nodes,
                          .address = group.addresses[node],
                          .token = group.token,
                          .answer_ns = group.answer_ns,
                          .parcel_ns = group.begin_ns,
                          .hedge_ns = group.hedge_ns},
        grpc::CreateCustomChannel(group.addresses[node], ChannelCredentialsOf(impl_->certificates),
                                  arguments),
        NodeLink::Shared{.counters = impl_->counters,
                         .asking = impl_->asking,
                         .ask_second = [impl = impl_.get()](std::vector<NodeLink::Handed> handed) {
                           impl->AskSecond(std::move(handed));
                         }});
  }
  const std::int64_t now_ns = MonotonicClock().NowNanos();
  impl_->asking.Limit(group.rate_bytes_per_s, now_ns);
  impl_->giving.Limit(group.rate_bytes_per_s, now_ns);
  impl_->agreement = std::make_unique<Agreement>(group.node, nodes);
  impl_->ledger = std::make_unique<PlanLedger>(group.node, nodes);
  impl_->service.Open({.token = group.token, .node = group.node, .nodes = nodes}, *impl_->agreement,
                      *impl_->ledger);
  impl_->group = std::move(group);
  return Status();
}

// Says it to one node, again until it answers: the node may not be there yet.
Status PeerNode::Impl::Tell(NodeLink& link, std::uint64_t round, const std::string& facts,
                            std::int64_t until_ns,
                            const std::function<bool()>& keep_waiting) const {
  const MonotonicClock clock;
  NodeNumber node = 0;
  std::string token;
  {
    MutexLock lock(mutex);
    node = group.node;
    token = group.token;
  }
  while (true) {
    grpc::ClientContext context;
    context.AddMetadata(kPeerTokenKey, token);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    peers::v1::AgreeReply reply;
    const auto writer = link.stub().Agree(&context, &reply);
    peers::v1::AgreePart part;
    part.set_node(node);
    part.set_round(round);
    part.set_process(process);
    for (std::size_t at = 0;;) {
      const std::size_t size = std::min(kFactsPartBytes, facts.size() - at);
      part.set_facts(facts.substr(at, size));
      at += size;
      part.set_last(at == facts.size());
      if (!writer->Write(part) || part.last()) break;
    }
    writer->WritesDone();
    const grpc::Status said = writer->Finish();
    if (said.ok()) return Status();
    if (said.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
      return FailedPrecondition(
          "beginning run {} with {}: that node has another token and refuses this one's; give all "
          "nodes of the job the same secret in the environment variable HEADRACE_TOKEN, or other "
          "addresses if that one is of another job",
          round, link.Name());
    }
    const bool late = clock.NowNanos() >= until_ns;
    const bool may_come = said.error_code() == grpc::StatusCode::UNAVAILABLE ||
                          said.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    if (!may_come || late) {
      return Status(late ? StatusCode::kDeadlineExceeded : StatusCode::kUnavailable,
                    fmt::format("beginning run {} with {}: {}; see whether that node runs{}", round,
                                link.Name(), said.error_message(), RefusedHere()));
    }
    if (!keep_waiting()) {
      return Status(StatusCode::kCancelled, "beginning a run: given up before all nodes began it");
    }
    Pause(kTryAgainNs);
  }
}

Status PeerNode::Impl::TellAll(std::uint64_t round, const std::string& facts,
                               const std::function<bool()>& keep_waiting) {
  std::vector<std::shared_ptr<NodeLink>> others = Links();
  std::erase(others, nullptr);
  std::int64_t until_ns = MonotonicClock().NowNanos();
  {
    MutexLock lock(mutex);
    until_ns += group.begin_ns;
  }
  std::vector<Status> said(others.size());
  std::atomic<std::size_t> next = 0;
  {
    std::vector<std::jthread> tellers;
    for (std::size_t i = 0; i < std::min(kTellersMax, others.size()); ++i) {
      tellers.emplace_back([&] {
        for (std::size_t each = next++; each < others.size(); each = next++) {
          said[each] = Tell(*others[each], round, facts, until_ns, keep_waiting);
        }
      });
    }
  }
  for (Status& status : said) HEADRACE_RETURN_IF_ERROR(std::move(status));
  return Status();
}

Result<std::vector<std::string>> PeerNode::Agree(std::uint64_t round, const std::string& facts,
                                                 const std::function<bool()>& keep_waiting) {
  Agreement* agreement = nullptr;
  PlanLedger* ledger = nullptr;
  NodeNumber node = 0;
  std::int64_t begin_ns = 0;
  {
    MutexLock lock(impl_->mutex);
    agreement = impl_->agreement.get();
    ledger = impl_->ledger.get();
    node = impl_->group.node;
    begin_ns = impl_->group.begin_ns;
    impl_->newest_round = round;
  }
  if (agreement == nullptr) {
    return FailedPrecondition(
        "beginning run {}: the node does not know the other nodes yet; connect them first", round);
  }
  impl_->service.Take(round);
  HEADRACE_RETURN_IF_ERROR(agreement->Say(node, round, facts));
  HEADRACE_RETURN_IF_ERROR(impl_->TellAll(round, facts, keep_waiting));
  Result<std::vector<std::string>> all = agreement->Await(round, begin_ns, keep_waiting);
  if (!all.ok()) {
    const bool late = all.status().code() == StatusCode::kDeadlineExceeded;
    return Status(all.status().code(),
                  std::string(all.status().message()) + (late ? impl_->RefusedHere() : ""));
  }
  ledger->Begin(round);
  return all;
}

void PeerNode::StopTaking(std::uint64_t round) { impl_->service.StopTaking(round); }

bool PeerNode::AnyTakes() {
  ParcelTakers::Run run{.process = impl_->process};
  {
    MutexLock lock(impl_->mutex);
    run.node = impl_->group.node;
    run.round = impl_->newest_round;
  }
  return impl_->takers.Any(run, impl_->Links());
}

void PeerNode::Plan(const PlannedSteps& steps) {
  PlanLedger* ledger = nullptr;
  NodeNumber node = 0;
  {
    MutexLock lock(impl_->mutex);
    ledger = impl_->ledger.get();
    node = impl_->group.node;
  }
  if (ledger == nullptr) return;
  for (const std::shared_ptr<NodeLink>& link : impl_->Links()) {
    if (link != nullptr) impl_->teller.Tell(link, node, steps);
  }
  ledger->Plan(steps);
}

std::optional<PlanDifference> PeerNode::TakeDifference() {
  PlanLedger* ledger = nullptr;
  {
    MutexLock lock(impl_->mutex);
    ledger = impl_->ledger.get();
  }
  return ledger == nullptr ? std::nullopt : ledger->Take();
}

FetchSource& PeerNode::source() { return impl_->source; }

void PeerNode::Give(HeldSamples* held) { impl_->leased.Give(held); }

NodeTraffic PeerNode::traffic() const {
  const PeerCounters& counters = impl_->counters;
  NodeTraffic traffic{.received_samples = counters.received_samples,
                      .received_bytes = counters.received_bytes,
                      .asked_samples = counters.asked_samples,
                      .requests = counters.requests,
                      .answers = counters.answers,
                      .not_held = counters.not_held,
                      .failed = counters.failed,
                      .asked_second = counters.asked_second,
                      .second_gave = counters.second_gave,
                      .given_samples = counters.given_samples,
                      .given_bytes = counters.given_bytes,
                      .not_given = counters.not_given,
                      .bad_messages = counters.bad_messages,
                      .compared_steps = 0,
                      .down = {}};
  {
    MutexLock lock(impl_->mutex);
    traffic.node = impl_->group.node;
    if (impl_->ledger != nullptr) traffic.compared_steps = impl_->ledger->compared();
  }
  const std::vector<std::shared_ptr<NodeLink>> links = impl_->Links();
  traffic.nodes = std::max<NodeNumber>(1, static_cast<NodeNumber>(links.size()));
  for (NodeNumber node = 0; node < links.size(); ++node) {
    if (links[node] != nullptr && links[node]->is_down()) traffic.down.push_back(node);
  }
  return traffic;
}

}  // namespace headrace
