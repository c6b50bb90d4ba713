#include "tier/testing/tier_client.h"

namespace headrace {

void TierAnswer::Take(Shared& shared, const Status& status, std::span<const std::byte> bytes) {
  MutexLock lock(shared.mutex);
  if (++shared.times > 1) return;
  shared.status = status;
  shared.bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  shared.changed.NotifyAll();
}

Tier::Done TierAnswer::done() const {
  return [shared = shared_](const Status& status) { Take(*shared, status, {}); };
}

Tier::DoneRead TierAnswer::done_read() const {
  return [shared = shared_](const Result<std::span<std::byte>>& result) {
    Take(*shared, result.status(), result.ok() ? result.value() : std::span<std::byte>());
  };
}

int TierAnswer::times() const {
  MutexLock lock(shared_->mutex);
  return shared_->times;
}

Result<std::string> TierAnswer::Wait(const TierPump& pump) const {
  for (;;) {
    if (pump != nullptr) pump();
    MutexLock lock(shared_->mutex);
    if (shared_->times == 0 && pump == nullptr) shared_->changed.Wait(shared_->mutex);
    if (shared_->times == 0) continue;
    if (!shared_->status.ok()) return shared_->status;
    return shared_->bytes;
  }
}

std::vector<std::span<const std::byte>> PartsOf(const std::string& bytes, std::size_t part_count) {
  std::vector<std::span<const std::byte>> parts;
  std::span<const std::byte> left = std::as_bytes(std::span(bytes));
  for (std::size_t i = 0; i < part_count; ++i) {
    const std::size_t size = i + 1 == part_count ? left.size() : left.size() / (part_count - i);
    parts.push_back(left.first(size));
    left = left.subspan(size);
  }
  return parts;
}

Status InsertAndWait(Tier& tier, SampleId sample, const std::string& bytes, const TierPump& pump,
                     std::size_t part_count) {
  const TierAnswer answer;
  tier.Insert(sample, PartsOf(bytes, part_count), answer.done());
  return answer.WaitStatus(pump);
}

Result<std::string> ReadAndWait(Tier& tier, const Tier::EntryRef& entry, const TierPump& pump,
                                std::stop_token stop) {
  const AlignedBuffer buffer(tier.BufferBytes(entry));
  const TierAnswer answer;
  tier.Read(entry, /*deadline=*/0, buffer.bytes(), std::move(stop), answer.done_read());
  return answer.Wait(pump);
}

std::optional<Result<std::string>> FindAndRead(Tier& tier, SampleId sample, const TierPump& pump) {
  const Tier::EntryRef entry = tier.Find(sample);
  if (!entry) return std::nullopt;
  return ReadAndWait(tier, entry, pump);
}

}  // namespace headrace
