#include <fmt/core.h>

#include <algorithm>

#include "base/hash.h"
#include "index/index_parts.h"

namespace headrace::internal {
namespace {

// Verifies an index section by section, then entry by entry.
class IndexVerifier {
 public:
  IndexVerifier(const IndexParts& parts, const Index& index) : parts_(parts), index_(index) {}

  [[nodiscard]] Status Run() const {
    HEADRACE_RETURN_IF_ERROR(VerifySections());
    HEADRACE_RETURN_IF_ERROR(VerifyObjects());
    HEADRACE_RETURN_IF_ERROR(VerifySamples());
    return VerifyBlocks();
  }

 private:
  // The fingerprint follows from the section table, which open has checked: if every section
  // matches its checksum there, the fingerprint matches the contents.
  [[nodiscard]] Status VerifySections() const {
    std::uint64_t end = kHeaderBytes + kSectionEntryBytes * parts_.sections.size();
    for (const Section& section : parts_.sections) {
      const std::string name = SectionName(section.kind, section.field, parts_.fields);
      const std::span<const std::byte> padding = parts_.file.subspan(end, section.offset - end);
      if (std::any_of(padding.begin(), padding.end(),
                      [](std::byte b) { return b != std::byte{}; })) {
        return Damaged(parts_, fmt::format("bytes [{}, {}) before the {} are not zero", end,
                                           section.offset, name));
      }
      if (Hash64(parts_.file.subspan(section.offset, section.size)) != section.checksum) {
        return Damaged(parts_, fmt::format("{}: bytes [{}, {}): checksum mismatch", name,
                                           section.offset, section.offset + section.size));
      }
      end = section.offset + section.size;
    }
    return Status();
  }

  [[nodiscard]] Status VerifyObjects() const {
    const auto first = Load<std::uint64_t>(parts_.tables.name_offsets.data());
    const auto last = Load<std::uint64_t>(parts_.tables.name_offsets.data() +
                                          index_.object_count() * kNameOffsetBytes);
    if (first != 0 || last != parts_.tables.name_bytes.size()) {
      return Damaged(parts_,
                     fmt::format("name offsets: [{}, {}) do not cover the {} bytes of names", first,
                                 last, parts_.tables.name_bytes.size()));
    }
    for (std::uint64_t i = 0; i < index_.object_count(); ++i) {
      if (const auto object = index_.object(ObjectId{i}); !object.ok()) return object.status();
    }
    return Status();
  }

  [[nodiscard]] Status VerifySamples() const {
    for (std::size_t field = 0; field < parts_.fields.size(); ++field) {
      if (parts_.fields[field].is_inline) {
        HEADRACE_RETURN_IF_ERROR(VerifyInline(field));
        continue;
      }
      const FieldInfo& info = parts_.fields[field];
      const bool is_decoded = info.is_compressed() || info.has_decoded_sizes;
      for (std::uint64_t i = 0; i < index_.sample_count(); ++i) {
        if (const auto extent = index_.extent(field, SampleId{i}); !extent.ok()) {
          return extent.status();
        }
        if (!is_decoded) continue;
        if (const auto bytes = index_.decoded_bytes(field, SampleId{i}); !bytes.ok()) {
          return bytes.status();
        }
      }
    }
    return Status();
  }

  // Any bytes are values, but each has to end behind the one before it, and the last at the end.
  [[nodiscard]] Status VerifyInline(std::size_t field) const {
    if (!HasInlineEnds(parts_.fields[field])) return Status();
    std::uint64_t bytes = 0;
    for (std::uint64_t i = 0; i < index_.sample_count(); ++i) {
      HEADRACE_ASSIGN_OR_RETURN(const auto value, index_.inline_value(field, SampleId{i}));
      bytes += value.size();
    }
    const std::uint64_t size = parts_.tables.columns[field].entries.size();
    if (bytes == size) return Status();
    return Damaged(
        parts_, fmt::format("{}: the last ends at byte {} of {}",
                            SectionName(SectionKind::kInlineEnds, static_cast<std::uint32_t>(field),
                                        parts_.fields),
                            bytes, size));
  }

  [[nodiscard]] Status VerifyBlocks() const {
    for (std::uint64_t i = 0; i < index_.block_count(); ++i) {
      HEADRACE_ASSIGN_OR_RETURN(const BlockInfo block, index_.block(i));
      HEADRACE_RETURN_IF_ERROR(VerifyBlock(i, block));
    }
    return Status();
  }

  [[nodiscard]] Status VerifyBlock(std::uint64_t position, const BlockInfo& block) const {
    for (std::size_t field = 0; field < parts_.fields.size(); ++field) {
      if (parts_.fields[field].is_inline) continue;
      for (std::uint64_t i = 0; i < block.sample_count; ++i) {
        const SampleId id{Raw(block.first_sample) + i};
        HEADRACE_ASSIGN_OR_RETURN(const Extent extent, index_.extent(field, id));
        if (!Contains(block.extent, extent)) {
          return DamagedEntry(
              parts_, SectionKind::kBlocks, 0, position,
              fmt::format("{} does not hold sample {} field {}: {}", Describe(block.extent),
                          Raw(id), Quoted(parts_.fields[field].name), Describe(extent)));
        }
      }
    }
    return Status();
  }

  const IndexParts& parts_;
  const Index& index_;
};

}  // namespace

Status VerifyParts(const IndexParts& parts, const Index& index) {
  return IndexVerifier(parts, index).Run();
}

}  // namespace headrace::internal
