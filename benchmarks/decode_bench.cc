// How fast images become batch rows, in CPU time of the threads. A bare libjpeg-turbo loop over the
// same images is the measure: it decodes them whole, with default settings.
//
//   decode    the codec with nothing to resample; one thread, interleaved pairs. The median of the
//             ratios must be at least 0.95.
//   crops     to rows of 224 x 224: `rrc` by RandomResizedCrop and flip, `centre` by resizing the
//             shorter side to 256; several threads, which take turns with as many bare ones.
//             The median ratios must be at least 0.95. `whole` resizes all of the image: it cannot
//             decode less than the bare loop, and has no such limit.
//   accuracy  the fast mode against the exact one, in steps of 1/255, over the same boxes.
//
// Usage: decode_bench [--json] [--pairs N] [--images N] [--width N] [--height N] [--quality N]
//                     [--threads N]

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <jpeglib.h>

#include "base/check.h"
#include "base/prng.h"
#include "codec/image/image_codec.h"

namespace headrace {
namespace {

struct Options {
  bool json = false;
  std::uint32_t pairs = 15;
  std::uint32_t images = 48;
  std::uint32_t width = 500;
  std::uint32_t height = 375;
  std::uint32_t quality = 90;
  std::uint32_t threads = 2;  // of the crops
};

using Encoded = std::vector<std::byte>;

double ThreadCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Waves of many lengths and a little noise: sizes and spectra as of photographs.
std::vector<std::uint8_t> MakeTexture(const Options& options, std::uint64_t seed) {
  constexpr int kWaves = 24;
  Prng prng(seed, 0, RandomStream::kAugment, 0);
  struct Wave {
    double x, y, phase;
    double amplitude[3];
  };
  std::vector<Wave> waves(kWaves);
  for (int i = 0; i < kWaves; ++i) {
    const double frequency = 0.01 * std::pow(1.22, i);
    const double angle = prng.Uniform() * 6.283185307179586;
    waves[static_cast<std::size_t>(i)] = {
        frequency * std::cos(angle), frequency * std::sin(angle), prng.Uniform() * 6.28, {}};
    for (double& amplitude : waves[static_cast<std::size_t>(i)].amplitude) {
      amplitude = (5 + 20 * prng.Uniform()) / (1 + 0.12 * i);
    }
  }
  std::vector<std::uint8_t> pixels;
  pixels.reserve(std::size_t{3} * options.width * options.height);
  for (std::uint32_t y = 0; y < options.height; ++y) {
    for (std::uint32_t x = 0; x < options.width; ++x) {
      double value[3] = {128, 128, 128};
      for (const Wave& wave : waves) {
        const double height = std::sin(wave.x * x + wave.y * y + wave.phase);
        for (int c = 0; c < 3; ++c) value[c] += wave.amplitude[c] * height;
      }
      const double noise = 14 * (prng.Uniform() - 0.5);
      for (const double v : value) {
        pixels.push_back(static_cast<std::uint8_t>(std::clamp(v + noise, 0.0, 255.0)));
      }
    }
  }
  return pixels;
}

Encoded EncodeJpeg(const Options& options, std::vector<std::uint8_t> pixels) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = options.width;
  info.image_height = options.height;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, static_cast<int>(options.quality), TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = pixels.data() + std::size_t{3} * options.width * info.next_scanline;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* bytes = reinterpret_cast<const std::byte*>(memory);
  Encoded encoded(bytes, bytes + size);
  std::free(memory);
  return encoded;
}

// The shortest program that decodes these images: one decompressor for all, default settings.
double BareSeconds(std::span<const Encoded> images, std::span<std::byte> row) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  const double begin = ThreadCpuSeconds();
  for (const Encoded& image : images) {
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(image.data()), image.size());
    jpeg_read_header(&info, TRUE);
    jpeg_start_decompress(&info);
    const std::size_t stride = std::size_t{3} * info.output_width;
    while (info.output_scanline < info.output_height) {
      JSAMPROW to = reinterpret_cast<JSAMPROW>(row.data()) + stride * info.output_scanline;
      jpeg_read_scanlines(&info, &to, 1);
    }
    jpeg_finish_decompress(&info);
  }
  const double seconds = ThreadCpuSeconds() - begin;
  jpeg_destroy_decompress(&info);
  return seconds;
}

