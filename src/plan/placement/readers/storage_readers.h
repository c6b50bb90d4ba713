#pragma once

#include <memory>

#include "headrace/status.h"
#include "plan/placement/placement.h"

namespace headrace {

// Has StorageReaders() of `placement`, made from `request`, count the nodes that read storage in
// the newest step: a model of shared storage needs their number. It plans as it would without.
//
// A node reads storage for a block that it uses and that no node has before the step. If nodes ask
// each other (`asks`) the Reader() after the step reads it for all; otherwise
// each node reads what it does not have itself. A placement that plans one node alone says nothing
// of the others: there every node that uses a block reads storage.
//
// Cost: that of one more stream of uses, and a look-up of the holders of each use of any node.
// Errors: those of request.uses
Result<std::unique_ptr<Placement>> MakeCountedPlacement(std::unique_ptr<Placement> placement,
                                                        const PlacementRequest& request, bool asks);

}  // namespace headrace
