#include "index/index_builder.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "index/atomic_file.h"
#include "index/column_spool.h"
#include "index/file_io.h"
#include "index/index_file.h"
#include "index/index_format.h"
#include "index/index_rules.h"

namespace headrace {
namespace {

using internal::AtomicFile;
using internal::ColumnSpool;
using internal::IndexOutline;
using internal::Quoted;
using internal::Section;
using internal::SectionKind;
using internal::TakeBytes;

constexpr std::uint64_t kEntriesAtOnce = 2048;  // encoded or decoded at a time

}  // namespace

class IndexBuilder::Impl {
 public:
  Impl(std::string path, std::string root)
      : path_(std::move(path)),
        spool_(internal::FolderOf(path_)),
        objects_(spool_.AddColumn()),
        name_offsets_(spool_.AddColumn()),
        names_(spool_.AddColumn()),
        blocks_(spool_.AddColumn()) {
    outline_.root = std::move(root);
  }

  Status Begin() {
    if (const auto why = internal::WhyRootIsWrong(outline_.root)) {
      return InvalidArgument("root: {}", *why);
    }
    std::array<std::byte, internal::kNameOffsetBytes> zero{};
    return spool_.Append(name_offsets_, zero);
  }

  Result<std::size_t> AddField(const FieldInfo& field) {
    outline_.fields.push_back(field);
    if (const auto why = internal::WhyFieldsAreWrong(outline_.fields)) {
      return InvalidArgument("{}", *why);
    }
    Columns columns{.entries = spool_.AddColumn()};
    if (field.has_checksums) columns.checksums = spool_.AddColumn();
    if (field.has_decoded_sizes) columns.decoded_sizes = spool_.AddColumn();
    if (internal::HasInlineEnds(field)) columns.ends = spool_.AddColumn();
    columns_.push_back(columns);
    return columns_.size() - 1;
  }

  Status AddObjects(std::span<const IndexContents::Object> objects) {
    if (objects.size() > internal::kObjectsMax - object_count()) {
      return InvalidArgument("{} objects, must be at most 2^40", object_count() + objects.size());
    }
    while (!objects.empty()) {
      const auto some = objects.first(std::min<std::size_t>(objects.size(), kEntriesAtOnce));
      HEADRACE_RETURN_IF_ERROR(AddSomeObjects(some));
      objects = objects.subspan(some.size());
    }
    return Status();
  }

  Status AddExtents(std::size_t field, std::span<const Extent> extents) {
    HEADRACE_RETURN_IF_ERROR(CheckField(field, /*is_inline=*/false));
    const FieldInfo& info = outline_.fields[field];
    const std::uint64_t first = sample_count(field);
    std::vector<std::byte> entries;
    for (std::size_t begin = 0; begin < extents.size(); begin += kEntriesAtOnce) {
      const auto part = extents.subspan(begin, std::min(kEntriesAtOnce, extents.size() - begin));
      entries.resize(part.size() * internal::kExtentBytes);
      for (std::size_t i = 0; i < part.size(); ++i) {
        if (const Status status = CheckExtent(part[i], &info); !status.ok()) {
          return status.WithContext("field " + Quoted(info.name) + " sample " +
                                    std::to_string(first + begin + i));
        }
        internal::EncodeExtent(part[i], entries.data() + i * internal::kExtentBytes);
      }
      HEADRACE_RETURN_IF_ERROR(spool_.Append(columns_[field].entries, entries));
    }
    return Status();
  }

  Status AddInlineValues(std::size_t field, std::span<const std::byte> values) {
    HEADRACE_RETURN_IF_ERROR(CheckField(field, /*is_inline=*/true));
    const FieldInfo& info = outline_.fields[field];
    if (columns_[field].ends) {
      return InvalidArgument("field {}: its values differ in length: the length of each is needed",
                             Quoted(info.name));
    }
    if (values.size() % info.array_bytes() != 0) {
      return InvalidArgument("field {}: {} bytes of inline values, must be a multiple of {}",
                             Quoted(info.name), values.size(), info.array_bytes());
    }
    return spool_.Append(columns_[field].entries, values);
  }

