#pragma once

#include "headrace/status.h"
#include "node/server/node_server.h"

namespace headrace {

// Runs the process headrace-node: hosts jobs until SIGTERM, SIGINT or SIGHUP comes or, unless it is
// a service, its last client is gone. Call it on the main thread before any other thread starts: it
// blocks these signals.
//
// Errors: those of NodeServer::Make
Status ServeNode(NodeServerOptions options);

}  // namespace headrace
