#pragma once

#include <malloc.h>

namespace headrace {

// Has malloc of this process keep the memory of messages that were sent and received, up to 16 MiB
// an arena. By default it gives such blocks back to the system when they are freed, and the pages
// of the next message are faulted in and zeroed again: 40 % of the processor time of what nodes
// give each other. For programs that serve a PeerNode; before they start threads.
inline void KeepFreedMessages() {
  // NOLINTBEGIN(concurrency-mt-unsafe): there is one thread.
  mallopt(M_MMAP_THRESHOLD, 4 << 20);  // above any message
  mallopt(M_TRIM_THRESHOLD, 16 << 20);
  mallopt(M_TOP_PAD, 1 << 20);
  // NOLINTEND(concurrency-mt-unsafe)
}

}  // namespace headrace
