#pragma once

// Index contents, and helpers that damage index files, for the tests and the fuzzer of index/. Not
// part of any library.

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/coding/coding.h"
#include "base/hash.h"
#include "base/prng.h"
#include "headrace/index_writer.h"
#include "index/index_format.h"

namespace headrace::internal {

// A temporary folder; the destructor deletes it.
class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "headrace-XXXXXX").string();
    HEADRACE_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void WriteFile(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  HEADRACE_CHECK(file.good());
}

inline std::vector<std::byte> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  HEADRACE_CHECK(file.good());
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline Extent MakeExtent(std::uint64_t object, std::uint64_t offset, std::uint64_t size) {
  return {.object = ObjectId{object}, .range = {.offset = offset, .size = size}};
}

// Three samples in two objects: images with checksums, raw bytes, an array read from the object,
// an inline label; two blocks.
inline IndexContents SmallContents() {
  IndexContents contents;
  contents.sample_count = 3;
  contents.root = "/data/set";
  contents.objects = {{.name = "a/one.bin", .size = 100, .mtime_ns = 1700000000123456789},
                      {.name = "b/two.bin", .size = 50, .mtime_ns = -1}};
  contents.fields.resize(4);
  contents.fields[0].info = {.name = "image", .kind = FieldKind::kImage, .has_checksums = true};
  contents.fields[0].extents = {MakeExtent(0, 0, 10), MakeExtent(0, 40, 20), MakeExtent(1, 0, 30)};
  contents.fields[0].checksums = {11, 22, 33};
  contents.fields[1].info = {.name = "note"};
  contents.fields[1].extents = {MakeExtent(0, 10, 0), MakeExtent(0, 60, 40), MakeExtent(1, 30, 1)};
  contents.fields[2].info = {
      .name = "box", .kind = FieldKind::kArray, .dtype = DType::kFloat32, .shape = {2, 1}};
  contents.fields[2].extents = {MakeExtent(0, 20, 8), MakeExtent(0, 28, 8), MakeExtent(1, 42, 8)};
  contents.fields[3].info = {
      .name = "label", .kind = FieldKind::kArray, .dtype = DType::kInt16, .is_inline = true};
  for (const int value : {1, 0, 2, 0, 3, 0}) {
    contents.fields[3].inline_values.push_back(static_cast<std::byte>(value));
  }
  contents.blocks = {{.first_sample = SampleId{0},
                      .sample_count = 2,
                      .extent = MakeExtent(0, 0, 100),
                      .checksum = 77},
                     {.first_sample = SampleId{2},
                      .sample_count = 1,
                      .extent = MakeExtent(1, 0, 50),
                      .checksum = std::nullopt}};
  contents.attributes = {{"format", "test"}, {"classes", R"(["a","b"])"}};
  return contents;
}

// The same with an array that batches hold as a wider type: a file of version 2.
inline IndexContents TypedContents() {
  IndexContents contents = SmallContents();
  contents.fields[2].info.batch_dtype = DType::kFloat64;
  return contents;
}

// The same with compressed images, compressed arrays behind a header, and notes with decoded sizes
// alone: a file of version 3.
inline IndexContents CodedContents() {
  IndexContents contents = SmallContents();
  contents.fields[0].info.coding = Coding::kZstd;
  contents.fields[0].info.has_decoded_sizes = true;
  contents.fields[0].decoded_sizes = {1000, 0, 20};
  contents.fields[1].info.has_decoded_sizes = true;
  contents.fields[1].decoded_sizes = {0, 1 << 30, 7};
  contents.fields[2].info.coding = Coding::kGzip;
  contents.fields[2].info.is_shuffled = true;
  contents.fields[2].info.header_bytes = 128;
  return contents;
}

// Valid contents drawn from `seed`: any mix of kinds, sizes and blocks.
class ContentsGenerator {
 public:
  explicit ContentsGenerator(std::uint64_t seed) : prng_(seed, 0, RandomStream::kOrder) {}

  IndexContents Make() {
    IndexContents contents;
    contents.sample_count = prng_.Below(40);
    contents.root = prng_.Below(2) == 0 ? "." : "/" + Text(20);
    const bool blocks = contents.sample_count > 0 && prng_.Below(2) == 0;
    const std::uint64_t objects = 1 + prng_.Below(9);
    for (std::uint64_t i = 0; i < objects; ++i) {
      contents.objects.push_back({.name = Text(1 + prng_.Below(12)),
                                  .size = prng_.Below(kOffsetsEnd),
                                  .mtime_ns = static_cast<std::int64_t>(prng_.Next64())});
    }
    if (blocks) AddBlocks(contents);
    const std::uint64_t fields = 1 + prng_.Below(5);
    for (std::uint64_t i = 0; i < fields; ++i) AddField(contents, i);
    for (std::uint64_t i = prng_.Below(4); i > 0; --i) {
      contents.attributes.emplace_back("key" + std::to_string(i), Text(prng_.Below(50)));
    }
    return contents;
  }

 private:
  std::string Text(std::uint64_t size) {
    std::string text;
    while (text.size() < size) text.push_back(static_cast<char>('a' + prng_.Below(26)));
    return text;
  }

  Extent Within(const Extent& outer, std::uint64_t size_max) {
    const std::uint64_t size = prng_.Below(std::min(size_max, outer.range.size) + 1);
    const std::uint64_t skipped = prng_.Below(outer.range.size - size + 1);
    return {.object = outer.object,
            .range = {.offset = outer.range.offset + skipped, .size = size}};
  }

