#pragma once

// The format of index files, shared by reader and writer. docs/index-format.md specifies versions
// 1 to 3 to the bit. Internal to index/.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/index.h"
#include "headrace/status.h"
#include "index/index_rules.h"

namespace headrace::internal {

inline constexpr std::array<unsigned char, 8> kIndexMagic = {0x89, 'H',  'R',  'I',
                                                             0x0d, 0x0a, 0x1a, 0x0a};
inline constexpr std::uint32_t kFirstVersion = 1;
inline constexpr std::uint32_t kTypedVersion = 2;  // dtypes of batches, text, variable lengths
inline constexpr std::uint32_t kCodedVersion = 3;  // codecs, decoded sizes

// Sizes of the parts of a file, in bytes.
inline constexpr std::uint64_t kHeaderBytes = 128;
inline constexpr std::uint64_t kSectionEntryBytes = 40;
inline constexpr std::uint64_t kSectionAlignment = 64;
inline constexpr std::uint64_t kExtentBytes = 16;
inline constexpr std::uint64_t kChecksumBytes = 8;
inline constexpr std::uint64_t kObjectBytes = 16;
inline constexpr std::uint64_t kNameOffsetBytes = 8;
inline constexpr std::uint64_t kBlockBytes = 48;
inline constexpr std::uint64_t kInlineEndBytes = 8;
inline constexpr std::uint64_t kDecodedSizeBytes = 8;

enum class SectionKind : std::uint32_t {
  kFields = 1,
  kRoot = 2,
  kAttributes = 3,
  kExtents = 4,          // of one field
  kInlineValues = 5,     // of one field
  kSampleChecksums = 6,  // of one field
  kObjects = 7,
  kNameOffsets = 8,
  kNameBytes = 9,
  kBlocks = 10,
  kInlineEnds = 11,    // of one inline field whose values differ in length
  kDecodedSizes = 12,  // of one field: bytes of value that each sample decodes to
};

// Whether a section says where each value of an inline field ends.
inline bool HasInlineEnds(const FieldInfo& field) { return field.is_inline && field.is_variable(); }

// Positions in the section table that do not depend on the fields.
inline constexpr std::size_t kFieldsSection = 0;
inline constexpr std::size_t kRootSection = 1;
inline constexpr std::size_t kAttributesSection = 2;
inline constexpr std::size_t kNameBytesFromEnd = 2;
// Behind what is damaged.
inline constexpr char kDamageRemedy[] =
    "; copy the file again, or index the dataset again (headrace index)";
inline constexpr std::uint64_t kSectionsMin = 8;  // 7 that belong to no field, 1 column

// An entry of the section table.
struct Section {
  SectionKind kind = SectionKind::kFields;
  std::uint32_t field = 0;          // position of the field; 0 for kinds without a field
  std::uint64_t offset = 0;         // from the start of the file
  std::uint64_t size = 0;           // bytes
  std::uint64_t element_bytes = 1;  // `size` is a multiple of it
  std::uint64_t checksum = 0;       // XXH3-64 of the section's bytes
};

struct IndexHeader {
  std::uint32_t version = kFirstVersion;
  std::uint32_t section_count = 0;
  std::uint32_t field_count = 0;
  std::uint32_t attribute_count = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t sample_count = 0;
  std::uint64_t object_count = 0;
  std::uint64_t block_count = 0;
  std::array<std::uint64_t, 2> fingerprint{};  // high, low
  std::uint64_t table_checksum = 0;            // XXH3-64 of the section table
};

// Sizes, in bytes, of the sections whose size does not follow from the counts in the header.
struct VariableSizes {
  std::uint64_t fields = 0;
  std::uint64_t root = 0;
  std::uint64_t attributes = 0;
  std::uint64_t name_bytes = 0;
  // Of the values of each inline field that is variable, in the order of the fields.
  std::vector<std::uint64_t> inline_values = {};
};

// The section table of a file with these counts and sizes: they permit only one layout. Sets all
// but the checksums. std::nullopt if the file would exceed 2^63 bytes. `fields` must be valid.
std::optional<std::vector<Section>> PlanSections(const IndexHeader& header,
                                                 std::span<const FieldInfo> fields,
                                                 const VariableSizes& sizes);

// The end of the last section; `sections` must not be empty.
std::uint64_t FileBytes(std::span<const Section> sections);

// XXH3-128 over the counts and over the checksums of the sections that determine the samples:
// fields, columns, objects.
std::array<std::uint64_t, 2> Fingerprint(const IndexHeader& header,
                                         std::span<const Section> sections);

// XXH3-128 over the same, but for the objects' times of change. `object_sizes`: XXH3-64 of the
// sizes of all objects.
std::array<std::uint64_t, 2> Content(const IndexHeader& header, std::span<const Section> sections,
                                     std::uint64_t object_sizes);

std::array<std::byte, kHeaderBytes> EncodeHeader(const IndexHeader& header);
// Checks magic, checksum and version, and that `file_bytes` is the size of `file`.
Result<IndexHeader> DecodeHeader(std::span<const std::byte> file);

std::vector<std::byte> EncodeSections(std::span<const Section> sections);
std::vector<Section> DecodeSections(std::span<const std::byte> table);

// The first version that holds such fields: what the first one holds is written as it always was.
std::uint32_t VersionOf(std::span<const FieldInfo> fields);

// `version` is VersionOf(fields).
std::vector<std::byte> EncodeFields(std::span<const FieldInfo> fields, std::uint32_t version);
// Errors: DataLoss            damaged
//         FailedPrecondition  a field needs a later headrace: another codec, lists of lists
Result<std::vector<FieldInfo>> DecodeFields(std::span<const std::byte> bytes, std::uint64_t count,
                                            std::uint32_t version);

std::vector<std::byte> EncodeAttributes(std::span<const Attribute> attributes);
Result<std::vector<Attribute>> DecodeAttributes(std::span<const std::byte> bytes,
                                                std::uint64_t count);

void EncodeExtent(const Extent& extent, std::byte* to);
Extent DecodeExtent(const std::byte* from);
void EncodeBlock(const BlockInfo& block, std::byte* to);
// std::nullopt if EncodeBlock() cannot have written the entry.
std::optional<BlockInfo> DecodeBlock(const std::byte* from);

// The section's name in messages: "extents of field 'image'", "objects".
std::string SectionName(SectionKind kind, std::uint32_t field, std::span<const FieldInfo> fields);

// Numbers in files are little-endian, as on this machine: index_format.cc asserts it.
template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <typename T>
void Store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace headrace::internal
