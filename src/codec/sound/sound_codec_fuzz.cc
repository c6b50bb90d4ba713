// Any bytes must decode or be refused, in bounded time and memory, and twice with the same result.
// An input is a list of changes of a valid file, so that the decoders behind headers are reached.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <sndfile.h>

#include "base/check.h"
#include "codec/sound/sound_codec.h"
#include "codec/sound/test_sounds.h"

namespace headrace {
namespace {

using Encoded = std::vector<std::byte>;

std::vector<Encoded> Sounds() {
  std::vector<Encoded> sounds;
  for (const int format : test::SoundFormats()) {
    sounds.push_back(test::EncodeSound(test::MakeTones(400, 2), format, /*title=*/true));
  }
  return sounds;
}

// The first byte chooses a file; each three more change a byte of it.
Encoded Changed(const std::vector<Encoded>& files, std::span<const std::uint8_t> input) {
  Encoded encoded = files[input.empty() ? 0 : input[0] % files.size()];
  for (std::size_t i = 1; i + 2 < input.size(); i += 3) {
    const std::size_t at = input[i] | std::size_t{input[i + 1]} << 8;
    encoded[at % encoded.size()] = static_cast<std::byte>(input[i + 2]);
  }
  return encoded;
}

void DecodeTwice(const FieldCodec& codec, std::span<const std::byte> encoded) {
  std::array<std::vector<float>, 2> rows;
  std::array<Status, 2> statuses;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].assign(codec.RowBytes(400 * 2 * sizeof(float)) / sizeof(float), -1.0F);
    statuses[i] =
        codec.Decode(encoded, {.seed = encoded.size()}, std::as_writable_bytes(std::span(rows[i])));
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
  using headrace::MakeSoundCodec;
  static const auto* files = new std::vector<headrace::Encoded>(headrace::Sounds());
  static const auto* whole = MakeSoundCodec({}).value().release();
  static const auto* cut =
      MakeSoundCodec({.frames = 300, .random_begin = true, .channels = 2}).value().release();
  const headrace::Encoded encoded = headrace::Changed(*files, {data, size});
  headrace::DecodeTwice(*whole, encoded);
  headrace::DecodeTwice(*cut, encoded);
  const std::span<const std::byte> raw(reinterpret_cast<const std::byte*>(data), size);
  headrace::DecodeTwice(*cut, raw);
  return 0;
}
