#include "store/testing/reader.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/mutex.h"
#include "base/units.h"

namespace headrace {

AlignedBuffer::AlignedBuffer(std::size_t size)
    : size_(size),
      bytes_(static_cast<std::byte*>(std::aligned_alloc(
          kBufferAlignment, std::max(RoundUp(size, kBufferAlignment), kBufferAlignment)))) {}

void AlignedBuffer::Free::operator()(std::byte* bytes) const { std::free(bytes); }

namespace {

// Shared with the callbacks, so that one that runs too often, or too late, does no harm.
struct Answers {
  Mutex mutex;
  CondVar changed;
  std::vector<ReadAnswer> answers HEADRACE_GUARDED_BY(mutex);
  std::size_t open HEADRACE_GUARDED_BY(mutex) = 0;

  void Take(std::size_t i, const Result<std::span<std::byte>>& result) {
    MutexLock lock(mutex);
    ReadAnswer& answer = answers[i];
    if (++answer.times > 1) return;
    answer.status = result.status();
    if (result.ok()) {
      const std::span<std::byte> bytes = result.value();
      answer.bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    --open;
    changed.NotifyAll();
  }
};

}  // namespace

std::vector<ReadAnswer> ReadAll(ByteStore& store, const std::vector<Extent>& extents,
                                std::stop_token stop, const std::function<void()>& pump) {
  const auto shared = std::make_shared<Answers>();
  std::vector<AlignedBuffer> buffers;
  std::vector<ReadRequest> requests;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    buffers.emplace_back(store.BufferBytes(extents[i].range));
    requests.push_back(
        {extents[i], buffers.back().bytes(),
         [shared, i](const Result<std::span<std::byte>>& result) { shared->Take(i, result); }});
  }
  {
    MutexLock lock(shared->mutex);
    shared->answers.resize(extents.size());
    shared->open = extents.size();
  }
  store.Read(std::move(requests), std::move(stop));
  for (;;) {
    if (pump != nullptr) pump();
    MutexLock lock(shared->mutex);
    if (shared->open > 0 && pump == nullptr) shared->changed.Wait(shared->mutex);
    if (shared->open == 0) return shared->answers;
  }
}

}  // namespace headrace
