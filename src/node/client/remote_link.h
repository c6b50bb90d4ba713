#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "ipc/connection.h"
#include "node/protocol/messages.h"

namespace headrace {

// The connection to a node process, which a loader and the batches that it gave out share: it lasts
// until the last of them is gone, and with it what the node keeps for them.
//
// Thread safety: every method may be called from any thread.
// Fork: a child says nothing.
class RemoteLink {
 public:
  RemoteLink(std::unique_ptr<IpcConnection> connection, std::string job)
      : connection_(std::move(connection)), job_(std::move(job)) {}
  RemoteLink(const RemoteLink&) = delete;
  RemoteLink& operator=(const RemoteLink&) = delete;

  [[nodiscard]] bool forked() const;
  [[nodiscard]] pid_t node_pid() const { return connection_->peer_pid(); }

  // Has up to `count` notes of batches taken, and as many of batches let go, wait to be sent
  // together: each message wakes the node.
  void HoldNotes(std::size_t count) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Sends the notes that are held back, then `message`. Waits up to `timeout_ns` for each of the
  // two (negative: no limit) if the node does not read.
  //
  // Errors: those of IpcConnection::Send and Pack
  Status Say(const ClientMessage& message, std::int64_t timeout_ns = -1)
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  // The consumer found no batch, and waits: from here on notes are sent at once, until it takes
  // one.
  Status NoteWaiting() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // It took a batch.
  void NoteTaken(std::uint64_t number) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // A batch is let go. Never waits: batches die wherever their last view does.
  void LetGo(std::uint64_t number) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Errors: those of IpcConnection::Receive
  Result<std::optional<IpcMessage>> Receive(std::int64_t timeout_ns) {
    return connection_->Receive(timeout_ns);
  }

  // "the node process (pid 12) of job 'j'".
  [[nodiscard]] std::string Node() const;
  // Why the connection is gone, in words: what became of the process. How it ended the system tells
  // its parent alone.
  [[nodiscard]] Status Explain(const Status& status) const;

 private:
  const pid_t pid_ = CurrentProcess();
  const std::unique_ptr<IpcConnection> connection_;
  const std::string job_;

  static pid_t CurrentProcess();

  // Held while a note is sent: a batch is not let go before its note of being taken.
  Mutex mutex_;
  Status SendNotes(bool waiting, std::int64_t timeout_ns) HEADRACE_LOCKS_REQUIRED(mutex_);

  BatchNote notes_ HEADRACE_GUARDED_BY(mutex_);  // not said yet
  std::size_t held_max_ HEADRACE_GUARDED_BY(mutex_) = 1;
  bool waiting_ HEADRACE_GUARDED_BY(mutex_) = false;  // said, and no batch taken since
};

}  // namespace headrace
