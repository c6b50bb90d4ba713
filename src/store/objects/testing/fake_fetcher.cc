// A fetcher for tests: an object is a file. Its name is "FAULT,FAULT,...,NUMBER"; a fault is KIND,
// KIND@BYTES, or TRIES*KIND@BYTES for the first so many attempts of the object only:
//
//   die     ends the process, as kill -9 does, after so many bytes
//   stall   sends so many bytes, and then none
//   cut     sends so many bytes, and then ends as broken
//   slow    asks to slow down
//   changed, refuse, garbage (a packet of no sense), other (reports of an attempt that is not)
//   deaf    does not end when it is cancelled
//
// Arguments: a file that gets the number of this process; the socket; the parent. If the first is
// "exit", it ends at once with status 3.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "ipc/connection.h"
#include "ipc/wire.h"
#include "store/objects/fetcher_messages.h"

namespace {

using headrace::AttemptResult;
using headrace::IpcConnection;
using headrace::WireReader;
using headrace::WireWriter;

constexpr std::uint64_t kChunkBytes = 256 * headrace::kKiB;
constexpr std::uint64_t kNone = ~std::uint64_t{0};
constexpr std::int64_t kVersion = 7;

struct Attempt {
  std::uint64_t id = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t cell = 0;
  std::uint64_t object_bytes = 0;
  std::int64_t version = 0;
  std::string path;
  std::uint64_t sent = 0;
  std::uint64_t tries = 0;  // of the object before this one
  std::string fault;
  std::uint64_t fault_at = kNone;
  bool deaf = false;
};

void Write(const std::string& path, const std::string& text) {
  const headrace::UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (::write(file.get(), text.data(), text.size()) < 0) std::abort();
}

class Fake {
 public:
  explicit Fake(IpcConnection& connection) : connection_(connection) {}

  int Run() {
    for (;;) {
      const bool busy = std::ranges::any_of(attempts_, [](const Attempt& a) { return Moves(a); });
      const auto taken = connection_.Receive(busy ? 0 : IpcConnection::kForever);
      if (!taken.ok()) return 0;
      if (taken.value() && !TakePacket(*taken.value())) return 4;
      if (taken.value()) continue;
      for (auto it = attempts_.begin(); it != attempts_.end();) {
        const auto attempt = it++;
        if (Moves(*attempt) && Step(*attempt)) attempts_.erase(attempt);
      }
    }
  }

 private:
  static bool Moves(const Attempt& a) { return a.fault != "stall" || a.sent < a.fault_at; }

  bool TakePacket(const headrace::IpcMessage& message) {
    WireReader reader("a packet", message.bytes);
    while (reader.ok() && reader.remaining_bytes() > 0) {
      const auto record = static_cast<headrace::FetcherRecord>(reader.TakeU8());
      if (record == headrace::FetcherRecord::kMemory) {
        const std::uint64_t bytes = reader.TakeU64();
        if (message.fds.size() != 1) return false;
        auto memory = headrace::SharedMemory::Map(
            headrace::UniqueFd(::fcntl(message.fds[0].get(), F_DUPFD_CLOEXEC, 0)), bytes);
        if (!memory.ok()) return false;
        memory_ = std::move(memory).value();
      } else if (record == headrace::FetcherRecord::kStart) {
        Begin(reader);
      } else if (record == headrace::FetcherRecord::kCancel) {
        Cancel(reader.TakeU64());
      } else {
        return false;
      }
    }
    return reader.Finish().ok();
  }

  void Begin(WireReader& reader) {
    Attempt& a = attempts_.emplace_back();
    a.id = reader.TakeU64();
    a.offset = reader.TakeU64();
    a.size = reader.TakeU64();
    a.cell = reader.TakeU64();
    a.object_bytes = reader.TakeU64();
    a.version = reader.TakeI64();
    a.path = reader.TakeString(headrace::kFetcherUrlBytesMax).substr(std::strlen("s3://"));
    std::string name = a.path.substr(a.path.rfind('/') + 1);
    if (name.find(',') == std::string::npos) return;
    std::error_code none;
    const std::uintmax_t tries = std::filesystem::file_size(a.path + ".tries", none);
    a.tries = none ? 0 : tries;
    Write(a.path + ".tries", "x");
    for (std::size_t end = name.find(','); end != std::string::npos; end = name.find(',')) {
      TakeFault(a, name.substr(0, end));
      name = name.substr(end + 1);
    }
  }

