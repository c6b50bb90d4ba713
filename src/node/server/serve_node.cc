#include "node/server/serve_node.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "base/units.h"
#include "loader/ending/reaper.h"
#include "loader/session/session.h"
#include "peer/grpc/peer_memory.h"

namespace headrace {
namespace {

// How long the process may take to end the jobs that its last client left.
constexpr std::int64_t kEndNs = kCloseNs + kFlushNs + kNsPerSecond;

}  // namespace

Status ServeNode(NodeServerOptions options) {
  KeepFreedMessages();
  // Every thread inherits the mask: signals wait for the one that asks for them.
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&ends, signal);
  (void)pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<NodeServer> node, NodeServer::Make(std::move(options)));
  std::jthread signals([&] {
    int signal = 0;
    (void)sigwait(&ends, &signal);
    node->Stop();
  });
  node->Run();
  (void)kill(getpid(), SIGTERM);  // Ends the thread above, unless a signal has.
  signals.join();
  // Jobs end within bounds (Session), but a job that is being opened may wait for storage longer.
  // No client is left, so the process may exit without destroying it.
  if (!DestroyWithin(std::move(node), kEndNs)) _exit(0);
  return Status();
}

}  // namespace headrace
