#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "store/byte_store.h"
#include "store/request.h"
#include "store/share/read_share.h"

namespace headrace {

// Another store, whose reads are shared with other jobs that read the same dataset.
//
// Thread safety, shutdown: as ByteStore. The inner store must allow Read() from inside a `done`.
// stats(): reads, bytes and failures are the caller's, `share_reads` and `share_bytes` the part of
// them that others had read; the rest, and the name, come from the inner store.
class SharedStore final : public ByteStore, private ShareUser {
 public:
  // `dataset`: stores with an equal one have the same bytes. Held ranges between absent ones are
  // read again if they are smaller than `gap_bytes`. Returns `inner` itself if too many jobs share.
  static std::unique_ptr<ByteStore> Make(std::unique_ptr<ByteStore> inner,
                                         std::shared_ptr<ReadShare> share,
                                         const std::string& dataset, std::uint64_t gap_bytes);
  ~SharedStore() override;

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override {
    return inner_->BufferBytes(range);
  }
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override;
  [[nodiscard]] Status CheckObject(ObjectId object) override { return inner_->CheckObject(object); }
  [[nodiscard]] Status CheckOpen() override { return inner_->CheckOpen(); }
  [[nodiscard]] bool HasOpen() override { return inner_->HasOpen(); }
  ReadNowAnswer ReadNow(const Extent& extent, std::span<std::byte> dst) override;
  void ReadAllNow(std::span<NowRead> reads) override;
  bool HoldsNow(const Extent& extent) override { return inner_->HoldsNow(extent); }
  bool MayReadNow() override { return inner_->MayReadNow(); }
  [[nodiscard]] bool shares() const override { return true; }
  [[nodiscard]] StoreStats stats() const override;

 private:
  SharedStore(std::unique_ptr<ByteStore> inner, std::shared_ptr<ReadShare> share,
              std::uint64_t gap_bytes)
      : share_(std::move(share)), gap_bytes_(gap_bytes), inner_(std::move(inner)) {}

  [[nodiscard]] ByteStore& storage() override { return *inner_; }
  [[nodiscard]] std::uint64_t gap_bytes() const override { return gap_bytes_; }
  void Enter() override HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Leave() override HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Answer(ReadRequest& request, Result<std::span<std::byte>> result,
              std::uint64_t shared_bytes) override;

  const std::shared_ptr<ReadShare> share_;
  const std::uint64_t gap_bytes_;
  ShareTable::Job job_ = 0;
  StoreCounters counters_;
  std::atomic<std::uint64_t> share_reads_ = 0;
  std::atomic<std::uint64_t> share_bytes_ = 0;
  std::unique_ptr<ByteStore> inner_;

  Mutex mutex_;
  CondVar left_;
  // Requests that have not been answered, and reads of the inner store. Not a Gate: requests begin
  // more while the destructor waits.
  std::uint64_t inside_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
