#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <string>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "headrace/index_writer.h"
#include "profile/folder_probe.h"
#include "profile/memory_probe.h"
#include "profile/slice.h"
#include "profile/storage_probe.h"
#include "store/testing/temp_files.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

// Ends as soon as something was counted: no test depends on how long anything takes.
const SliceLimits kShort{.duration_ns = 1};

// Goes on for an hour; whoever asks for the `n`th time stops it.
SliceLimits Stopping(int n) {
  return {.duration_ns = 3'600'000'000'000,
          .duration_max_ns = 3'600'000'000'000,
          .keep_going = [n, asked = 0]() mutable { return ++asked < n; }};
}

// A dataset of raw bytes, of `files` files with `samples` of 1000 bytes each.
class Dataset {
 public:
  Dataset(std::uint64_t files, std::uint64_t samples, FieldKind kind = FieldKind::kBytes) {
    IndexContents contents;
    contents.sample_count = files * samples;
    contents.root = files_.folder();
    contents.fields.resize(1);
    contents.fields[0].info = {.name = "data", .kind = kind};
    for (std::uint64_t i = 0; i < files; ++i) {
      const std::string name = "file" + std::to_string(i);
      WriteFile(files_.folder() + "/" + name, RandomBytes(i, 1000 * samples));
      contents.objects.push_back({.name = name, .size = 1000 * samples});
      for (std::uint64_t j = 0; j < samples; ++j) {
        contents.fields[0].extents.push_back(
            {.object = ObjectId{i}, .range = {.offset = 1000 * j, .size = 1000}});
      }
    }
    const std::string path = files_.folder() + "/index.hri";
    EXPECT_TRUE(WriteIndex(contents, path).ok());
    index_ = Index::Open(path).value();
  }

  [[nodiscard]] const std::shared_ptr<const Index>& index() const { return index_; }
  [[nodiscard]] const std::string& folder() const { return files_.folder(); }

 private:
  TempFiles files_;
  std::shared_ptr<const Index> index_;
};

TEST(MeasureThreadsTest, EveryThreadWorksAndItsFirstOperationIsNotCounted) {
  std::array<std::atomic<int>, 3> operations{};
  const Slice slice =
      MeasureThreads(3, kShort, [&](int thread, std::uint64_t round) {
        EXPECT_EQ(operations[static_cast<std::size_t>(thread)]++, static_cast<int>(round));
        return Result<std::uint64_t>(10 + round);
      }).value();
  EXPECT_EQ(slice.operations, 3U);  // one each: a nanosecond was over
  EXPECT_EQ(slice.bytes, 33U);
  for (const std::atomic<int>& each : operations) EXPECT_EQ(each, 2);
  EXPECT_GT(slice.rate, 0);
  EXPECT_NEAR(slice.rate, 11 * slice.operations_rate, 1e-6 * slice.rate);
}

