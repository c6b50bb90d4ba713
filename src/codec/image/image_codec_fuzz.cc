// Any bytes must decode or be refused, in bounded time and memory, and twice with the same result.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "codec/image/image_codec.h"

namespace headrace {
namespace {

constexpr std::uint64_t kPixelsMax = 1 << 16;

std::vector<ImageTransform> Transforms() {
  ImageTransform crop;
  crop.random_resized_crop.emplace();
  crop.flip_probability = 0.5;
  crop.height = 20;
  crop.width = 31;
  crop.to_float = true;
  crop.exact = true;
  ImageTransform centre;
  centre.resize_shorter = 17;
  centre.height = 16;
  centre.width = 13;
  centre.channels_first = false;
  ImageTransform whole;
  whole.height = 24;
  whole.width = 24;
  whole.flip_probability = 1;
  std::vector<ImageTransform> all = {crop, centre, whole};
  for (ImageTransform& transform : all) transform.pixels_max = kPixelsMax;
  return all;
}

std::vector<std::unique_ptr<FieldCodec>> Codecs() {
  std::vector<std::unique_ptr<FieldCodec>> codecs;
  for (const ImageTransform& transform : Transforms()) {
    Result<std::unique_ptr<FieldCodec>> codec = MakeImageCodec(transform);
    HEADRACE_CHECK(codec.ok());
    codecs.push_back(std::move(codec).value());
  }
  return codecs;
}

// Rows are stored as floats, which are aligned for every element type.
std::span<std::byte> RowOf(std::vector<float>& memory, std::uint64_t bytes) {
  memory.assign((bytes + sizeof(float) - 1) / sizeof(float), -1.0F);
  return std::as_writable_bytes(std::span(memory)).first(bytes);
}

void DecodeTwice(const FieldCodec& codec, std::span<const std::byte> encoded) {
  std::array<std::vector<float>, 2> rows;
  std::array<Status, 2> statuses;
  const SampleKey key{.seed = 1, .epoch = 2, .sample = SampleId{encoded.size()}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    statuses[i] = codec.Decode(encoded, key, RowOf(rows[i], codec.RowBytes(encoded.size())));
    const StatusCode code = statuses[i].code();
    HEADRACE_CHECK(code == StatusCode::kOk || code == StatusCode::kDataLoss ||
                   code == StatusCode::kInvalidArgument);
  }
  HEADRACE_CHECK(statuses[0].code() == statuses[1].code());
  const std::size_t bytes = rows[0].size() * sizeof(float);  // not floats: a NaN equals nothing
  HEADRACE_CHECK(!statuses[0].ok() || std::memcmp(rows[0].data(), rows[1].data(), bytes) == 0);
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto* codecs =
      new std::vector<std::unique_ptr<headrace::FieldCodec>>(headrace::Codecs());
  const std::span<const std::byte> encoded(reinterpret_cast<const std::byte*>(data), size);
  for (const auto& codec : *codecs) headrace::DecodeTwice(*codec, encoded);
  return 0;
}
