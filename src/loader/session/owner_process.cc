#include "loader/session/owner_process.h"

#include "base/format/errors.h"

namespace headrace {

Status OwnerProcess::Check() const {
  if (!forked()) return Status();
  return FailedPrecondition(
      "a loader made in process {} is used in its forked child {}: threads do not survive a fork; "
      "make the loader in the child",
      pid_, ProcessId());
}

}  // namespace headrace
