#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/shared_memory.h"
#include "headrace/loader.h"
#include "headrace/loader_options.h"
#include "headrace/status.h"
#include "node/client/batch_mapper.h"
#include "node/client/node_state.h"
#include "node/client/remote_link.h"
#include "node/protocol/messages.h"

namespace headrace {

// The address of a rank's node process, and the rank's identity there.
struct NodeAddress {
  std::string socket;  // of the node process, in the abstract namespace
  std::string job;     // the same on all ranks that share it
  std::uint32_t local_rank = 0;
  std::uint32_t local_ranks = 1;
  // If ranks share batches; see OpenSession. Otherwise a lane is a local rank.
  struct Lanes {
    std::uint32_t process = 0;
    std::uint32_t lane = 0;
    std::uint32_t lanes = 1;
  };
  std::optional<Lanes> lanes;
  // Whether other ranks get this rank's batches, too.
  [[nodiscard]] bool shares_batches() const {
    return lanes.has_value() && lanes->lanes < local_ranks;
  }
  std::string index_path;  // of the dataset's index, absolute
  std::string fingerprint;
  std::int64_t start_timeout_ns = 600'000'000'000;  // wait of Next() for ranks that never connected
};

// Loads batches of one rank through its node process. Batches lie in memory of the node that is
// mapped here; nothing is copied, except for ranks that share their batches with others: each of
// them has copies, which it may change. It has no thread: threads that wait for the node read its
// messages.
//
// Thread safety, ownership, shutdown: as for any BatchSource. The node keeps a batch until its last
// view here dies, or this process does.
class RemoteLoader final : public BatchSource {
 public:
  // Connects, and opens the job as its first rank or joins it. While this or another call waits for
  // an answer, the waiting thread calls `keep_waiting` now and then. `clock` measures
  // start_timeout_ns, which limits this call, too.
  //
  // Errors: Unavailable         no process serves the address, or it is about to end; try again
  //         Cancelled           `keep_waiting` returned false
  //         DeadlineExceeded    the node did not answer within start_timeout_ns
  //         FailedPrecondition  another version of headrace; another rank opened the job with
  //                             other options
  //         those of Loader::Open
  static Result<std::unique_ptr<RemoteLoader>> Open(
      const NodeAddress& address, LoaderOptions options, std::function<bool()> keep_waiting,
      std::shared_ptr<const Clock> clock = std::make_shared<MonotonicClock>());
  ~RemoteLoader() override;
  RemoteLoader(const RemoteLoader&) = delete;
  RemoteLoader& operator=(const RemoteLoader&) = delete;

  // The schema has no codecs: the node decodes.
  [[nodiscard]] const SessionFacts& facts() const override { return facts_; }

  // Returns at once. The run begins when every rank has asked for it; if it cannot, Next() returns
  // the error.
  //
  // Errors: Unavailable  the node process has ended
  Status Start(Position position) override HEADRACE_LOCKS_EXCLUDED(mutex_);
  Status StartList(ListOrderOptions list) override HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Errors, beside those of BatchSource::Next():
  //         Unavailable         the node process has ended
  //         FailedPrecondition  ranks ask for different positions
  //         DeadlineExceeded    some ranks made no loader within start_timeout_ns; or a signal has
  //                             stopped the node process for as long
  Result<TakenBatch> Next(std::int64_t timeout_ns) override HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Never waits: only the node process waits for reads.
  bool Stop(std::int64_t timeout_ns = -1) override HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] std::int64_t LeftOf(std::int64_t ns) const override { return ns; }
  void Abandon() override { abandoned_ = true; }

  // Where the node processes of other nodes reach this one's; empty: nowhere.
  [[nodiscard]] const std::string& peer_address() const { return peer_address_; }
  // Tells the node process where those of the other nodes are. One rank of each node does, once,
  // before its first run.
  //
  // Errors: InvalidArgument     the group does not fit the job
  //         FailedPrecondition  the loader has no other nodes, or knows them
  //         those of stats()
  Status ConnectNodes(PeerGroup group) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // These ask the node, which answers at once; Explain() takes as long as the node plans.
  //
  // Errors: Unavailable       the node process has ended
  //         Cancelled         `keep_waiting` returned false
  //         DeadlineExceeded  no answer within a minute; Explain(): ten minutes
  Result<std::vector<PlannedRow>> Explain(Position position) const override;
  Result<std::vector<PlannedRow>> ExplainRows(std::span<const SampleId> samples) const override;
  [[nodiscard]] Result<LoaderStats> stats() const override;
  [[nodiscard]] Result<std::vector<StepTime>> step_times() const override;
  [[nodiscard]] Result<std::vector<PreprocessRow>> decode_times() const override;
  [[nodiscard]] std::vector<NamedTierStats> tier_stats() const override
      HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  // What was received of a run, and what was sent for it.
  struct Run {
    std::uint64_t start = 0;  // its number; 0: none
    // Batches that were not taken, and their numbers.
    std::deque<std::pair<std::uint64_t, std::shared_ptr<Batch>>> ready;
    std::optional<Status> end;
    bool begins = false;  // no batch was taken, and no StillWaiting sent
    // When the wait for its first batch began; std::nullopt: nobody has waited yet.
    std::optional<std::int64_t> waits_since_ns;
    bool told_waiting = false;
  };

