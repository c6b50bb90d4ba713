#include "sim/job/simulated_time.h"

namespace headrace {

Status TakesTooLong() {
  return {
      StatusCode::kInvalidArgument,
      "simulating: takes more than 73 years; check the units of rates: 80 is 80 bytes a second"};
}

}  // namespace headrace
