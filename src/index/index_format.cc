#include "index/index_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>

#include "base/format/errors.h"
#include "base/hash.h"
#include "base/units.h"

namespace headrace::internal {

static_assert(std::endian::native == std::endian::little, "index files are little-endian");

namespace {

constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 63;

// Positions of the header's numbers; the checksum covers everything before it.
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kSectionCountAt = 12;
constexpr std::size_t kFileBytesAt = 16;
constexpr std::size_t kSampleCountAt = 24;
constexpr std::size_t kObjectCountAt = 32;
constexpr std::size_t kBlockCountAt = 40;
constexpr std::size_t kFieldCountAt = 48;
constexpr std::size_t kAttributeCountAt = 52;
constexpr std::size_t kFingerprintAt = 56;
constexpr std::size_t kTableChecksumAt = 72;
constexpr std::size_t kReservedAt = 80;
constexpr std::size_t kHeaderChecksumAt = 120;

// A field's entry: name length (u32), kind, dtype, flags, rank (u8 each); from version 2 on dtype
// of batches + 1, codec, list depth, flags of the codec (u8 each), bytes of the header (u32); name,
// shape (u64 each).
constexpr std::size_t kFieldEntryBytes = 8;
constexpr std::size_t kFieldTypeBytes = 8;
// In those 8 bytes.
constexpr unsigned kCodecShift = 8;
constexpr unsigned kListDepthShift = 16;
constexpr unsigned kCodecFlagsShift = 24;
constexpr unsigned kHeaderBytesShift = 32;
constexpr unsigned kFlagDecodedSizes = 1;
constexpr unsigned kFlagShuffled = 2;
constexpr unsigned kFlagInline = 1;
constexpr unsigned kFlagChecksums = 2;

// An attribute's entry: length of key, length of value (u64 each), key, value.
constexpr std::size_t kAttributeEntryBytes = 16;

template <typename T>
void Append(T value, std::vector<std::byte>& to) {
  std::array<std::byte, sizeof(T)> bytes{};
  Store(value, bytes.data());
  to.insert(to.end(), bytes.begin(), bytes.end());
}

void Append(std::string_view text, std::vector<std::byte>& to) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// Reads values from the front of untrusted bytes.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] std::optional<std::span<const std::byte>> Take(std::uint64_t size) {
    if (size > bytes_.size()) return std::nullopt;
    const std::span<const std::byte> taken = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return taken;
  }
  [[nodiscard]] std::optional<std::string_view> TakeText(std::uint64_t size) {
    const auto taken = Take(size);
    if (!taken) return std::nullopt;
    return std::string_view(reinterpret_cast<const char*>(taken->data()), taken->size());
  }
  [[nodiscard]] bool empty() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
};

// Places sections end to end, each on the next multiple of the alignment.
class SectionPlanner {
 public:
  explicit SectionPlanner(std::uint64_t section_count)
      : end_(kHeaderBytes + kSectionEntryBytes * section_count) {}

  void Add(SectionKind kind, std::uint64_t field, std::uint64_t count,
           std::uint64_t element_bytes) {
    std::uint64_t size = 0;
    const std::uint64_t offset = RoundUp(end_, kSectionAlignment);
    if (__builtin_mul_overflow(count, element_bytes, &size) || size > kFileBytesMax - offset) {
      fits_ = false;
      return;
    }
    end_ = offset + size;
    sections_.push_back({.kind = kind,
                         .field = static_cast<std::uint32_t>(field),
                         .offset = offset,
                         .size = size,
                         .element_bytes = element_bytes,
                         .checksum = 0});
  }
  std::optional<std::vector<Section>> Take() {
    if (!fits_) return std::nullopt;
    return std::move(sections_);
  }

 private:
  std::uint64_t end_;
  bool fits_ = true;
  std::vector<Section> sections_;
};

std::uint64_t ColumnsOf(const FieldInfo& field) {
  return 1U + (HasInlineEnds(field) ? 1U : 0U) + (field.has_decoded_sizes ? 1U : 0U) +
         (field.has_checksums ? 1U : 0U);
}

bool MattersToSamples(SectionKind kind) {
  return kind != SectionKind::kRoot && kind != SectionKind::kAttributes &&
         kind != SectionKind::kBlocks;
}

}  // namespace

