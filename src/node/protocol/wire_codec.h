#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "ipc/sealed_bytes.h"
#include "ipc/wire.h"

namespace headrace {

// The wire form of a type is defined once, for both directions: a function
//
//   template <typename Codec, Of<Thing> T>
//   void Fields(Codec& codec, T& thing) { codec(thing.size, thing.name); }
//
// writes a Thing where Codec is WirePut, and reads one where it is WireTake. What is read is
// bounded and checked as WireReader does it.

template <typename T, typename U>
concept Of = std::same_as<std::remove_const_t<T>, U>;

inline constexpr std::size_t kWireTextBytesMax = std::size_t{64} * 1024;
inline constexpr std::size_t kWireListMax = std::size_t{1} << 26;
// Of a list that may be as long as a dataset: from here on it lies apart.
inline constexpr std::size_t kWireApartBytes = std::size_t{1} << 20;

// Writes. Thread safety: none. Ownership: the writer must outlive it.
class WirePut {
 public:
  static constexpr bool kTakes = false;

  // `apart`: where lists go that are too long for a message, in order; null: no list is.
  explicit WirePut(WireWriter& writer, std::vector<std::span<const std::byte>>* apart = nullptr)
      : writer_(writer), apart_(apart) {}

  template <typename... Ts>
  void operator()(const Ts&... values) {
    (One(values), ...);
  }
  template <typename E>
  void Enum(E value, E /*last*/) {
    writer_.PutU8(static_cast<std::uint8_t>(value));
  }
  template <typename Values>
  void List(const Values& values, std::size_t /*count_max*/ = kWireListMax) {
    writer_.PutCount(values.size());
    for (const auto& value : values) One(value);
  }
  // A list of numbers that may be as long as a dataset. Apart it lies as in memory: who reads it is
  // on the same machine.
  template <typename T>
  requires std::has_unique_object_representations_v<T>
  void LongList(const std::vector<T>& values) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    const bool apart = apart_ != nullptr && bytes.size() >= kWireApartBytes;
    One(apart);
    if (!apart) return List(values);
    apart_->push_back(bytes);
  }
  [[nodiscard]] bool ok() const { return true; }

 private:
  void One(std::uint8_t value) { writer_.PutU8(value); }
  void One(std::uint32_t value) { writer_.PutU32(value); }
  void One(std::uint64_t value) { writer_.PutU64(value); }
  void One(std::int64_t value) { writer_.PutI64(value); }
  void One(int value) { writer_.PutI64(value); }
  void One(double value) { writer_.PutF64(value); }
  void One(float value) { writer_.PutF64(static_cast<double>(value)); }
  void One(bool value) { writer_.PutBool(value); }
  void One(SampleId value) { writer_.PutU64(Raw(value)); }
  // Cut: a text is for people, or was bounded where it came from.
  void One(const std::string& value) {
    writer_.PutString(std::string_view(value).substr(0, kWireTextBytesMax));
  }
  void One(const Status& value) {
    if (value.message().size() <= kWireTextBytesMax) return writer_.PutStatus(value);
    writer_.PutStatus(
        Status(value.code(), std::string(value.message().substr(0, kWireTextBytesMax))));
  }
  template <typename T, std::size_t N>
  void One(const std::array<T, N>& values) {
    for (const T& value : values) One(value);
  }
  template <typename T>
  void One(const std::vector<T>& values) {
    List(values);
  }
  template <typename T>
  void One(const std::optional<T>& value) {
    writer_.PutBool(value.has_value());
    if (value.has_value()) One(*value);
  }
  template <typename T>
  requires std::is_class_v<T>
  void One(const T& value) { Fields(*this, value); }

  WireWriter& writer_;
  std::vector<std::span<const std::byte>>* const apart_;
};

// Reads. Thread safety: none. Ownership: the reader must outlive it.
class WireTake {
 public:
  static constexpr bool kTakes = true;

  // `apart`: descriptors that came with the message, of lists that lie apart.
  explicit WireTake(WireReader& reader, std::span<const UniqueFd> apart = {})
      : reader_(reader), apart_(apart) {}

  template <typename... Ts>
  void operator()(Ts&... values) {
    (One(values), ...);
  }
  template <typename E>
  void Enum(E& value, E last) {
    const std::uint8_t number = reader_.TakeU8();
    if (number > static_cast<std::uint8_t>(last)) {
      reader_.Refuse("a choice of " + std::to_string(number));
      return;
    }
    value = static_cast<E>(number);
  }
  // Grows as elements come: a count alone takes no memory.
  template <typename T>
  void List(std::vector<T>& values, std::size_t count_max = kWireListMax) {
    const std::size_t count = reader_.TakeCount(count_max, 1);
    values.clear();
    for (std::size_t i = 0; i < count && reader_.ok(); ++i) {
      T value{};
      One(value);
      values.push_back(std::move(value));
    }
  }
  template <typename T>
  requires std::has_unique_object_representations_v<T>
  void LongList(std::vector<T>& values) {
    if (!reader_.TakeBool()) return List(values);
    values.clear();
    if (apart_.empty()) return Refuse("a list apart, without a descriptor");
    const int fd = apart_.front().get();
    apart_ = apart_.subspan(1);
    const Result<std::uint64_t> bytes = SealedBytes(fd);
    if (!bytes.ok()) return Refuse(bytes.status().message());
    if (bytes.value() % sizeof(T) != 0) {
      return Refuse("a list apart of " + std::to_string(bytes.value()) + " bytes");
    }
    values.resize(bytes.value() / sizeof(T));
    const Status read = ReadSealed(fd, std::as_writable_bytes(std::span(values)));
    if (!read.ok()) Refuse(read.message());
  }
  void Refuse(std::string_view why) { reader_.Refuse(why); }
  [[nodiscard]] bool ok() const { return reader_.ok(); }
  // What else there is, of whatever sort.
  void Skip() {
    while (reader_.ok() && reader_.remaining_bytes() > 0) (void)reader_.TakeU8();
  }

 private:
  void One(std::uint8_t& value) { value = reader_.TakeU8(); }
  void One(std::uint32_t& value) { value = reader_.TakeU32(); }
  void One(std::uint64_t& value) { value = reader_.TakeU64(); }
  void One(std::int64_t& value) { value = reader_.TakeI64(); }
  void One(int& value) {
    const std::int64_t wide = reader_.TakeI64();
    value = static_cast<int>(wide);
    if (value != wide) reader_.Refuse("a number of " + std::to_string(wide));
  }
  void One(double& value) { value = reader_.TakeF64(); }
  void One(float& value) { value = static_cast<float>(reader_.TakeF64()); }
  void One(bool& value) { value = reader_.TakeBool(); }
  void One(SampleId& value) { value = SampleId{reader_.TakeU64()}; }
  void One(std::string& value) { value = reader_.TakeString(kWireTextBytesMax); }
  void One(Status& value) { reader_.TakeStatus(value, kWireTextBytesMax); }
  template <typename T, std::size_t N>
  void One(std::array<T, N>& values) {
    for (T& value : values) One(value);
  }
  template <typename T>
  void One(std::vector<T>& values) {
    List(values);
  }
  template <typename T>
  void One(std::optional<T>& value) {
    value.reset();
    if (reader_.TakeBool()) One(value.emplace());
  }
  template <typename T>
  requires std::is_class_v<T>
  void One(T& value) { Fields(*this, value); }

  WireReader& reader_;
  std::span<const UniqueFd> apart_;  // not taken yet
};

}  // namespace headrace
