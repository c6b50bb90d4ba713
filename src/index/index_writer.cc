#include "headrace/index_writer.h"

#include <algorithm>
#include <array>
#include <memory>

#include "index/atomic_file.h"
#include "index/contents_check.h"
#include "index/index_file.h"
#include "index/index_format.h"

namespace headrace {
namespace {

using internal::AtomicFile;
using internal::IndexOutline;
using internal::Section;
using internal::SectionKind;
using internal::TakeBytes;

// Passes on `count` entries of `kBytes` each, made by `encode(i, to)`, in batches.
template <std::uint64_t kBytes, typename Encode>
Status GiveEntries(const TakeBytes& take, std::uint64_t count, const Encode& encode) {
  constexpr std::uint64_t kAtOnce = 512;
  std::array<std::byte, kBytes * kAtOnce> buffer{};
  for (std::uint64_t first = 0; first < count; first += kAtOnce) {
    const std::uint64_t n = std::min(kAtOnce, count - first);
    for (std::uint64_t i = 0; i < n; ++i) encode(first + i, buffer.data() + i * kBytes);
    HEADRACE_RETURN_IF_ERROR(take(std::span(buffer).first(n * kBytes)));
  }
  return Status();
}

IndexOutline OutlineOf(const IndexContents& contents) {
  IndexOutline outline{.sample_count = contents.sample_count,
                       .object_count = contents.objects.size(),
                       .block_count = contents.blocks.size(),
                       .root = contents.root,
                       .attributes = {contents.attributes.begin(), contents.attributes.end()}};
  for (const IndexContents::Field& field : contents.fields) {
    outline.fields.push_back(field.info);
    if (internal::HasInlineEnds(field.info)) {
      outline.inline_values.push_back(field.inline_values.size());
    }
  }
  for (const IndexContents::Object& object : contents.objects) {
    outline.name_bytes += object.name.size();
  }
  return outline;
}

Status GiveObjects(const IndexContents& contents, const TakeBytes& take) {
  return GiveEntries<internal::kObjectBytes>(
      take, contents.objects.size(), [&](std::uint64_t i, std::byte* to) {
        internal::Store(contents.objects[i].size, to);
        internal::Store(contents.objects[i].mtime_ns, to + 8);
      });
}

// One more than there are objects: the end of the last name.
Status GiveNameOffsets(const IndexContents& contents, const TakeBytes& take) {
  std::uint64_t offset = 0;
  return GiveEntries<internal::kNameOffsetBytes>(take, contents.objects.size() + 1,
                                                 [&](std::uint64_t i, std::byte* to) {
                                                   if (i > 0)
                                                     offset += contents.objects[i - 1].name.size();
                                                   internal::Store(offset, to);
                                                 });
}

Status GiveNameBytes(const IndexContents& contents, const TakeBytes& take) {
  for (const IndexContents::Object& object : contents.objects) {
    HEADRACE_RETURN_IF_ERROR(take(std::as_bytes(std::span(object.name))));
  }
  return Status();
}

Status GiveSection(const IndexContents& contents, const Section& section, const TakeBytes& take) {
  switch (section.kind) {
    case SectionKind::kExtents: {
      const std::vector<Extent>& extents = contents.fields[section.field].extents;
      return GiveEntries<internal::kExtentBytes>(
          take, extents.size(),
          [&](std::uint64_t i, std::byte* to) { internal::EncodeExtent(extents[i], to); });
    }
    case SectionKind::kInlineValues:
      return take(contents.fields[section.field].inline_values);
    case SectionKind::kInlineEnds:
      return take(std::as_bytes(std::span(contents.fields[section.field].inline_ends)));
    case SectionKind::kDecodedSizes:
      return take(std::as_bytes(std::span(contents.fields[section.field].decoded_sizes)));
    case SectionKind::kSampleChecksums:
      return take(std::as_bytes(std::span(contents.fields[section.field].checksums)));
    case SectionKind::kObjects:
      return GiveObjects(contents, take);
    case SectionKind::kNameOffsets:
      return GiveNameOffsets(contents, take);
    case SectionKind::kNameBytes:
      return GiveNameBytes(contents, take);
    case SectionKind::kBlocks:
      return GiveEntries<internal::kBlockBytes>(
          take, contents.blocks.size(),
          [&](std::uint64_t i, std::byte* to) { internal::EncodeBlock(contents.blocks[i], to); });
    case SectionKind::kFields:
    case SectionKind::kRoot:
    case SectionKind::kAttributes:
      break;
  }
  return {StatusCode::kInternal, "planned a section of unknown kind"};
}

Status CheckAndWrite(const IndexContents& contents, const std::string& path) {
  HEADRACE_RETURN_IF_ERROR(internal::CheckContents(contents));
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  HEADRACE_RETURN_IF_ERROR(internal::WriteIndexFile(
      OutlineOf(contents),
      [&](const Section& section, const TakeBytes& take) {
        return GiveSection(contents, section, take);
      },
      *file));
  return file->Publish();
}

}  // namespace

Status WriteIndex(const IndexContents& contents, const std::string& path) {
  const Status status = CheckAndWrite(contents, path);
  if (!status.ok()) return status.WithContext("writing index " + internal::Quoted(path));
  return Status();
}

}  // namespace headrace
