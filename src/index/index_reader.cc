#include "index/index_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/hash.h"
#include "base/units.h"
#include "index/index_format.h"

namespace headrace::internal {
namespace {

// Inline columns up to this size are checked at open: some milliseconds.
constexpr std::uint64_t kInlineCheckedMax = 64 * kMiB;

// The sections of a file by purpose. All lie inside the file: checked at open.
struct Tables {
  struct Column {
    std::span<const std::byte> entries;    // extents or inline values
    std::span<const std::byte> checksums;  // may be empty
  };
  std::vector<Column> columns;  // one a field
  std::span<const std::byte> objects;
  std::span<const std::byte> name_offsets;
  std::span<const std::byte> name_bytes;
  std::span<const std::byte> blocks;
};

// An Index over bytes. The opener checks the header, the section table and the small sections;
// entries of the large sections are checked on access.
class IndexView final : public Index {
 public:
  struct Parts {
    std::string path;
    std::shared_ptr<const void> owner;
    std::span<const std::byte> file;
    IndexHeader header;
    std::vector<Section> sections;
    std::vector<FieldInfo> fields;
    std::vector<Attribute> attributes;
    std::string root;
    Tables tables;
  };

  explicit IndexView(Parts parts)
      : parts_(std::move(parts)), fingerprint_(HexDigest(parts_.header.fingerprint)) {}

  [[nodiscard]] std::uint64_t sample_count() const override { return parts_.header.sample_count; }
  [[nodiscard]] std::span<const FieldInfo> fields() const override { return parts_.fields; }
  [[nodiscard]] std::uint64_t object_count() const override { return parts_.header.object_count; }
  [[nodiscard]] std::uint64_t block_count() const override { return parts_.header.block_count; }
  [[nodiscard]] const std::string& root() const override { return parts_.root; }
  [[nodiscard]] const std::string& fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::uint64_t file_bytes() const override { return parts_.file.size(); }

  [[nodiscard]] std::string_view attribute(std::string_view key) const override;
  [[nodiscard]] std::vector<std::string_view> attribute_keys() const override;

  [[nodiscard]] Result<ObjectInfo> object(ObjectId id) const override;
  [[nodiscard]] Result<BlockInfo> block(std::uint64_t position) const override;
  [[nodiscard]] Result<Extent> extent(std::size_t field, SampleId id) const override;
  [[nodiscard]] Result<std::span<const std::byte>> inline_value(std::size_t field,
                                                                SampleId id) const override;
  [[nodiscard]] std::optional<std::uint64_t> checksum(std::size_t field,
                                                      SampleId id) const override;
  void SampleBytes(SampleId first, std::span<std::uint64_t> bytes) const override;
  [[nodiscard]] Status CopyInlineValues(std::size_t field, SampleId first,
                                        std::span<std::byte> values) const override;
  [[nodiscard]] Status VerifyAll() const override;

 private:
  [[nodiscard]] Status CheckColumn(std::size_t field, SampleId id, bool is_inline) const;
  // Takes the object's size alone: an extent is checked against it without looking up the name.
  [[nodiscard]] Status CheckExtent(const Extent& extent, const FieldInfo* field) const;
  [[nodiscard]] Status DamagedEntry(SectionKind kind, std::size_t field, std::uint64_t entry,
                                    const std::string& why) const;
  [[nodiscard]] Status Damaged(const std::string& why) const;

  [[nodiscard]] Status VerifySections() const;
  [[nodiscard]] Status VerifyObjects() const;
  [[nodiscard]] Status VerifySamples() const;
  [[nodiscard]] Status VerifyBlocks() const;
  [[nodiscard]] Status VerifyBlock(std::uint64_t position, const BlockInfo& block) const;

