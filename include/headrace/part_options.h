#pragma once

// Options that a loader passes to its parts as they are: to the store, the engine, the connection
// to other nodes, the codecs. LoaderOptions (loader_options.h) holds them. Plain structs.
// docs/codec.md has the formats of images and sounds; random choices of a transform are keyed
// (seed, epoch, sample) and depend on nothing else.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/members.h"

namespace headrace {

// The value of LoaderOptions::io that takes the first suitable store.
inline constexpr std::string_view kAnyStore = "auto";

// The advice in errors about a file that differs from its index entry. The dataset's format sets
// it.
struct FileRemedies {
  std::string changed = "index the dataset again";  // changed or removed
  std::string broken_link = "index the dataset again and leave this file out with skip=";
  std::string special = "index the dataset again and leave this file out with skip=";
};
HEADRACE_MEMBERS(FileRemedies, changed, broken_link, special)

// What to do with a sample that cannot be delivered: unreadable, damaged, undecodable.
enum class OnError : std::uint8_t {
  kRaise = 0,       // the step fails, with the error of its lowest slot that failed
  kSubstitute = 1,  // another sample, drawn from (seed, epoch, sample), takes its place
};

// Where a node listens for the other nodes of its job.
struct PeerListen {
  // An address of this machine, without a port, or with one. Beyond loopback only with certificates
  // or if `open_network` says so: without certificates whoever is on the network can read what the
  // nodes send each other.
  std::string address = "127.0.0.1";
  bool open_network = false;
  // Files in PEM format, all or none: then nodes prove to each other who they are (mutual TLS).
  std::string authority;    // who has signed the certificates of the nodes
  std::string certificate;  // of this node
  std::string key;          // of this node
  std::string name;         // in all certificates; empty: each has the node's address
};
HEADRACE_MEMBERS(PeerListen, address, open_network, authority, certificate, key, name)

// A random box of the image: torchvision's algorithm.
struct RandomResizedCrop {
  std::array<double, 2> scale = {0.08, 1.0};         // share of the area
  std::array<double, 2> ratio = {3.0 / 4, 4.0 / 3};  // width / height
};
HEADRACE_MEMBERS(RandomResizedCrop, scale, ratio)

// How an encoded image (JPEG, PNG, WebP or TIFF; grey, palette and alpha become RGB) becomes a row
// of fixed shape. The steps run in this order; geometry is that of torchvision and resampling that
// of Pillow: bilinear, antialiased, 8-bit between the two passes.
struct ImageTransform {
  // A random box of the image, resized to height x width, ...
  std::optional<RandomResizedCrop> random_resized_crop;
  // ... or the whole image: its shorter side is resized to this (0: the image is resized to height
  // x width, whatever its aspect), and then cropped to the centre height x width.
  std::uint32_t resize_shorter = 0;

  double flip_probability = 0;  // horizontal

  std::uint32_t height = 224;  // of the row, pixels
  std::uint32_t width = 224;

  bool to_float = false;  // float32, x / 255 and then normalised; else uint8, not normalised
  std::array<float, 3> mean = {0, 0, 0};  // per channel, of values in [0, 1]
  std::array<float, 3> std = {1, 1, 1};
  bool channels_first = true;  // row is [3, height, width]; else [height, width, 3]

  // Exact: every pixel equals Pillow's from a full decode. Fast: the decoder scales by 1/2, 1/4 or
  // 1/8 in the DCT if that keeps four times the row's resolution. docs/codec.md states the
  // difference.
  bool exact = false;

  std::uint64_t pixels_max = 178956970;  // refuses larger images (Pillow's limit)
};
HEADRACE_MEMBERS(ImageTransform, random_resized_crop, resize_shorter, flip_probability, height,
                 width, to_float, mean, std, channels_first, exact, pixels_max)

// The check of images that are delivered encoded.
enum class EncodedImages : std::uint8_t {
  kUnchecked,            // no check
  kDecodable,            // it is decoded, for nothing but the check
  kDecodableOrOtherKind  // or begins as one that other programs decode
};

// How an encoded sound (WAV or FLAC) becomes a row of float32 numbers [frames, channels].
struct SoundTransform {
  // The frames of every row: longer sounds are cut, shorter ones are followed by zeros. Without it
  // a row has all frames.
  std::optional<std::uint64_t> frames;
  bool random_begin = false;  // cut at a random frame, of each epoch; else the first frames stay

  // What every sound must have; 0: whatever it has. Required with `frames`: channels.
  std::uint32_t channels = 0;
  std::uint32_t rate = 0;  // frames a second
};
HEADRACE_MEMBERS(SoundTransform, frames, random_begin, channels, rate)

}  // namespace headrace
