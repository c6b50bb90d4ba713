#pragma once

// Messages of samples in the encoding of peers.proto, written and read in place: the bytes of a
// sample are copied once on their way into a message and once out of it. The classes that protoc
// generates would copy them twice more. Does not include gRPC.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"

namespace headrace {

// The remaining bytes of several pieces of memory, one after the other.
//
// Ownership: the pieces, and the list of them, outlive it and its copies.
// Thread safety: none.
class Pieces {
 public:
  using List = std::span<const std::span<const std::byte>>;

  Pieces() = default;
  explicit Pieces(List pieces);

  [[nodiscard]] std::uint64_t left() const { return left_; }
  // Takes from the front. Returns false if there are too few bytes, or no valid number.
  bool TakeVarint(std::uint64_t& value);
  bool TakeFixed64(std::uint64_t& value);
  bool Take(std::uint64_t bytes, Pieces& taken);
  // Takes to.size() bytes, which must be there.
  void CopyTo(std::span<std::byte> to);

 private:
  void Skip(std::uint64_t bytes);

  std::span<const std::byte> head_;  // of the piece before rest_
  List rest_;
  std::uint64_t left_ = 0;
};

// A SampleAnswer of peers.proto, inside the message that it came in.
struct ReceivedAnswer {
  std::uint64_t number = 0;
  std::uint32_t code = 0;
  std::string reason;
  std::uint64_t offset = 0;
  Pieces part;
  std::uint64_t checksum = 0;
};

// The most answers in one message.
inline constexpr std::size_t kSampleAnswersMax = 4096;

// The answers of a SampleAnswers message. Unknown fields are skipped.
//
// Errors: DataLoss  not such a message, or it holds more than kSampleAnswersMax answers
Result<std::vector<ReceivedAnswer>> ReadSampleAnswers(Pieces::List message);

// Writes a SampleAnswers message into the caller's memory.
//
// Thread safety: none.
class SampleAnswersWriter {
 public:
  // The most bytes of one answer besides its part or its reason.
  static constexpr std::size_t kAnswerBytesMax = 64;
  static constexpr std::size_t kReasonBytesMax = 1000;

  explicit SampleAnswersWriter(std::span<std::byte> memory) : memory_(memory) {}

  // Begins an answer with a part of `bytes` bytes, from `offset` of the sample. Returns where to
  // put the part; then End() or Drop() must follow. There must be room.
  std::span<std::byte> Begin(std::uint64_t number, std::uint64_t offset, std::uint64_t bytes,
                             bool is_last);
  // `checksum` goes out with the last part of a sample only.
  void End(std::uint64_t checksum);
  // Drops the answer that was begun.
  void Drop() { size_ = begin_; }
  // Adds an answer that says why a sample is not given.
  void Refuse(std::uint64_t number, std::uint32_t code, std::string_view reason);

  [[nodiscard]] std::size_t size() const { return size_; }  // written so far

 private:
  void PutByte(std::uint8_t byte);
  void PutVarint(std::uint64_t value);
  void PutText(std::string_view text);

  const std::span<std::byte> memory_;
  std::size_t size_ = 0;
  std::size_t begin_ = 0;  // of the answer that was begun
  bool is_last_ = false;   // it is the last of its sample
};

}  // namespace headrace