TEST(MeasureThreadsTest, AnErrorOfOneThreadEndsAll) {
  const SliceLimits limits = Stopping(1'000'000);
  const Result<Slice> slice =
      MeasureThreads(2, limits, [](int thread, std::uint64_t round) -> Result<std::uint64_t> {
        if (thread == 1 && round == 5) return Status(StatusCode::kDataLoss, "torn");
        return 1;
      });
  EXPECT_EQ(slice.status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(slice.status().message(), "torn");
}

TEST(MeasureThreadsTest, WhoeverWaitsCanStopIt) {
  const SliceLimits limits = Stopping(2);
  const Result<Slice> slice =
      MeasureThreads(2, limits, [](int, std::uint64_t) { return Result<std::uint64_t>(1); });
  EXPECT_EQ(slice.status().code(), StatusCode::kCancelled);
}

TEST(MeasureThreadsTest, ASlowOperationIsCountedThoughItIsTheFirst) {
  const SliceLimits limits{.duration_ns = 1, .duration_max_ns = 0};
  std::atomic<int> calls = 0;
  const Slice slice = MeasureThreads(1, limits, [&](int, std::uint64_t) {
                        ++calls;
                        return Result<std::uint64_t>(7);
                      }).value();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(slice.operations, 1U);
  EXPECT_EQ(slice.bytes, 7U);
}

TEST(StorageProbeTest, ReadsRangesOfLargeFilesWhateverTheirDepth) {
  const Dataset dataset(2, 1000);
  const auto probe = StorageProbe::Open(dataset.index()).value();
  EXPECT_TRUE(probe->reads_ranges());
  EXPECT_EQ(probe->object_bytes_max(), 1'000'000U);
  for (const int users : {1, 4, 64}) {
    const StorageSlice slice = probe->ReadRanges({.bytes = 16384, .users = users}, kShort).value();
    const auto least = static_cast<std::uint64_t>(users);
    EXPECT_GE(slice.slice.operations, least);
    EXPECT_EQ(slice.slice.bytes, 16384 * slice.slice.operations);
    EXPECT_GE(slice.read_bytes, slice.slice.bytes + 16384 * least);  // the start is not counted
    EXPECT_GT(slice.slice.rate, 0);
  }
  EXPECT_EQ(probe->stats().bytes_page_cache, 0U);
  EXPECT_EQ(probe->stats().failures, 0U);
}

TEST(StorageProbeTest, ReadsWholeFilesWhereASampleIsAFile) {
  const Dataset dataset(20, 1);
  const auto probe = StorageProbe::Open(dataset.index()).value();
  EXPECT_FALSE(probe->reads_ranges());
  const StorageSlice slice = probe->ReadSamples(8, kShort).value();
  EXPECT_EQ(slice.slice.bytes, 1000 * slice.slice.operations);
  EXPECT_EQ(probe->stats().name, "threads");
  EXPECT_EQ(probe->stats().bytes_page_cache, 0U);
  EXPECT_EQ(probe->ReadRanges({.bytes = 10}, kShort).status().code(), StatusCode::kInvalidArgument);
}

TEST(StorageProbeTest, WhatCannotBeReadIsSaid) {
  const Dataset dataset(1, 100);
  const auto probe = StorageProbe::Open(dataset.index()).value();
  const Status too_large = probe->ReadRanges({.bytes = 100'001}, kShort).status();
  EXPECT_EQ(too_large.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(too_large.message(), HasSubstr("97.7 KiB, the largest file"));
  EXPECT_EQ(probe->ReadRanges({.bytes = 0}, kShort).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(probe->ReadRanges({.bytes = 10, .users = 0}, kShort).status().code(),
            StatusCode::kInvalidArgument);
  ASSERT_EQ(truncate((dataset.folder() + "/file0").c_str(), 10), 0);
  const auto other = StorageProbe::Open(dataset.index()).value();
  EXPECT_EQ(other->ReadSamples(4, kShort).status().code(), StatusCode::kFailedPrecondition);
}

TEST(StorageProbeTest, ADatasetWithNothingToReadIsRefused) {
  IndexContents contents;
  contents.sample_count = 1;
  contents.root = ".";
  contents.fields.resize(1);
  contents.fields[0].info = {
      .name = "label", .kind = FieldKind::kArray, .dtype = DType::kUInt8, .is_inline = true};
  contents.fields[0].inline_values = {std::byte{1}};
  const TempFiles files;
  ASSERT_TRUE(WriteIndex(contents, files.folder() + "/index.hri").ok());
  const auto index = Index::Open(files.folder() + "/index.hri").value();
  EXPECT_EQ(StorageProbe::Open(index).status().code(), StatusCode::kInvalidArgument);
}

TEST(StorageProbeTest, WhoeverWaitsCanStopIt) {
  const Dataset dataset(1, 100);
  const auto probe = StorageProbe::Open(dataset.index()).value();
  const SliceLimits limits = Stopping(2);
  EXPECT_EQ(probe->ReadRanges({.bytes = 4096, .users = 3}, limits).status().code(),
            StatusCode::kCancelled);
  EXPECT_TRUE(probe->ReadRanges({.bytes = 4096, .users = 3}, kShort).ok());  // all was drained
}

TEST(MeasureCopyTest, Copies) {
  const Slice slice = MeasureCopy(2, kShort).value();
  EXPECT_EQ(slice.bytes, slice.operations * kMiB);
  EXPECT_GE(slice.operations, 2U);
}

TEST(DecodeProbeTest, CopiesWhatIsNoImage) {
  const Dataset dataset(2, 20);
  const auto storage = StorageProbe::Open(dataset.index()).value();
  const auto probe =
      DecodeProbe::Make(*dataset.index(), *storage, {.image = {}, .samples_max = 7}, {}).value();
  EXPECT_TRUE(probe->is_copy());
  EXPECT_EQ(probe->sample_count(), 7U);
  EXPECT_DOUBLE_EQ(probe->mean_bytes(), 1000);
  const Slice slice = probe->Run(3, kShort).value();
  EXPECT_EQ(slice.bytes, 1000 * slice.operations);
  const auto few = DecodeProbe::Make(*dataset.index(), *storage, {.bytes_max = 2500}, {}).value();
  EXPECT_EQ(few->sample_count(), 3U);
}

TEST(DecodeProbeTest, ImagesThatAreNoneAreAnErrorThatSaysSo) {
  const Dataset dataset(2, 20, FieldKind::kImage);
  const auto storage = StorageProbe::Open(dataset.index()).value();
  const Status status =
      DecodeProbe::Make(*dataset.index(), *storage, {.image = ImageTransform{}}, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("no sample of field 'data' is good"));
}

TEST(DecodeProbeTest, MakingItCanBeStopped) {
  const Dataset dataset(2, 20);
  const auto storage = StorageProbe::Open(dataset.index()).value();
  for (const int asked : {1, 2}) {  // while it reads, while it decodes
    const auto made = DecodeProbe::Make(*dataset.index(), *storage, {.samples_max = 7},
                                        Stopping(asked).keep_going);
    EXPECT_EQ(made.status().code(), StatusCode::kCancelled);
  }
}

TEST(FolderProbeTest, ReadsAndWritesAFileThatHasNoName) {
  const TempFiles files;
  const auto probe = FolderProbe::Make(files.folder(), 9 * kMiB, kShort).value();
  EXPECT_GE(probe->bytes(), FolderProbe::kBytesMin);
  EXPECT_TRUE(std::filesystem::is_empty(files.folder()));
  const Slice read = probe->Read({.bytes = 65536, .users = 2}, kShort).value();
  EXPECT_EQ(read.bytes, 65536 * read.operations);
  const Slice written = probe->Write({.bytes = 5000, .users = 1}, kShort).value();
  EXPECT_EQ(written.bytes, 8192 * written.operations);
}

TEST(FolderProbeTest, AFolderThatCannotBeMeasuredIsNamed) {
  const TempFiles files;
  const Status none = FolderProbe::Make(files.folder() + "/none", 9 * kMiB, kShort).status();
  EXPECT_EQ(none.code(), StatusCode::kNotFound);
  EXPECT_THAT(none.message(), HasSubstr("measuring folder " + files.folder() + "/none"));
  EXPECT_EQ(FolderProbe::Make(files.folder(), kMiB, kShort).status().code(),
            StatusCode::kInvalidArgument);
  const auto probe = FolderProbe::Make(files.folder(), 8 * kMiB, kShort).value();
  EXPECT_EQ(probe->Read({.bytes = 9 * kMiB}, kShort).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(probe->Write({.bytes = 0}, kShort).status().code(), StatusCode::kInvalidArgument);
}

TEST(FolderProbeTest, CanBeStopped) {
  const TempFiles files;
  EXPECT_EQ(FolderProbe::Make(files.folder(), 64 * kMiB, Stopping(2)).status().code(),
            StatusCode::kCancelled);
  EXPECT_TRUE(std::filesystem::is_empty(files.folder()));
  const auto probe = FolderProbe::Make(files.folder(), 8 * kMiB, kShort).value();
  EXPECT_EQ(probe->Read({.bytes = 4096}, Stopping(2)).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace headrace
