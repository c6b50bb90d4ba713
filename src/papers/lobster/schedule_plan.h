#pragma once

#include "loader/planning/schedules.h"

namespace headrace {

// Lobster's schedules: the row of ScheduleFormats().
const ScheduleFormat& LobsterScheduleFormat();

}  // namespace headrace