std::optional<std::vector<Section>> PlanSections(const IndexHeader& header,
                                                 std::span<const FieldInfo> fields,
                                                 const VariableSizes& sizes) {
  std::uint64_t columns = 0;
  for (const FieldInfo& field : fields) columns += ColumnsOf(field);
  SectionPlanner plan(kSectionsMin - 1 + columns);
  auto variable_bytes = sizes.inline_values.begin();
  plan.Add(SectionKind::kFields, 0, sizes.fields, 1);
  plan.Add(SectionKind::kRoot, 0, sizes.root, 1);
  plan.Add(SectionKind::kAttributes, 0, sizes.attributes, 1);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (HasInlineEnds(fields[i])) {
      if (variable_bytes == sizes.inline_values.end()) return std::nullopt;
      plan.Add(SectionKind::kInlineEnds, i, header.sample_count, kInlineEndBytes);
      plan.Add(SectionKind::kInlineValues, i, *variable_bytes++, 1);
    } else if (fields[i].is_inline) {
      plan.Add(SectionKind::kInlineValues, i, header.sample_count, fields[i].array_bytes());
    } else {
      plan.Add(SectionKind::kExtents, i, header.sample_count, kExtentBytes);
    }
    if (fields[i].has_decoded_sizes) {
      plan.Add(SectionKind::kDecodedSizes, i, header.sample_count, kDecodedSizeBytes);
    }
    if (fields[i].has_checksums) {
      plan.Add(SectionKind::kSampleChecksums, i, header.sample_count, kChecksumBytes);
    }
  }
  plan.Add(SectionKind::kObjects, 0, header.object_count, kObjectBytes);
  plan.Add(SectionKind::kNameOffsets, 0, header.object_count + 1, kNameOffsetBytes);
  plan.Add(SectionKind::kNameBytes, 0, sizes.name_bytes, 1);
  plan.Add(SectionKind::kBlocks, 0, header.block_count, kBlockBytes);
  return plan.Take();
}

std::uint64_t FileBytes(std::span<const Section> sections) {
  return sections.back().offset + sections.back().size;
}

namespace {

// XXH3-128 over `name` and what decides about samples. `objects`: in place of the checksum of the
// section of objects.
std::array<std::uint64_t, 2> DigestOf(const std::string& name, const IndexHeader& header,
                                      std::span<const Section> sections,
                                      std::optional<std::uint64_t> objects) {
  Hasher128 hasher;
  hasher.AddText(name);
  hasher.AddNumber(header.sample_count);
  hasher.AddNumber(header.object_count);
  for (const Section& section : sections) {
    if (!MattersToSamples(section.kind)) continue;
    hasher.AddNumber(static_cast<std::uint64_t>(section.kind));
    hasher.AddNumber(section.field);
    hasher.AddNumber(section.size);
    const bool is_objects = section.kind == SectionKind::kObjects;
    hasher.AddNumber(is_objects ? objects.value_or(section.checksum) : section.checksum);
  }
  return hasher.Digest();
}

}  // namespace

std::array<std::uint64_t, 2> Fingerprint(const IndexHeader& header,
                                         std::span<const Section> sections) {
  return DigestOf(fmt::format("headrace index {}", header.version), header, sections, std::nullopt);
}

std::array<std::uint64_t, 2> Content(const IndexHeader& header, std::span<const Section> sections,
                                     std::uint64_t object_sizes) {
  return DigestOf("headrace content 1", header, sections, object_sizes);
}

std::array<std::byte, kHeaderBytes> EncodeHeader(const IndexHeader& header) {
  std::array<std::byte, kHeaderBytes> bytes{};
  std::byte* const to = bytes.data();
  std::memcpy(to, kIndexMagic.data(), kIndexMagic.size());
  Store(header.version, to + kVersionAt);
  Store(header.section_count, to + kSectionCountAt);
  Store(header.file_bytes, to + kFileBytesAt);
  Store(header.sample_count, to + kSampleCountAt);
  Store(header.object_count, to + kObjectCountAt);
  Store(header.block_count, to + kBlockCountAt);
  Store(header.field_count, to + kFieldCountAt);
  Store(header.attribute_count, to + kAttributeCountAt);
  Store(header.fingerprint[0], to + kFingerprintAt);
  Store(header.fingerprint[1], to + kFingerprintAt + 8);
  Store(header.table_checksum, to + kTableChecksumAt);
  Store(Hash64(std::span(bytes).first(kHeaderChecksumAt)), to + kHeaderChecksumAt);
  return bytes;
}

