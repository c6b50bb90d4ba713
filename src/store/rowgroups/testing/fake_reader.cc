// A reader of row groups for tests: a group is its file as it is. `part` says how to fail. An
// object of "s3://" is a file, too, of version 7; without a part it is compared with that.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "ipc/connection.h"
#include "ipc/wire.h"
#include "store/rowgroups/reader_process.h"

namespace {

using headrace::GroupRequest;
using headrace::Status;
using headrace::StatusCode;
using headrace::WireReader;
using headrace::WireWriter;

constexpr std::size_t kTextMax = 1 << 16;
constexpr std::string_view kObjects = "s3://";
constexpr std::int64_t kVersion = 7;

void Answer(headrace::IpcConnection& connection, std::uint64_t written, const Status& status) {
  WireWriter answer;
  answer.PutU64(written);
  answer.PutStatus(status);
  (void)connection.Send(answer.bytes());
}

void Serve(headrace::IpcConnection& connection, const GroupRequest& request,
           headrace::SharedMemory& memory) {
  if (request.part == "die") (void)::kill(::getpid(), SIGKILL);
  if (request.part == "exit") ::_exit(7);
  if (request.part == "hang") ::pause();
  if (request.part == "garbage") {
    (void)connection.Send(std::as_bytes(std::span("garbage")));
    return;
  }
  if (request.part == "refuse") {
    Answer(connection, 0, Status(StatusCode::kNotFound, "no such group"));
    return;
  }
  const bool is_object = request.file.path.starts_with(kObjects);
  const std::string path = request.file.path.substr(is_object ? kObjects.size() : 0);
  if (request.part == "die once" && ::access((path + ".died").c_str(), F_OK) != 0) {
    std::ofstream(path + ".died") << "x";
    (void)::kill(::getpid(), SIGKILL);
  }
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const bool as_indexed = request.file.size == bytes.size() && request.file.mtime_ns == kVersion;
  if (is_object && !as_indexed) {
    Answer(connection, 0, Status(StatusCode::kFailedPrecondition, "it has changed"));
    return;
  }
  if (request.part.empty()) {
    Answer(connection, 1, Status());
    return;
  }
  std::ranges::copy(std::as_bytes(std::span(bytes)), memory.bytes().begin());
  Answer(connection, bytes.size() - (request.part == "short" ? 1 : 0), Status());
}

}  // namespace

// Behind the program's name: the format that it serves; the socket; its parent.
int main(int count, char** arguments) {
  if (count != 4) return 2;
  auto connection = headrace::IpcConnection::FromFd(
      headrace::UniqueFd(static_cast<int>(std::strtol(arguments[2], nullptr, 10))));
  if (!connection.ok()) return 3;
  for (;;) {
    auto taken = connection.value()->Receive();
    if (!taken.ok() || !taken.value().has_value()) return 0;
    headrace::IpcMessage& message = *taken.value();
    WireReader reader("a task", message.bytes);
    if (reader.TakeCount(1, 16) != 1 || message.fds.size() != 1) return 4;
    static_cast<void>(reader.TakeU64());
    const std::uint64_t bytes = reader.TakeU64();
    if (reader.TakeCount(1, 8) != 0) return 5;
    WireReader body("its body", reader.TakeBytes(kTextMax));
    GroupRequest request;
    request.format = body.TakeString(kTextMax);
    request.file.path = body.TakeString(kTextMax);
    request.part = body.TakeString(kTextMax);
    request.file.size = body.TakeU64();
    request.file.mtime_ns = body.TakeI64();
    auto memory = headrace::SharedMemory::Map(std::move(message.fds[0]), bytes);
    if (!reader.Finish().ok() || !body.Finish().ok() || !memory.ok()) return 6;
    if (request.format != arguments[1]) return 7;
    Serve(*connection.value(), request, *memory.value());
  }
}
