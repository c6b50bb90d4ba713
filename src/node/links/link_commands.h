#pragma once

#include <functional>
#include <istream>
#include <string>

#include "headrace/part_options.h"
#include "headrace/status.h"
#include "peer/peer_options.h"

namespace headrace {

// Measures links on behalf of another program, `headrace profile --links`: a LinkProbe that obeys
// lines of text from `in`, and answers by lines to `say`. Says where it listens by the line
// "address HOST:PORT"; then answers each command by one line, "error CODE MESSAGE" where it failed,
// CODE as in StatusCode. Ends when `in` does.
//
//   connect NODE ANSWER_NS BEGIN_NS COUNT   and on lines of their own the COUNT addresses of all
//                                           nodes and the token: "ok"
//   meet                                    waits for all nodes: "ok"
//   measure BYTES IN_FLIGHT NS NS_MAX       "slice RATE OPERATIONS BYTES CPU_SECONDS"
//
// The token comes by a line as arguments of a process can be read by others.
//
// Errors: those of LinkProbe::Make
Status ServeLinkCommands(const PeerListen& listen, std::istream& in,
                         const std::function<void(const std::string&)>& say);

}  // namespace headrace