double CodecSeconds(const FieldCodec& codec, std::span<const Encoded> images,
                    std::span<std::byte> row, std::uint32_t epoch = 0) {
  const double begin = ThreadCpuSeconds();
  for (std::size_t i = 0; i < images.size(); ++i) {
    const Status status =
        codec.Decode(images[i], {.seed = 1, .epoch = epoch, .sample = SampleId{i}},
                     row.first(codec.RowBytes(images[i].size())));
    HEADRACE_CHECK(status.ok());
  }
  return ThreadCpuSeconds() - begin;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::unique_ptr<FieldCodec> MakeCodec(const ImageTransform& transform) {
  Result<std::unique_ptr<FieldCodec>> codec = MakeImageCodec(transform);
  HEADRACE_CHECK(codec.ok());
  return std::move(codec).value();
}

struct DecodeFigures {
  double bare_images_s = 0;
  double codec_images_s = 0;
  double ratio = 0;
  double ratio_min = 0;
  double ratio_max = 0;
};

DecodeFigures MeasureDecode(const Options& options, std::span<const Encoded> images) {
  ImageTransform transform;
  transform.height = options.height;
  transform.width = options.width;
  transform.channels_first = false;
  transform.exact = true;
  const auto codec = MakeCodec(transform);
  std::vector<std::byte> row(codec->RowBytes(0));
  std::vector<std::byte> bare_row(row.size());
  BareSeconds(images, bare_row);  // warm
  CodecSeconds(*codec, images, row);
  HEADRACE_CHECK(row == bare_row);  // the last image: the same work was done
  std::vector<double> bare;
  std::vector<double> ours;
  std::vector<double> ratios;
  for (std::uint32_t i = 0; i < options.pairs; ++i) {
    const bool bare_first = i % 2 == 0;
    if (bare_first) bare.push_back(BareSeconds(images, bare_row));
    ours.push_back(CodecSeconds(*codec, images, row));
    if (!bare_first) bare.push_back(BareSeconds(images, bare_row));
    ratios.push_back(bare.back() / ours.back());
  }
  const auto count = static_cast<double>(images.size());
  return {.bare_images_s = count / Median(bare),
          .codec_images_s = count / Median(ours),
          .ratio = Median(ratios),
          .ratio_min = *std::min_element(ratios.begin(), ratios.end()),
          .ratio_max = *std::max_element(ratios.begin(), ratios.end())};
}

struct Workload {
  const char* name;
  ImageTransform transform;
};

std::vector<Workload> Crops() {
  ImageTransform rrc;
  rrc.random_resized_crop.emplace();
  rrc.flip_probability = 0.5;
  ImageTransform centre;
  centre.resize_shorter = 256;
  const auto floats = [](ImageTransform transform, bool exact) {
    transform.to_float = true;
    transform.mean = {0.485F, 0.456F, 0.406F};
    transform.std = {0.229F, 0.224F, 0.225F};
    transform.exact = exact;
    return transform;
  };
  return {{"rrc uint8", rrc},
          {"rrc float32", floats(rrc, false)},
          {"rrc float32 exact", floats(rrc, true)},
          {"centre uint8", centre},
          {"centre float32", floats(centre, false)},
          {"whole uint8", {}}};
}

// CPU seconds of `threads` threads that run `work` at the same time, by thread.
double SecondsOfThreads(std::uint32_t threads, const std::function<double()>& work) {
  std::vector<double> seconds(threads);
  {
    std::vector<std::jthread> running;
    for (double& each : seconds) running.emplace_back([&each, &work] { each = work(); });
  }
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) / threads;
}

