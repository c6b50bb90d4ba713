// ImageTransform and SoundTransform, and functions for those who want one image or sound.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include "arrays.h"
#include "base/coding/decompress.h"
#include "base/format/errors.h"
#include "base/prng.h"
#include "codec/image/image_codec.h"
#include "codec/image/image_decoder.h"
#include "codec/image/image_header.h"
#include "codec/image/whole_image.h"
#include "codec/sound/sound_codec.h"
#include "codec/sound/sound_header.h"
#include "convert/buffer.h"
#include "convert/text.h"
#include "gil/gil.h"
#include "module.h"
#include "status.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

// Made at import, more than a process has threads that decode: 0.7 ms and 0.9 MB.
constexpr std::size_t kDecodersMade = 256;

// Allocated as float, so that it is aligned for both element types.
nb::ndarray<nb::numpy> ToImage(std::unique_ptr<float[]> memory, const ImageTransform& transform) {
  const std::size_t height = transform.height;
  const std::size_t width = transform.width;
  const std::size_t chw[3] = {3, height, width};
  const std::size_t hwc[3] = {height, width, 3};
  const auto dtype = transform.to_float ? nb::dtype<float>() : nb::dtype<std::uint8_t>();
  float* data = memory.get();
  nb::capsule owner(memory.release(),
                    [](void* pointer) noexcept { delete[] static_cast<float*>(pointer); });
  return nb::ndarray<nb::numpy>(data, 3, transform.channels_first ? chw : hwc, owner, nullptr,
                                dtype);
}

nb::ndarray<nb::numpy> DecodeImage(const nb::bytes& encoded, const ImageTransform& transform,
                                   std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) {
  if (epoch >= kEpochsMax) {
    ThrowStatus(InvalidArgument("decode_image epoch: got {}, must be below {}", epoch, kEpochsMax));
  }
  const std::unique_ptr<FieldCodec> codec = ValueOrThrow(MakeImageCodec(transform));
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(encoded.data()),
                                         encoded.size());
  const std::size_t row_bytes = codec->RowBytes(bytes.size());
  auto memory =
      std::make_unique_for_overwrite<float[]>((row_bytes + sizeof(float) - 1) / sizeof(float));
  Status status;
  {
    const GilRelease released;
    status = codec->Decode(bytes, {.seed = seed, .epoch = epoch, .sample = SampleId{sample}},
                           {reinterpret_cast<std::byte*>(memory.get()), row_bytes});
  }
  ThrowIfError(status);
  return ToImage(std::move(memory), transform);
}

// A whole image as uint8[height, width, 3].
nb::ndarray<nb::numpy> DecodePixels(const InArray<std::uint8_t>& encoded) {
  std::unique_ptr<std::uint8_t[]> memory;
  std::size_t shape[3] = {0, 0, 3};
  const auto room = [&](std::uint32_t height, std::uint32_t width) {
    shape[0] = height;
    shape[1] = width;
    memory = std::make_unique_for_overwrite<std::uint8_t[]>(std::size_t{3} * height * width);
    return reinterpret_cast<std::byte*>(memory.get());
  };
  Status status;
  {
    const GilRelease released;
    ScratchLimit limit;
    status = DecodeWholeImage({reinterpret_cast<const std::byte*>(encoded.data()), encoded.size()},
                              ImageTransform().pixels_max, limit, room);
  }
  ThrowIfError(status);
  std::uint8_t* const data = memory.get();
  nb::capsule owner(memory.release(),
                    [](void* pointer) noexcept { delete[] static_cast<std::uint8_t*>(pointer); });
  return nb::ndarray<nb::numpy>(data, 3, shape, owner, nullptr, nb::dtype<std::uint8_t>());
}