  Status AddInlineValues(std::size_t field, std::span<const std::byte> values,
                         std::span<const std::uint64_t> lengths) {
    HEADRACE_RETURN_IF_ERROR(CheckField(field, /*is_inline=*/true));
    const FieldInfo& info = outline_.fields[field];
    if (!columns_[field].ends) {
      return InvalidArgument("field {}: its values have one length; give none", Quoted(info.name));
    }
    std::uint64_t end = spool_.size(columns_[field].entries);
    std::uint64_t left = values.size();
    std::vector<std::uint64_t> ends;
    ends.reserve(lengths.size());
    for (const std::uint64_t length : lengths) {
      if (length > left || length % info.array_bytes() != 0) {
        return InvalidArgument(
            "field {} sample {}: an inline value of {}, of {} left; must be a multiple of {}",
            Quoted(info.name), sample_count(field) + ends.size(), Counted(length, "byte"), left,
            info.array_bytes());
      }
      left -= length;
      end += length;
      ends.push_back(end);
    }
    if (left != 0) {
      return InvalidArgument(
          "field {}: {} of inline values beyond the sum of their lengths, "
          "which must be equal",
          Quoted(info.name), Counted(left, "byte"));
    }
    HEADRACE_RETURN_IF_ERROR(spool_.Append(columns_[field].entries, values));
    return spool_.Append(*columns_[field].ends, std::as_bytes(std::span(ends)));
  }

  Status AddChecksums(std::size_t field, std::span<const std::uint64_t> checksums) {
    if (field >= columns_.size()) return NoField(field);
    if (!columns_[field].checksums) {
      return InvalidArgument("field {}: it has no checksums", Quoted(outline_.fields[field].name));
    }
    return spool_.Append(*columns_[field].checksums, std::as_bytes(checksums));
  }

  Status AddDecodedSizes(std::size_t field, std::span<const std::uint64_t> sizes) {
    if (field >= columns_.size()) return NoField(field);
    if (!columns_[field].decoded_sizes) {
      return InvalidArgument("field {}: it has no decoded sizes",
                             Quoted(outline_.fields[field].name));
    }
    return spool_.Append(*columns_[field].decoded_sizes, std::as_bytes(sizes));
  }

  Status AddBlocks(std::span<const BlockInfo> blocks) {
    std::array<std::byte, internal::kBlockBytes> entry{};
    for (const BlockInfo& block : blocks) {
      // Before it is encoded, which keeps only so many bits.
      if (const Status status = CheckExtent(block.extent, nullptr); !status.ok()) {
        return status.WithContext("block " + std::to_string(block_count()));
      }
      internal::EncodeBlock(block, entry.data());
      HEADRACE_RETURN_IF_ERROR(spool_.Append(blocks_, entry));
    }
    return Status();
  }

  Status SetAttribute(std::string key, std::string value) {
    attributes_.emplace_back(std::move(key), std::move(value));
    const std::vector<Attribute> all(attributes_.begin(), attributes_.end());
    if (const auto why = internal::WhyAttributesAreWrong(all)) return InvalidArgument("{}", *why);
    return Status();
  }

  [[nodiscard]] std::uint64_t object_count() const {
    return spool_.size(objects_) / internal::kObjectBytes;
  }

  [[nodiscard]] std::uint64_t sample_count(std::size_t field) const {
    HEADRACE_CHECK(field < columns_.size());
    const FieldInfo& info = outline_.fields[field];
    if (columns_[field].ends) return spool_.size(*columns_[field].ends) / internal::kInlineEndBytes;
    const std::uint64_t bytes = info.is_inline ? info.array_bytes() : internal::kExtentBytes;
    return spool_.size(columns_[field].entries) / bytes;
  }

