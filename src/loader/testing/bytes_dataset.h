#pragma once

// A dataset of bytes and labels for tests of loaders, and functions that read its rows from
// batches.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/prng.h"
#include "gtest/gtest.h"
#include "headrace/index.h"
#include "headrace/index_writer.h"
#include "headrace/loader.h"
#include "store/testing/temp_files.h"

namespace headrace {

// A dataset in its own folder with two fields: `bytes`, of many sizes and with checksums, and
// `label`.
class BytesDataset {
 public:
  struct Options {
    std::uint64_t samples = 0;
    std::uint64_t sample_bytes_max = 0;
    bool one_file = true;               // else one file for each sample
    std::vector<std::uint64_t> blocks;  // samples of each block, in one file; empty: no blocks
    std::string root;                   // of the index; empty: the folder of the files
  };

  explicit BytesDataset(Options options) : options_(std::move(options)) {
    IndexContents contents;
    contents.sample_count = options_.samples;
    contents.root = options_.root.empty() ? folder() : options_.root;
    contents.fields.resize(2);
    contents.fields[0].info = {.name = "bytes", .kind = FieldKind::kBytes, .has_checksums = true};
    contents.fields[1].info = {
        .name = "label", .kind = FieldKind::kArray, .dtype = DType::kInt64, .is_inline = true};
    std::string all;
    for (std::uint64_t id = 0; id < options_.samples; ++id) AddSample(id, contents, all);
    if (options_.one_file) AddFile("all", all, contents);
    AddBlocks(all, contents);
    EXPECT_TRUE(WriteIndex(contents, index_path()).ok());
    index_ = Index::Open(index_path()).value();
  }

  [[nodiscard]] const std::string& folder() const { return files_.folder(); }
  [[nodiscard]] std::string index_path() const { return folder() + "/index.hri"; }
  [[nodiscard]] const std::shared_ptr<const Index>& index() const { return index_; }
  // The file that begins with sample 0.
  [[nodiscard]] std::string first_file() const {
    return folder() + (options_.one_file ? "/all" : "/0");
  }

  [[nodiscard]] std::string Payload(std::uint64_t id) const {
    Prng random(id, 0, RandomStream::kPack);
    std::string bytes(1 + random.Below(options_.sample_bytes_max), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.Next32());
    return bytes;
  }

  // All fields of a sample, concatenated.
  [[nodiscard]] std::string Row(std::uint64_t id) const { return Payload(id) + Label(id); }

 private:
  static std::string Label(std::uint64_t id) {
    const std::uint64_t value = 7000 + id;
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }

  void AddFile(const std::string& name, const std::string& bytes, IndexContents& contents) const {
    WriteFile(folder() + "/" + name, bytes);
    contents.objects.push_back({.name = name, .size = bytes.size(), .mtime_ns = 0});
  }

  void AddSample(std::uint64_t id, IndexContents& contents, std::string& all) const {
    const std::string payload = Payload(id);
    IndexContents::Field& bytes = contents.fields[0];
    bytes.checksums.push_back(Hash64(std::as_bytes(std::span(payload))));
    if (options_.one_file) {
      bytes.extents.push_back({ObjectId{0}, {all.size(), payload.size()}});
      all += payload;
    } else {
      bytes.extents.push_back({ObjectId{id}, {0, payload.size()}});
      AddFile(std::to_string(id), payload, contents);
    }
    const std::string label = Label(id);
    const std::span<const std::byte> raw = std::as_bytes(std::span(label));
    std::vector<std::byte>& labels = contents.fields[1].inline_values;
    labels.insert(labels.end(), raw.begin(), raw.end());
  }

  void AddBlocks(const std::string& all, IndexContents& contents) const {
    std::uint64_t first = 0;
    for (const std::uint64_t count : options_.blocks) {
      const std::vector<Extent>& extents = contents.fields[0].extents;
      const std::uint64_t begin = extents[first].range.offset;
      const std::uint64_t size = extents[first + count - 1].range.end() - begin;
      contents.blocks.push_back(
          {.first_sample = SampleId{first},
           .sample_count = count,
           .extent = {ObjectId{0}, {begin, size}},
           .checksum = Hash64(std::as_bytes(std::span(all).subspan(begin, size)))});
      first += count;
    }
  }

  const Options options_;
  TempFiles files_;
  std::shared_ptr<const Index> index_;
};

// A row as a consumer sees it: the sample's id and all bytes.
using Row = std::pair<std::uint64_t, std::string>;
using RowList = std::vector<Row>;

inline RowList RowsOf(const BatchSource& source, const Batch& batch) {
  RowList rows;
  for (std::size_t slot = 0; slot < batch.samples.size(); ++slot) {
    std::string bytes;
    for (std::size_t field = 0; field < source.facts().schema.size(); ++field) {
      const std::span<std::byte> row = batch.row(source.facts().schema, field, slot);
      bytes.append(reinterpret_cast<const char*>(row.data()), row.size());
    }
    rows.emplace_back(Raw(batch.samples[slot]), std::move(bytes));
  }
  return rows;
}

// How long a test waits for a batch before it fails.
constexpr std::int64_t kHangNs = 100'000'000'000;

// Returns null at the end and after a failure: an error, or no batch within kHangNs.
inline std::shared_ptr<Batch> TakeOne(BatchSource& source) {
  Result<TakenBatch> taken = source.Next(kHangNs);
  EXPECT_TRUE(taken.ok()) << taken.status().ToString();
  if (!taken.ok()) return nullptr;
  EXPECT_TRUE(taken.value().batch != nullptr || taken.value().ended) << "no batch came";
  return std::move(taken.value().batch);
}

// Takes all remaining batches and returns their rows.
inline std::vector<RowList> Drain(BatchSource& source) {
  std::vector<RowList> batches;
  while (const std::shared_ptr<Batch> batch = TakeOne(source)) {
    batches.push_back(RowsOf(source, *batch));
  }
  return batches;
}

}  // namespace headrace