// Looks at the headers of images, of which `bytes` has one part after the other, of `sizes` bytes
// each, from the bytes `at` of the images on. Returns for each image its width, height, and the
// byte to look at next: 0 if it is not further on. 0 x 0: its size is unknown.
std::tuple<OutArray<std::uint32_t>, OutArray<std::uint32_t>, OutArray<std::uint64_t>> LookAtHeaders(
    const InArray<std::uint8_t>& bytes, const InArray<std::uint64_t>& sizes,
    const InArray<std::uint64_t>& at) {
  const std::size_t count = sizes.size();
  std::vector<std::uint32_t> widths(count);
  std::vector<std::uint32_t> heights(count);
  std::vector<std::uint64_t> next(count);
  std::span<const std::byte> rest(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  for (std::size_t i = 0; i < count; ++i) {
    if (at.size() != count || sizes.data()[i] > rest.size()) {
      ThrowStatus(InvalidArgument("looking at the header of image {} of {}: {} bytes are left", i,
                                  count, rest.size()));
    }
    const HeaderLook look = LookAtHeader(rest.first(sizes.data()[i]), at.data()[i]);
    rest = rest.subspan(sizes.data()[i]);
    if (const auto* header = std::get_if<ImageHeader>(&look)) {
      widths[i] = header->size.width;
      heights[i] = header->size.height;
    } else if (const auto* further = std::get_if<HeaderFurtherOn>(&look)) {
      next[i] = further->at;
    }
  }
  return {ToArray(std::move(widths)), ToArray(std::move(heights)), ToArray(std::move(next))};
}

// What TiersSpec::decoded_images says of images of these sizes.
OutArray<std::uint32_t> FormBytes(const InArray<std::uint32_t>& widths,
                                  const InArray<std::uint32_t>& heights,
                                  const ImageTransform& transform) {
  std::vector<std::uint32_t> bytes(widths.size());
  for (std::size_t i = 0; i < std::min(bytes.size(), heights.size()); ++i) {
    const ImageSize size{.width = widths.data()[i], .height = heights.data()[i]};
    if (size.width == 0 || size.height == 0) continue;
    bytes[i] = static_cast<std::uint32_t>(FormBytesFor(size, transform));
  }
  return ToArray(std::move(bytes));
}

bool IsOtherKind(const InArray<std::uint8_t>& encoded) {
  return IsImageOfOtherKind({reinterpret_cast<const std::byte*>(encoded.data()), encoded.size()});
}

// A whole sound as float32[frames, channels], and its rate.
std::tuple<nb::ndarray<nb::numpy>, std::uint32_t> DecodeSound(
    const InArray<std::uint8_t>& encoded) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(encoded.data()),
                                         encoded.size());
  const SoundHeader header = ValueOrThrow(ReadSoundHeader(bytes, bytes.size()));
  const std::unique_ptr<FieldCodec> codec = ValueOrThrow(MakeSoundCodec({}));
  const std::size_t shape[2] = {header.info.frames, header.info.channels};
  auto memory = std::make_unique_for_overwrite<float[]>(shape[0] * shape[1]);
  RunReleased([&] {
    return codec->Decode(bytes, {},
                         {reinterpret_cast<std::byte*>(memory.get()), header.info.bytes()});
  });
  float* const data = memory.get();
  nb::capsule owner(memory.release(),
                    [](void* pointer) noexcept { delete[] static_cast<float*>(pointer); });
  return {nb::ndarray<nb::numpy>(data, 2, shape, owner, nullptr, nb::dtype<float>()),
          header.info.rate};
}

// Frames, channels and frames a second, of a file of which `begin` are the first bytes.
std::tuple<std::uint64_t, std::uint32_t, std::uint32_t> ReadSoundInfo(
    const InArray<std::uint8_t>& begin, std::uint64_t file_bytes) {
  const SoundHeader header = ValueOrThrow(ReadSoundHeader(
      {reinterpret_cast<const std::byte*>(begin.data()), begin.size()}, file_bytes));
  return {header.info.frames, header.info.channels, header.info.rate};
}

// What bytes decode to, which has to be so many. `element_bytes` above 1: their elements have so
// many, and were shuffled before.
nb::ndarray<nb::numpy, std::uint8_t> DecodeBytes(const Text& coding, nb::handle encoded,
                                                 std::uint64_t decoded_bytes,
                                                 std::uint64_t element_bytes) {
  const Coding how = ValueOrThrow(CodingOf(coding.bytes()));
  if (element_bytes == 0) {
    ThrowStatus({StatusCode::kInvalidArgument, "decoding: an element has 1 byte at least"});
  }
  const Buffer buffer(encoded);
  // Pages are touched as they are filled: an untrue size takes no memory.
  std::unique_ptr<std::uint8_t[]> memory(new (std::nothrow) std::uint8_t[decoded_bytes]);
  if (memory == nullptr) {
    ThrowStatus(ResourceExhausted("decoding: no memory for {} bytes", decoded_bytes));
  }
  RunReleased([&] {
    return Decompress(how, buffer.bytes(),
                      {reinterpret_cast<std::byte*>(memory.get()), decoded_bytes});
  });
  if (element_bytes > 1) {
    std::unique_ptr<std::uint8_t[]> ordered(new (std::nothrow) std::uint8_t[decoded_bytes]);
    if (ordered == nullptr) {
      ThrowStatus(ResourceExhausted("decoding: no memory for {} bytes", decoded_bytes));
    }
    Unshuffle({reinterpret_cast<const std::byte*>(memory.get()), decoded_bytes}, element_bytes,
              {reinterpret_cast<std::byte*>(ordered.get()), decoded_bytes});
    memory = std::move(ordered);
  }
  std::uint8_t* const data = memory.get();
  nb::capsule owner(memory.release(),
                    [](void* pointer) noexcept { delete[] static_cast<std::uint8_t*>(pointer); });
  return nb::ndarray<nb::numpy, std::uint8_t>(data, {decoded_bytes}, owner);
}

}  // namespace

