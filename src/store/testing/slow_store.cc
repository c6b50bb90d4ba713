#include "store/testing/slow_store.h"

#include <utility>

#include "base/check.h"

namespace headrace {

SlowStore::SlowStore(std::unique_ptr<ByteStore> inner, Executor& executor, const Clock& clock,
                     Latency latency)
    : inner_(std::move(inner)), executor_(executor), clock_(clock), latency_(std::move(latency)) {}

SlowStore::~SlowStore() { gate_.Close(); }

std::size_t SlowStore::BufferBytes(ByteRange range) const { return inner_->BufferBytes(range); }

void SlowStore::Read(std::vector<ReadRequest> requests, std::stop_token stop) {
  std::vector<ReadRequest> passed;
  for (ReadRequest& request : requests) {
    HEADRACE_CHECK(gate_.TryEnter());
    const auto due = static_cast<std::uint64_t>(clock_.NowNanos() + latency_(request.extent));
    const auto shared = std::make_shared<ReadRequest>(std::move(request));
    passed.push_back({shared->extent, shared->buffer,
                      [this, due, shared](const Result<std::span<std::byte>>& result) {
                        executor_.Submit(due, [this, shared, result] {
                          counters_.Answer(*shared, result);
                          shared->done = nullptr;
                          gate_.Leave();
                        });
                      }});
  }
  inner_->Read(std::move(passed), std::move(stop));
}

}  // namespace headrace
