#include "index/index_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/hash.h"
#include "base/units.h"
#include "index/index_format.h"
#include "index/index_parts.h"

namespace headrace::internal {
namespace {

constexpr std::uint64_t kPageMin = 4 * kKiB;

// An Index over the parts of a file. An entry of a large section is checked on access. Large: as
// Index.
class IndexView final : public Index {
 public:
  explicit IndexView(IndexParts parts)
      : parts_(std::move(parts)),
        fingerprint_(HexDigest(parts_.header.fingerprint)),
        header_(EncodeHeader(parts_.header)),
        tail_(Hash64(Tail())) {}

  [[nodiscard]] std::uint64_t sample_count() const override { return parts_.header.sample_count; }
  [[nodiscard]] std::span<const FieldInfo> fields() const override { return parts_.fields; }
  [[nodiscard]] std::uint64_t object_count() const override { return parts_.header.object_count; }
  [[nodiscard]] std::uint64_t block_count() const override { return parts_.header.block_count; }
  [[nodiscard]] const std::string& root() const override { return parts_.root; }
  [[nodiscard]] const std::string& fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::string Content() const override;
  [[nodiscard]] Status CheckIntact() const override;
  [[nodiscard]] std::uint64_t file_bytes() const override { return parts_.file.size(); }

  [[nodiscard]] std::span<const Attribute> attributes() const override { return parts_.attributes; }

  [[nodiscard]] Result<ObjectInfo> object(ObjectId id) const override;
  [[nodiscard]] std::uint64_t object_bytes(ObjectId id) const override {
    HEADRACE_CHECK(Raw(id) < object_count());
    return Load<std::uint64_t>(parts_.tables.objects.data() + Raw(id) * kObjectBytes);
  }
  [[nodiscard]] Result<BlockInfo> block(std::uint64_t position) const override;
  [[nodiscard]] Result<Extent> extent(std::size_t field, SampleId id) const override;
  [[nodiscard]] Result<std::span<const std::byte>> inline_value(std::size_t field,
                                                                SampleId id) const override;
  [[nodiscard]] Result<std::uint64_t> decoded_bytes(std::size_t field, SampleId id) const override;
  [[nodiscard]] std::optional<std::uint64_t> checksum(std::size_t field,
                                                      SampleId id) const override;
  void Prefetch(std::size_t field, SampleId id) const override;
  void SampleBytes(SampleId first, std::span<std::uint64_t> bytes) const override;
  [[nodiscard]] Status CopyInlineValues(std::size_t field, SampleId first,
                                        std::span<std::byte> values) const override;
  [[nodiscard]] Status VerifyAll() const override { return VerifyParts(parts_, *this); }

 private:
  [[nodiscard]] Status CheckColumn(std::size_t field, SampleId id, bool is_inline) const;
  // Takes the object's size alone: an extent is checked against it without looking up the name.
  [[nodiscard]] Status CheckExtent(const Extent& extent, const FieldInfo* field) const;

  // What the last page has of the file: a cut inside it reads as zeros, and is no missing page.
  [[nodiscard]] std::span<const std::byte> Tail() const {
    return parts_.file.last((parts_.file.size() - 1) % kPageMin + 1);
  }

  const IndexParts parts_;
  const std::string fingerprint_;
  const std::array<std::byte, kHeaderBytes> header_;  // it has the checksums of all sections'
  const std::uint64_t tail_;
};

std::string IndexView::Content() const {
  Hasher64 sizes;
  std::array<std::uint64_t, 512> some{};
  for (std::uint64_t id = 0; id < object_count();) {
    const std::uint64_t count = std::min<std::uint64_t>(some.size(), object_count() - id);
    for (std::uint64_t i = 0; i < count; ++i, ++id) some[i] = object_bytes(ObjectId{id});
    sizes.Add(std::as_bytes(std::span(some).first(count)));
  }
  return HexDigest(internal::Content(parts_.header, parts_.sections, sizes.Digest()));
}

// Another index has another header; a copy of this one that is not whole yet lacks pages.
Status IndexView::CheckIntact() const {
  if (parts_.mapped == nullptr) return Status();
  InstallCopyGuard();  // Another handler may have taken its place.
  if (std::ranges::equal(parts_.file.first(kHeaderBytes), header_) && Hash64(Tail()) == tail_ &&
      !parts_.mapped->has_lost()) {
    return Status();
  }
  return Damaged(parts_,
                 "the file was cut or written again while it was in use; open the dataset again, "
                 "and replace an index by renaming another one (mv), never in place");
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
        parts_, SectionKind::kNameOffsets, 0, Raw(id),
        fmt::format("name at bytes [{}, {}) of {}", begin, end, parts_.tables.name_bytes.size()));
  }
  const std::byte* const entry = parts_.tables.objects.data() + Raw(id) * kObjectBytes;
  const ObjectInfo object{
      .name = {reinterpret_cast<const char*>(parts_.tables.name_bytes.data()) + begin, end - begin},
      .size = Load<std::uint64_t>(entry),
      .mtime_ns = Load<std::int64_t>(entry + 8)};
  if (const auto why = WhyObjectNameIsWrong(object.name)) {
    return DamagedEntry(parts_, SectionKind::kNameBytes, 0, Raw(id), *why);
  }
  return object;
}

