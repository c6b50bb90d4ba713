#pragma once

#include "base/status.h"
#include "node/server/node_server.h"

namespace headrace {

// What the process headrace-node does: hosts jobs until its last client is gone, if it is no
// service, or SIGTERM, SIGINT or SIGHUP comes. For the main thread, before there is another: blocks
// these signals.
//
// Errors: those of NodeServer::Make
Status ServeNode(NodeServerOptions options);

}  // namespace headrace
