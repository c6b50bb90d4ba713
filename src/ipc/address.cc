#include "ipc/address.h"

#include <cstddef>

namespace headrace::internal {

Result<AbstractAddress> AbstractAddress::Make(std::string_view name) {
  AbstractAddress result;
  // The first byte is 0, which makes the name abstract.
  constexpr std::size_t kNameBytesMax = sizeof(result.address.sun_path) - 1;
  if (name.empty() || name.size() > kNameBytesMax) {
    return Status(StatusCode::kInvalidArgument,
                  "socket name '" + std::string(name) + "': " + std::to_string(name.size()) +
                      " bytes, must be in [1, " + std::to_string(kNameBytesMax) + "]");
  }
  result.address.sun_family = AF_UNIX;
  name.copy(result.address.sun_path + 1, name.size());
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

std::string Described(const ucred& peer) {
  return "user " + std::to_string(peer.uid) + " (process " + std::to_string(peer.pid) + ")";
}

}  // namespace headrace::internal