  Status Publish(const std::function<bool()>& may_go_on) {
    may_go_on_ = &may_go_on;
    HEADRACE_RETURN_IF_ERROR(CheckWhole());
    outline_.object_count = object_count();
    outline_.block_count = block_count();
    outline_.name_bytes = spool_.size(names_);
    outline_.attributes.assign(attributes_.begin(), attributes_.end());
    for (const Columns& columns : columns_) {
      if (columns.ends) outline_.inline_values.push_back(spool_.size(columns.entries));
    }
    HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path_));
    HEADRACE_RETURN_IF_ERROR(internal::WriteIndexFile(
        outline_,
        [&](const Section& section, const TakeBytes& take) { return Give(section, take); }, *file));
    return file->Publish();
  }

  // Runs a call of the user's, whose failure is that of all later ones: a part of what it was given
  // may have been added.
  template <typename Call>
  Status Run(const Call& call) {
    if (!failed_.ok()) return failed_;
    const Status status = call();
    if (!status.ok()) failed_ = status.WithContext("writing index " + Quoted(path_));
    return failed_;
  }

 private:
  struct Columns {
    std::size_t entries = 0;  // extents or inline values
    std::optional<std::size_t> ends = {};
    std::optional<std::size_t> decoded_sizes = {};
    std::optional<std::size_t> checksums = {};
  };

  [[nodiscard]] std::uint64_t block_count() const {
    return spool_.size(blocks_) / internal::kBlockBytes;
  }

  [[nodiscard]] Status NoField(std::size_t field) const {
    return InvalidArgument("field {}: there are {}", field, columns_.size());
  }

  [[nodiscard]] Status CheckField(std::size_t field, bool is_inline) const {
    if (field >= columns_.size()) return NoField(field);
    const FieldInfo& info = outline_.fields[field];
    if (info.is_inline == is_inline) return Status();
    return InvalidArgument("field {}: {}", Quoted(info.name),
                           is_inline ? "extents are needed, it is not inline"
                                     : "inline values are needed, not extents");
  }

  // Each column at once: an entry takes less time than a call.
  Status AddSomeObjects(std::span<const IndexContents::Object> objects) {
    std::vector<std::byte> entries(objects.size() * internal::kObjectBytes);
    std::vector<std::byte> ends(objects.size() * internal::kNameOffsetBytes);
    std::string names;
    for (std::size_t i = 0; i < objects.size(); ++i) {
      const IndexContents::Object& object = objects[i];
      if (const auto why = internal::WhyObjectNameIsWrong(object.name)) {
        return InvalidArgument("object {}: {}", object_count() + i, *why);
      }
      internal::Store(object.size, entries.data() + i * internal::kObjectBytes);
      internal::Store(object.mtime_ns, entries.data() + i * internal::kObjectBytes + 8);
      names += object.name;
      internal::Store(spool_.size(names_) + names.size(),
                      ends.data() + i * internal::kNameOffsetBytes);
    }
    HEADRACE_RETURN_IF_ERROR(spool_.Append(objects_, entries));
    HEADRACE_RETURN_IF_ERROR(spool_.Append(names_, std::as_bytes(std::span(names))));
    return spool_.Append(name_offsets_, ends);
  }

  // The sizes of an object that exists, and of those behind it, if it is itself behind the last:
  // neighbours mostly lie in one object, or in one each.
  Status LookAtObjects(std::uint64_t first) {
    const bool goes_on = first == sizes_begin_ + sizes_.size() && !sizes_.empty();
    const std::uint64_t count =
        goes_on ? std::min(object_count() - first, kEntriesAtOnce) : std::uint64_t{1};
    std::vector<std::byte> entries(count * internal::kObjectBytes);
    HEADRACE_RETURN_IF_ERROR(spool_.Read(objects_, first * internal::kObjectBytes, entries));
    sizes_.clear();
    for (std::uint64_t i = 0; i < count; ++i) {
      sizes_.push_back(internal::Load<std::uint64_t>(entries.data() + i * internal::kObjectBytes));
    }
    sizes_begin_ = first;
    return Status();
  }

  Status CheckExtent(const Extent& extent, const FieldInfo* field) {
    const std::uint64_t number = Raw(extent.object);
    if (number >= object_count()) {
      return InvalidArgument("object {}: there are {} objects", number, object_count());
    }
    if (number < sizes_begin_ || number - sizes_begin_ >= sizes_.size()) {
      HEADRACE_RETURN_IF_ERROR(LookAtObjects(number));
    }
    ObjectInfo object;
    object.size = sizes_[number - sizes_begin_];
    if (!internal::WhyExtentIsWrong(extent, object, field)) return Status();
    HEADRACE_ASSIGN_OR_RETURN(const std::string name, NameOf(extent.object));
    object.name = name;
    return InvalidArgument("{}", *internal::WhyExtentIsWrong(extent, object, field));
  }

  [[nodiscard]] Result<std::string> NameOf(ObjectId id) const {
    std::array<std::byte, 2 * internal::kNameOffsetBytes> ends{};
    HEADRACE_RETURN_IF_ERROR(
        spool_.Read(name_offsets_, Raw(id) * internal::kNameOffsetBytes, ends));
    const auto begin = internal::Load<std::uint64_t>(ends.data());
    std::string name(internal::Load<std::uint64_t>(ends.data() + 8) - begin, '\0');
    HEADRACE_RETURN_IF_ERROR(spool_.Read(names_, begin, std::as_writable_bytes(std::span(name))));
    return name;
  }

  Status CheckWhole() {
    if (const auto why = internal::WhyFieldsAreWrong(outline_.fields)) {
      return InvalidArgument("{}", *why);
    }
    outline_.sample_count = sample_count(0);
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const auto differs = [&](const char* what, std::uint64_t count) {
        return InvalidArgument("field {}: {} {}, must be {}, the number of samples of field {}",
                               Quoted(outline_.fields[i].name), count, what, outline_.sample_count,
                               Quoted(outline_.fields[0].name));
      };
      if (sample_count(i) != outline_.sample_count) {
        return differs(outline_.fields[i].is_inline ? "inline values" : "extents", sample_count(i));
      }
      const auto count = [&](const std::optional<std::size_t>& column) {
        return column ? spool_.size(*column) / sizeof(std::uint64_t) : outline_.sample_count;
      };
      const std::uint64_t checksums = count(columns_[i].checksums);
      if (checksums != outline_.sample_count) return differs("checksums", checksums);
      const std::uint64_t decoded_sizes = count(columns_[i].decoded_sizes);
      if (decoded_sizes != outline_.sample_count) return differs("decoded sizes", decoded_sizes);
      HEADRACE_RETURN_IF_ERROR(CheckDecoded(i));
    }
    return CheckBlocks();
  }

  // Whether the samples of a field can decode to their decoded sizes.
  [[nodiscard]] Status CheckDecoded(std::size_t field) const {
    const FieldInfo& info = outline_.fields[field];
    if (!info.is_compressed() && !info.has_decoded_sizes) return Status();
    std::vector<std::byte> entries;
    std::vector<std::uint64_t> sizes;
    for (std::uint64_t first = 0; first < outline_.sample_count; first += kEntriesAtOnce) {
      HEADRACE_RETURN_IF_ERROR(GoOn());
      const std::uint64_t count = std::min(kEntriesAtOnce, outline_.sample_count - first);
      entries.resize(count * internal::kExtentBytes);
      HEADRACE_RETURN_IF_ERROR(
          spool_.Read(columns_[field].entries, first * internal::kExtentBytes, entries));
      sizes.assign(count, info.array_bytes());
      if (info.has_decoded_sizes) {
        HEADRACE_RETURN_IF_ERROR(spool_.Read(*columns_[field].decoded_sizes,
                                             first * internal::kDecodedSizeBytes,
                                             std::as_writable_bytes(std::span(sizes))));
      }
      for (std::uint64_t i = 0; i < count; ++i) {
        const Extent extent = internal::DecodeExtent(entries.data() + i * internal::kExtentBytes);
        if (const auto why = internal::WhyDecodedBytesAreWrong(sizes[i], extent.range.size, info)) {
          return InvalidArgument("field {} sample {}: {}", Quoted(info.name), first + i, *why);
        }
      }
    }
    return Status();
  }

  Status CheckBlocks() {
    std::uint64_t first_sample = 0;
    std::array<std::byte, internal::kBlockBytes> entry{};
    for (std::uint64_t i = 0; i < block_count(); ++i) {
      HEADRACE_RETURN_IF_ERROR(spool_.Read(blocks_, i * internal::kBlockBytes, entry));
      const BlockInfo block = internal::DecodeBlock(entry.data()).value();
      Status status;
      if (const auto why = internal::WhyBlockIsWrong(block, first_sample, outline_.sample_count,
                                                     i + 1 == block_count())) {
        status = InvalidArgument("{}", *why);
      }
      for (std::size_t field = 0; status.ok() && field < columns_.size(); ++field) {
        if (!outline_.fields[field].is_inline) status = CheckHolds(block, field);
      }
      if (!status.ok()) return status.WithContext("block " + std::to_string(i));
      first_sample += block.sample_count;
    }
    return Status();
  }

  // Whether the block's extent contains those of its samples.
  [[nodiscard]] Status CheckHolds(const BlockInfo& block, std::size_t field) const {
    const std::uint64_t end = Raw(block.first_sample) + block.sample_count;
    std::vector<std::byte> entries;
    for (std::uint64_t first = Raw(block.first_sample); first < end; first += kEntriesAtOnce) {
      HEADRACE_RETURN_IF_ERROR(GoOn());
      const std::uint64_t count = std::min(kEntriesAtOnce, end - first);
      entries.resize(count * internal::kExtentBytes);
      HEADRACE_RETURN_IF_ERROR(
          spool_.Read(columns_[field].entries, first * internal::kExtentBytes, entries));
      for (std::uint64_t i = 0; i < count; ++i) {
        const Extent extent = internal::DecodeExtent(entries.data() + i * internal::kExtentBytes);
        if (internal::Contains(block.extent, extent)) continue;
        return InvalidArgument("{} must hold sample {} field {}: {}",
                               internal::Describe(block.extent), first + i,
                               Quoted(outline_.fields[field].name), internal::Describe(extent));
      }
    }
    return Status();
  }

  [[nodiscard]] Status GoOn() const {
    if (!*may_go_on_ || (*may_go_on_)()) return Status();
    return {StatusCode::kCancelled, "stopped"};
  }

  [[nodiscard]] std::size_t ColumnOf(const Section& section) const {
    switch (section.kind) {
      case SectionKind::kObjects:
        return objects_;
      case SectionKind::kNameOffsets:
        return name_offsets_;
      case SectionKind::kNameBytes:
        return names_;
      case SectionKind::kBlocks:
        return blocks_;
      case SectionKind::kInlineEnds:
        return columns_[section.field].ends.value();
      case SectionKind::kDecodedSizes:
        return columns_[section.field].decoded_sizes.value();
      case SectionKind::kSampleChecksums:
        return columns_[section.field].checksums.value();
      case SectionKind::kExtents:
      case SectionKind::kInlineValues:
        return columns_[section.field].entries;
      case SectionKind::kFields:
      case SectionKind::kRoot:
      case SectionKind::kAttributes:
        break;
    }
    HEADRACE_CHECK(false);  // They are in the outline.
    return 0;
  }

  [[nodiscard]] Status Give(const Section& section, const TakeBytes& take) const {
    const std::size_t column = ColumnOf(section);
    std::vector<std::byte> bytes;
    for (std::uint64_t at = 0; at < section.size; at += bytes.size()) {
      HEADRACE_RETURN_IF_ERROR(GoOn());
      bytes.resize(std::min<std::uint64_t>(section.size - at, ColumnSpool::kChunkBytes));
      HEADRACE_RETURN_IF_ERROR(spool_.Read(column, at, bytes));
      HEADRACE_RETURN_IF_ERROR(take(bytes));
    }
    return Status();
  }

  const std::string path_;
  ColumnSpool spool_;
  const std::size_t objects_;
  const std::size_t name_offsets_;
  const std::size_t names_;
  const std::size_t blocks_;
  IndexOutline outline_;
  std::vector<Columns> columns_;  // one a field
  std::vector<std::pair<std::string, std::string>> attributes_;
  // Sizes of the objects that extents were in last.
  std::uint64_t sizes_begin_ = 0;
  std::vector<std::uint64_t> sizes_;
  const std::function<bool()>* may_go_on_ = nullptr;
  Status failed_;
};

