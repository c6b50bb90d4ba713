#pragma once

#include <cstddef>
#include <span>
#include <stop_token>

#include "fetch/fetch.h"
#include "store/byte_store.h"

namespace headrace {

// Reads extents from storage.
class StorageSource final : public FetchSource {
 public:
  // The store is the caller's and outlives it.
  explicit StorageSource(ByteStore& store) : store_(store) {}

  [[nodiscard]] std::size_t BufferBytes(const Fetch& fetch) const override {
    return store_.BufferBytes(fetch.extent().range);
  }
  void Read(std::span<Fetch* const> fetches, const std::stop_token& stop,
            const Done& done) override;
  ReadNowAnswer ReadNow(const Fetch& fetch, std::span<std::byte> dst) override {
    return store_.ReadNow(fetch.extent(), dst);
  }
  bool MayReadNow() override { return store_.MayReadNow(); }
  void ReadAllNow(std::span<NowRead> reads) override { store_.ReadAllNow(reads); }
  bool HoldsNow(const Extent& extent) override { return store_.HoldsNow(extent); }
  [[nodiscard]] bool shares() const override { return store_.shares(); }

 private:
  ByteStore& store_;
};

// Reads entries from the tiers that have them.
class TierSource final : public FetchSource {
 public:
  [[nodiscard]] std::size_t BufferBytes(const Fetch& fetch) const override {
    return fetch.entry().tier()->BufferBytes(fetch.entry());
  }
  void Read(std::span<Fetch* const> fetches, const std::stop_token& stop,
            const Done& done) override;
};

}  // namespace headrace
