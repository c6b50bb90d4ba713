#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/byte_store.h"

namespace headrace {

// Memory that a ReadRequest can read into.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(std::size_t size);

  [[nodiscard]] std::span<std::byte> bytes() const { return {bytes_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  std::size_t size_;
  std::unique_ptr<std::byte, Free> bytes_;
};

// The answer to a request.
struct ReadAnswer {
  Status status;
  std::string bytes;  // copied, if ok
  int times = 0;      // how often `done` ran: 1, or the store is broken
};

// Reads all of `extents` in one call, and waits for all answers, in the order of `extents`. For a
// store that answers only on request, `pump` is called until everything is answered.
std::vector<ReadAnswer> ReadAll(ByteStore& store, const std::vector<Extent>& extents,
                                std::stop_token stop = {},
                                const std::function<void()>& pump = nullptr);

}  // namespace headrace
