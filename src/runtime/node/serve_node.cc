#include "runtime/node/serve_node.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <utility>

namespace headrace {

Status ServeNode(NodeServerOptions options) {
  // Every thread inherits the mask: signals wait for the one that asks for them.
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&ends, signal);
  (void)pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<NodeServer> node,
                            NodeServer::Make(std::move(options)));
  std::jthread signals([&] {
    int signal = 0;
    (void)sigwait(&ends, &signal);
    node->Stop();
  });
  node->Run();
  (void)kill(getpid(), SIGTERM);  // Ends the thread above, unless a signal has.
  signals.join();
  return Status();
}

}  // namespace headrace