IndexBuilder::IndexBuilder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
IndexBuilder::~IndexBuilder() = default;

Result<std::unique_ptr<IndexBuilder>> IndexBuilder::Create(std::string path, std::string root) {
  auto impl = std::make_unique<Impl>(std::move(path), std::move(root));
  const Status status = impl->Run([&impl] { return impl->Begin(); });
  if (!status.ok()) return status;
  return std::unique_ptr<IndexBuilder>(new IndexBuilder(std::move(impl)));
}

Result<std::size_t> IndexBuilder::AddField(const FieldInfo& field) {
  std::size_t position = 0;
  HEADRACE_RETURN_IF_ERROR(impl_->Run([&]() -> Status {
    HEADRACE_ASSIGN_OR_RETURN(position, impl_->AddField(field));
    return {};
  }));
  return position;
}

Status IndexBuilder::AddObjects(std::span<const IndexContents::Object> objects) {
  return impl_->Run([&] { return impl_->AddObjects(objects); });
}

Status IndexBuilder::AddExtents(std::size_t field, std::span<const Extent> extents) {
  return impl_->Run([&] { return impl_->AddExtents(field, extents); });
}

Status IndexBuilder::AddInlineValues(std::size_t field, std::span<const std::byte> values) {
  return impl_->Run([&] { return impl_->AddInlineValues(field, values); });
}

