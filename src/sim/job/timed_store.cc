#include "sim/job/timed_store.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace headrace {

void TimedStore::Read(std::vector<ReadRequest> requests, std::stop_token /*stop*/) {
  for (ReadRequest& request : requests) {
    if (busy_ == options_.threads) {
      waiting_.push_back(std::move(request));
      continue;
    }
    ++busy_;
    Begin(std::move(request));
  }
}

void TimedStore::Begin(ReadRequest request) {
  auto shared = std::make_shared<ReadRequest>(std::move(request));
  if (options_.latency_ns == 0) return Transfer(shared);
  loop_.After(options_.latency_ns, [this, shared] { Transfer(shared); });
}

void TimedStore::Transfer(const std::shared_ptr<ReadRequest>& request) {
  const std::uint64_t bytes = request->extent.range.size;
  const double work = std::max(options_.least_bytes, options_.scale * static_cast<double>(bytes));
  rate_.Transfer(options_.node, work, [this, request, bytes] {
    ++stats_.reads;
    stats_.bytes += bytes;
    if (waiting_.empty()) {
      --busy_;
    } else {
      ReadRequest next = std::move(waiting_.front());
      waiting_.pop_front();
      Begin(std::move(next));
    }
    request->done(request->buffer.first(bytes));
  });
}

}  // namespace headrace