Status IndexView::CheckExtent(const Extent& extent, const FieldInfo* field) const {
  if (Raw(extent.object) >= object_count()) {
    return DataLoss("{}: the index has {} objects", Describe(extent), object_count());
  }
  ObjectInfo object;
  object.size = object_bytes(extent.object);
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
    return DamagedEntry(parts_, SectionKind::kBlocks, 0, position, why);
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
    const std::string name = Quoted(parts_.fields[field].name);
    if (is_inline)
      return InvalidArgument("field {} has no inline values: ask for its extents", name);
    return InvalidArgument("field {} has no extents: ask for its inline values", name);
  }
  return Status();
}

Result<Extent> IndexView::extent(std::size_t field, SampleId id) const {
  HEADRACE_RETURN_IF_ERROR(CheckColumn(field, id, /*is_inline=*/false));
  const Extent extent =
      DecodeExtent(parts_.tables.columns[field].entries.data() + Raw(id) * kExtentBytes);
  if (const Status status = CheckExtent(extent, &parts_.fields[field]); !status.ok()) {
    return DamagedEntry(parts_, SectionKind::kExtents, field, Raw(id),
                        std::string(status.message()));
  }
  return extent;
}

Result<std::span<const std::byte>> IndexView::inline_value(std::size_t field, SampleId id) const {
  HEADRACE_RETURN_IF_ERROR(CheckColumn(field, id, /*is_inline=*/true));
  const IndexParts::Column& column = parts_.tables.columns[field];
  const std::uint64_t bytes = parts_.fields[field].array_bytes();
  if (!HasInlineEnds(parts_.fields[field])) return column.entries.subspan(Raw(id) * bytes, bytes);
  const std::byte* const at = column.ends.data() + Raw(id) * kInlineEndBytes;
  const auto begin = Raw(id) == 0 ? 0 : Load<std::uint64_t>(at - kInlineEndBytes);
  const auto end = Load<std::uint64_t>(at);
  if (begin > end || end > column.entries.size() || (end - begin) % bytes != 0) {
    return DamagedEntry(parts_, SectionKind::kInlineEnds, field, Raw(id),
                        fmt::format("value at bytes [{}, {}) of {}, must be a multiple of {}",
                                    begin, end, column.entries.size(), bytes));
  }
  return column.entries.subspan(begin, end - begin);
}

Result<std::uint64_t> IndexView::decoded_bytes(std::size_t field, SampleId id) const {
  HEADRACE_RETURN_IF_ERROR(CheckColumn(field, id, /*is_inline=*/false));
  const FieldInfo& info = parts_.fields[field];
  if (!info.is_compressed() && !info.has_decoded_sizes) return Index::decoded_bytes(field, id);
  const IndexParts::Column& column = parts_.tables.columns[field];
  const std::uint64_t bytes =
      info.has_decoded_sizes
          ? Load<std::uint64_t>(column.decoded_sizes.data() + Raw(id) * kDecodedSizeBytes)
          : info.array_bytes();
  const std::uint64_t stored =
      DecodeExtent(column.entries.data() + Raw(id) * kExtentBytes).range.size;
  if (const auto why = WhyDecodedBytesAreWrong(bytes, stored, info)) {
    return DamagedEntry(parts_,
                        info.has_decoded_sizes ? SectionKind::kDecodedSizes : SectionKind::kExtents,
                        field, Raw(id), *why);
  }
  return bytes;
}

