#include "store/share/shared_store.h"

#include <optional>
#include <utility>

namespace headrace {

std::unique_ptr<ByteStore> SharedStore::Make(std::unique_ptr<ByteStore> inner,
                                             std::shared_ptr<ReadShare> share,
                                             const std::string& dataset, std::uint64_t gap_bytes) {
  std::unique_ptr<SharedStore> shared(
      new SharedStore(std::move(inner), std::move(share), gap_bytes));
  const std::optional<ShareTable::Job> job = shared->share_->Join(*shared, dataset);
  if (!job.has_value()) return std::move(shared->inner_);
  shared->job_ = *job;
  return shared;
}

SharedStore::~SharedStore() {
  if (inner_ == nullptr) return;  // It has not joined.
  {
    MutexLock lock(mutex_);
    while (inside_ > 0) left_.Wait(mutex_);
  }
  share_->Leave(job_);
}

void SharedStore::Read(std::vector<ReadRequest> requests, std::stop_token stop) {
  if (requests.empty()) return;
  for (const ReadRequest& request : requests) {
    CheckBuffer(request, BufferBytes(request.extent.range));
    Enter();
  }
  share_->Read(*this, job_, std::move(requests), stop);
}

ReadNowAnswer SharedStore::ReadNow(const Extent& extent, std::span<std::byte> dst) {
  const ReadNowAnswer answer = inner_->ReadNow(extent, dst);
  if (answer == ReadNowAnswer::kRead) counters_.AddNow(dst.size());
  return answer;
}

void SharedStore::ReadAllNow(std::span<NowRead> reads) {
  inner_->ReadAllNow(reads);
  counters_.AddAllNow(reads);
}

StoreStats SharedStore::stats() const {
  StoreStats stats = inner_->stats();
  const StoreStats own = counters_.Snapshot({});
  stats.reads = own.reads;
  stats.bytes = own.bytes;
  stats.failures = own.failures;
  stats.share_reads = share_reads_;
  stats.share_bytes = share_bytes_;
  return stats;
}

void SharedStore::Enter() {
  MutexLock lock(mutex_);
  ++inside_;
}

void SharedStore::Leave() {
  MutexLock lock(mutex_);
  // Under the lock: after its release the store may be destroyed.
  if (--inside_ == 0) left_.NotifyAll();
}

void SharedStore::Answer(ReadRequest& request, Result<std::span<std::byte>> result,
                         std::uint64_t shared_bytes) {
  if (shared_bytes > 0) {
    share_bytes_ += shared_bytes;
    ++share_reads_;
  }
  counters_.Answer(request, std::move(result));
  request.done = nullptr;  // Its captures must not outlive the store.
  Leave();
}

}  // namespace headrace
