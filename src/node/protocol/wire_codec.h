#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "headrace/ids.h"
#include "headrace/members.h"
#include "headrace/status.h"
#include "ipc/sealed_bytes.h"
#include "ipc/wire.h"

namespace headrace {

// The wire form of a struct is its members, one after the other (headrace/members.h). A type that
// is not a struct, or has another form, has functions
//
//   void Fields(WirePut& codec, const Thing& thing);
//   void Fields(WireTake& codec, Thing& thing);
//
// WireReader checks and limits everything that is read.

inline constexpr std::size_t kWireTextBytesMax = std::size_t{64} * 1024;
// Lists of numbers at least this long go out of band: in a descriptor beside the message.
inline constexpr std::size_t kWireOutOfBandBytes = std::size_t{1} << 20;
// The most elements of a list.
template <typename T>
inline constexpr std::size_t kWireListMax = std::size_t{1} << 26;
// An enumeration's last value: `static constexpr E kLast`.
template <typename E>
struct WireChoice;

template <typename T>
concept WireChoosable = requires {
  WireChoice<T>::kLast;
};
// Types whose lists go out of band as they lie in memory: the reader is on the same machine.
template <typename T>
concept WireNumber =
    !std::is_class_v<T> && !WireChoosable<T> && std::has_unique_object_representations_v<T>;

// Writes. Thread safety: none. Ownership: the writer must outlive it.
class WirePut {
 public:
  // `out_of_band`: receives lists that are too long for a message, in order; null: none are.
  explicit WirePut(WireWriter& writer,
                   std::vector<std::span<const std::byte>>* out_of_band = nullptr)
      : writer_(writer), out_of_band_(out_of_band) {}

  template <typename... Ts>
  void operator()(const Ts&... values) {
    (One(values), ...);
  }

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
  template <WireChoosable E>
  void One(E value) {
    writer_.PutU8(static_cast<std::uint8_t>(value));
  }
  // Truncates: a text is for people, or was limited before.
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
    if constexpr (WireNumber<T>) {
      const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
      const bool out_of_band = out_of_band_ != nullptr && bytes.size() >= kWireOutOfBandBytes;
      One(out_of_band);
      if (out_of_band) return out_of_band_->push_back(bytes);
    }
    writer_.PutCount(values.size());
    for (const T& value : values) One(value);
  }
  template <typename T>
  void One(const std::optional<T>& value) {
    One(value.has_value());
    if (value.has_value()) One(*value);
  }
  template <typename T>
  void One(const std::shared_ptr<const T>& value) {
    One(value != nullptr);
    if (value != nullptr) One(*value);
  }
  template <typename T>
  requires std::is_class_v<T>
  void One(const T& value) {
    if constexpr (Described<T>) {
      ForEachMember([this](const char* /*name*/, const auto& member) { this->One(member); }, value);
    } else if constexpr (!std::is_empty_v<T>) {
      Fields(*this, value);
    }
  }

  WireWriter& writer_;
  std::vector<std::span<const std::byte>>* const out_of_band_;
};

// Reads. Thread safety: none. Ownership: the reader must outlive it.
class WireTake {
 public:
  // `out_of_band`: descriptors that came with the message, of lists that went out of band.
  explicit WireTake(WireReader& reader, std::span<const UniqueFd> out_of_band = {})
      : reader_(reader), out_of_band_(out_of_band) {}

  template <typename... Ts>
  void operator()(Ts&... values) {
    (One(values), ...);
  }
  void Refuse(std::string_view why) { reader_.Refuse(why); }
  [[nodiscard]] bool ok() const { return reader_.ok(); }
  // Skips the rest of the message.
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
  template <WireChoosable E>
  void One(E& value) {
    const std::uint8_t number = reader_.TakeU8();
    if (number > static_cast<std::uint8_t>(WireChoice<E>::kLast)) {
      return Refuse("a choice of " + std::to_string(number));
    }
    value = static_cast<E>(number);
  }
  void One(std::string& value) { value = reader_.TakeString(kWireTextBytesMax); }
  void One(Status& value) { reader_.TakeStatus(value, kWireTextBytesMax); }
  template <typename T, std::size_t N>
  void One(std::array<T, N>& values) {
    for (T& value : values) One(value);
  }
  // Grows as elements are read: a count alone must not allocate memory.
  template <typename T>
  void One(std::vector<T>& values) {
    values.clear();
    if constexpr (WireNumber<T>) {
      if (reader_.TakeBool()) return TakeOutOfBand(values);
    }
    const std::size_t count = reader_.TakeCount(kWireListMax<T>, 1);
    for (std::size_t i = 0; i < count && reader_.ok(); ++i) {
      T value{};
      One(value);
      values.push_back(std::move(value));
    }
  }
  template <typename T>
  void TakeOutOfBand(std::vector<T>& values) {
    if (out_of_band_.empty()) return Refuse("a list out of band, without a descriptor");
    const int fd = out_of_band_.front().get();
    out_of_band_ = out_of_band_.subspan(1);
    const Result<std::uint64_t> bytes = SealedBytes(fd);
    if (!bytes.ok()) return Refuse(bytes.status().message());
    if (bytes.value() % sizeof(T) != 0) {
      return Refuse("a list out of band of " + std::to_string(bytes.value()) + " bytes");
    }
    values.resize(bytes.value() / sizeof(T));
    const Status read = ReadSealed(fd, std::as_writable_bytes(std::span(values)));
    if (!read.ok()) Refuse(read.message());
  }
  template <typename T>
  void One(std::optional<T>& value) {
    value.reset();
    if (reader_.TakeBool()) One(value.emplace());
  }
  template <typename T>
  void One(std::shared_ptr<const T>& value) {
    value = nullptr;
    if (!reader_.TakeBool()) return;
    T taken;
    One(taken);
    value = std::make_shared<const T>(std::move(taken));
  }
  template <typename T>
  requires std::is_class_v<T>
  void One(T& value) {
    if constexpr (Described<T>) {
      ForEachMember([this](const char* /*name*/, auto& member) { this->One(member); }, value);
    } else if constexpr (!std::is_empty_v<T>) {
      Fields(*this, value);
    }
  }

  WireReader& reader_;
  std::span<const UniqueFd> out_of_band_;  // not taken yet
};

}  // namespace headrace
