#include "loader/planning/schedules.h"

#include <algorithm>

#include "base/format/errors.h"
#include "base/hash.h"
#include "engine/loop/engine_options.h"

namespace headrace {

LaneBudget LaneBudgetOf(const LoaderConfig& config) {
  const std::uint32_t lanes = config.options.job.ranks;
  return {.reads = std::max(EngineOptions().reads_in_flight_max, lanes),
          .decodes = static_cast<std::uint32_t>(std::max(config.options.threads, 1))};
}

std::uint64_t TransformHash(const NodeOptions& options) {
  Hasher128 hasher;
  for (const LoaderField& field : options.fields) {
    hasher.AddText(field.name);
    if (field.sound.has_value()) {
      for (const std::uint64_t number :
           {field.sound->frames.value_or(0), std::uint64_t{field.sound->channels},
            std::uint64_t{field.sound->random_begin}}) {
        hasher.AddNumber(number);
      }
    }
    if (!field.image.has_value()) continue;
    const ImageTransform& image = *field.image;
    hasher.AddNumber(image.random_resized_crop.has_value() ? 1 : 0);
    for (const std::uint64_t number :
         {std::uint64_t{image.resize_shorter}, std::uint64_t{image.height},
          std::uint64_t{image.width}, std::uint64_t{image.to_float}, std::uint64_t{image.exact},
          std::uint64_t{image.channels_first}}) {
      hasher.AddNumber(number);
    }
  }
  return hasher.Digest()[0];
}

Registry<ScheduleFormat>& ScheduleFormats() {
  static Registry<ScheduleFormat> formats("schedule format", {});
  return formats;
}

Result<std::uint64_t> WriteSchedule(const std::shared_ptr<const Index>& index,
                                    const LoaderOptions& options, const SchedulePlanOptions& plan) {
  const auto formats = ScheduleFormats().rows();
  if (formats.empty()) {
    return FailedPrecondition(
        "writing schedule {}: this program has no format of schedules; add one to "
        "ScheduleFormats() first, as RegisterPapers() does",
        plan.path);
  }
  return formats.front()->Write(index, options, plan);
}

}  // namespace headrace