  static void TakeFault(Attempt& a, std::string text) {
    if (const std::size_t star = text.find('*'); star != std::string::npos) {
      if (a.tries >= std::strtoull(text.c_str(), nullptr, 10)) return;
      text = text.substr(star + 1);
    }
    if (text == "deaf") {
      a.deaf = true;
      return;
    }
    const std::size_t at = text.find('@');
    a.fault = text.substr(0, at);
    a.fault_at = at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + 1, nullptr, 10);
  }

  void Cancel(std::uint64_t id) {
    const auto found =
        std::ranges::find_if(attempts_, [&](const Attempt& a) { return a.id == id; });
    if (found == attempts_.end() || found->deaf) return;
    End(*found, AttemptResult::kBroken, "cancelled");
    attempts_.erase(found);
  }

  // Returns whether the attempt has ended.
  bool Step(Attempt& a) {
    if (a.sent == 0 && a.version != 0 && a.version != kVersion) a.fault = "changed";
    if (a.sent >= a.fault_at || (a.fault == "changed" && a.sent == 0)) {
      if (a.fault == "die") (void)::kill(::getpid(), SIGKILL);
      if (a.fault == "slow") return End(a, AttemptResult::kSlowDown, "503 Slow Down");
      if (a.fault == "cut") return End(a, AttemptResult::kBroken, "connection reset");
      if (a.fault == "changed") return End(a, AttemptResult::kChanged, "the object has changed");
      if (a.fault == "refuse") return End(a, AttemptResult::kRefused, "no such key");
      if (a.fault == "garbage") (void)connection_.Send(std::as_bytes(std::span("garbage")));
      if (a.fault == "other") a.id += 1;
    }
    if (a.sent < a.size) Send(a);
    return a.sent == a.size && End(a, AttemptResult::kOk, "");
  }

  void Send(Attempt& a) {
    std::uint64_t bytes = std::min(a.size - a.sent, kChunkBytes);
    if (a.sent < a.fault_at) bytes = std::min(bytes, a.fault_at - a.sent);
    std::ifstream file(a.path, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(a.offset + a.sent));
    file.read(reinterpret_cast<char*>(memory_->bytes().data()) + a.cell + a.sent,
              static_cast<std::streamsize>(bytes));
    if (file.gcount() != static_cast<std::streamsize>(bytes)) std::abort();
    a.sent += bytes;
    if (a.sent == a.size) return;
    WireWriter packet;
    packet.PutU8(static_cast<std::uint8_t>(headrace::ReportRecord::kReceived));
    packet.PutU64(a.id);
    packet.PutU64(a.sent);
    (void)connection_.Send(packet.bytes());
  }

  bool End(const Attempt& a, AttemptResult result, std::string_view cause) {
    WireWriter packet;
    packet.PutU8(static_cast<std::uint8_t>(headrace::ReportRecord::kEnded));
    packet.PutU64(a.id);
    packet.PutU8(static_cast<std::uint8_t>(result));
    packet.PutU64(a.sent);
    packet.PutI64(-1);
    packet.PutString(cause);
    (void)connection_.Send(packet.bytes());
    return true;
  }

  IpcConnection& connection_;
  std::shared_ptr<headrace::SharedMemory> memory_;
  std::list<Attempt> attempts_;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) return 2;
  if (std::strcmp(arguments[1], "exit") == 0) return 3;
  Write(arguments[1], std::to_string(::getpid()) + "\n");
  auto connection = IpcConnection::FromFd(
      headrace::UniqueFd(static_cast<int>(std::strtol(arguments[2], nullptr, 10))));
  if (!connection.ok()) return 5;
  return Fake(*connection.value()).Run();
}
