#pragma once

// ipc/ carries messages and descriptors between processes of one node and one user: connection.h
// for the side that waits, server.h for the side that serves many, wire.h for what messages say.
// It starts no thread and knows nothing of what is sent.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/status.h"

namespace headrace {

// Values of a message one after the other: numbers little-endian, strings, bytes and vectors behind
// a count of 4 bytes. Nothing says what comes: who reads knows the order.
//
// Thread safety: none.
class WireWriter {
 public:
  void PutU8(std::uint8_t value) { Put(value); }
  void PutU16(std::uint16_t value) { Put(value); }
  void PutU32(std::uint32_t value) { Put(value); }
  void PutU64(std::uint64_t value) { Put(value); }
  void PutI64(std::int64_t value) { Put(static_cast<std::uint64_t>(value)); }
  void PutF64(double value) { Put(std::bit_cast<std::uint64_t>(value)); }
  void PutBool(bool value) { Put(static_cast<std::uint8_t>(value)); }
  // Below 4 GiB each, as are counts.
  void PutString(std::string_view text) { PutBytes(std::as_bytes(std::span(text))); }
  void PutBytes(std::span<const std::byte> bytes);
  // As many elements have to follow.
  void PutCount(std::size_t count);
  // The code and the message; OK, too.
  void PutStatus(const Status& status);
  // put(writer, element) for each of `elements`.
  template <typename Elements, typename PutOne>
  void PutVector(const Elements& elements, PutOne put) {
    PutCount(elements.size());
    for (const auto& element : elements) put(*this, element);
  }

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  // For the next message, in the same memory.
  void Clear() { bytes_.clear(); }

 private:
  template <typename Unsigned>
  void Put(Unsigned value) {
    for (std::size_t i = 0; i < sizeof(Unsigned); ++i) {
      bytes_.push_back(static_cast<std::byte>((value >> (8 * i)) & 0xff));
    }
  }

  std::vector<std::byte> bytes_;
};

// Reads what a WireWriter wrote, out of bytes that may be anything. After the first mistake
// everything reads as zero or empty, and loops over a count end; Finish() says what it was. So a
// message is read without a test per value, and used only if Finish() is OK.
//
// Thread safety: none. Ownership: `bytes` and `what` must outlive the reader.
class WireReader {
 public:
  // `what` is read, for messages: "a batch from the node process".
  WireReader(std::string_view what, std::span<const std::byte> bytes)
      : what_(what), bytes_(bytes) {}

  std::uint8_t TakeU8() { return Take<std::uint8_t>(); }
  std::uint16_t TakeU16() { return Take<std::uint16_t>(); }
  std::uint32_t TakeU32() { return Take<std::uint32_t>(); }
  std::uint64_t TakeU64() { return Take<std::uint64_t>(); }
  std::int64_t TakeI64() { return static_cast<std::int64_t>(Take<std::uint64_t>()); }
  double TakeF64() { return std::bit_cast<double>(Take<std::uint64_t>()); }
  // 0 or 1; anything else is a mistake.
  bool TakeBool();
  // A number up to `max`: an enum's last, a lane's.
  std::uint32_t TakeU32(std::uint32_t max);
  std::string TakeString(std::size_t bytes_max);
  // Views of the message itself.
  std::span<const std::byte> TakeBytes(std::size_t bytes_max);
  // How many elements follow, each of which takes `element_bytes_min` of the message or more: what
  // cannot fit is a mistake, so no memory is asked for on a count's word alone.
  std::size_t TakeCount(std::size_t count_max, std::size_t element_bytes_min);
  // What the other side reported, into `status`; a code that does not exist is a mistake.
  void TakeStatus(Status& status, std::size_t bytes_max);
  // take(reader) for each element of a vector.
  template <typename TakeOne>
  auto TakeVector(std::size_t count_max, std::size_t element_bytes_min, TakeOne take) {
    std::vector<decltype(take(*this))> elements;
    const std::size_t count = TakeCount(count_max, element_bytes_min);
    elements.reserve(count);
    for (std::size_t i = 0; i < count && status_.ok(); ++i) elements.push_back(take(*this));
    return elements;
  }

  // For what only the caller can know to be wrong. Keeps the first mistake.
  void Refuse(std::string_view why);

  [[nodiscard]] bool ok() const { return status_.ok(); }
  [[nodiscard]] std::size_t remaining_bytes() const { return bytes_.size() - at_; }

  // OK if every value was there, within its bounds, and nothing is left.
  //
  // Errors: DataLoss  the first mistake, and where it is
  Status Finish();

 private:
  // The next `bytes` of the message; empty, and a mistake, if there are fewer.
  std::span<const std::byte> Next(std::size_t bytes);
  template <typename Unsigned>
  Unsigned Take() {
    std::uint64_t value = 0;
    const std::span<const std::byte> bytes = Next(sizeof(Unsigned));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    }
    return static_cast<Unsigned>(value);
  }

  const std::string_view what_;
  const std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  Status status_;
};

}  // namespace headrace
