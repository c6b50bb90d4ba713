// The cost of opening an index of 100 M samples, on a sparse file: header and small sections are
// real, the gigabytes in between are holes, which open must not touch.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/unique_fd.h"
#include "gtest/gtest.h"
#include "index/test_contents.h"

namespace headrace {
namespace {

constexpr std::uint64_t kSamples = 100'000'000;
constexpr std::uint64_t kNameBytes = 16;  // of each object

// As for a folder: an image a file, a label; all names are holes.
std::uint64_t WriteSparseIndex(const std::string& path) {
  using internal::SectionKind;
  const std::vector<FieldInfo> fields = {
      {.name = "image", .kind = FieldKind::kImage},
      {.name = "label", .kind = FieldKind::kArray, .dtype = DType::kInt64, .is_inline = true}};
  const std::vector<std::byte> encoded = internal::EncodeFields(fields, internal::kFirstVersion);
  const std::string root = "/data";
  internal::IndexHeader header;
  header.field_count = 2;
  header.sample_count = kSamples;
  header.object_count = kSamples;
  auto sections = internal::PlanSections(header, fields,
                                         {.fields = encoded.size(),
                                          .root = root.size(),
                                          .attributes = 0,
                                          .name_bytes = kSamples * kNameBytes})
                      .value();
  sections[internal::kFieldsSection].checksum = Hash64(encoded);
  sections[internal::kRootSection].checksum = Hash64(std::as_bytes(std::span(root)));
  sections[internal::kAttributesSection].checksum = Hash64({});
  const std::vector<std::byte> table = internal::EncodeSections(sections);
  header.section_count = static_cast<std::uint32_t>(sections.size());
  header.file_bytes = internal::FileBytes(sections);
  header.table_checksum = Hash64(table);
  header.fingerprint = internal::Fingerprint(header, sections);

  const UniqueFd fd(open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  const auto put = [&](std::uint64_t at, std::span<const std::byte> bytes) {
    HEADRACE_CHECK(pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(at)) ==
                   static_cast<ssize_t>(bytes.size()));
  };
  put(0, internal::EncodeHeader(header));
  put(internal::kHeaderBytes, table);
  put(sections[internal::kFieldsSection].offset, encoded);
  put(sections[internal::kRootSection].offset, std::as_bytes(std::span(root)));
  HEADRACE_CHECK(ftruncate(fd.get(), static_cast<off_t>(header.file_bytes)) == 0);
  return header.file_bytes;
}

// Bytes of the mapping of `path` that this process (or the kernel around them) has touched.
std::uint64_t ResidentBytes(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  bool in_mapping = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.ends_with(path)) in_mapping = true;
    if (in_mapping && line.starts_with("Rss:")) return std::stoull(line.substr(4)) * 1024;
  }
  ADD_FAILURE() << path << " is not mapped";
  return 0;
}

TEST(IndexScaleTest, OpenOf100MSamplesTouchesNoneOfThem) {
  const internal::TestFolder folder;
  const std::uint64_t bytes = WriteSparseIndex(folder / "i");
  const auto index = Index::Open(folder / "i");
  ASSERT_EQ(index.status().ToString(), "OK");
  EXPECT_EQ(index.value()->sample_count(), kSamples);
  EXPECT_EQ(index.value()->file_bytes(), bytes);
  const std::uint64_t resident = ResidentBytes(folder / "i");
  RecordProperty("resident_bytes", std::to_string(resident));
  RecordProperty("file_bytes", std::to_string(bytes));
  EXPECT_LE(resident, 128u * 1024) << "of " << bytes;
}

// 16 for the extent; the rest is the label and the table of objects.
TEST(IndexScaleTest, ASampleTakes16BytesBesideInlineValuesAndObjects) {
  const internal::TestFolder folder;
  const std::uint64_t bytes = WriteSparseIndex(folder / "i");
  constexpr std::uint64_t kLabelAndObject = 8 + 16 + 8 + kNameBytes;
  EXPECT_LE(bytes, kSamples * (16 + kLabelAndObject) + 4096);
}

}  // namespace
}  // namespace headrace
