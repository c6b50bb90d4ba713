#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/job/shared_rate.h"
#include "tier/tier.h"

namespace headrace {

// A tier in virtual time: knows the sizes of its entries, not their bytes. Reads take as long as
// `rate` says; inserts take no time.
//
// Thread safety: none; a simulation is one thread.
// Ownership: `rate` is the caller's and outlives it; references end before it.
class TimedTier final : public Tier {
 public:
  struct Options {
    std::string name;
    std::uint64_t capacity_units = 0;
    std::uint64_t unit_bytes = 1;
    double scale = 1;        // bytes that one byte of an entry stands for
    std::uint32_t user = 0;  // of the rate
  };

  TimedTier(SharedRate& rate, Options options);
  ~TimedTier() override;

  [[nodiscard]] std::string name() const override { return options_.name; }
  [[nodiscard]] bool in_memory() const override { return false; }
  [[nodiscard]] std::uint64_t unit_bytes() const override { return options_.unit_bytes; }
  [[nodiscard]] EntryRef Find(SampleId sample) override;
  [[nodiscard]] std::optional<std::span<const std::byte>> View(const EntryRef& ref,
                                                               std::uint64_t offset,
                                                               std::uint64_t size) const override;
  void CopyOut(const EntryRef& ref, std::uint64_t offset, std::span<std::byte> to) const override;
  Result<std::uint64_t> Check(const EntryRef& ref) override;
  [[nodiscard]] std::size_t BufferBytes(const EntryRef& ref) const override { return ref.bytes(); }
  void Read(const EntryRef& ref, std::uint64_t deadline, std::span<std::byte> buffer,
            std::stop_token stop, DoneRead done) override;
  void Insert(SampleId sample, std::vector<std::span<const std::byte>> parts, Done done) override;
  void Erase(SampleId sample) override;
  [[nodiscard]] std::vector<SampleId> Held() const override;
  [[nodiscard]] TierStats stats() const override;

  // Reads an entry for whoever needs its time alone.
  void TakeTime(std::uint64_t bytes, std::function<void()> done);

 protected:
  void ReleaseRef(void* entry) override;

 private:
  struct Entry {
    std::uint64_t bytes = 0;
    std::uint64_t units = 0;
    std::uint32_t refs = 0;
  };

  SharedRate& rate_;
  const Options options_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Entry>> entries_;  // by sample
  std::unordered_map<const void*, std::unique_ptr<Entry>> erased_;     // and referred to
  std::uint64_t used_units_ = 0;
  TierStats stats_;
};

}  // namespace headrace
