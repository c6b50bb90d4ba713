// Reads damaged schedules to their end. A writer must turn what was read without an error into the
// same bytes: a schedule has one form.
//
// Input: a byte whose lowest bit says whether the rest is a whole file; otherwise the rest are
// edits of a valid file, 4 bytes each: position (3 bytes, little-endian, modulo the size), value.
// Bit 1: correct the checksums after that; bit 2: cut off the last byte; bit 3: append one byte.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "papers/lobster/schedule_file.h"
#include "papers/lobster/testing/schedule_bytes.h"

namespace {

using headrace::CacheOp;
using headrace::kNoTier;
using headrace::ScheduledStep;
using headrace::ScheduleHeader;
using headrace::ScheduleReader;
using headrace::ScheduleWriter;

std::vector<std::byte> ValidFile() {
  const ScheduleHeader header{
      .world_size = 4, .first_rank = 1, .lanes = 3, .loading_threads = 12, .decode_threads = 6};
  std::vector<std::byte> file;
  auto writer = ScheduleWriter::Make(header, headrace::Into(file));
  HEADRACE_CHECK(writer.ok());
  for (std::uint32_t i = 0; i < 6; ++i) {
    ScheduledStep step{.at = {.epoch = i / 3, .step = i % 3},
                       .lanes = {{1 + i / 2, 1}, {4, 2}, {2, 3}}};
    step.ops = {CacheOp{.block = 1000 * i, .to = 0, .ahead = true},
                CacheOp{.block = i, .from = 0, .to = 1}, CacheOp{.block = 70000, .from = 1}};
    HEADRACE_CHECK(writer.value().Add(step).ok());
  }
  HEADRACE_CHECK(writer.value().Finish().ok());
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const auto* const valid = new std::vector<std::byte>(ValidFile());
  const unsigned how = data[0];
  std::span<const std::byte> rest = std::as_bytes(std::span(data + 1, size - 1));
  std::vector<std::byte> file(rest.begin(), rest.end());
  if ((how & 1) == 0) {
    file = *valid;
    for (; rest.size() >= 4; rest = rest.subspan(4)) {
      std::uint32_t edit = 0;
      std::memcpy(&edit, rest.data(), sizeof edit);
      file[(edit & 0xffffff) % file.size()] = static_cast<std::byte>(edit >> 24);
    }
  }
  if ((how & 2) != 0) headrace::Reseal(file);
  if ((how & 4) != 0 && !file.empty()) file.pop_back();
  if ((how & 8) != 0) file.push_back(std::byte{0});

  const bool verified = headrace::VerifySchedule({.bytes = file, .name = "a.schedule"}).ok();
  auto reader = ScheduleReader::Open({.bytes = file, .name = "a.schedule"});
  HEADRACE_CHECK(reader.ok() || !verified);
  if (!reader.ok()) return 0;
  std::vector<std::byte> again;
  auto writer = ScheduleWriter::Make(reader.value().header(), headrace::Into(again));
  HEADRACE_CHECK(writer.ok());
  ScheduledStep step;
  while (true) {
    const auto more = reader.value().Next(step);
    if (!more.ok()) {
      HEADRACE_CHECK(!verified);
      return 0;
    }
    if (!more.value()) break;
    HEADRACE_CHECK(writer.value().Add(step).ok());
  }
  HEADRACE_CHECK(writer.value().Finish().ok());
  HEADRACE_CHECK(verified && again == file);
  return 0;
}