  const Parts parts_;
  const std::string fingerprint_;
};

std::string ReadingIndex(const std::string& path) { return "reading index " + Quoted(path); }

Status IndexView::Damaged(const std::string& why) const {
  return Status(StatusCode::kDataLoss, why).WithContext(ReadingIndex(parts_.path));
}

Status IndexView::DamagedEntry(SectionKind kind, std::size_t field, std::uint64_t entry,
                               const std::string& why) const {
  return Damaged(fmt::format("{}: entry {}: {}",
                             SectionName(kind, static_cast<std::uint32_t>(field), parts_.fields),
                             entry, why));
}

std::string_view IndexView::attribute(std::string_view key) const {
  const auto found = std::find_if(parts_.attributes.begin(), parts_.attributes.end(),
                                  [&](const Attribute& a) { return a.first == key; });
  return found == parts_.attributes.end() ? std::string_view() : found->second;
}

std::vector<std::string_view> IndexView::attribute_keys() const {
  std::vector<std::string_view> keys;
  for (const Attribute& attribute : parts_.attributes) keys.push_back(attribute.first);
  return keys;
}

Result<ObjectInfo> IndexView::object(ObjectId id) const {
  if (Raw(id) >= object_count()) {
    return OutOfRange("object {}: index {} has {} objects", Raw(id), Quoted(parts_.path),
                      object_count());
  }
  const std::byte* const offsets = parts_.tables.name_offsets.data() + Raw(id) * kNameOffsetBytes;
  const auto begin = Load<std::uint64_t>(offsets);
  const auto end = Load<std::uint64_t>(offsets + kNameOffsetBytes);
  if (begin > end || end > parts_.tables.name_bytes.size()) {
    return DamagedEntry(
        SectionKind::kNameOffsets, 0, Raw(id),
        fmt::format("name at bytes [{}, {}) of {}", begin, end, parts_.tables.name_bytes.size()));
  }
  const std::byte* const entry = parts_.tables.objects.data() + Raw(id) * kObjectBytes;
  const ObjectInfo object{
      .name = {reinterpret_cast<const char*>(parts_.tables.name_bytes.data()) + begin, end - begin},
      .size = Load<std::uint64_t>(entry),
      .mtime_ns = Load<std::int64_t>(entry + 8)};
  if (const auto why = WhyObjectNameIsWrong(object.name)) {
    return DamagedEntry(SectionKind::kNameBytes, 0, Raw(id), *why);
  }
  return object;
}

Status IndexView::CheckExtent(const Extent& extent, const FieldInfo* field) const {
  if (Raw(extent.object) >= object_count()) {
    return DataLoss("{}: the index has {} objects", Describe(extent), object_count());
  }
  ObjectInfo object;
  object.size =
      Load<std::uint64_t>(parts_.tables.objects.data() + Raw(extent.object) * kObjectBytes);
  if (!WhyExtentIsWrong(extent, object, field)) return Status();
  // The name is for the message only, and used only if it is intact.
  if (const auto named = this->object(extent.object); named.ok()) object = named.value();
  return {StatusCode::kDataLoss, WhyExtentIsWrong(extent, object, field).value_or("")};
}

Result<BlockInfo> IndexView::block(std::uint64_t position) const {
  if (position >= block_count()) {
    return OutOfRange("block {}: index {} has {}", position, Quoted(parts_.path),
                      Counted(block_count(), "block"));
  }
  const auto damaged = [&](const std::string& why) {
    return DamagedEntry(SectionKind::kBlocks, 0, position, why);
  };
  const std::byte* const entry = parts_.tables.blocks.data() + position * kBlockBytes;
  const std::optional<BlockInfo> block = DecodeBlock(entry);
  if (!block) return damaged("its checksum flag is neither 0 nor 1");
  std::uint64_t first_sample = 0;
  if (position > 0) {
    const std::byte* const before = entry - kBlockBytes;
    if (__builtin_add_overflow(Load<std::uint64_t>(before), Load<std::uint64_t>(before + 8),
                               &first_sample)) {
      return damaged("its predecessor ends past 2^64");
    }
  }
  const bool is_last = position + 1 == block_count();
  if (const auto why = WhyBlockIsWrong(*block, first_sample, sample_count(), is_last)) {
    return damaged(*why);
  }
  if (const Status status = CheckExtent(block->extent, nullptr); !status.ok()) {
    return damaged(std::string(status.message()));
  }
  return *block;
}

Status IndexView::CheckColumn(std::size_t field, SampleId id, bool is_inline) const {
  if (field >= parts_.fields.size()) {
    return OutOfRange("field {}: index {} has {}", field, Quoted(parts_.path),
                      Counted(parts_.fields.size(), "field"));
  }
  if (Raw(id) >= sample_count()) {
    return OutOfRange("sample {}: index {} has {}", Raw(id), Quoted(parts_.path),
                      Counted(sample_count(), "sample"));
  }
  if (parts_.fields[field].is_inline != is_inline) {
    return InvalidArgument(
        "field {}{}", Quoted(parts_.fields[field].name),
        is_inline ? " has extents, no inline values" : " has inline values, no extents");
  }
  return Status();
}

Result<Extent> IndexView::extent(std::size_t field, SampleId id) const {
  HEADRACE_RETURN_IF_ERROR(CheckColumn(field, id, /*is_inline=*/false));
  const Extent extent =
      DecodeExtent(parts_.tables.columns[field].entries.data() + Raw(id) * kExtentBytes);
  if (const Status status = CheckExtent(extent, &parts_.fields[field]); !status.ok()) {
    return DamagedEntry(SectionKind::kExtents, field, Raw(id), std::string(status.message()));
  }
  return extent;
}

Result<std::span<const std::byte>> IndexView::inline_value(std::size_t field, SampleId id) const {
  HEADRACE_RETURN_IF_ERROR(CheckColumn(field, id, /*is_inline=*/true));
  const std::uint64_t bytes = parts_.fields[field].array_bytes();
  return parts_.tables.columns[field].entries.subspan(Raw(id) * bytes, bytes);
}

std::optional<std::uint64_t> IndexView::checksum(std::size_t field, SampleId id) const {
  HEADRACE_CHECK(field < parts_.fields.size() && Raw(id) < sample_count());
  if (!parts_.fields[field].has_checksums) return std::nullopt;
  return Load<std::uint64_t>(parts_.tables.columns[field].checksums.data() +
                             Raw(id) * kChecksumBytes);
}

void IndexView::SampleBytes(SampleId first, std::span<std::uint64_t> bytes) const {
  HEADRACE_CHECK(Raw(first) <= sample_count() && bytes.size() <= sample_count() - Raw(first));
  std::ranges::fill(bytes, 0);
  for (std::size_t field = 0; field < parts_.fields.size(); ++field) {
    const FieldInfo& info = parts_.fields[field];
    if (info.is_inline) continue;
    const bool is_array = info.kind == FieldKind::kArray;
    const std::uint64_t array_bytes = is_array ? info.array_bytes() : 0;
    const std::byte* entry =
        parts_.tables.columns[field].entries.data() + Raw(first) * kExtentBytes;
    for (std::uint64_t& sum : bytes) {
      const Extent extent = DecodeExtent(entry);
      entry += kExtentBytes;
      if (Raw(extent.object) >= object_count()) continue;
      const auto object_bytes =
          Load<std::uint64_t>(parts_.tables.objects.data() + Raw(extent.object) * kObjectBytes);
      if (extent.range.end() > object_bytes) continue;  // neither term has 2^48
      if (is_array && extent.range.size != array_bytes) continue;
      sum += extent.range.size;
    }
  }
}

Status IndexView::CopyInlineValues(std::size_t field, SampleId first,
                                   std::span<std::byte> values) const {
  if (values.empty()) return Status();
  HEADRACE_RETURN_IF_ERROR(CheckColumn(field, first, /*is_inline=*/true));
  const std::uint64_t bytes = parts_.fields[field].array_bytes();
  if (bytes == 0) return Status();
  HEADRACE_RETURN_IF_ERROR(
      CheckColumn(field, SampleId{Raw(first) + (values.size() - 1) / bytes}, /*is_inline=*/true));
  std::ranges::copy(parts_.tables.columns[field].entries.subspan(Raw(first) * bytes, values.size()),
                    values.begin());
  return Status();
}

Status IndexView::VerifyAll() const {
  HEADRACE_RETURN_IF_ERROR(VerifySections());
  HEADRACE_RETURN_IF_ERROR(VerifyObjects());
  HEADRACE_RETURN_IF_ERROR(VerifySamples());
  return VerifyBlocks();
}

// The fingerprint follows from the section table, which open has checked: if every section matches
// its checksum there, the fingerprint matches the contents.
Status IndexView::VerifySections() const {
  std::uint64_t end = kHeaderBytes + kSectionEntryBytes * parts_.sections.size();
  for (const Section& section : parts_.sections) {
    const std::string name = SectionName(section.kind, section.field, parts_.fields);
    const std::span<const std::byte> padding = parts_.file.subspan(end, section.offset - end);
    if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{}; })) {
      return Damaged(
          fmt::format("bytes [{}, {}) before the {} are not zero", end, section.offset, name));
    }
    if (Hash64(parts_.file.subspan(section.offset, section.size)) != section.checksum) {
      return Damaged(fmt::format("{}: bytes [{}, {}): checksum mismatch", name, section.offset,
                                 section.offset + section.size));
    }
    end = section.offset + section.size;
  }
  return Status();
}

