#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "fetch/held_samples.h"
#include "headrace/status.h"
#include "peer/grpc/peer_wire.h"
#include "peer/grpc/sample_message.h"
#include "peer/leased_samples.h"
#include "tier/tier.h"

namespace headrace {

// One sample, or a part of a parcel, on its way to another node, part by part; or the reason why it
// is not given.
//
// Thread safety: none.
class SampleWriter {
 public:
  SampleWriter(std::uint64_t number, std::uint64_t asked_bytes, Status why)
      : number_(number), bytes_(asked_bytes), why_(std::move(why)) {}
  SampleWriter(std::uint64_t number, std::shared_ptr<LeasedSamples::Lease> lease,
               Tier::EntryRef entry)
      : number_(number),
        bytes_(entry.bytes()),
        lease_(std::move(lease)),
        entry_(std::make_unique<Tier::EntryRef>(std::move(entry))) {}

  SampleWriter(std::uint64_t number, std::uint32_t samples, OwnedBytes bytes)
      : number_(number),
        bytes_(bytes.size),
        samples_(samples),
        checked_(true),
        owned_(std::move(bytes)),
        data_(owned_.bytes()) {}

  // Whether it uses an entry of a tier, and so has a lease.
  [[nodiscard]] bool is_entry() const { return entry_ != nullptr; }
  // Whether it has bytes of its own, of a parcel.
  [[nodiscard]] bool is_owned() const { return owned_.size > 0; }
  // Whether others are sent first: Parcel::ahead.
  [[nodiscard]] bool ahead() const { return owned_.ahead; }
  [[nodiscard]] bool in_memory() const { return entry_->tier()->in_memory(); }
  // Reads an entry that is not in memory. Call it once, before Write(). `done` runs on any thread,
  // inside the call too; the writer must live until then.
  void Read(std::function<void()> done);

  // Adds the next answer to a message, which must have room for PartBytes() and the most bytes that
  // an answer takes besides these.
  void Write(SampleAnswersWriter& message);
  [[nodiscard]] std::uint64_t PartBytes() const {
    return why_.ok() ? std::min(kPeerPartBytes, bytes_ - written_) : 0;
  }
  // The answer that is sent instead, with the reason why the rest of the sample is not given.
  [[nodiscard]] SampleWriter Refusal(Status why) const { return {number_, bytes_, std::move(why)}; }
  [[nodiscard]] bool done() const { return done_; }
  [[nodiscard]] bool given() const { return why_.ok(); }
  [[nodiscard]] std::uint64_t asked_bytes() const { return bytes_; }
  [[nodiscard]] std::uint32_t samples() const { return samples_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };

  std::uint64_t number_;
  std::uint64_t bytes_;  // of the sample
  std::uint32_t samples_ = 1;
  Status why_;  // an error: it is not given
  std::uint64_t written_ = 0;
  std::uint64_t checksum_ = 0;  // of the parts that are written
  bool checked_ = false;
  bool done_ = false;
  // The lease outlives the entry.
  std::shared_ptr<LeasedSamples::Lease> lease_;
  std::unique_ptr<Tier::EntryRef> entry_;
  std::unique_ptr<std::byte, Free> read_;  // of an entry that is not in memory
  OwnedBytes owned_;                       // of a parcel
  std::span<std::byte> data_;              // in one of them
};

}  // namespace headrace
