#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "store/testing/reader.h"
#include "tier/tier.h"

namespace headrace {

// Makes a tier that answers only on request continue; null for tiers that answer by themselves.
using TierPump = std::function<void()>;

// A pending answer, shared with the callback: detects a second call.
class TierAnswer {
 public:
  TierAnswer() : shared_(std::make_shared<Shared>()) {}

  // To pass as `done`.
  [[nodiscard]] Tier::Done done() const;
  [[nodiscard]] Tier::DoneRead done_read() const;

  [[nodiscard]] int times() const;

  // The answer; for a read its bytes, copied.
  Result<std::string> Wait(const TierPump& pump) const;
  Status WaitStatus(const TierPump& pump) const { return Wait(pump).status(); }

 private:
  struct Shared {
    Mutex mutex;
    CondVar changed;
    int times HEADRACE_GUARDED_BY(mutex) = 0;
    Status status HEADRACE_GUARDED_BY(mutex);
    std::string bytes HEADRACE_GUARDED_BY(mutex);
  };
  static void Take(Shared& shared, const Status& status, std::span<const std::byte> bytes);

  std::shared_ptr<Shared> shared_;
};

// Inserts `bytes` as `part_count` parts, and waits.
Status InsertAndWait(Tier& tier, SampleId sample, const std::string& bytes,
                     const TierPump& pump = nullptr, std::size_t part_count = 1);

// `bytes`, which must outlive them, in parts.
std::vector<std::span<const std::byte>> PartsOf(const std::string& bytes, std::size_t part_count);

// Reads an entry, and waits.
Result<std::string> ReadAndWait(Tier& tier, const Tier::EntryRef& entry,
                                const TierPump& pump = nullptr, std::stop_token stop = {});

// Reads the bytes of `sample`; std::nullopt if it is not there.
std::optional<Result<std::string>> FindAndRead(Tier& tier, SampleId sample,
                                               const TierPump& pump = nullptr);

}  // namespace headrace
