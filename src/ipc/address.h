#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>
#include <string_view>

#include "headrace/status.h"

namespace headrace::internal {

// A name in the abstract namespace of Unix sockets: no file, released with its owner, visible to
// all processes of a network namespace.
struct AbstractAddress {
  sockaddr_un address{};
  socklen_t size = 0;

  // Errors: InvalidArgument  a name that is empty or too long
  static Result<AbstractAddress> Make(std::string_view name);

  [[nodiscard]] const sockaddr* get() const {
    return static_cast<const sockaddr*>(static_cast<const void*>(&address));
  }
};

// "user 1000 (process 12)".
std::string Described(const ucred& peer);

}  // namespace headrace::internal