Result<IndexHeader> DecodeHeader(std::span<const std::byte> file) {
  const std::byte* const from = file.data();
  if (file.size() < kIndexMagic.size() ||
      std::memcmp(from, kIndexMagic.data(), kIndexMagic.size()) != 0) {
    return DataLoss("not an index file: wrong first bytes; headrace index makes one");
  }
  if (file.size() < kHeaderBytes) {
    return DataLoss("truncated: the file has {} bytes, its header alone {}{}", file.size(),
                    kHeaderBytes, kDamageRemedy);
  }
  if (Hash64(file.first(kHeaderChecksumAt)) != Load<std::uint64_t>(from + kHeaderChecksumAt)) {
    return DataLoss("header: its checksum is wrong{}", kDamageRemedy);
  }
  const auto version = Load<std::uint32_t>(from + kVersionAt);
  if (version < kFirstVersion || version > kCodedVersion) {
    return FailedPrecondition(
        "format version {}, this headrace reads versions {} to {}: index the dataset again "
        "(headrace index), or install the headrace that made the file",
        version, kFirstVersion, kCodedVersion);
  }
  IndexHeader header;
  header.version = version;
  header.section_count = Load<std::uint32_t>(from + kSectionCountAt);
  header.file_bytes = Load<std::uint64_t>(from + kFileBytesAt);
  header.sample_count = Load<std::uint64_t>(from + kSampleCountAt);
  header.object_count = Load<std::uint64_t>(from + kObjectCountAt);
  header.block_count = Load<std::uint64_t>(from + kBlockCountAt);
  header.field_count = Load<std::uint32_t>(from + kFieldCountAt);
  header.attribute_count = Load<std::uint32_t>(from + kAttributeCountAt);
  header.fingerprint = {Load<std::uint64_t>(from + kFingerprintAt),
                        Load<std::uint64_t>(from + kFingerprintAt + 8)};
  header.table_checksum = Load<std::uint64_t>(from + kTableChecksumAt);
  const std::span<const std::byte> reserved =
      file.subspan(kReservedAt, kHeaderChecksumAt - kReservedAt);
  if (std::any_of(reserved.begin(), reserved.end(), [](std::byte b) { return b != std::byte{}; })) {
    return DataLoss("header: reserved bytes are not zero{}", kDamageRemedy);
  }
  if (header.object_count > kObjectsMax) {
    return DataLoss("header: {} objects, more than 2^40{}", header.object_count, kDamageRemedy);
  }
  if (header.file_bytes != file.size()) {
    return DataLoss("truncated or extended: the file has {} bytes, its header says {}{}",
                    file.size(), header.file_bytes, kDamageRemedy);
  }
  return header;
}

std::vector<std::byte> EncodeSections(std::span<const Section> sections) {
  std::vector<std::byte> bytes;
  bytes.reserve(sections.size() * kSectionEntryBytes);
  for (const Section& section : sections) {
    Append(static_cast<std::uint32_t>(section.kind), bytes);
    Append(section.field, bytes);
    Append(section.offset, bytes);
    Append(section.size, bytes);
    Append(section.element_bytes, bytes);
    Append(section.checksum, bytes);
  }
  return bytes;
}

std::vector<Section> DecodeSections(std::span<const std::byte> table) {
  std::vector<Section> sections(table.size() / kSectionEntryBytes);
  const std::byte* from = table.data();
  for (Section& section : sections) {
    section = {.kind = static_cast<SectionKind>(Load<std::uint32_t>(from)),
               .field = Load<std::uint32_t>(from + 4),
               .offset = Load<std::uint64_t>(from + 8),
               .size = Load<std::uint64_t>(from + 16),
               .element_bytes = Load<std::uint64_t>(from + 24),
               .checksum = Load<std::uint64_t>(from + 32)};
    from += kSectionEntryBytes;
  }
  return sections;
}

std::uint32_t VersionOf(std::span<const FieldInfo> fields) {
  const auto is_typed = [](const FieldInfo& field) {
    return field.batch_dtype.has_value() || field.kind == FieldKind::kText || field.is_list ||
           HasInlineEnds(field);
  };
  const auto is_coded = [](const FieldInfo& field) {
    return field.is_compressed() || field.has_decoded_sizes;
  };
  if (std::any_of(fields.begin(), fields.end(), is_coded)) return kCodedVersion;
  return std::any_of(fields.begin(), fields.end(), is_typed) ? kTypedVersion : kFirstVersion;
}

namespace {

// The 8 bytes that version 2 adds to an entry.
std::uint64_t EncodedType(const FieldInfo& field) {
  const auto shifted = [](std::uint64_t value, unsigned shift) { return value << shift; };
  const unsigned flags =
      (field.has_decoded_sizes ? kFlagDecodedSizes : 0U) | (field.is_shuffled ? kFlagShuffled : 0U);
  return (field.batch_dtype ? static_cast<std::uint64_t>(*field.batch_dtype) + 1 : 0) |
         shifted(static_cast<std::uint64_t>(field.coding), kCodecShift) |
         shifted(field.is_list ? 1 : 0, kListDepthShift) | shifted(flags, kCodecFlagsShift) |
         shifted(field.header_bytes, kHeaderBytesShift);
}

}  // namespace

