#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "headrace/status.h"
#include "ipc/connection.h"
#include "node/protocol/messages.h"

namespace headrace {

// The connection to a node process. A loader and its batches share it: it lasts until the last of
// them is gone. Until then the node keeps their memory.
//
// Thread safety: every method may be called from any thread.
// Fork: a child sends nothing.
class RemoteLink {
 public:
  RemoteLink(std::unique_ptr<IpcConnection> connection, std::string job)
      : connection_(std::move(connection)), job_(std::move(job)) {}
  RemoteLink(const RemoteLink&) = delete;
  RemoteLink& operator=(const RemoteLink&) = delete;

  [[nodiscard]] bool forked() const;
  [[nodiscard]] pid_t node_pid() const { return connection_->peer_pid(); }

  // Batches up to `count` notices of batches taken, and as many of batches released, into one
  // message: each message wakes the node.
  void HoldNotes(std::size_t count) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Sends the batched notices, then `message`. If the node does not read, waits up to `timeout_ns`
  // for each of the two (negative: no limit).
  //
  // Errors: those of IpcConnection::Send and Pack
  Status Say(const ClientMessage& message, std::int64_t timeout_ns = -1)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  // The consumer found no batch and waits: notices are sent at once until it takes a batch.
  Status NoteWaiting() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // The consumer took a batch.
  void NoteTaken(std::uint64_t number) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // A batch was released. Never waits: a batch may die on any thread, with its last view.
  void LetGo(std::uint64_t number) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Errors: those of IpcConnection::Receive
  Result<std::optional<IpcMessage>> Receive(std::int64_t timeout_ns) {
    return connection_->Receive(timeout_ns);
  }

  // "the node process (pid 12) of job 'j'".
  [[nodiscard]] std::string Node() const;
  // Explains a lost connection: the node process closed it, or ended, and how it ended if this
  // process is its parent (the system tells no other process).
  [[nodiscard]] Status Explain(const Status& status) const;

 private:
  const pid_t pid_ = CurrentProcess();
  const std::unique_ptr<IpcConnection> connection_;
  const std::string job_;

  static pid_t CurrentProcess();

  // Held while a notice is sent, so that a batch is never released before the notice that it was
  // taken.
  Mutex mutex_;
  Status SendNotes(bool waiting, std::int64_t timeout_ns) HEADRACE_LOCKS_REQUIRED(mutex_);

  BatchNote notes_ HEADRACE_GUARDED_BY(mutex_);  // not sent yet
  std::size_t held_max_ HEADRACE_GUARDED_BY(mutex_) = 1;
  // The node was notified, and no batch was taken since.
  bool waiting_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace headrace
