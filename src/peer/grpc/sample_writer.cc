#include "peer/grpc/sample_writer.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "store/byte_store.h"

namespace headrace {

void SampleWriter::Free::operator()(std::byte* memory) const { std::free(memory); }

void SampleWriter::Read(std::function<void()> done) {
  const std::size_t size = entry_->tier()->BufferBytes(*entry_);
  read_.reset(static_cast<std::byte*>(std::aligned_alloc(
      kBufferAlignment, (size + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment)));
  if (read_ == nullptr) {
    why_ = Status(StatusCode::kResourceExhausted, "the node has no memory to read the sample");
    return done();
  }
  entry_->tier()->Read(*entry_, /*deadline=*/0, {read_.get(), size}, std::stop_token(),
                       [this, done = std::move(done)](Result<std::span<std::byte>> data) {
                         if (data.ok()) {
                           data_ = data.value();
                           checked_ = true;  // The tier has compared it.
                         } else {
                           why_ = data.status();
                         }
                         done();
                       });
}

void SampleWriter::Write(SampleAnswersWriter& message) {
  const std::uint64_t size = PartBytes();
  const bool is_whole = size == bytes_;
  std::optional<std::uint64_t> checksum;  // of the whole sample, if it is known
  if (why_.ok() && !checked_) {
    // Brings the bytes into the processor's caches, where they are copied from.
    Result<std::uint64_t> check = entry_->tier()->Check(*entry_);
    why_ = check.status();
    if (check.ok()) checksum = check.value();
    checked_ = true;
  }
  if (!why_.ok()) {
    message.Refuse(number_, static_cast<std::uint32_t>(why_.code()), why_.message());
    done_ = true;
    return;
  }
  done_ = written_ + size == bytes_;
  const std::span<std::byte> to = message.Begin(number_, written_, size, done_);
  if (!data_.empty()) {
    std::copy_n(data_.begin() + static_cast<std::ptrdiff_t>(written_), size, to.begin());
  } else {
    entry_->tier()->CopyOut(*entry_, written_, to);
  }
  checksum_ = is_whole && checksum.has_value() ? *checksum : NextPeerChecksum(checksum_, to);
  written_ += size;
  message.End(checksum_);
}

}  // namespace headrace
