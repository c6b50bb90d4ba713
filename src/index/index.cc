#include "headrace/index.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory/mapped_file.h"
#include "index/index_reader.h"
#include "index/index_rules.h"
#include "index/joined_index.h"

namespace headrace {
namespace {

struct DTypeRow {
  std::string_view name;
  std::uint64_t bytes;
};

// By number of the type.
constexpr std::array<DTypeRow, 11> kDTypes = {{{"uint8", 1},
                                               {"int8", 1},
                                               {"int16", 2},
                                               {"int32", 4},
                                               {"int64", 8},
                                               {"float16", 2},
                                               {"float32", 4},
                                               {"float64", 8},
                                               {"uint16", 2},
                                               {"uint32", 4},
                                               {"bool", 1}}};

const DTypeRow& Row(DType dtype) {
  const auto number = static_cast<std::size_t>(dtype);
  HEADRACE_CHECK(number < kDTypes.size());
  return kDTypes[number];
}

}  // namespace

std::uint64_t ElementBytes(DType dtype) { return Row(dtype).bytes; }

std::string_view DTypeName(DType dtype) { return Row(dtype).name; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

bool IsWider(DType to, DType from) {
  const auto kind = [](DType dtype) { return DTypeName(dtype).front(); };  // of "uint8": 'u'
  const bool more_bits = ElementBytes(to) > ElementBytes(from);
  return more_bits && (kind(to) == kind(from) || (kind(to) == 'i' && kind(from) == 'u'));
}

std::uint64_t FieldInfo::array_bytes() const {
  std::uint64_t bytes = ElementBytes(dtype);  // 1, and no shape, if it is not an array
  for (const std::uint64_t extent : shape) bytes *= extent;
  return bytes;
}

Result<std::uint64_t> Index::decoded_bytes(std::size_t field, SampleId /*id*/) const {
  return Status(StatusCode::kInvalidArgument,
                "field " + internal::Quoted(fields()[field].name) +
                    " is not decoded; ask for a field of encoded values");
}

void Index::SampleBytes(SampleId first, std::span<std::uint64_t> bytes) const {
  std::ranges::fill(bytes, 0);
  for (std::size_t field = 0; field < fields().size(); ++field) {
    if (fields()[field].is_inline) continue;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const Result<Extent> extent = this->extent(field, SampleId{Raw(first) + i});
      if (extent.ok()) bytes[i] += extent.value().range.size;
    }
  }
}

std::string_view FindAttribute(const Index& index, std::string_view key) {
  const std::span<const Attribute> all = index.attributes();
  const auto found = std::ranges::find(all, key, &Attribute::first);
  return found == all.end() ? std::string_view() : found->second;
}

std::optional<ObjectId> FirstOtherObject(const Index& a, const Index& b) {
  const std::uint64_t both = std::min(a.object_count(), b.object_count());
  for (std::uint64_t id = 0; id < both; ++id) {
    const Result<ObjectInfo> one = a.object(ObjectId{id});
    const Result<ObjectInfo> two = b.object(ObjectId{id});
    const bool same = one.ok() && two.ok() && one.value().name == two.value().name &&
                      one.value().size == two.value().size;
    if (!same) return ObjectId{id};
  }
  if (a.object_count() != b.object_count()) return ObjectId{both};
  return std::nullopt;
}

Status Index::CopyInlineValues(std::size_t field, SampleId first,
                               std::span<std::byte> values) const {
  for (std::uint64_t id = Raw(first); !values.empty(); ++id) {
    HEADRACE_ASSIGN_OR_RETURN(const std::span<const std::byte> value,
                              inline_value(field, SampleId{id}));
    if (value.empty()) return Status();
    const std::size_t count = std::min(value.size(), values.size());
    std::ranges::copy(value.first(count), values.begin());
    values = values.subspan(count);
  }
  return Status();
}

std::uint64_t Index::object_bytes(ObjectId id) const {
  const Result<ObjectInfo> object = this->object(id);
  return object.ok() ? object.value().size : 0;
}

std::vector<Extent> Index::Pieces(std::uint64_t count, std::uint64_t bytes,
                                  std::uint64_t seed) const {
  const auto size_of = [this](std::uint64_t id) { return object_bytes(ObjectId{id}); };
  unsigned __int128 total = 0;
  for (std::uint64_t id = 0; id < object_count(); ++id) total += size_of(id);
  std::vector<Extent> pieces;
  std::uint64_t id = 0;
  unsigned __int128 begin = 0;  // of object `id`, in the bytes of all
  for (std::uint64_t part = 0; part < count && total > 0; ++part) {
    const unsigned __int128 first = total * part / count;
    const auto part_bytes = static_cast<std::uint64_t>(total * (part + 1) / count - first);
    std::uint64_t left = std::min(bytes, part_bytes);
    if (left == 0) continue;
    const unsigned __int128 at = first + Mix64(seed + part) % (part_bytes - left + 1);
    while (at >= begin + size_of(id)) begin += size_of(id++);
    auto offset = static_cast<std::uint64_t>(at - begin);
    for (std::uint64_t each = id; left > 0 && each <= id + kPieceObjectsMax; ++each) {
      if (each == object_count()) break;
      const std::uint64_t size = std::min(left, size_of(each) - offset);
      if (size > 0) pieces.push_back({ObjectId{each}, {offset, size}});
      left -= size;
      offset = 0;
    }
  }
  return pieces;
}

Result<std::shared_ptr<const Index>> internal::OpenIndexFile(const std::string& path) {
  const Result<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path);
  if (!file.ok()) {
    const bool is_no_file = file.status().code() == StatusCode::kInvalidArgument;
    const Status status =
        is_no_file
            ? Status(
                  StatusCode::kDataLoss,
                  "not an index: not a file; give the path of a file that `headrace index` wrote")
            : file.status();
    return status.WithContext("opening index " + internal::Quoted(path));
  }
  return OpenMappedIndex(file.value(), path);
}

Result<std::shared_ptr<const Index>> Index::Open(const std::string& path) {
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<const Index> index, internal::OpenIndexFile(path));
  if (!internal::IsJoined(*index)) return index;
  return internal::OpenJoinedIndex(*index, path);
}

}  // namespace headrace