  void AddBlocks(IndexContents& contents) {
    for (std::uint64_t first = 0; first < contents.sample_count;) {
      BlockInfo block;
      block.first_sample = SampleId{first};
      block.sample_count = 1 + prng_.Below(contents.sample_count - first);
      const std::uint64_t object = prng_.Below(contents.objects.size());
      block.extent = Within(MakeExtent(object, 0, contents.objects[object].size), kLengthsEnd - 1);
      if (prng_.Below(2) == 0) block.checksum = prng_.Next64();
      contents.blocks.push_back(block);
      first += block.sample_count;
    }
  }

  void AddInlineValues(std::uint64_t sample_count, IndexContents::Field& field) {
    const std::uint64_t bytes = field.info.array_bytes();
    std::uint64_t size = sample_count * bytes;
    if (HasInlineEnds(field.info)) {
      size = 0;
      for (std::uint64_t i = 0; i < sample_count; ++i) {
        size += prng_.Below(4) * bytes;
        field.inline_ends.push_back(size);
      }
    }
    field.inline_values.resize(size);
    for (std::byte& value : field.inline_values) value = static_cast<std::byte>(prng_.Below(256));
  }

  void AddField(IndexContents& contents, std::uint64_t position) {
    IndexContents::Field field;
    field.info.name = Text(1 + prng_.Below(5)) + std::to_string(position);
    field.info.kind = static_cast<FieldKind>(prng_.Below(4));
    if (field.info.kind == FieldKind::kArray) {
      field.info.dtype = static_cast<DType>(prng_.Below(11));
      for (std::uint64_t d = prng_.Below(4); d > 0; --d) {
        field.info.shape.push_back(1 + prng_.Below(4));
      }
      // Always inline: outside the index an array needs array_bytes() bytes, maybe more than a
      // block.
      field.info.is_inline = true;
      field.info.is_list = prng_.Below(3) == 0;
    } else if (field.info.kind != FieldKind::kImage) {
      field.info.is_inline = prng_.Below(4) == 0;
    }
    if (field.info.is_inline) {
      AddInlineValues(contents.sample_count, field);
      contents.fields.push_back(std::move(field));
      return;
    }
    field.info.has_checksums = prng_.Below(2) == 0;
    if (prng_.Below(3) == 0) {
      field.info.coding = static_cast<Coding>(prng_.Below(6));
      field.info.has_decoded_sizes = true;
    }
    for (std::uint64_t i = 0, block = 0; i < contents.sample_count; ++i) {
      const std::uint64_t object = prng_.Below(contents.objects.size());
      Extent outer = MakeExtent(object, 0, contents.objects[object].size);
      if (!contents.blocks.empty()) {
        const BlockInfo& at = contents.blocks[block];
        outer = at.extent;
        if (i + 1 == Raw(at.first_sample) + at.sample_count) ++block;
      }
      field.extents.push_back(Within(outer, kLengthsEnd - 1));
      if (field.info.has_decoded_sizes) {
        const std::uint64_t most =
            DecodedBytesMax(field.info.coding, field.extents.back().range.size);
        field.decoded_sizes.push_back(prng_.Below(std::min(most, kLengthsEnd - 1) + 1));
      }
      if (field.info.has_checksums) field.checksums.push_back(prng_.Next64());
    }
    contents.fields.push_back(std::move(field));
  }

  Prng prng_;
};

inline std::vector<std::byte> FileOf(const IndexContents& contents) {
  const TestFolder folder;
  const Status status = WriteIndex(contents, folder / "index");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  HEADRACE_CHECK(status.ok());
  return ReadFile(folder / "index");
}

// The sections of a whole file.
inline std::vector<Section> SectionsOf(std::span<const std::byte> file) {
  const auto count = Load<std::uint32_t>(file.data() + 12);
  return DecodeSections(file.subspan(kHeaderBytes, count * kSectionEntryBytes));
}

// Recomputes every checksum of a damaged file, as far as its section table is readable, so that
// only checks of the contents can find the damage. Does not use the reader.
inline void Reseal(std::span<std::byte> file) {
  constexpr std::size_t kHashedHeader = kHeaderBytes - 8;
  if (file.size() < kHeaderBytes) return;
  IndexHeader header;
  header.version = Load<std::uint32_t>(file.data() + 8);
  header.sample_count = Load<std::uint64_t>(file.data() + 24);
  header.object_count = Load<std::uint64_t>(file.data() + 32);
  const std::uint64_t count = Load<std::uint32_t>(file.data() + 12);
  if (count <= (file.size() - kHeaderBytes) / kSectionEntryBytes) {
    const auto table = file.subspan(kHeaderBytes, count * kSectionEntryBytes);
    std::vector<Section> sections = DecodeSections(table);
    for (Section& section : sections) {
      if (section.offset > file.size() || section.size > file.size() - section.offset) continue;
      section.checksum = Hash64(file.subspan(section.offset, section.size));
    }
    const std::vector<std::byte> encoded = EncodeSections(sections);
    std::copy(encoded.begin(), encoded.end(), table.begin());
    const auto fingerprint = Fingerprint(header, sections);
    Store(fingerprint[0], file.data() + 56);
    Store(fingerprint[1], file.data() + 64);
    Store(Hash64(table), file.data() + 72);
  }
  Store(Hash64(file.first(kHashedHeader)), file.data() + kHashedHeader);
}

}  // namespace headrace::internal
