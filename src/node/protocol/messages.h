#pragma once

// node/ is a loader in two processes: server/ where the engine runs, client/ where its batches are
// used, and between them these messages. docs/node.md says who sends what when.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/unique_fd.h"
#include "headrace/batch.h"
#include "headrace/ids.h"
#include "headrace/loader.h"
#include "headrace/loader_options.h"
#include "headrace/loader_stats.h"
#include "headrace/members.h"
#include "headrace/status.h"
#include "ipc/message.h"
#include "observe/step_times.h"
#include "peer/peer_options.h"
#include "plan/exact_order.h"
#include "plan/order.h"

namespace headrace {

// Raised with every change of the messages' format or meaning. The first message in either
// direction, and its first number, never change.
inline constexpr std::uint32_t kNodeProtocol = 13;

enum class NodeRole : std::uint8_t { kRank = 0 };

// Messages of a client.

struct ClientHello {  // The first.
  std::uint32_t protocol = kNodeProtocol;
  std::string library;  // version of headrace
  NodeRole role = NodeRole::kRank;
  std::uint64_t pid = 0;
  std::uint32_t rank = 0;
};
struct OpenSession {  // The second. Answered by SessionOpened or Refused.
  std::string job;
  std::uint32_t process = 0;  // number of the rank among all of the job, for messages
  std::uint32_t local_rank = 0;
  std::uint32_t local_ranks = 1;
  // Ranks that get the same batches have one lane, and one options.job.rank. Lanes of a node are
  // neighbours, and each has as many ranks.
  std::uint32_t lane = 0;
  std::uint32_t lanes = 1;
  std::string index_path;
  std::string fingerprint;
  LoaderOptions options;  // of this rank
};
// In the order in which ranks are compared.
HEADRACE_MEMBERS(OpenSession, job, index_path, fingerprint, process, local_rank, local_ranks, lane,
                 lanes, options)
struct StartRun {
  std::uint64_t start = 0;  // 1, 2, ...: what batches and the end of the run name
  Position position;
};
HEADRACE_MEMBERS(StartRun, start, position)
struct StartListRun {
  std::uint64_t start = 0;
  ListOrderOptions list;
};
HEADRACE_MEMBERS(StartListRun, start, list)
struct StopRun {};
struct TakenNote {
  std::uint64_t number = 0;
  std::int64_t at_ns = 0;  // CLOCK_MONOTONIC: the note may come much later
};
HEADRACE_MEMBERS(TakenNote, number, at_ns)
struct BatchNote {                    // Many a second.
  std::vector<TakenNote> taken;       // batches that the consumer took
  std::vector<std::uint64_t> let_go;  // numbers of batches that the consumer released
  bool waiting = false;               // the consumer found no batch and waits
};
HEADRACE_MEMBERS(BatchNote, taken, let_go, waiting)
struct AskStats {
  std::uint64_t call = 0;
};
HEADRACE_MEMBERS(AskStats, call)
struct AskSteps {
  std::uint64_t call = 0;
};
HEADRACE_MEMBERS(AskSteps, call)
struct AskRows {
  std::uint64_t call = 0;
  Position position;
};
HEADRACE_MEMBERS(AskRows, call, position)
struct AskRowsOf {
  std::uint64_t call = 0;
  std::vector<SampleId> samples;
};
HEADRACE_MEMBERS(AskRowsOf, call, samples)
// Sent by local rank 0 before its first run: the addresses of the job's nodes. Answered by
// NodesConnected.
struct ConnectNodes {
  std::uint64_t call = 0;
  PeerGroup group;
};
HEADRACE_MEMBERS(ConnectNodes, call, group)
struct CloseSession {};  // The last. Batches that the consumer holds stay its own.
// The run did not start within the client's `start_timeout`. Answered by
// RunEnded if some ranks never connected; otherwise the client continues to wait.
struct StillWaiting {
  std::uint64_t start = 0;
  std::int64_t waited_ns = 0;
};
HEADRACE_MEMBERS(StillWaiting, start, waited_ns)

using ClientMessage =
    std::variant<ClientHello, OpenSession, StartRun, StartListRun, StopRun, BatchNote, AskStats,
                 AskSteps, AskRows, AskRowsOf, CloseSession, StillWaiting, ConnectNodes>;

// Messages of the node.

struct Refused {  // Why there is nothing more to say.
  Status status;
};
HEADRACE_MEMBERS(Refused, status)
struct SessionOpened {
  SessionFacts facts;
  std::uint32_t batches_max = 0;  // of each rank, in work or ready
  std::string peer_address;       // where other nodes reach this one; empty: nowhere
};
HEADRACE_MEMBERS(SessionOpened, facts, batches_max, peer_address)
struct NewMemory {  // Comes with its descriptor, before the first batch that lies in it.
  std::uint32_t memory = 0;
  std::uint64_t bytes = 0;
  bool dedicated = false;  // to one batch, and freed with it
};
HEADRACE_MEMBERS(NewMemory, memory, bytes, dedicated)
struct BytesPlace {
  std::uint32_t memory = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};
HEADRACE_MEMBERS(BytesPlace, memory, offset, size)
struct BatchReady {
  std::uint64_t start = 0;   // of the run
  std::uint64_t number = 0;  // 1, 2, ... over all runs
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  bool ends_epoch = false;
  bool beyond_budget = false;
  BatchTimes times;
  std::vector<SampleId> samples;
  std::vector<Substitution> substitutions;
  std::vector<TierNumber> sources;
  std::vector<std::vector<BytesPlace>> fields;  // of each: all rows in one, or, if ragged, each
};
HEADRACE_MEMBERS(BatchReady, start, number, epoch, step, ends_epoch, beyond_budget, times, samples,
                 substitutions, sources, fields)
struct RunEnded {
  std::uint64_t start = 0;
  Status status;
};
HEADRACE_MEMBERS(RunEnded, start, status)
struct StatsReply {
  std::uint64_t call = 0;
  Status status;
  LoaderStats stats;
  std::vector<PreprocessRow> decode_times;
};
HEADRACE_MEMBERS(StatsReply, call, status, stats, decode_times)
struct StepsReply {
  std::uint64_t call = 0;
  Status status;
  std::vector<StepTime> steps;
};
HEADRACE_MEMBERS(StepsReply, call, status, steps)
struct RowsReply {
  std::uint64_t call = 0;
  Status status;
  std::vector<PlannedRow> rows;
};
HEADRACE_MEMBERS(RowsReply, call, status, rows)
struct NodesConnected {
  std::uint64_t call = 0;
  Status status;
};
HEADRACE_MEMBERS(NodesConnected, call, status)
struct TierTrouble {  // A tier has failed.
  std::vector<NamedTierStats> tiers;
};
HEADRACE_MEMBERS(TierTrouble, tiers)

using NodeMessage = std::variant<Refused, SessionOpened, NewMemory, BatchReady, RunEnded,
                                 StatsReply, StepsReply, RowsReply, TierTrouble, NodesConnected>;

std::vector<std::byte> Encode(const ClientMessage& message);
std::vector<std::byte> Encode(const NodeMessage& message);

// The message as it is sent. Lists that may be as long as a dataset go out of band, each in memory
// with a descriptor of its own, because the size of a message is limited.
//
// Errors: ResourceExhausted  no memory or descriptor for one
Result<IpcMessage> Pack(const ClientMessage& message);

// Accepts any bytes, and any `fds` that came with them. Of a ClientHello of another protocol fills
// in only `protocol`.
//
// Errors: DataLoss  not a message, naming the place and what is wrong there
Result<ClientMessage> DecodeClientMessage(std::span<const std::byte> bytes,
                                          std::span<const UniqueFd> fds = {});
Result<NodeMessage> DecodeNodeMessage(std::span<const std::byte> bytes);

}  // namespace headrace
