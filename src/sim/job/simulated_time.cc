#include "sim/job/simulated_time.h"

namespace headrace {

Status TakesTooLong() {
  return {
      StatusCode::kInvalidArgument,
      "simulating: takes more than 73 years; check the units: a rate of 80 is 80 bytes a second, a "
      "latency or an allreduce of 80 is 80 seconds"};
}

}  // namespace headrace
