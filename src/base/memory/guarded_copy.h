#pragma once

#include <cstddef>
#include <span>

namespace headrace {

// Has GuardedCopy() survive bytes that are gone. Installs a handler of SIGBUS, again if somebody
// has replaced it since. A SIGBUS of others puts the handler before back, which then gets it. Cheap
// enough for each group of copies.
//
// Thread safety: may be called from any thread.
void InstallCopyGuard();

// Copies `from` to the start of `to`, as memcpy does. False: a page of `from` is not there, because
// a mapped file was truncated or storage failed to read it; then `to` is undefined. `from` must be
// mapped, and InstallCopyGuard() have been called.
//
// Thread safety: may be called from any thread.
bool GuardedCopy(std::span<const std::byte> from, std::span<std::byte> to);

}  // namespace headrace