struct CropFigures {
  std::string name;
  double images_s = 0;  // a thread
  double ratio = 1;     // to the bare loop
  double ratio_min = 1;
  double ratio_max = 1;
};

// The first of them is the bare loop. The turns of each round begin with another one.
std::vector<CropFigures> MeasureCrops(const Options& options, std::span<const Encoded> images) {
  std::vector<CropFigures> figures{{.name = "bare libjpeg-turbo"}};
  std::vector<std::function<double(std::uint32_t)>> turns{[&](std::uint32_t /*round*/) {
    std::vector<std::byte> pixels(std::size_t{3} * options.width * options.height);
    return BareSeconds(images, pixels);
  }};
  std::vector<std::unique_ptr<FieldCodec>> codecs;
  for (const Workload& workload : Crops()) {
    figures.push_back({.name = workload.name});
    codecs.push_back(MakeCodec(workload.transform));
    turns.emplace_back([codec = codecs.back().get(), images](std::uint32_t round) {
      std::vector<float> row(codec->RowBytes(0) / sizeof(float));  // aligned
      return CodecSeconds(*codec, images, std::as_writable_bytes(std::span(row)), round);
    });
  }
  std::vector<std::vector<double>> seconds(turns.size());
  for (std::uint32_t round = 0; round < options.pairs; ++round) {
    for (std::size_t i = 0; i < turns.size(); ++i) {
      const std::size_t turn = (i + round) % turns.size();
      seconds[turn].push_back(
          SecondsOfThreads(options.threads, [&] { return turns[turn](round); }));
    }
  }
  for (std::size_t turn = 0; turn < turns.size(); ++turn) {
    std::vector<double> ratios;
    for (std::uint32_t round = 0; round < options.pairs; ++round) {
      ratios.push_back(seconds[0][round] / seconds[turn][round]);
    }
    figures[turn].images_s = static_cast<double>(images.size()) / Median(seconds[turn]);
    figures[turn].ratio = Median(ratios);
    figures[turn].ratio_min = *std::min_element(ratios.begin(), ratios.end());
    figures[turn].ratio_max = *std::max_element(ratios.begin(), ratios.end());
  }
  return figures;
}

struct Accuracy {
  double mean_abs = 0;
  int max_abs = 0;
  double reduced_share = 0;  // of the images, that the fast mode decoded smaller
};

Accuracy MeasureAccuracy(std::span<const Encoded> images, std::uint32_t side) {
  ImageTransform transform;
  transform.random_resized_crop.emplace();
  transform.height = side;
  transform.width = side;
  transform.channels_first = false;
  const auto fast = MakeCodec(transform);
  transform.exact = true;
  const auto exact = MakeCodec(transform);
  std::vector<std::byte> fast_row(fast->RowBytes(0));
  std::vector<std::byte> exact_row(exact->RowBytes(0));
  Accuracy accuracy;
  double sum = 0;
  std::uint64_t values = 0;
  for (std::size_t i = 0; i < images.size(); ++i) {
    const SampleKey key{.seed = 1, .epoch = 0, .sample = SampleId{i}};
    HEADRACE_CHECK(fast->Decode(images[i], key, fast_row).ok());
    HEADRACE_CHECK(exact->Decode(images[i], key, exact_row).ok());
    if (fast_row == exact_row) continue;
    accuracy.reduced_share += 1.0 / static_cast<double>(images.size());
    values += fast_row.size();
    for (std::size_t b = 0; b < fast_row.size(); ++b) {
      const int difference =
          std::abs(std::to_integer<int>(fast_row[b]) - std::to_integer<int>(exact_row[b]));
      sum += difference;
      accuracy.max_abs = std::max(accuracy.max_abs, difference);
    }
  }
  accuracy.mean_abs = values == 0 ? 0 : sum / static_cast<double>(values);
  return accuracy;
}