Status IndexView::VerifyObjects() const {
  const auto first = Load<std::uint64_t>(parts_.tables.name_offsets.data());
  const auto last =
      Load<std::uint64_t>(parts_.tables.name_offsets.data() + object_count() * kNameOffsetBytes);
  if (first != 0 || last != parts_.tables.name_bytes.size()) {
    return Damaged(fmt::format("name offsets: [{}, {}) do not cover the {} bytes of names", first,
                               last, parts_.tables.name_bytes.size()));
  }
  for (std::uint64_t i = 0; i < object_count(); ++i) {
    if (const auto object = this->object(ObjectId{i}); !object.ok()) return object.status();
  }
  return Status();
}

Status IndexView::VerifySamples() const {
  for (std::size_t field = 0; field < parts_.fields.size(); ++field) {
    if (parts_.fields[field].is_inline) continue;  // any bytes are valid
    for (std::uint64_t i = 0; i < sample_count(); ++i) {
      if (const auto extent = this->extent(field, SampleId{i}); !extent.ok()) {
        return extent.status();
      }
    }
  }
  return Status();
}

Status IndexView::VerifyBlocks() const {
  for (std::uint64_t i = 0; i < block_count(); ++i) {
    HEADRACE_ASSIGN_OR_RETURN(const BlockInfo block, this->block(i));
    HEADRACE_RETURN_IF_ERROR(VerifyBlock(i, block));
  }
  return Status();
}

