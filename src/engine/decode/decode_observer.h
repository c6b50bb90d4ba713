#pragma once

#include <cstdint>

namespace headrace {

// Learns what decoding takes.
class DecodeObserver {
 public:
  struct Decoded {
    std::uint64_t samples = 1;  // by one thread, one after the other
    std::uint64_t bytes = 0;    // of all of them, as stored
    int threads = 1;            // that decoded meanwhile, this one among them
    std::int64_t nanoseconds = 0;
  };

  virtual ~DecodeObserver() = default;

  // After every task. One call at a time; must not call the engine.
  virtual void OnDecoded(const Decoded& decoded) = 0;
};

}  // namespace headrace