Status IndexBuilder::AddInlineValues(std::size_t field, std::span<const std::byte> values,
                                     std::span<const std::uint64_t> lengths) {
  return impl_->Run([&] { return impl_->AddInlineValues(field, values, lengths); });
}

Status IndexBuilder::AddChecksums(std::size_t field, std::span<const std::uint64_t> checksums) {
  return impl_->Run([&] { return impl_->AddChecksums(field, checksums); });
}

Status IndexBuilder::AddDecodedSizes(std::size_t field, std::span<const std::uint64_t> sizes) {
  return impl_->Run([&] { return impl_->AddDecodedSizes(field, sizes); });
}

Status IndexBuilder::AddBlocks(std::span<const BlockInfo> blocks) {
  return impl_->Run([&] { return impl_->AddBlocks(blocks); });
}

Status IndexBuilder::SetAttribute(std::string key, std::string value) {
  return impl_->Run([&] { return impl_->SetAttribute(std::move(key), std::move(value)); });
}

std::uint64_t IndexBuilder::object_count() const { return impl_->object_count(); }

std::uint64_t IndexBuilder::sample_count(std::size_t field) const {
  return impl_->sample_count(field);
}

Status IndexBuilder::Publish(const std::function<bool()>& may_go_on) {
  return impl_->Run([&] { return impl_->Publish(may_go_on); });
}

}  // namespace headrace