Status IndexView::VerifyBlock(std::uint64_t position, const BlockInfo& block) const {
  for (std::size_t field = 0; field < parts_.fields.size(); ++field) {
    if (parts_.fields[field].is_inline) continue;
    for (std::uint64_t i = 0; i < block.sample_count; ++i) {
      const SampleId id{Raw(block.first_sample) + i};
      HEADRACE_ASSIGN_OR_RETURN(const Extent extent, this->extent(field, id));
      if (!Contains(block.extent, extent)) {
        return DamagedEntry(
            SectionKind::kBlocks, 0, position,
            fmt::format("{} does not hold sample {} field {}: {}", Describe(block.extent), Raw(id),
                        Quoted(parts_.fields[field].name), Describe(extent)));
      }
    }
  }
  return Status();
}

// Reads and checks the parts of a file in the order in which each describes the next.
class Opener {
 public:
  explicit Opener(IndexView::Parts& parts) : parts_(parts) {}

  Status Run() {
    HEADRACE_ASSIGN_OR_RETURN(parts_.header, DecodeHeader(parts_.file));
    HEADRACE_RETURN_IF_ERROR(ReadSectionTable());
    HEADRACE_RETURN_IF_ERROR(ReadFields());
    HEADRACE_RETURN_IF_ERROR(CheckLayout());
    if (Fingerprint(parts_.header, parts_.sections) != parts_.header.fingerprint) {
      return Damaged("header: the fingerprint is not that of the sections");
    }
    HEADRACE_RETURN_IF_ERROR(ReadRoot());
    HEADRACE_RETURN_IF_ERROR(ReadAttributes());
    HEADRACE_RETURN_IF_ERROR(CheckInlineValues());
    FindTables();
    return Status();
  }

 private:
  static Status Damaged(std::string why) { return {StatusCode::kDataLoss, std::move(why)}; }

  Status ReadSectionTable() {
    const std::uint64_t count = parts_.header.section_count;
    const std::uint64_t bytes_max = parts_.file.size() - kHeaderBytes;
    if (count < kSectionsMin || count * kSectionEntryBytes > bytes_max) {
      return Damaged(fmt::format(
          "header: {} sections of {} bytes each do not fit {} bytes, or are fewer than {}", count,
          kSectionEntryBytes, bytes_max, kSectionsMin));
    }
    const auto table = parts_.file.subspan(kHeaderBytes, count * kSectionEntryBytes);
    if (Hash64(table) != parts_.header.table_checksum) {
      return Damaged("section table: checksum mismatch");
    }
    parts_.sections = DecodeSections(table);
    return Status();
  }

  // The layout depends on the fields, so they are read before it is checked.
  Status ReadFields() {
    HEADRACE_ASSIGN_OR_RETURN(const auto bytes, Small(kFieldsSection));
    Result<std::vector<FieldInfo>> fields = DecodeFields(bytes, parts_.header.field_count);
    if (!fields.ok()) return fields.status().WithContext("fields");
    parts_.fields = std::move(fields).value();
    return Status();
  }

