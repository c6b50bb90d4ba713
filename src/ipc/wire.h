#pragma once

// ipc/ carries messages and descriptors between processes of one node and one user: connection.h
// for clients, server.h for a server of many, wire.h for the contents of messages. It starts no
// thread and does not interpret messages.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "headrace/status.h"

namespace headrace {

// Writes the values of a message one after the other: numbers little-endian; strings, bytes and
// vectors after a count of 4 bytes. The format is not self-describing: the reader must know the
// order.
//
// Thread safety: none.
class WireWriter {
 public:
  void PutU8(std::uint8_t value) { Put(value); }
  void PutU32(std::uint32_t value) { Put(value); }
  void PutU64(std::uint64_t value) { Put(value); }
  void PutI64(std::int64_t value) { Put(static_cast<std::uint64_t>(value)); }
  void PutF64(double value) { Put(std::bit_cast<std::uint64_t>(value)); }
  void PutBool(bool value) { Put(static_cast<std::uint8_t>(value)); }
  // Below 4 GiB each, as are counts.
  void PutString(std::string_view text) { PutBytes(std::as_bytes(std::span(text))); }
  void PutBytes(std::span<const std::byte> bytes);
  // The caller then writes as many elements.
  void PutCount(std::size_t count);
  // The code and the message; also OK.
  void PutStatus(const Status& status);
  // put(writer, element) for each of `elements`.
  template <typename Elements, typename PutOne>
  void PutVector(const Elements& elements, PutOne put) {
    PutCount(elements.size());
    for (const auto& element : elements) put(*this, element);
  }

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  template <typename Unsigned>
  void Put(Unsigned value) {
    for (std::size_t i = 0; i < sizeof(Unsigned); ++i) {
      bytes_.push_back(static_cast<std::byte>((value >> (8 * i)) & 0xff));
    }
  }

  std::vector<std::byte> bytes_;
};

// Reads what a WireWriter wrote, from untrusted bytes. After the first error every value reads as
// zero or empty, and loops over a count end; Finish() returns the error. So a message is read
// without a test per value, and used only if Finish() is OK.
//
// Thread safety: none.
// Ownership: `bytes` and `what` must outlive the reader.
class WireReader {
 public:
  // `what`: the message's name in errors: "a batch from the node process".
  WireReader(std::string_view what, std::span<const std::byte> bytes)
      : what_(what), bytes_(bytes) {}

  std::uint8_t TakeU8() { return Take<std::uint8_t>(); }
  std::uint32_t TakeU32() { return Take<std::uint32_t>(); }
  std::uint64_t TakeU64() { return Take<std::uint64_t>(); }
  std::int64_t TakeI64() { return static_cast<std::int64_t>(Take<std::uint64_t>()); }
  double TakeF64() { return std::bit_cast<double>(Take<std::uint64_t>()); }
  // 0 or 1; anything else is an error.
  bool TakeBool();
  // A number up to `max`: the last of an enum, or a lane.
  std::uint32_t TakeU32(std::uint32_t max);
  std::string TakeString(std::size_t bytes_max);
  // Views of the message itself.
  std::span<const std::byte> TakeBytes(std::size_t bytes_max);
  // A number of elements, each of which takes at least `element_bytes_min` bytes of the message: a
  // count that cannot fit is an error, so no memory is allocated for an unchecked count.
  std::size_t TakeCount(std::size_t count_max, std::size_t element_bytes_min);
  // Reads the other side's Status into `status`; an unknown code is an error.
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

  // Reports an error that only the caller can detect. Keeps the first one.
  void Refuse(std::string_view why);

  [[nodiscard]] bool ok() const { return status_.ok(); }
  [[nodiscard]] std::size_t remaining_bytes() const { return bytes_.size() - at_; }

  // OK if every value was there, within its bounds, and no bytes are left.
  //
  // Errors: DataLoss  the first error, and its position
  Status Finish();

 private:
  // The next `bytes` of the message; empty, and an error, if there are fewer.
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
