#include "peer/grpc/sample_writer.h"

#include <algorithm>
#include <cstdlib>
#include <stop_token>
#include <utility>
#include <vector>

#include "peer/grpc/peer_wire.h"
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

std::uint64_t SampleWriter::Write(peers::v1::SampleAnswer& answer) {
  answer.set_number(number_);
  if (why_.ok() && !checked_) {
    why_ = entry_->tier()->Check(*entry_);
    checked_ = true;
  }
  if (!why_.ok()) {
    answer.set_code(static_cast<std::uint32_t>(why_.code()));
    answer.set_reason(std::string(why_.message().substr(0, 1000)));
    done_ = true;
    return 0;
  }
  const std::uint64_t size = std::min(kPeerPartBytes, bytes_ - written_);
  std::string& part = *answer.mutable_part();
  part.resize(size);
  const std::span<std::byte> to = std::as_writable_bytes(std::span(part));
  if (!data_.empty()) {
    std::copy_n(data_.begin() + static_cast<std::ptrdiff_t>(written_), size, to.begin());
  } else {
    entry_->tier()->CopyOut(*entry_, written_, to);
  }
  answer.set_offset(written_);
  checksum_ = NextPeerChecksum(checksum_, to);
  written_ += size;
  done_ = written_ == bytes_;
  if (done_) answer.set_checksum(checksum_);
  return size;
}

}  // namespace headrace
