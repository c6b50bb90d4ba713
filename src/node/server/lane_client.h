#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/shared_memory.h"
#include "engine/engine_parts.h"
#include "headrace/batch.h"
#include "ipc/peer.h"
#include "node/protocol/messages.h"

namespace headrace {

// The node's view of a rank's process: sends it messages, and keeps the batches that it was sent
// until it releases them.
//
// Thread safety: every method may be called from any thread; SendBatch() by one thread at a time.
// No method waits. If the client is gone, methods do nothing.
class LaneClient {
 public:
  explicit LaneClient(std::shared_ptr<IpcPeer> peer) : peer_(std::move(peer)) {}
  LaneClient(const LaneClient&) = delete;
  LaneClient& operator=(const LaneClient&) = delete;

  [[nodiscard]] pid_t pid() const { return peer_->pid(); }

  void Send(const NodeMessage& message, std::span<const int> fds = {});

  // Sends a batch of run `start`, and keeps it until the client releases it.
  void SendBatch(std::uint64_t start, std::span<const BatchField> schema,
                 std::shared_ptr<Batch> batch) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Marks the batch as taken by the client's consumer. Returns null if it was dropped or never
  // sent.
  std::shared_ptr<const Batch> Take(std::uint64_t number) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void LetGo(std::uint64_t number) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Drops the batches that the client has not taken: it will not take them any more.
  void DropUntaken() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Drops all batches and keeps none from now on: the client is gone.
  void DropAll() HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  struct Sent {
    std::shared_ptr<Batch> batch;
    bool taken = false;
    std::vector<const SharedMemory*> dedicated;  // memories of this batch alone
  };
  using Memories = std::vector<std::pair<NewMemory, std::shared_ptr<SharedMemory>>>;

  // Returns the number of a memory; adds a memory without a number to `unknown` first.
  std::uint32_t NumberOf(const Buffer& buffer, Sent& sent, Memories& unknown)
      HEADRACE_LOCKS_REQUIRED(mutex_);
  void Forget(const Sent& sent) HEADRACE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<IpcPeer> peer_;

  Mutex mutex_;
  bool gone_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::uint64_t last_number_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, Sent> sent_ HEADRACE_GUARDED_BY(mutex_);
  // Memories whose descriptors the client has. The reference prevents another memory from getting
  // the same address.
  struct Known {
    std::uint32_t number = 0;
    std::shared_ptr<SharedMemory> memory;
  };
  std::map<const SharedMemory*, Known> known_ HEADRACE_GUARDED_BY(mutex_);
  std::uint32_t last_memory_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

// Sends an engine's batches to the clients of a lane, all to each. Holds them back until Release().
// Without a client, drops them.
class LaneSink final : public BatchSink {
 public:
  struct Receiver {
    std::shared_ptr<LaneClient> client;
    std::uint64_t start = 0;  // the client's number of the run
  };

  // `schema` must outlive the sink.
  LaneSink(std::vector<Receiver> receivers, std::span<const BatchField> schema)
      : schema_(schema), receivers_(std::move(receivers)) {}

  // Sends the batches that it held back. From now on the clients may answer.
  void Release() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Sends nothing more to that client.
  void Remove(const LaneClient& client) HEADRACE_LOCKS_EXCLUDED(mutex_);

  void OnBatch(std::shared_ptr<Batch> batch) override HEADRACE_LOCKS_EXCLUDED(mutex_);
  void OnEnd(Status status) override HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  void Send(const std::shared_ptr<Batch>& batch) HEADRACE_LOCKS_REQUIRED(mutex_);
  void SendEnd(const Status& status) HEADRACE_LOCKS_REQUIRED(mutex_);

  const std::span<const BatchField> schema_;

  Mutex mutex_;
  std::vector<Receiver> receivers_ HEADRACE_GUARDED_BY(mutex_);
  bool released_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Batch>> unsent_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<Status> end_ HEADRACE_GUARDED_BY(mutex_);  // not sent
};

}  // namespace headrace