  Status CheckLayout() {
    const std::vector<Section>& found = parts_.sections;
    const std::optional<std::vector<Section>> plan =
        PlanSections(parts_.header, parts_.fields,
                     {.fields = found[kFieldsSection].size,
                      .root = found[kRootSection].size,
                      .attributes = found[kAttributesSection].size,
                      .name_bytes = found[found.size() - kNameBytesFromEnd].size});
    if (!plan) return Damaged("header: its counts exceed the size of any file");
    if (plan->size() != found.size()) {
      return Damaged(
          fmt::format("header: {} sections, its fields need {}", found.size(), plan->size()));
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      const Section& is = found[i];
      const Section& should = (*plan)[i];
      if (is.kind == should.kind && is.field == should.field && is.offset == should.offset &&
          is.size == should.size && is.element_bytes == should.element_bytes) {
        continue;
      }
      return Damaged(fmt::format(
          "section table: entry {}: {} at byte {} with {} bytes, must be {} at byte {} with {}", i,
          SectionName(is), is.offset, is.size, SectionName(should), should.offset, should.size));
    }
    if (FileBytes(*plan) != parts_.file.size()) {
      return Damaged(fmt::format("the file has {} bytes, its sections end at {}",
                                 parts_.file.size(), FileBytes(*plan)));
    }
    return Status();
  }

  Status ReadRoot() {
    HEADRACE_ASSIGN_OR_RETURN(const auto bytes, Small(kRootSection));
    const std::string_view root(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (const auto why = WhyRootIsWrong(root)) return Damaged("root: " + *why);
    if (root != ".") {
      parts_.root = root;
      return Status();
    }
    std::error_code error;
    const auto path = std::filesystem::absolute(parts_.path, error);
    if (error) {
      return FailedPrecondition("finding the working folder: {}", error.message());
    }
    parts_.root = path.lexically_normal().parent_path().string();
    return Status();
  }

  Status ReadAttributes() {
    HEADRACE_ASSIGN_OR_RETURN(const auto bytes, Small(kAttributesSection));
    Result<std::vector<Attribute>> attributes =
        DecodeAttributes(bytes, parts_.header.attribute_count);
    if (!attributes.ok()) return attributes.status().WithContext("attributes");
    parts_.attributes = std::move(attributes).value();
    return Status();
  }

  // Only the checksum shows damage of inline values: columns of moderate size are checked here.
  Status CheckInlineValues() const {
    for (const Section& section : parts_.sections) {
      if (section.kind != SectionKind::kInlineValues || section.size > kInlineCheckedMax) continue;
      if (Hash64(parts_.file.subspan(section.offset, section.size)) != section.checksum) {
        return Damaged(SectionName(section) + ": checksum mismatch");
      }
    }
    return {};
  }

  void FindTables() {
    Tables& tables = parts_.tables;
    tables.columns.resize(parts_.fields.size());
    for (const Section& section : parts_.sections) {
      const auto bytes = parts_.file.subspan(section.offset, section.size);
      if (section.kind == SectionKind::kExtents || section.kind == SectionKind::kInlineValues) {
        tables.columns[section.field].entries = bytes;
      } else if (section.kind == SectionKind::kSampleChecksums) {
        tables.columns[section.field].checksums = bytes;
      } else if (section.kind == SectionKind::kObjects) {
        tables.objects = bytes;
      } else if (section.kind == SectionKind::kNameOffsets) {
        tables.name_offsets = bytes;
      } else if (section.kind == SectionKind::kNameBytes) {
        tables.name_bytes = bytes;
      } else if (section.kind == SectionKind::kBlocks) {
        tables.blocks = bytes;
      }
    }
  }

  // The bytes of a section that open reads, checked against its checksum.
  [[nodiscard]] Result<std::span<const std::byte>> Small(std::size_t position) const {
    const Section& section = parts_.sections[position];
    if (section.offset > parts_.file.size() || section.size > parts_.file.size() - section.offset) {
      return Damaged(fmt::format("{}: {} bytes at byte {}, the file has {}", SectionName(section),
                                 section.size, section.offset, parts_.file.size()));
    }
    const auto bytes = parts_.file.subspan(section.offset, section.size);
    if (Hash64(bytes) != section.checksum) {
      return Damaged(SectionName(section) + ": checksum mismatch");
    }
    return bytes;
  }

  [[nodiscard]] std::string SectionName(const Section& section) const {
    return internal::SectionName(section.kind, section.field, parts_.fields);
  }

  IndexView::Parts& parts_;
};

}  // namespace

Result<std::shared_ptr<const Index>> OpenIndexInMemory(std::span<const std::byte> bytes,
                                                       std::string path,
                                                       std::shared_ptr<const void> owner) {
  IndexView::Parts parts;
  parts.path = std::move(path);
  parts.owner = std::move(owner);
  parts.file = bytes;
  if (const Status status = Opener(parts).Run(); !status.ok()) {
    return status.WithContext(ReadingIndex(parts.path));
  }
  return std::shared_ptr<const Index>(std::make_shared<const IndexView>(std::move(parts)));
}

}  // namespace headrace::internal