  // A call that was sent to the node.
  struct Asked {
    bool given_up = false;
    std::optional<NodeMessage> reply;
  };

  RemoteLoader(std::shared_ptr<RemoteLink> link, NodeAddress address,
               std::function<bool()> keep_waiting, std::shared_ptr<const Clock> clock)
      : link_(std::move(link)),
        address_(std::move(address)),
        keep_waiting_(std::move(keep_waiting)),
        clock_(std::move(clock)) {}

  [[nodiscard]] Status CheckProcess() const;
  template <typename Message>
  Status Begin(Message message) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Asks the node, and waits for the answer. `asked`: the method that the user called.
  template <typename Reply, typename Ask>
  Result<Reply> Call(const char* asked, Ask ask, std::int64_t timeout_ns) const
      HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Receives until `done` returns true, the time limit passes (returns false) or the connection
  // ends (an error). One thread receives for all waiting threads.
  Result<bool> WaitUntil(const std::function<bool()>& done, std::int64_t timeout_ns) const
      HEADRACE_LOCKS_REQUIRED(mutex_);
  // The same for an answer, while keep_waiting_ returns true.
  Status WaitForAnswer(const char* asked, const std::function<bool()>& done,
                       std::int64_t timeout_ns) const HEADRACE_LOCKS_REQUIRED(mutex_);
  // The same for a run's batches. A run begins when every rank has asked for it; if that takes too
  // long, this tells the node.
  Status WaitInRun(const std::function<bool()>& over, std::int64_t timeout_ns)
      HEADRACE_LOCKS_REQUIRED(mutex_);
  void Receive(std::int64_t timeout_ns) const HEADRACE_LOCKS_REQUIRED(mutex_);

  Status OnMessage(IpcMessage& message, NodeMessage said) const HEADRACE_LOCKS_REQUIRED(mutex_);
  Status On(const Refused& refused) const HEADRACE_LOCKS_REQUIRED(mutex_);
  Status On(SessionOpened opened) const HEADRACE_LOCKS_REQUIRED(mutex_);
  Status On(BatchReady ready) const HEADRACE_LOCKS_REQUIRED(mutex_);
  Status On(RunEnded ended) const HEADRACE_LOCKS_REQUIRED(mutex_);
  Status On(TierTrouble trouble) const HEADRACE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<RemoteLink> link_;
  const NodeAddress address_;
  const std::function<bool()> keep_waiting_;
  const std::shared_ptr<const Clock> clock_;
  mutable SessionFacts facts_;        // Written once, while the loader is opened.
  mutable std::string peer_address_;  // The same.

  std::atomic<bool> abandoned_ = false;  // the destructor does not wait

  mutable Mutex mutex_;
  mutable CondVar received_;
  mutable bool receiving_ HEADRACE_GUARDED_BY(mutex_) = false;  // a thread receives
  mutable bool is_open_ HEADRACE_GUARDED_BY(mutex_) = false;
  mutable std::uint64_t received_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  mutable Status broken_ HEADRACE_GUARDED_BY(mutex_);  // an error: the connection has ended
  mutable BatchMapper mapper_ HEADRACE_GUARDED_BY(mutex_);
  mutable Run run_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t last_start_ HEADRACE_GUARDED_BY(mutex_) = 0;
  NodeState node_state_ HEADRACE_GUARDED_BY(mutex_);  // of the current wait
  // Calls without an answer, or whose answer was not taken.
  mutable std::uint64_t last_call_ HEADRACE_GUARDED_BY(mutex_) = 0;
  mutable std::map<std::uint64_t, Asked> calls_ HEADRACE_GUARDED_BY(mutex_);
  mutable std::vector<NamedTierStats> tiers_ HEADRACE_GUARDED_BY(mutex_);  // as of the last failure
};

}  // namespace headrace