bool ParseOptions(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--json") {
      options.json = true;
      continue;
    }
    std::uint32_t* value = name == "--pairs"     ? &options.pairs
                           : name == "--images"  ? &options.images
                           : name == "--width"   ? &options.width
                           : name == "--height"  ? &options.height
                           : name == "--quality" ? &options.quality
                           : name == "--threads" ? &options.threads
                                                 : nullptr;
    if (value == nullptr || i + 1 == argc) return false;
    *value = static_cast<std::uint32_t>(std::strtoul(argv[++i], nullptr, 10));
    if (*value == 0) return false;
  }
  return true;
}

void PrintCrops(const Options& options, std::span<const CropFigures> figures) {
  if (options.json) std::printf("\"threads\": %u, \"crops\": {", options.threads);
  for (const CropFigures& each : figures) {
    const bool first = &each == figures.data();
    if (options.json) {
      std::printf(
          "%s\"%s\": {\"images_s\": %.1f, \"ratio\": %.4f, \"ratio_min\": %.4f, "
          "\"ratio_max\": %.4f}",
          first ? "" : ", ", each.name.c_str(), each.images_s, each.ratio, each.ratio_min,
          each.ratio_max);
    } else {
      std::printf("%-9s %-18s %7.1f images/s a thread, ratio %.4f (from %.4f to %.4f)\n",
                  first ? "crops" : "", each.name.c_str(), each.images_s, each.ratio,
                  each.ratio_min, each.ratio_max);
    }
  }
  if (options.json) std::printf("}, ");
}

int Run(const Options& options) {
  std::vector<Encoded> images;
  double bytes = 0;
  for (std::uint32_t i = 0; i < options.images; ++i) {
    images.push_back(EncodeJpeg(options, MakeTexture(options, i)));
    bytes += static_cast<double>(images.back().size()) / options.images;
  }
  const DecodeFigures decode = MeasureDecode(options, images);
  const std::vector<CropFigures> crops = MeasureCrops(options, images);
  const Accuracy at_224 = MeasureAccuracy(images, 224);
  const Accuracy at_64 = MeasureAccuracy(images, 64);
  const char* decode_format =
      options.json
          ? "{\"images\": %u, \"width\": %u, \"height\": %u, \"bytes_mean\": %.0f, \"pairs\": %u, "
            "\"decode\": {\"bare_images_s\": %.1f, \"codec_images_s\": %.1f, \"ratio\": %.4f, "
            "\"ratio_min\": %.4f, \"ratio_max\": %.4f}, "
          : "%u JPEG images of %u x %u pixels, %.0f bytes each; %u interleaved pairs\n"
            "decode    bare libjpeg-turbo %.1f images/s, codec %.1f images/s, "
            "ratio %.4f (from %.4f to %.4f)\n";
  std::printf(decode_format, options.images, options.width, options.height, bytes, options.pairs,
              decode.bare_images_s, decode.codec_images_s, decode.ratio, decode.ratio_min,
              decode.ratio_max);
  PrintCrops(options, crops);
  const char* accuracy_format =
      options.json
          ? "\"fast_vs_exact\": {\"224\": {\"reduced\": %.2f, \"mean_abs\": %.3f, \"max_abs\": "
            "%d}, "
            "\"64\": {\"reduced\": %.2f, \"mean_abs\": %.3f, \"max_abs\": %d}}}\n"
          : "accuracy  fast against exact at 224: %.2f of images reduced, of those mean %.3f, "
            "max %d of 255\n"
            "          at 64: %.2f reduced, mean %.3f, max %d of 255\n";
  std::printf(accuracy_format, at_224.reduced_share, at_224.mean_abs, at_224.max_abs,
              at_64.reduced_share, at_64.mean_abs, at_64.max_abs);
  return 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  headrace::Options options;
  if (!headrace::ParseOptions(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: decode_bench [--json] [--pairs N] [--images N] [--width N] [--height N] "
                 "[--quality N] [--threads N]\n");
    return 2;
  }
  return headrace::Run(options);
}
