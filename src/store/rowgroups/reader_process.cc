#include "store/rowgroups/reader_process.h"

#include <optional>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/format/errors.h"
#include "ipc/wire.h"

namespace headrace {
namespace {

constexpr std::int64_t kAskEveryNs = 50 * kNsPerMs;
constexpr std::size_t kMessageBytesMax = 1 << 20;  // of an error

}  // namespace

Result<std::unique_ptr<ReaderProcess>> ReaderProcess::Start(
    const std::vector<std::string>& command) {
  constexpr std::string_view kDoing = "starting a reader of row groups";
  if (command.empty()) {
    return FailedPrecondition(
        "{}: this process has no command for it; import headrace.formats, or start headrace-node "
        "with --helper",
        kDoing);
  }
  HEADRACE_ASSIGN_OR_RETURN(auto process, SpawnedProcess::Start(command, kDoing));
  return std::unique_ptr<ReaderProcess>(new ReaderProcess(std::move(process)));
}

Result<std::shared_ptr<SharedMemory>> ReaderProcess::Decode(const GroupRequest& request,
                                                            std::uint64_t bytes,
                                                            const std::function<bool()>& wanted) {
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                            SharedMemory::Make("headrace-group", bytes));
  WireWriter body;
  for (const std::string& each : {request.format, request.file.path, request.part}) {
    body.PutString(each);
  }
  body.PutU64(request.file.size);
  body.PutI64(request.file.mtime_ns);
  WireWriter message;
  message.PutCount(1);  // one new memory
  message.PutU64(0);    // its number
  message.PutU64(bytes);
  message.PutCount(0);  // memory that is gone
  message.PutBytes(body.bytes());
  const int fd = memory->fd();
  const Status sent = process_->connection().Send(message.bytes(), std::span(&fd, 1));
  if (sent.code() == StatusCode::kUnavailable) return Ended();
  HEADRACE_RETURN_IF_ERROR(sent);
  HEADRACE_ASSIGN_OR_RETURN(const std::vector<std::byte> answer, Await(wanted));
  WireReader reader("a reader's answer", answer);
  const std::uint64_t written = reader.TakeU64();
  Status status;
  reader.TakeStatus(status, kMessageBytesMax);
  if (const Status finished = reader.Finish(); !finished.ok()) {
    usable_ = false;
    return finished;
  }
  HEADRACE_RETURN_IF_ERROR(status);
  if (written != bytes) {
    return DataLoss("it decodes to {} bytes, the index says {}; index the dataset again", written,
                    bytes);
  }
  return memory;
}

Result<std::vector<std::byte>> ReaderProcess::Await(const std::function<bool()>& wanted) {
  const MonotonicClock clock;
  std::int64_t wanted_ns = clock.NowNanos();  // when it was wanted last
  for (;;) {
    Result<std::optional<IpcMessage>> taken = process_->connection().Receive(kAskEveryNs);
    if (taken.ok() && taken.value().has_value()) return std::move(taken.value()->bytes);
    if (!taken.ok() && taken.status().code() == StatusCode::kUnavailable) return Ended();
    if (!taken.ok()) {
      usable_ = false;
      return taken.status();
    }
    if (wanted()) {
      wanted_ns = clock.NowNanos();
    } else if (clock.NowNanos() - wanted_ns >= kGraceNs) {
      usable_ = false;
      static_cast<void>(process_->End());
      return Status(StatusCode::kCancelled, "stop requested");
    }
  }
}

Status ReaderProcess::Ended() {
  usable_ = false;
  const pid_t pid = process_->pid();
  return {StatusCode::kUnavailable,
          fmt::format("its reader, process {}, {}; read the kernel's log (dmesg)", pid,
                      process_->End(kGraceNs))};
}

}  // namespace headrace
