#include "peer/grpc/sample_message.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/format/errors.h"

namespace headrace {
namespace {

// Protocol Buffers: a field begins with 8 * number + wire type, as a varint.
constexpr std::uint64_t kVarint = 0;
constexpr std::uint64_t kFixed64 = 1;
constexpr std::uint64_t kBytes = 2;
constexpr std::uint64_t kFixed32 = 5;

constexpr std::uint64_t Tag(std::uint64_t number, std::uint64_t wire_type) {
  return number << 3 | wire_type;
}

// Of peers.proto.
constexpr std::uint64_t kAnswers = Tag(1, kBytes);
constexpr std::uint64_t kNumber = Tag(1, kVarint);
constexpr std::uint64_t kCode = Tag(2, kVarint);
constexpr std::uint64_t kReason = Tag(3, kBytes);
constexpr std::uint64_t kOffset = Tag(4, kVarint);
constexpr std::uint64_t kPart = Tag(5, kBytes);
constexpr std::uint64_t kChecksum = Tag(6, kFixed64);

constexpr std::size_t VarintBytes(std::uint64_t value) {
  std::size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

// A field of a message: its number if it is one, or what is in it.
struct Field {
  std::uint64_t tag = 0;
  std::uint64_t number = 0;
  Pieces bytes;
};

bool TakeField(Pieces& from, Field& field) {
  if (!from.TakeVarint(field.tag) || field.tag >> 32 != 0 || field.tag >> 3 == 0) return false;
  Pieces ignored;
  switch (field.tag & 7) {
    case kVarint:
      return from.TakeVarint(field.number);
    case kFixed64:
      return from.TakeFixed64(field.number);
    case kFixed32:
      return from.Take(sizeof(std::uint32_t), ignored);
    case kBytes: {
      std::uint64_t size = 0;
      return from.TakeVarint(size) && from.Take(size, field.bytes);
    }
    default:
      return false;
  }
}

bool TakeAnswer(Pieces from, ReceivedAnswer& answer) {
  Field field;
  while (from.left() > 0) {
    if (!TakeField(from, field)) return false;
    switch (field.tag) {
      case kNumber:
        answer.number = field.number;
        break;
      case kCode:
        answer.code = static_cast<std::uint32_t>(field.number);
        break;
      case kReason:
        answer.reason.resize(
            std::min<std::uint64_t>(field.bytes.left(), SampleAnswersWriter::kReasonBytesMax));
        field.bytes.CopyTo(std::as_writable_bytes(std::span(answer.reason)));
        break;
      case kOffset:
        answer.offset = field.number;
        break;
      case kPart:
        answer.part = field.bytes;
        break;
      case kChecksum:
        answer.checksum = field.number;
        break;
      default:
        break;
    }
  }
  return true;
}

}  // namespace

Pieces::Pieces(List pieces) : rest_(pieces) {
  for (const std::span<const std::byte> piece : pieces) left_ += piece.size();
}

void Pieces::CopyTo(std::span<std::byte> to) {
  HEADRACE_CHECK(to.size() <= left_);
  left_ -= to.size();
  while (!to.empty()) {
    if (head_.empty()) {
      head_ = rest_.front();
      rest_ = rest_.subspan(1);
      continue;
    }
    const std::size_t size = std::min(head_.size(), to.size());
    std::memcpy(to.data(), head_.data(), size);
    head_ = head_.subspan(size);
    to = to.subspan(size);
  }
}

void Pieces::Skip(std::uint64_t bytes) {
  left_ -= bytes;
  while (bytes > 0) {
    if (head_.empty()) {
      head_ = rest_.front();
      rest_ = rest_.subspan(1);
      continue;
    }
    const std::size_t size = std::min<std::uint64_t>(head_.size(), bytes);
    head_ = head_.subspan(size);
    bytes -= size;
  }
}

bool Pieces::Take(std::uint64_t bytes, Pieces& taken) {
  if (bytes > left_) return false;
  taken = *this;
  taken.left_ = bytes;
  Skip(bytes);
  return true;
}

bool Pieces::TakeVarint(std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 70 && left_ > 0; shift += 7) {
    std::byte byte{};
    CopyTo({&byte, 1});
    value |= (std::to_integer<std::uint64_t>(byte) & 0x7f) << shift;
    if ((byte & std::byte{0x80}) == std::byte{0}) return true;
  }
  return false;
}

bool Pieces::TakeFixed64(std::uint64_t& value) {
  std::array<std::byte, sizeof(value)> bytes{};
  if (left_ < bytes.size()) return false;
  CopyTo(bytes);
  value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  return true;
}

Result<std::vector<ReceivedAnswer>> ReadSampleAnswers(Pieces::List message) {
  std::vector<ReceivedAnswer> answers;
  Pieces from(message);
  Field field;
  while (from.left() > 0) {
    const bool is_right =
        TakeField(from, field) &&
        (field.tag != kAnswers ||
         (answers.size() < kSampleAnswersMax && TakeAnswer(field.bytes, answers.emplace_back())));
    if (!is_right) return DataLoss("{} bytes are no message of samples", Pieces(message).left());
  }
  return answers;
}

void SampleAnswersWriter::PutByte(std::uint8_t byte) {
  HEADRACE_CHECK(size_ < memory_.size());
  memory_[size_++] = std::byte{byte};
}

void SampleAnswersWriter::PutVarint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) PutByte(static_cast<std::uint8_t>(value | 0x80));
  PutByte(static_cast<std::uint8_t>(value));
}

void SampleAnswersWriter::PutText(std::string_view text) {
  HEADRACE_CHECK(text.size() <= memory_.size() - size_);
  std::ranges::copy(std::as_bytes(std::span(text)), memory_.subspan(size_).begin());
  size_ += text.size();
}

std::span<std::byte> SampleAnswersWriter::Begin(std::uint64_t number, std::uint64_t offset,
                                                std::uint64_t bytes, bool is_last) {
  begin_ = size_;
  is_last_ = is_last;
  std::size_t size = 2 + VarintBytes(number) + VarintBytes(bytes) + bytes;
  if (offset > 0) size += 1 + VarintBytes(offset);
  if (is_last) size += 1 + sizeof(std::uint64_t);
  PutVarint(kAnswers);
  PutVarint(size);
  PutVarint(kNumber);
  PutVarint(number);
  if (offset > 0) {
    PutVarint(kOffset);
    PutVarint(offset);
  }
  PutVarint(kPart);
  PutVarint(bytes);
  HEADRACE_CHECK(bytes <= memory_.size() - size_);
  const std::span<std::byte> part = memory_.subspan(size_, bytes);
  size_ += bytes;
  return part;
}

void SampleAnswersWriter::End(std::uint64_t checksum) {
  if (!is_last_) return;
  PutVarint(kChecksum);
  for (std::size_t i = 0; i < sizeof(checksum); ++i) {
    PutByte(static_cast<std::uint8_t>(checksum >> (8 * i)));
  }
}

void SampleAnswersWriter::Refuse(std::uint64_t number, std::uint32_t code,
                                 std::string_view reason) {
  reason = reason.substr(0, kReasonBytesMax);
  PutVarint(kAnswers);
  PutVarint(3 + VarintBytes(number) + VarintBytes(code) + VarintBytes(reason.size()) +
            reason.size());
  PutVarint(kNumber);
  PutVarint(number);
  PutVarint(kCode);
  PutVarint(code);
  PutVarint(kReason);
  PutVarint(reason.size());
  PutText(reason);
}

}  // namespace headrace
