#include "index/index_writer.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "base/check.h"
#include "base/hash.h"
#include "index/atomic_file.h"
#include "index/contents_check.h"
#include "index/index_format.h"

namespace headrace {
namespace {

using internal::AtomicFile;
using internal::IndexHeader;
using internal::Section;
using internal::SectionKind;

// Writes one section: the padding before it, its bytes, and their checksum into its table entry.
class SectionSink {
 public:
  SectionSink(AtomicFile& file, Section& section) : file_(file), section_(section) {}

  Status Begin() {
    const std::array<std::byte, internal::kSectionAlignment> zeros{};
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

// Adds `count` entries of `kBytes` each, made by `encode(i, to)`, in batches.
template <std::uint64_t kBytes, typename Encode>
Status AddEntries(SectionSink& sink, std::uint64_t count, const Encode& encode) {
  constexpr std::uint64_t kAtOnce = 512;
  std::array<std::byte, kBytes * kAtOnce> buffer{};
  for (std::uint64_t first = 0; first < count; first += kAtOnce) {
    const std::uint64_t n = std::min(kAtOnce, count - first);
    for (std::uint64_t i = 0; i < n; ++i) encode(first + i, buffer.data() + i * kBytes);
    HEADRACE_RETURN_IF_ERROR(sink.Add(std::span(buffer).first(n * kBytes)));
  }
  return Status();
}

// Writes valid contents, section by section; writes header and table last, with the checksums.
class IndexFileWriter {
 public:
  IndexFileWriter(const IndexContents& contents, AtomicFile& file)
      : contents_(contents), file_(file) {}

  Status Run() {
    HEADRACE_RETURN_IF_ERROR(Plan());
    const std::vector<std::byte> front(internal::kHeaderBytes +
                                       internal::kSectionEntryBytes * sections_.size());
    HEADRACE_RETURN_IF_ERROR(file_.Append(front));
    for (Section& section : sections_) {
      SectionSink sink(file_, section);
      HEADRACE_RETURN_IF_ERROR(sink.Begin());
      HEADRACE_RETURN_IF_ERROR(WriteSection(section, sink));
      sink.End();
    }
    const std::vector<std::byte> table = internal::EncodeSections(sections_);
    header_.table_checksum = Hash64(table);
    header_.fingerprint = internal::Fingerprint(header_, sections_);
    HEADRACE_RETURN_IF_ERROR(file_.WriteAt(internal::kHeaderBytes, table));
    return file_.WriteAt(0, internal::EncodeHeader(header_));
  }

 private:
  Status Plan() {
    std::vector<FieldInfo> infos;
    for (const IndexContents::Field& field : contents_.fields) infos.push_back(field.info);
    const std::vector<Attribute> attributes(contents_.attributes.begin(),
                                            contents_.attributes.end());
    fields_ = internal::EncodeFields(infos);
    attributes_ = internal::EncodeAttributes(attributes);
    std::uint64_t name_bytes = 0;
    for (const IndexContents::Object& object : contents_.objects) name_bytes += object.name.size();

    header_.sample_count = contents_.sample_count;
    header_.object_count = contents_.objects.size();
    header_.block_count = contents_.blocks.size();
    header_.field_count = static_cast<std::uint32_t>(infos.size());
    header_.attribute_count = static_cast<std::uint32_t>(attributes.size());
    auto sections = internal::PlanSections(header_, infos,
                                           {.fields = fields_.size(),
                                            .root = contents_.root.size(),
                                            .attributes = attributes_.size(),
                                            .name_bytes = name_bytes});
    if (!sections) return {StatusCode::kInvalidArgument, "it would exceed 2^63 bytes"};
    sections_ = std::move(*sections);
    header_.section_count = static_cast<std::uint32_t>(sections_.size());
    header_.file_bytes = internal::FileBytes(sections_);
    return Status();
  }

  Status WriteSection(const Section& section, SectionSink& sink) const {
    switch (section.kind) {
      case SectionKind::kFields:
        return sink.Add(fields_);
      case SectionKind::kRoot:
        return sink.Add(std::as_bytes(std::span(contents_.root)));
      case SectionKind::kAttributes:
        return sink.Add(attributes_);
      case SectionKind::kExtents:
        return WriteExtents(contents_.fields[section.field].extents, sink);
      case SectionKind::kInlineValues:
        return sink.Add(contents_.fields[section.field].inline_values);
      case SectionKind::kSampleChecksums:
        return sink.Add(std::as_bytes(std::span(contents_.fields[section.field].checksums)));
      case SectionKind::kObjects:
        return WriteObjects(sink);
      case SectionKind::kNameOffsets:
        return WriteNameOffsets(sink);
      case SectionKind::kNameBytes:
        return WriteNameBytes(sink);
      case SectionKind::kBlocks:
        return WriteBlocks(sink);
    }
    return {StatusCode::kInternal, "planned a section of unknown kind"};
  }

  static Status WriteExtents(const std::vector<Extent>& extents, SectionSink& sink) {
    return AddEntries<internal::kExtentBytes>(
        sink, extents.size(),
        [&](std::uint64_t i, std::byte* to) { internal::EncodeExtent(extents[i], to); });
  }

  Status WriteObjects(SectionSink& sink) const {
    return AddEntries<internal::kObjectBytes>(
        sink, contents_.objects.size(), [&](std::uint64_t i, std::byte* to) {
          internal::Store(contents_.objects[i].size, to);
          internal::Store(contents_.objects[i].mtime_ns, to + 8);
        });
  }

  // One more than there are objects: the end of the last name.
  Status WriteNameOffsets(SectionSink& sink) const {
    std::uint64_t offset = 0;
    return AddEntries<internal::kNameOffsetBytes>(
        sink, contents_.objects.size() + 1, [&](std::uint64_t i, std::byte* to) {
          if (i > 0) offset += contents_.objects[i - 1].name.size();
          internal::Store(offset, to);
        });
  }

  Status WriteNameBytes(SectionSink& sink) const {
    for (const IndexContents::Object& object : contents_.objects) {
      HEADRACE_RETURN_IF_ERROR(sink.Add(std::as_bytes(std::span(object.name))));
    }
    return Status();
  }

  Status WriteBlocks(SectionSink& sink) const {
    return AddEntries<internal::kBlockBytes>(
        sink, contents_.blocks.size(),
        [&](std::uint64_t i, std::byte* to) { internal::EncodeBlock(contents_.blocks[i], to); });
  }

  const IndexContents& contents_;
  AtomicFile& file_;
  IndexHeader header_;
  std::vector<Section> sections_;
  std::vector<std::byte> fields_;
  std::vector<std::byte> attributes_;
};

Status CheckAndWrite(const IndexContents& contents, const std::string& path) {
  HEADRACE_RETURN_IF_ERROR(internal::CheckContents(contents));
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  HEADRACE_RETURN_IF_ERROR(IndexFileWriter(contents, *file).Run());
  return file->Publish();
}

}  // namespace

Status WriteIndex(const IndexContents& contents, const std::string& path) {
  const Status status = CheckAndWrite(contents, path);
  if (!status.ok()) return status.WithContext("writing index " + internal::Quoted(path));
  return Status();
}

}  // namespace headrace
