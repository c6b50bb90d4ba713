#pragma once

#include <malloc.h>

namespace headrace {

// Makes malloc of this process keep the freed memory of messages, up to 16 MiB an arena. By default
// it returns such blocks to the system, and the pages of the next message are faulted in and zeroed
// again: 40 % of the processor time of transfers between nodes. For programs that serve a PeerNode;
// call it before they start threads.
inline void KeepFreedMessages() {
  // NOLINTBEGIN(concurrency-mt-unsafe): there is one thread.
  mallopt(M_MMAP_THRESHOLD, 4 << 20);  // above any message
  mallopt(M_TRIM_THRESHOLD, 16 << 20);
  mallopt(M_TOP_PAD, 1 << 20);
  // NOLINTEND(concurrency-mt-unsafe)
}

}  // namespace headrace
