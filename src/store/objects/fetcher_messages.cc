#include "store/objects/fetcher_messages.h"

#include <utility>

#include "base/check.h"

namespace headrace {
namespace {

void PutRecord(WireWriter& packet, FetcherRecord record) {
  packet.PutU8(static_cast<std::uint8_t>(record));
}

constexpr std::size_t kStartBytes = 1 + 6 * sizeof(std::uint64_t) + sizeof(std::uint32_t);
constexpr std::size_t kCancelBytes = 1 + sizeof(std::uint64_t);

}  // namespace

WireWriter FetcherMemoryPacket(std::uint64_t bytes) {
  WireWriter packet;
  PutRecord(packet, FetcherRecord::kMemory);
  packet.PutU64(bytes);
  return packet;
}

WireWriter& FetcherPackets::RoomFor(std::size_t record_bytes) {
  if (packets_.empty() || packets_.back().bytes().size() + record_bytes > kFetcherPacketBytesMax) {
    packets_.emplace_back();
  }
  return packets_.back();
}

void FetcherPackets::AddStart(const FetchStart& start) {
  HEADRACE_CHECK(start.url.size() <= kFetcherUrlBytesMax);
  WireWriter& packet = RoomFor(kStartBytes + start.url.size());
  PutRecord(packet, FetcherRecord::kStart);
  packet.PutU64(static_cast<std::uint64_t>(start.attempt));
  packet.PutU64(start.bytes.offset);
  packet.PutU64(start.bytes.size);
  packet.PutU64(start.cell_offset);
  packet.PutU64(start.object_bytes);
  packet.PutI64(start.version);
  packet.PutString(start.url);
}

void FetcherPackets::AddCancel(AttemptId attempt) {
  WireWriter& packet = RoomFor(kCancelBytes);
  PutRecord(packet, FetcherRecord::kCancel);
  packet.PutU64(static_cast<std::uint64_t>(attempt));
}

Result<std::vector<FetcherReport>> ReadFetcherReports(std::span<const std::byte> packet) {
  std::vector<FetcherReport> reports;
  WireReader reader("a fetcher's report", packet);
  while (reader.ok() && reader.remaining_bytes() > 0) {
    const std::uint8_t record = reader.TakeU8();
    if (record != static_cast<std::uint8_t>(ReportRecord::kReceived) &&
        record != static_cast<std::uint8_t>(ReportRecord::kEnded)) {
      reader.Refuse("unknown record");
      break;
    }
    FetcherReport report;
    report.attempt = static_cast<AttemptId>(reader.TakeU64());
    if (record == static_cast<std::uint8_t>(ReportRecord::kEnded)) {
      const std::uint8_t result = reader.TakeU8();
      // That a fetcher has gone is not for it to say.
      if (result >= static_cast<std::uint8_t>(AttemptResult::kFetcherGone)) {
        reader.Refuse("unknown result");
      }
      report.end = static_cast<AttemptResult>(result);
    }
    report.received_bytes = reader.TakeU64();
    if (report.end) {
      const std::int64_t retry_after_ns = reader.TakeI64();
      if (retry_after_ns >= 0) report.retry_after_ns = retry_after_ns;
      report.cause = reader.TakeString(kFetcherPacketBytesMax);
    }
    reports.push_back(std::move(report));
  }
  HEADRACE_RETURN_IF_ERROR(reader.Finish());
  return reports;
}

}  // namespace headrace