std::optional<std::uint64_t> IndexView::checksum(std::size_t field, SampleId id) const {
  HEADRACE_CHECK(field < parts_.fields.size() && Raw(id) < sample_count());
  if (!parts_.fields[field].has_checksums) return std::nullopt;
  return Load<std::uint64_t>(parts_.tables.columns[field].checksums.data() +
                             Raw(id) * kChecksumBytes);
}

void IndexView::Prefetch(std::size_t field, SampleId id) const {
  if (field >= parts_.fields.size() || Raw(id) >= sample_count()) return;
  const FieldInfo& info = parts_.fields[field];
  if (info.is_inline) return;
  const IndexParts::Column& column = parts_.tables.columns[field];
  __builtin_prefetch(column.entries.data() + Raw(id) * kExtentBytes);
  if (info.has_decoded_sizes) {
    __builtin_prefetch(column.decoded_sizes.data() + Raw(id) * kDecodedSizeBytes);
  }
  if (info.has_checksums) __builtin_prefetch(column.checksums.data() + Raw(id) * kChecksumBytes);
}

void IndexView::SampleBytes(SampleId first, std::span<std::uint64_t> bytes) const {
  HEADRACE_CHECK(Raw(first) <= sample_count() && bytes.size() <= sample_count() - Raw(first));
  std::ranges::fill(bytes, 0);
  for (std::size_t field = 0; field < parts_.fields.size(); ++field) {
    const FieldInfo& info = parts_.fields[field];
    if (info.is_inline) continue;
    // Compressed bytes have any length.
    const bool is_decoded = info.is_compressed() || info.has_decoded_sizes;
    const bool is_fixed = !info.is_variable() && !is_decoded;
    const std::uint64_t array_bytes = is_decoded ? 1 : info.array_bytes();
    const std::byte* entry =
        parts_.tables.columns[field].entries.data() + Raw(first) * kExtentBytes;
    for (std::uint64_t& sum : bytes) {
      const Extent extent = DecodeExtent(entry);
      entry += kExtentBytes;
      if (Raw(extent.object) >= object_count()) continue;
      const auto object_bytes =
          Load<std::uint64_t>(parts_.tables.objects.data() + Raw(extent.object) * kObjectBytes);
      if (extent.range.end() > object_bytes) continue;  // neither term has 2^48
      if (is_fixed ? extent.range.size != array_bytes : extent.range.size % array_bytes != 0) {
        continue;
      }
      sum += extent.range.size;
    }
  }
}

Status IndexView::CopyInlineValues(std::size_t field, SampleId first,
                                   std::span<std::byte> values) const {
  if (values.empty()) return Status();
  HEADRACE_RETURN_IF_ERROR(CheckColumn(field, first, /*is_inline=*/true));
  if (HasInlineEnds(parts_.fields[field])) {
    return InvalidArgument("field {}: its values differ in length; take them one by one",
                           Quoted(parts_.fields[field].name));
  }
  const std::uint64_t bytes = parts_.fields[field].array_bytes();
  HEADRACE_RETURN_IF_ERROR(
      CheckColumn(field, SampleId{Raw(first) + (values.size() - 1) / bytes}, /*is_inline=*/true));
  std::ranges::copy(parts_.tables.columns[field].entries.subspan(Raw(first) * bytes, values.size()),
                    values.begin());
  return Status();
}

Result<std::shared_ptr<const Index>> ViewOf(IndexParts parts) {
  HEADRACE_RETURN_IF_ERROR(ReadParts(parts));
  auto view = std::make_shared<const IndexView>(std::move(parts));
  HEADRACE_RETURN_IF_ERROR(view->CheckIntact());  // Since its parts were read.
  return std::shared_ptr<const Index>(std::move(view));
}

}  // namespace

Result<std::shared_ptr<const Index>> OpenIndexInMemory(std::span<const std::byte> bytes,
                                                       std::string path,
                                                       std::shared_ptr<const void> owner) {
  return ViewOf({.path = std::move(path), .owner = std::move(owner), .file = bytes});
}

Result<std::shared_ptr<const Index>> OpenMappedIndex(std::shared_ptr<const MappedFile> file,
                                                     std::string path) {
  const std::span<const std::byte> bytes = file->bytes();
  return ViewOf({.path = std::move(path), .mapped = std::move(file), .file = bytes});
}

}  // namespace headrace::internal
