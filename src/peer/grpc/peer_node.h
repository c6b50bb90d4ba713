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

// A node among those of its job: listens, gives them samples, asks them for theirs.
//
// Thread safety: every method may be called from any thread; Connect() once, before those that need
// the others.
// Shutdown: the destructor ends all streams, so all reads. Nothing may be given any more, and no
// run may read.
class PeerNode {
 public:
  // Listens. Nothing is answered before Connect().
  //
  // Errors: InvalidArgument     beyond loopback without certificates or open_network; certificates
  //                             without a key or an authority
  //         Unavailable         the address is not this machine's, or is in use
  //         FailedPrecondition  a file of the certificates cannot be read
  static Result<std::unique_ptr<PeerNode>> Listen(const PeerListen& options);
  ~PeerNode();
  PeerNode(const PeerNode&) = delete;
  PeerNode& operator=(const PeerNode&) = delete;

  // "host:port", where others reach it if `host` reaches this machine.
  [[nodiscard]] const std::string& address() const;

  // Tells it which nodes there are. Opens no connection.
  //
  // Errors: InvalidArgument     no such node, an empty token or address
  //         FailedPrecondition  it knows them already
  Status Connect(PeerGroup group);
  [[nodiscard]] bool connected() const;

  // Says `facts` to all nodes for run number `round`, and waits for theirs: see Agreement. Several
  // threads call `keep_waiting`, at once.
  //
  // Errors: Unavailable  a node refuses it; those of Agreement::Await()
  Result<std::vector<std::string>> Agree(std::uint64_t round, const std::string& facts,
                                         const std::function<bool()>& keep_waiting);

  // Tells all nodes what this one has planned of the run that Agree() began, and compares it with
  // what they tell. Does not wait.
  void Plan(const PlannedSteps& steps);
  // The first difference of a run, once.
  std::optional<PlanDifference> TakeDifference();

  // From now on no parcel of run `round` is taken: others need not wait until this node has theirs.
  // Does nothing if Agree() has begun a newer one.
  void StopTaking(std::uint64_t round);
  // Whether any other node may still take parcels of the run that Agree() began last. It is asked
  // for, now and then, from the first call on; does not wait.
  bool AnyTakes();

  // Reads samples of other nodes. Errors: NotFound  the node does not have it; Unavailable,
  // DeadlineExceeded, DataLoss  it cannot be asked, is late, or answers wrongly
  [[nodiscard]] FetchSource& source();

  // Gives what `held` has, until the next call; null: nothing. Waits for what is in use.
  void Give(HeldSamples* held);

  [[nodiscard]] NodeTraffic traffic() const;

 private:
  struct Impl;
  explicit PeerNode(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