std::vector<std::byte> EncodeFields(std::span<const FieldInfo> fields, std::uint32_t version) {
  std::vector<std::byte> bytes;
  for (const FieldInfo& field : fields) {
    Append(static_cast<std::uint32_t>(field.name.size()), bytes);
    Append(static_cast<std::uint8_t>(field.kind), bytes);
    Append(static_cast<std::uint8_t>(field.dtype), bytes);
    Append(static_cast<std::uint8_t>((field.is_inline ? kFlagInline : 0U) |
                                     (field.has_checksums ? kFlagChecksums : 0U)),
           bytes);
    Append(static_cast<std::uint8_t>(field.shape.size()), bytes);
    if (version >= kTypedVersion) {
      Append(EncodedType(field), bytes);
    }
    Append(std::string_view(field.name), bytes);
    for (const std::uint64_t extent : field.shape) Append(extent, bytes);
  }
  return bytes;
}

namespace {

// What EncodedType() wrote, in a file of `version`.
Status DecodeFieldType(std::span<const std::byte> type, std::uint64_t entry, std::uint32_t version,
                       FieldInfo& field) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned>(type[i]); };
  const unsigned codec_max = version >= kCodedVersion ? static_cast<unsigned>(kCodingLast) : 0;
  if (at(1) > codec_max || at(2) > 1) {
    return FailedPrecondition(
        "entry {} has {}, which this headrace does not read: install the headrace that made the "
        "file",
        entry,
        at(1) > codec_max ? fmt::format("codec {}", at(1))
                          : fmt::format("lists of depth {}", at(2)));
  }
  const unsigned flags = at(3);
  const auto header_bytes = Load<std::uint32_t>(type.data() + 4);
  if (version < kCodedVersion && (flags != 0 || header_bytes != 0)) {
    return DataLoss("entry {}: reserved bytes are not zero", entry);
  }
  if (flags > (kFlagDecodedSizes | kFlagShuffled)) {
    return DataLoss("entry {} has unknown flags {} of its codec", entry, flags);
  }
  field.coding = static_cast<Coding>(at(1));
  field.has_decoded_sizes = (flags & kFlagDecodedSizes) != 0;
  field.is_shuffled = (flags & kFlagShuffled) != 0;
  field.header_bytes = header_bytes;
  field.is_list = at(2) == 1;
  if (at(0) != 0) field.batch_dtype = static_cast<DType>(at(0) - 1);
  return {};
}

Result<FieldInfo> DecodeField(Cursor& cursor, std::uint64_t i, std::uint32_t version) {
  const auto cut = [&] { return DataLoss("entry {} is cut short", i); };
  const auto entry = cursor.Take(kFieldEntryBytes);
  const auto type = cursor.Take(version >= kTypedVersion ? kFieldTypeBytes : 0);
  if (!entry || !type) return cut();
  const auto name = cursor.TakeText(Load<std::uint32_t>(entry->data()));
  const std::size_t rank = Load<std::uint8_t>(entry->data() + 7);
  const auto shape = cursor.Take(rank * sizeof(std::uint64_t));
  if (!name || !shape) return cut();
  const unsigned flags = Load<std::uint8_t>(entry->data() + 6);
  if (flags > (kFlagInline | kFlagChecksums)) {
    return DataLoss("entry {} has unknown flags {}", i, flags);
  }
  FieldInfo field;
  field.name = *name;
  field.kind = static_cast<FieldKind>(Load<std::uint8_t>(entry->data() + 4));
  field.dtype = static_cast<DType>(Load<std::uint8_t>(entry->data() + 5));
  for (std::size_t d = 0; d < rank; ++d) {
    field.shape.push_back(Load<std::uint64_t>(shape->data() + d * sizeof(std::uint64_t)));
  }
  field.is_inline = (flags & kFlagInline) != 0;
  field.has_checksums = (flags & kFlagChecksums) != 0;
  if (type->empty()) return field;
  if (field.kind > FieldKind::kText) {
    return FailedPrecondition(
        "entry {} has kind {}, which this headrace does not read: install the headrace that made "
        "the file",
        i, static_cast<int>(field.kind));
  }
  HEADRACE_RETURN_IF_ERROR(DecodeFieldType(*type, i, version, field));
  return field;
}

}  // namespace