void BindCodec(nb::module_& module) {
  // The GIL is held: no other thread of Python changes os.environ now.
  ThrowIfError(PrepareImageDecoders(kDecodersMade));
  module.attr("decodes_tiff") = DecodesTiff();
  module.def(
      "decode_bytes", &DecodeBytes, nb::arg("coding"), nb::arg("encoded"), nb::arg("decoded_bytes"),
      nb::arg("element_bytes") = 1,
      "What compressed bytes decode to: \"stored\", \"zstd\", \"zlib\", \"deflate\", \"snappy\" "
      "or \"gzip\" ones. Elements of more than 1 byte were shuffled before.");
  nb::class_<RandomResizedCrop>(module, "RandomResizedCrop",
                                "A random box of the image, resized: torchvision's algorithm.")
      .def(nb::init<>())
      .def_rw("scale", &RandomResizedCrop::scale, "share of the area, an interval in (0, 1]")
      .def_rw("ratio", &RandomResizedCrop::ratio, "width / height, an interval");
  nb::class_<ImageTransform>(module, "ImageTransform",
                             "How an encoded image becomes a fixed-shape row of a batch.")
      .def(nb::init<>())
      .def_rw("random_resized_crop", &ImageTransform::random_resized_crop, nb::arg().none(),
              "the random box, or None: the whole image")
      .def_rw("resize_shorter", &ImageTransform::resize_shorter,
              "pixels of the shorter side before the centre crop; 0: resize to height x width")
      .def_rw("flip_probability", &ImageTransform::flip_probability)
      .def_rw("height", &ImageTransform::height, "of the row, pixels")
      .def_rw("width", &ImageTransform::width, "of the row, pixels")
      .def_rw("to_float", &ImageTransform::to_float, "float32, normalised; else uint8")
      .def_rw("mean", &ImageTransform::mean, "per channel, of values in [0, 1]")
      .def_rw("std", &ImageTransform::std, "per channel, of values in [0, 1]")
      .def_rw("channels_first", &ImageTransform::channels_first,
              "[3, height, width]; else [height, width, 3]")
      .def_rw("exact", &ImageTransform::exact, "equal to Pillow's pixels; else faster")
      .def_rw("pixels_max", &ImageTransform::pixels_max, "an image beyond is refused");
  module.def(
      "look_at_headers", &LookAtHeaders, nb::arg("bytes"), nb::arg("sizes"), nb::arg("at"),
      "Widths and heights of images by parts of their bytes, and the bytes to look at next.");
  module.def("form_bytes", &FormBytes, nb::arg("widths"), nb::arg("heights"), nb::arg("transform"),
             "Bytes of images in decoded form in a tier; 0: they stay as stored.");
  module.attr("header_look_bytes") = kHeaderLookBytes;
  module.def("decode_image", &DecodeImage, nb::arg("encoded"), nb::arg("transform"),
             nb::arg("seed") = 0, nb::arg("epoch") = 0, nb::arg("sample") = 0,
             nb::sig("def decode_image(encoded: bytes, transform: ImageTransform, seed: int = 0, "
                     "epoch: int = 0, sample: int = 0) -> numpy.typing.NDArray[typing.Any]"),
             "Decodes one image as the loader does for this (seed, epoch, sample).");
  module.def("decode_pixels", &DecodePixels, nb::arg("encoded"),
             nb::sig("def decode_pixels(encoded: numpy.typing.NDArray[numpy.uint8]) -> "
                     "numpy.typing.NDArray[numpy.uint8]"),
             "Every pixel of an image: uint8[height, width, 3], RGB.");
  module.def("is_image_of_other_kind", &IsOtherKind, nb::arg("encoded"),
             nb::sig("def is_image_of_other_kind(encoded: numpy.typing.NDArray[numpy.uint8]) -> "
                     "bool"),
             "Whether the bytes are an image that others decode: a BMP, PNM, CMYK TIFF, ...");
  nb::class_<SoundTransform>(module, "SoundTransform",
                             "How an encoded sound becomes a row of float32[frames, channels].")
      .def(nb::init<>())
      .def_rw("frames", &SoundTransform::frames, nb::arg().none(),
              "of every row; None: those of the sound")
      .def_rw("random_begin", &SoundTransform::random_begin, "cut at a random frame of each epoch")
      .def_rw("channels", &SoundTransform::channels, "that every sound has")
      .def_rw("rate", &SoundTransform::rate, "that every sound has; 0: any");
  module.def("decode_sound", &DecodeSound, nb::arg("encoded"),
             nb::sig("def decode_sound(encoded: numpy.typing.NDArray[numpy.uint8]) -> "
                     "tuple[numpy.typing.NDArray[numpy.float32], int]"),
             "All frames of a WAV or FLAC: float32[frames, channels]; and frames a second.");
  module.def("read_sound_info", &ReadSoundInfo, nb::arg("begin"), nb::arg("file_bytes"),
             nb::sig("def read_sound_info(begin: numpy.typing.NDArray[numpy.uint8], file_bytes: "
                     "int) -> tuple[int, int, int]"),
             "Frames, channels and frames a second of a file, from its first bytes.");
}

}  // namespace headrace::bindings
