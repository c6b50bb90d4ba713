#include "store/testing/faulty_store.h"

#include <array>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/prng.h"

namespace headrace {

FaultyStore::FaultyStore(std::unique_ptr<ByteStore> inner, FaultyStoreOptions options)
    : inner_(std::move(inner)), options_(options) {}

FaultyStore::~FaultyStore() { gate_.Close(); }

std::size_t FaultyStore::BufferBytes(ByteRange range) const { return inner_->BufferBytes(range); }

void FaultyStore::Read(std::vector<ReadRequest> requests, std::stop_token stop) {
  {
    MutexLock lock(mutex_);
    running_ += requests.size();
  }
  std::vector<ReadRequest> passed;
  for (ReadRequest& request : requests) {
    HEADRACE_CHECK(gate_.TryEnter());
    const Faults faults = Draw(request.extent);
    const auto shared = std::make_shared<ReadRequest>(std::move(request));
    passed.push_back({shared->extent, shared->buffer,
                      [this, shared, faults](Result<std::span<std::byte>> result) {
                        Take({shared, std::move(result)}, faults);
                      }});
  }
  inner_->Read(std::move(passed), std::move(stop));
}

StoreStats FaultyStore::stats() const { return counters_.Snapshot("faulty"); }

FaultyStore::Faults FaultyStore::Draw(const Extent& extent) {
  const std::uint64_t object = Raw(extent.object);
  std::uint64_t time = 0;
  {
    MutexLock lock(mutex_);
    time = times_[{object, extent.range.offset, extent.range.size}]++;
  }
  const std::array<std::uint64_t, 3> key = {object, extent.range.offset, extent.range.size};
  Prng prng(options_.seed, time, RandomStream::kOrder, Hash64(std::as_bytes(std::span(key))));
  Faults faults;
  faults.unavailable = prng.Uniform() < options_.unavailable;
  faults.short_read = prng.Uniform() < options_.short_read;
  faults.late = prng.Uniform() < options_.late;
  if (prng.Uniform() < options_.flipped && extent.range.size > 0) {
    faults.flipped_bit = prng.Below(extent.range.size * 8);
  }
  return faults;
}

void FaultyStore::Take(Answered answered, const Faults& faults) {
  if (answered.result.ok()) {
    const ByteRange range = answered.request->extent.range;
    const std::string doing = Doing(ObjectName(answered.request->extent.object), range);
    if (faults.flipped_bit.has_value()) {
      const std::uint64_t bit = *faults.flipped_bit;
      answered.result.value()[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    if (faults.unavailable) {
      answered.result = Status(StatusCode::kUnavailable, doing + ": fault planted by the test");
    } else if (faults.short_read) {
      answered.result = Status(StatusCode::kDataLoss, doing + ": short read planted by the test");
    }
  }
  std::vector<Answered> due;
  {
    MutexLock lock(mutex_);
    (faults.late ? late_ : due).push_back(std::move(answered));
    --running_;
    if (running_ == 0) {
      for (; !late_.empty(); late_.pop_back()) due.push_back(std::move(late_.back()));
    }
  }
  for (Answered& one : due) Give(std::move(one));
}

void FaultyStore::Give(Answered answered) {
  counters_.Answer(*answered.request, std::move(answered.result));
  answered.request->done = nullptr;
  gate_.Leave();
}

}  // namespace headrace
