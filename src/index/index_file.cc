#include "index/index_file.h"

#include <array>
#include <optional>

#include "base/check.h"
#include "base/hash.h"

namespace headrace::internal {
namespace {

// Writes one section: the padding before it, its bytes, and their checksum into its table entry.
class SectionSink {
 public:
  SectionSink(AtomicFile& file, Section& section) : file_(file), section_(section) {}

  Status Begin() {
    const std::array<std::byte, kSectionAlignment> zeros{};
    HEADRACE_CHECK(section_.offset - file_.size() < zeros.size());
    return file_.Append(std::span(zeros).first(section_.offset - file_.size()));
  }
  Status Add(std::span<const std::byte> bytes) {
    hasher_.Add(bytes);
    return file_.Append(bytes);
  }
  void End() {
    HEADRACE_CHECK(file_.size() == section_.offset + section_.size);
    section_.checksum = hasher_.Digest();
  }

 private:
  AtomicFile& file_;
  Section& section_;
  Hasher64 hasher_;
};

// Writes section by section; header and table come last, with the checksums.
class FileWriter {
 public:
  FileWriter(const IndexOutline& outline, const GiveSection& give, AtomicFile& file)
      : outline_(outline), give_(give), file_(file) {}

  Status Run() {
    HEADRACE_RETURN_IF_ERROR(Plan());
    const std::vector<std::byte> front(kHeaderBytes + kSectionEntryBytes * sections_.size());
    HEADRACE_RETURN_IF_ERROR(file_.Append(front));
    for (Section& section : sections_) {
      SectionSink sink(file_, section);
      HEADRACE_RETURN_IF_ERROR(sink.Begin());
      HEADRACE_RETURN_IF_ERROR(WriteSection(section, sink));
      sink.End();
    }
    const std::vector<std::byte> table = EncodeSections(sections_);
    header_.table_checksum = Hash64(table);
    header_.fingerprint = Fingerprint(header_, sections_);
    HEADRACE_RETURN_IF_ERROR(file_.WriteAt(kHeaderBytes, table));
    return file_.WriteAt(0, EncodeHeader(header_));
  }

 private:
  Status Plan() {
    header_.version = VersionOf(outline_.fields);
    fields_ = EncodeFields(outline_.fields, header_.version);
    attributes_ = EncodeAttributes(outline_.attributes);
    header_.sample_count = outline_.sample_count;
    header_.object_count = outline_.object_count;
    header_.block_count = outline_.block_count;
    header_.field_count = static_cast<std::uint32_t>(outline_.fields.size());
    header_.attribute_count = static_cast<std::uint32_t>(outline_.attributes.size());
    auto sections = PlanSections(header_, outline_.fields,
                                 {.fields = fields_.size(),
                                  .root = outline_.root.size(),
                                  .attributes = attributes_.size(),
                                  .name_bytes = outline_.name_bytes,
                                  .inline_values = outline_.inline_values});
    if (!sections) {
      return {StatusCode::kInvalidArgument,
              "it would exceed 2^63 bytes; index the dataset in parts"};
    }
    sections_ = std::move(*sections);
    header_.section_count = static_cast<std::uint32_t>(sections_.size());
    header_.file_bytes = FileBytes(sections_);
    return Status();
  }

  Status WriteSection(const Section& section, SectionSink& sink) const {
    if (section.kind == SectionKind::kFields) return sink.Add(fields_);
    if (section.kind == SectionKind::kRoot)
      return sink.Add(std::as_bytes(std::span(outline_.root)));
    if (section.kind == SectionKind::kAttributes) return sink.Add(attributes_);
    return give_(section, [&](std::span<const std::byte> bytes) { return sink.Add(bytes); });
  }

  const IndexOutline& outline_;
  const GiveSection& give_;
  AtomicFile& file_;
  IndexHeader header_;
  std::vector<Section> sections_;
  std::vector<std::byte> fields_;
  std::vector<std::byte> attributes_;
};

}  // namespace

Status WriteIndexFile(const IndexOutline& outline, const GiveSection& give, AtomicFile& file) {
  return FileWriter(outline, give, file).Run();
}

}  // namespace headrace::internal
