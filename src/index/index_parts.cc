#include "index/index_parts.h"

#include <fmt/core.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/format/errors.h"
#include "base/hash.h"
#include "base/units.h"

namespace headrace::internal {
namespace {

// Inline columns up to this size are checked at open: some milliseconds.
constexpr std::uint64_t kInlineCheckedMax = 64 * kMiB;

// Of bytes that are wrong, with a way out, unless `why` ends with one.
Status ReadingIndex(const std::string& path, const Status& why) {
  const bool is_damage = why.code() == StatusCode::kDataLoss;
  std::string text(why.message());
  if (is_damage && text.find("headrace index") == std::string::npos) {
    text += kDamageRemedy;
  }
  return Status(why.code(), std::move(text)).WithContext("reading index " + Quoted(path));
}

// Reads and checks the parts of a file in the order in which each describes the next.
class Opener {
 public:
  explicit Opener(IndexParts& parts) : parts_(parts) {}

  Status Run() {
    HEADRACE_ASSIGN_OR_RETURN(parts_.header, DecodeHeader(parts_.file));
    HEADRACE_RETURN_IF_ERROR(ReadSectionTable());
    HEADRACE_RETURN_IF_ERROR(ReadFields());
    HEADRACE_RETURN_IF_ERROR(CheckLayout());
    if (Fingerprint(parts_.header, parts_.sections) != parts_.header.fingerprint) {
      return DataLoss("header: the fingerprint is not that of the sections");
    }
    HEADRACE_RETURN_IF_ERROR(ReadRoot());
    HEADRACE_RETURN_IF_ERROR(ReadAttributes());
    HEADRACE_RETURN_IF_ERROR(CheckInlineValues());
    FindTables();
    return Status();
  }

 private:
  Status ReadSectionTable() {
    const std::uint64_t count = parts_.header.section_count;
    const std::uint64_t bytes_max = parts_.file.size() - kHeaderBytes;
    if (count < kSectionsMin || count * kSectionEntryBytes > bytes_max) {
      return DataLoss(
          "header: {} sections of {} bytes each do not fit {} bytes, or are fewer than {}", count,
          kSectionEntryBytes, bytes_max, kSectionsMin);
    }
    const auto table = parts_.file.subspan(kHeaderBytes, count * kSectionEntryBytes);
    if (Hash64(table) != parts_.header.table_checksum) {
      return DataLoss("section table: checksum mismatch");
    }
    parts_.sections = DecodeSections(table);
    return Status();
  }

  // The layout depends on the fields, so they are read before it is checked.
  Status ReadFields() {
    HEADRACE_ASSIGN_OR_RETURN(const auto bytes, Small(kFieldsSection));
    Result<std::vector<FieldInfo>> fields =
        DecodeFields(bytes, parts_.header.field_count, parts_.header.version);
    if (!fields.ok()) return fields.status().WithContext("fields");
    parts_.fields = std::move(fields).value();
    return Status();
  }

  Status CheckLayout() {
    const std::vector<Section>& found = parts_.sections;
    std::vector<std::uint64_t> inline_values;
    for (std::size_t i = 1; i < found.size(); ++i) {  // they follow their ends
      if (found[i - 1].kind == SectionKind::kInlineEnds) inline_values.push_back(found[i].size);
    }
    const std::optional<std::vector<Section>> plan =
        PlanSections(parts_.header, parts_.fields,
                     {.fields = found[kFieldsSection].size,
                      .root = found[kRootSection].size,
                      .attributes = found[kAttributesSection].size,
                      .name_bytes = found[found.size() - kNameBytesFromEnd].size,
                      .inline_values = std::move(inline_values)});
    if (!plan) {
      return DataLoss("header: its counts exceed the size of any file, or sections are missing");
    }
    if (plan->size() != found.size()) {
      return DataLoss("header: {} sections, its fields need {}", found.size(), plan->size());
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      const Section& is = found[i];
      const Section& should = (*plan)[i];
      if (is.kind == should.kind && is.field == should.field && is.offset == should.offset &&
          is.size == should.size && is.element_bytes == should.element_bytes) {
        continue;
      }
      return DataLoss(
          "section table: entry {}: {} at byte {} with {} bytes, must be {} at byte {} with {}", i,
          SectionName(is), is.offset, is.size, SectionName(should), should.offset, should.size);
    }
    if (FileBytes(*plan) != parts_.file.size()) {
      return DataLoss("the file has {} bytes, its sections end at {}", parts_.file.size(),
                      FileBytes(*plan));
    }
    return Status();
  }

  Status ReadRoot() {
    HEADRACE_ASSIGN_OR_RETURN(const auto bytes, Small(kRootSection));
    const std::string_view root(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (const auto why = WhyRootIsWrong(root)) return DataLoss("root: {}", *why);
    if (root != ".") {
      parts_.root = root;
      return Status();
    }
    std::error_code error;
    const auto path = std::filesystem::absolute(parts_.path, error);
    if (error) {
      return FailedPrecondition("finding the working folder: {}; change to a folder that exists",
                                error.message());
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
      const bool is_inline =
          section.kind == SectionKind::kInlineValues || section.kind == SectionKind::kInlineEnds;
      if (!is_inline || section.size > kInlineCheckedMax) continue;
      if (Hash64(parts_.file.subspan(section.offset, section.size)) != section.checksum) {
        return DataLoss("{}: checksum mismatch", SectionName(section));
      }
    }
    return {};
  }

  void FindTables() {
    IndexParts::Tables& tables = parts_.tables;
    tables.columns.resize(parts_.fields.size());
    for (const Section& section : parts_.sections) {
      const auto bytes = parts_.file.subspan(section.offset, section.size);
      if (section.kind == SectionKind::kExtents || section.kind == SectionKind::kInlineValues) {
        tables.columns[section.field].entries = bytes;
      } else if (section.kind == SectionKind::kInlineEnds) {
        tables.columns[section.field].ends = bytes;
      } else if (section.kind == SectionKind::kDecodedSizes) {
        tables.columns[section.field].decoded_sizes = bytes;
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
      return DataLoss("{}: {} bytes at byte {}, the file has {}", SectionName(section),
                      section.size, section.offset, parts_.file.size());
    }
    const auto bytes = parts_.file.subspan(section.offset, section.size);
    if (Hash64(bytes) != section.checksum) {
      return DataLoss("{}: checksum mismatch", SectionName(section));
    }
    return bytes;
  }

  [[nodiscard]] std::string SectionName(const Section& section) const {
    return internal::SectionName(section.kind, section.field, parts_.fields);
  }

  IndexParts& parts_;
};

}  // namespace

Status ReadParts(IndexParts& parts) {
  const Status status = Opener(parts).Run();
  return status.ok() ? status : ReadingIndex(parts.path, status);
}

Status Damaged(const IndexParts& parts, const std::string& why) {
  return ReadingIndex(parts.path, Status(StatusCode::kDataLoss, why));
}

Status DamagedEntry(const IndexParts& parts, SectionKind kind, std::size_t field,
                    std::uint64_t entry, const std::string& why) {
  return Damaged(
      parts,
      fmt::format("{}: entry {}: {}",
                  SectionName(kind, static_cast<std::uint32_t>(field), parts.fields), entry, why));
}

}  // namespace headrace::internal
