#include "store/testing/gated_store.h"

#include <utility>

#include "base/check.h"

namespace headrace {

GatedStore::~GatedStore() {
  ReleaseAll();
  gate_.Close();
}

std::vector<Extent> GatedStore::waiting() const {
  MutexLock lock(mutex_);
  std::vector<Extent> extents;
  for (const Waiting& waiting : waiting_) extents.push_back(waiting.request->extent);
  return extents;
}

void GatedStore::Release(std::size_t index) { Pass(TakeOut(index)); }

void GatedStore::ReleaseAll() {
  std::vector<Waiting> all;
  {
    MutexLock lock(mutex_);
    all.swap(waiting_);
  }
  for (Waiting& waiting : all) Pass(std::move(waiting));
}

void GatedStore::Fail(std::size_t index, const Status& status) {
  const Waiting waiting = TakeOut(index);
  const Extent& extent = waiting.request->extent;
  Give(*waiting.request, status.WithContext(Doing(ObjectName(extent.object), extent.range)));
}

std::size_t GatedStore::BufferBytes(ByteRange range) const { return inner_->BufferBytes(range); }

void GatedStore::Read(std::vector<ReadRequest> requests, std::stop_token stop) {
  MutexLock lock(mutex_);
  for (ReadRequest& request : requests) {
    HEADRACE_CHECK(gate_.TryEnter());
    waiting_.push_back({std::make_shared<ReadRequest>(std::move(request)), stop});
  }
}

GatedStore::Waiting GatedStore::TakeOut(std::size_t index) {
  MutexLock lock(mutex_);
  HEADRACE_CHECK(index < waiting_.size());
  Waiting waiting = std::move(waiting_[index]);
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(index));
  return waiting;
}

void GatedStore::Pass(Waiting waiting) {
  std::vector<ReadRequest> one;
  one.push_back({waiting.request->extent, waiting.request->buffer,
                 [this, request = waiting.request](Result<std::span<std::byte>> result) {
                   Give(*request, std::move(result));
                 }});
  inner_->Read(std::move(one), std::move(waiting.stop));
}

void GatedStore::Give(ReadRequest& request, Result<std::span<std::byte>> result) {
  counters_.Answer(request, std::move(result));
  request.done = nullptr;
  gate_.Leave();
}

}  // namespace headrace
