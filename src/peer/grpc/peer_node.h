#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fetch/fetch.h"
#include "fetch/held_samples.h"
#include "headrace/part_options.h"
#include "headrace/part_stats.h"
#include "headrace/status.h"
#include "peer/peer_options.h"
#include "peer/plan_ledger.h"

namespace headrace {

// A node of a job: listens, gives other nodes samples, and requests theirs.
//
// Thread safety: every method may be called from any thread; Connect() once, before those that need
// the others.
// Shutdown: the destructor ends all streams, and so all reads. Before it, call Give(nullptr) and
// end the runs that read.
class PeerNode {
 public:
  // Listens. Answers no calls before Connect().
  //
  // Errors: InvalidArgument     beyond loopback without certificates or open_network; certificates
  //                             without a key or an authority
  //         Unavailable         the address is not this machine's, or is in use
  //         FailedPrecondition  a file of the certificates cannot be read
  static Result<std::unique_ptr<PeerNode>> Listen(const PeerListen& options);
  ~PeerNode();
  PeerNode(const PeerNode&) = delete;
  PeerNode& operator=(const PeerNode&) = delete;

  // "host:port" of this node for others, if `host` reaches this machine.
  [[nodiscard]] const std::string& address() const;

  // Sets the nodes of the job. Opens no connection.
  //
  // Errors: InvalidArgument     no such node, an empty token or address
  //         FailedPrecondition  they are set already
  Status Connect(PeerGroup group);
  [[nodiscard]] bool connected() const;

  // Sends `facts` to all nodes for run number `round`, and waits for theirs: see Agreement. Several
  // threads call `keep_waiting` concurrently.
  //
  // Errors: FailedPrecondition  a node has another token
  //         Unavailable         a node refuses it; those of Agreement::Await()
  Result<std::vector<std::string>> Agree(std::uint64_t round, const std::string& facts,
                                         const std::function<bool()>& keep_waiting);

  // Sends all nodes the steps that this one has planned of the run that Agree() began, and compares
  // them with theirs. Does not wait.
  void Plan(const PlannedSteps& steps);
  // Returns the first difference of a run, once.
  std::optional<PlanDifference> TakeDifference();

  // Takes no more parcels of run `round`: other nodes need not wait for this one.
  // Does nothing if Agree() has begun a newer one.
  void StopTaking(std::uint64_t round);
  // Whether any other node may still take parcels of the run that Agree() began last. From the
  // first call on the nodes are asked periodically; does not wait.
  bool AnyTakes();

  // Reads samples of other nodes. Errors: NotFound  the node does not have it; Unavailable,
  // DeadlineExceeded, DataLoss  it cannot be asked, is late, or answers wrongly
  [[nodiscard]] FetchSource& source();

  // From now on gives samples of `held`; null: none. Waits until those given before are not in use.
  void Give(HeldSamples* held);

  [[nodiscard]] NodeTraffic traffic() const;

 private:
  struct Impl;
  explicit PeerNode(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
