#include "store/retry_store.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"

namespace headrace {

RetryStore::RetryStore(std::unique_ptr<ByteStore> inner, int tries_max)
    : inner_(std::move(inner)), tries_max_(tries_max) {
  HEADRACE_CHECK(tries_max_ >= 1);
}

RetryStore::~RetryStore() { gate_.Close(); }

std::size_t RetryStore::BufferBytes(ByteRange range) const { return inner_->BufferBytes(range); }

void RetryStore::Read(std::vector<ReadRequest> requests, std::stop_token stop) {
  std::vector<ReadRequest> tries;
  tries.reserve(requests.size());
  for (ReadRequest& request : requests) {
    HEADRACE_CHECK(gate_.TryEnter());  // A store must not be called during its destruction.
    tries.push_back(Try(std::make_shared<Attempt>(Attempt{std::move(request), stop})));
  }
  inner_->Read(std::move(tries), std::move(stop));
}

Status RetryStore::CheckObject(ObjectId object) {
  Status status = inner_->CheckObject(object);
  for (int tries = 1; status.code() == StatusCode::kUnavailable && tries < tries_max_; ++tries) {
    status = inner_->CheckObject(object);
  }
  return status;
}

ReadNowAnswer RetryStore::ReadNow(const Extent& extent, std::span<std::byte> dst) {
  const ReadNowAnswer answer = inner_->ReadNow(extent, dst);
  if (answer == ReadNowAnswer::kRead) counters_.AddNow(dst.size());
  return answer;
}

void RetryStore::ReadAllNow(std::span<NowRead> reads) {
  inner_->ReadAllNow(reads);
  counters_.AddAllNow(reads);
}

bool RetryStore::HoldsNow(const Extent& extent) { return inner_->HoldsNow(extent); }

StoreStats RetryStore::stats() const {
  StoreStats stats = inner_->stats();
  const StoreStats own = counters_.Snapshot({});
  stats.reads = own.reads;
  stats.bytes = own.bytes;
  stats.failures = own.failures;
  stats.retries += own.retries;
  return stats;
}

ReadRequest RetryStore::Try(std::shared_ptr<Attempt> attempt) {
  const Extent extent = attempt->request.extent;
  const std::span<std::byte> buffer = attempt->request.buffer;
  const bool looked = attempt->request.looked;
  return {extent, buffer,
          [this, attempt = std::move(attempt)](Result<std::span<std::byte>> result) {
            Take(attempt, std::move(result));
          },
          looked};
}

void RetryStore::Take(std::shared_ptr<Attempt> attempt, Result<std::span<std::byte>> result) {
  const bool unavailable = !result.ok() && result.status().code() == StatusCode::kUnavailable;
  if (unavailable && attempt->tries < tries_max_) {
    ++attempt->tries;
    counters_.AddRetry();
    const std::stop_token stop = attempt->stop;
    std::vector<ReadRequest> again;
    again.push_back(Try(std::move(attempt)));
    return inner_->Read(std::move(again), stop);
  }
  if (unavailable && attempt->tries > 1) {
    result = Status(StatusCode::kUnavailable,
                    fmt::format("{} after {} tries", result.status().message(), attempt->tries));
  }
  counters_.Answer(attempt->request, std::move(result));
  attempt->request.done = nullptr;  // Its captures must not outlive the store.
  gate_.Leave();
}

}  // namespace headrace
