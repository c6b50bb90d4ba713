#include "ipc/address.h"

#include <fmt/core.h>

#include <cstddef>

#include "base/format/errors.h"

namespace headrace::internal {

Result<AbstractAddress> AbstractAddress::Make(std::string_view name) {
  AbstractAddress result;
  // The first byte is 0, which makes the name abstract.
  constexpr std::size_t kNameBytesMax = sizeof(result.address.sun_path) - 1;
  if (name.empty() || name.size() > kNameBytesMax) {
    return InvalidArgument("socket name '{}': {} bytes, must be in [1, {}]", name, name.size(),
                           kNameBytesMax);
  }
  result.address.sun_family = AF_UNIX;
  name.copy(result.address.sun_path + 1, name.size());
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

std::string Described(const ucred& peer) {
  return fmt::format("user {} (process {})", peer.uid, peer.pid);
}

}  // namespace headrace::internal