Result<std::vector<FieldInfo>> DecodeFields(std::span<const std::byte> bytes, std::uint64_t count,
                                            std::uint32_t version) {
  Cursor cursor(bytes);
  std::vector<FieldInfo> fields;
  for (std::uint64_t i = 0; i < count; ++i) {
    HEADRACE_ASSIGN_OR_RETURN(FieldInfo field, DecodeField(cursor, i, version));
    fields.push_back(std::move(field));
  }
  if (!cursor.empty()) return DataLoss("bytes after the last entry");
  if (const auto why = WhyFieldsAreWrong(fields)) return DataLoss("{}", *why);
  if (VersionOf(fields) != version) return DataLoss("no field needs version {}", version);
  return fields;
}

std::vector<std::byte> EncodeAttributes(std::span<const Attribute> attributes) {
  std::vector<std::byte> bytes;
  for (const auto& [key, value] : attributes) {
    Append(static_cast<std::uint64_t>(key.size()), bytes);
    Append(static_cast<std::uint64_t>(value.size()), bytes);
    Append(key, bytes);
    Append(value, bytes);
  }
  return bytes;
}

Result<std::vector<Attribute>> DecodeAttributes(std::span<const std::byte> bytes,
                                                std::uint64_t count) {
  Cursor cursor(bytes);
  std::vector<Attribute> attributes;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto cut = [&] { return DataLoss("entry {} is cut short", i); };
    const auto entry = cursor.Take(kAttributeEntryBytes);
    if (!entry) return cut();
    const auto key = cursor.TakeText(Load<std::uint64_t>(entry->data()));
    const auto value = cursor.TakeText(Load<std::uint64_t>(entry->data() + 8));
    if (!key || !value) return cut();
    attributes.emplace_back(*key, *value);
  }
  if (!cursor.empty()) return DataLoss("bytes after the last entry");
  if (const auto why = WhyAttributesAreWrong(attributes)) return DataLoss("{}", *why);
  return attributes;
}

// First word: offset in bits 0-47, low 16 bits of the length above. Second word: high 24 bits of
// the length in bits 0-23, object above.
void EncodeExtent(const Extent& extent, std::byte* to) {
  Store(extent.range.offset | extent.range.size << 48, to);
  Store(extent.range.size >> 16 | Raw(extent.object) << 24, to + 8);
}

Extent DecodeExtent(const std::byte* from) {
  const auto first = Load<std::uint64_t>(from);
  const auto second = Load<std::uint64_t>(from + 8);
  return {.object = ObjectId{second >> 24},
          .range = {.offset = first & (kOffsetsEnd - 1),
                    .size = first >> 48 | (second & 0xffffff) << 16}};
}

void EncodeBlock(const BlockInfo& block, std::byte* to) {
  Store(Raw(block.first_sample), to);
  Store(block.sample_count, to + 8);
  EncodeExtent(block.extent, to + 16);
  Store(block.checksum.value_or(0), to + 32);
  Store(std::uint64_t{block.checksum.has_value()}, to + 40);
}

std::optional<BlockInfo> DecodeBlock(const std::byte* from) {
  const auto checksum = Load<std::uint64_t>(from + 32);
  const auto has_checksum = Load<std::uint64_t>(from + 40);
  if (has_checksum > 1 || (has_checksum == 0 && checksum != 0)) return std::nullopt;
  BlockInfo block;
  block.first_sample = SampleId{Load<std::uint64_t>(from)};
  block.sample_count = Load<std::uint64_t>(from + 8);
  block.extent = DecodeExtent(from + 16);
  if (has_checksum == 1) block.checksum = checksum;
  return block;
}

std::string SectionName(SectionKind kind, std::uint32_t field, std::span<const FieldInfo> fields) {
  const auto of_field = [&](const char* what) {
    return field < fields.size() ? what + Quoted(fields[field].name)
                                 : fmt::format("{}{}", what, field);
  };
  switch (kind) {
    case SectionKind::kFields:
      return "fields";
    case SectionKind::kRoot:
      return "root";
    case SectionKind::kAttributes:
      return "attributes";
    case SectionKind::kExtents:
      return of_field("extents of field ");
    case SectionKind::kInlineValues:
      return of_field("values of field ");
    case SectionKind::kSampleChecksums:
      return of_field("checksums of field ");
    case SectionKind::kObjects:
      return "objects";
    case SectionKind::kNameOffsets:
      return "name offsets";
    case SectionKind::kNameBytes:
      return "names";
    case SectionKind::kBlocks:
      return "blocks";
    case SectionKind::kInlineEnds:
      return of_field("ends of the values of field ");
    case SectionKind::kDecodedSizes:
      return of_field("decoded sizes of field ");
  }
  return fmt::format("section of kind {}", static_cast<std::uint32_t>(kind));
}

}  // namespace headrace::internal
