#include "sim/job/timed_store.h"

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
  const std::uint64_t bytes = request.extent.range.size;
  auto shared = std::make_shared<ReadRequest>(std::move(request));
  rate_.Transfer(options_.node, options_.scale * static_cast<double>(bytes),
                 [this, shared, bytes] {
                   ++stats_.reads;
                   stats_.bytes += bytes;
                   if (waiting_.empty()) {
                     --busy_;
                   } else {
                     ReadRequest next = std::move(waiting_.front());
                     waiting_.pop_front();
                     Begin(std::move(next));
                   }
                   shared->done(shared->buffer.first(bytes));
                 });
}

}  // namespace headrace
