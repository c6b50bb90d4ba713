// What an index costs: index_bench <folder of class folders> [samples]
//
// Indexes the folder (once for the cache, then measured), writes the index beside it, opens and
// verifies it; then the same for an index of `samples` made-up samples (default 1,000,000). Prints
// one line a measurement. Writes only below the current folder, and removes what it wrote.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "headrace/folder_index.h"
#include "headrace/index.h"
#include "headrace/index_writer.h"

namespace {

using headrace::Index;
using headrace::IndexContents;

constexpr char kFile[] = "index_bench.hri";

template <typename Call>
auto Timed(const char* what, std::uint64_t samples, const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = call();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%-28s %10.6f s  %12.0f samples/s\n", what, seconds.count(),
              static_cast<double>(samples) / seconds.count());
  return result;
}

bool Succeeded(const headrace::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok();
}

// An image a file, names of 28 bytes, a label.
IndexContents MadeUp(std::uint64_t samples) {
  IndexContents contents;
  contents.sample_count = samples;
  contents.root = ".";
  contents.fields.resize(2);
  contents.fields[0].info = {.name = "image", .kind = headrace::FieldKind::kImage};
  contents.fields[1].info = {.name = "label",
                             .kind = headrace::FieldKind::kArray,
                             .dtype = headrace::DType::kInt64,
                             .is_inline = true};
  contents.fields[1].inline_values.resize(samples * 8);
  for (std::uint64_t i = 0; i < samples; ++i) {
    const std::string number = std::to_string(i);
    contents.objects.push_back(
        {.name = "class/" + std::string(18 - number.size(), '0') + number + ".jpg",
         .size = 100'000,
         .mtime_ns = 1});
    contents.fields[0].extents.push_back(
        {.object = headrace::ObjectId{i}, .range = {.offset = 0, .size = 100'000}});
  }
  return contents;
}

bool WriteOpenVerify(const IndexContents& contents) {
  const std::uint64_t n = contents.sample_count;
  if (!Succeeded(Timed("WriteIndex", n, [&] { return WriteIndex(contents, kFile); }))) return false;
  const auto index = Timed("Index::Open", n, [] { return Index::Open(kFile); });
  if (!Succeeded(index.status())) return false;
  std::printf("%-28s %10.1f bytes/sample\n", "file",
              static_cast<double>(index.value()->file_bytes()) / static_cast<double>(n));
  std::uint64_t bytes = 0;
  Timed("extent() of every sample", n, [&] {
    for (std::uint64_t i = 0; i < n; ++i) {
      bytes += index.value()->extent(0, headrace::SampleId{i}).value().range.size;
    }
    return bytes;
  });
  return Succeeded(Timed("VerifyAll", n, [&] { return index.value()->VerifyAll(); }));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: index_bench <folder of class folders> [samples]\n");
    return 2;
  }
  const auto contents = headrace::BuildFolderIndex(argv[1], {});
  if (!Succeeded(contents.status())) return 1;
  const std::uint64_t files = contents.value().sample_count;
  const auto again =
      Timed("BuildFolderIndex", files, [&] { return headrace::BuildFolderIndex(argv[1], {}); });
  const std::uint64_t samples = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1'000'000;
  const bool ok = Succeeded(again.status()) && WriteOpenVerify(again.value()) &&
                  WriteOpenVerify(MadeUp(samples));
  std::error_code ignored;
  std::filesystem::remove(kFile, ignored);
  return ok ? 0 : 1;
}
