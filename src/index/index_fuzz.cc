// Opens damaged index files and reads everything in them. The checksums would reject nearly every
// random change, so most inputs edit a valid file and then correct its checksums.
//
// Input: a byte that selects the valid file to start from (the lowest 4 bits), whether to correct
// the checksums (0x10), and whether the rest is a whole file instead (0x20); then edits of 4 bytes:
// position (3 bytes, little-endian, modulo the size), value.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "index/index_reader.h"
#include "index/test_contents.h"

namespace {

using headrace::Index;
using headrace::ObjectId;
using headrace::SampleId;
using headrace::Status;

constexpr std::size_t kBases = 16;
constexpr unsigned kReseal = 0x10;
constexpr unsigned kWholeFile = 0x20;

const std::array<std::vector<std::byte>, kBases>& Bases() {
  static const auto* const bases = [] {
    auto* files = new std::array<std::vector<std::byte>, kBases>;
    (*files)[0] = headrace::internal::FileOf(headrace::internal::SmallContents());
    (*files)[1] = headrace::internal::FileOf(headrace::internal::TypedContents());
    (*files)[2] = headrace::internal::FileOf(headrace::internal::CodedContents());
    for (std::size_t i = 3; i < kBases; ++i) {
      (*files)[i] = headrace::internal::FileOf(headrace::internal::ContentsGenerator(i).Make());
    }
    return files;
  }();
  return *bases;
}

std::vector<std::byte> Damaged(unsigned how, std::span<const std::byte> rest) {
  if ((how & kWholeFile) != 0) return {rest.begin(), rest.end()};
  std::vector<std::byte> file = Bases()[how % kBases];
  for (; rest.size() >= 4; rest = rest.subspan(4)) {
    const auto number = headrace::internal::Load<std::uint32_t>(rest.data());
    file[(number & 0xffffff) % file.size()] = static_cast<std::byte>(number >> 24);
  }
  return file;
}

// Reads every byte, so that the sanitizer sees reads outside the file.
std::uint64_t Sum(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (const std::byte byte : bytes) sum += static_cast<std::uint64_t>(byte);
  return sum;
}

// Whether every entry was readable.
bool Walk(const Index& index) {
  bool whole = true;
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < index.object_count(); ++i) {
    const auto object = index.object(ObjectId{i});
    whole = whole && object.ok();
    if (object.ok()) sum += Sum(std::as_bytes(std::span(object.value().name)));
  }
  for (std::uint64_t i = 0; i < index.block_count(); ++i) whole = index.block(i).ok() && whole;
  for (std::size_t field = 0; field < index.fields().size(); ++field) {
    for (std::uint64_t i = 0; i < index.sample_count(); ++i) {
      const SampleId id{i};
      sum += index.checksum(field, id).value_or(0);
      if (index.fields()[field].is_inline) {
        const auto value = index.inline_value(field, id);
        whole = whole && value.ok();
        if (value.ok()) sum += Sum(value.value());
      } else {
        whole = index.extent(field, id).ok() && whole;
        const headrace::FieldInfo& info = index.fields()[field];
        if (info.is_compressed() || info.has_decoded_sizes) {
          whole = index.decoded_bytes(field, id).ok() && whole;
        }
      }
    }
  }
  for (const auto& [key, value] : index.attributes()) {
    sum += Sum(std::as_bytes(std::span(key))) + Sum(std::as_bytes(std::span(value)));
  }
  [[maybe_unused]] static volatile std::uint64_t sink = 0;
  sink = sum;
  return whole;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const unsigned how = data[0];
  const std::span<const std::byte> rest = std::as_bytes(std::span(data + 1, size - 1));
  std::vector<std::byte> file = Damaged(how, rest);
  if ((how & kReseal) != 0) headrace::internal::Reseal(file);
  const auto index = headrace::internal::OpenIndexInMemory(file, "fuzz", nullptr);
  if (!index.ok()) return 0;
  const bool whole = Walk(*index.value());
  // VerifyAll finds everything that access finds.
  HEADRACE_CHECK(whole || !index.value()->VerifyAll().ok());
  // A changed file whose checksums were not corrected never passes.
  const bool changed = (how & kWholeFile) == 0 && file != Bases()[how % kBases];
  HEADRACE_CHECK(!changed || (how & kReseal) != 0 || !index.value()->VerifyAll().ok());
  return 0;
}
