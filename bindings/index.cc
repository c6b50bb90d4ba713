#include "index.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/coding/coding.h"
#include "base/format/errors.h"
#include "base/hash.h"
#include "convert/buffer.h"
#include "convert/text.h"
#include "gil/gil.h"
#include "headrace/folder_index.h"
#include "module.h"
#include "status.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

const char* KindName(const FieldInfo& field) {
  switch (field.kind) {
    case FieldKind::kBytes:
      return "bytes";
    case FieldKind::kImage:
      return "image";
    case FieldKind::kArray:
      return field.is_list ? "list" : "array";
    case FieldKind::kText:
      return "text";
  }
  return "bytes";
}

nb::dlpack::dtype DlpackType(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  Code code = Code::UInt;
  switch (dtype) {
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
      break;
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      code = Code::Int;
      break;
    case DType::kFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
      code = Code::Float;
      break;
    case DType::kBool:
      code = Code::Bool;
      break;
  }
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * ElementBytes(dtype)), 1};
}

// `status`, or that the file of the index was cut or written again: then what was read is wrong.
Status AndIntact(const Index& index, const Status& status) {
  Status intact = index.CheckIntact();
  return intact.ok() ? status : intact;
}

const FieldInfo& FieldOrThrow(const Index& index, std::size_t field) {
  if (field >= index.fields().size()) {
    ThrowStatus(OutOfRange("field {}: the index has {}", field, index.fields().size()));
  }
  return index.fields()[field];
}

const FieldInfo& FieldOrThrow(const Index& index, std::size_t field, bool is_inline) {
  const FieldInfo& info = FieldOrThrow(index, field);
  if (info.is_inline != is_inline) {
    ThrowStatus({StatusCode::kInvalidArgument,
                 "field \"" + info.name + "\": " +
                     (is_inline ? "has extents, not inline values" : "is inline: no extents")});
  }
  return info;
}

// [first, first + count) of `total` things; without a count, up to the last.
std::uint64_t CountOrThrow(std::string_view what, std::uint64_t first,
                           std::optional<std::uint64_t> count, std::uint64_t total) {
  if (first > total || (count && *count > total - first)) {
    ThrowStatus(OutOfRange("{}s from {} on, {} of them: the index has {}", what, first,
                           count ? std::to_string(*count) : "all", total));
  }
  return count.value_or(total - first);
}

using Array64 = OutArray<std::uint64_t>;

std::tuple<Array64, Array64, Array64> Extents(const PyIndex& self, std::size_t field,
                                              std::uint64_t first,
                                              std::optional<std::uint64_t> count) {
  const Index& index = *self.index;
  FieldOrThrow(index, field, /*is_inline=*/false);
  const std::uint64_t n = CountOrThrow("sample", first, count, index.sample_count());
  std::vector<std::uint64_t> objects(n);
  std::vector<std::uint64_t> offsets(n);
  std::vector<std::uint64_t> sizes(n);
  const auto fill = [&]() -> Status {
    for (std::uint64_t i = 0; i < n; ++i) {
      HEADRACE_ASSIGN_OR_RETURN(const Extent extent, index.extent(field, SampleId{first + i}));
      objects[i] = Raw(extent.object);
      offsets[i] = extent.range.offset;
      sizes[i] = extent.range.size;
    }
    return {};
  };
  Status status;
  {
    const GilRelease release;
    status = AndIntact(index, fill());
  }
  ThrowIfError(status);
  return {ToArray(std::move(objects)), ToArray(std::move(offsets)), ToArray(std::move(sizes))};
}

// Inline values that differ in length: (all of them, end to end; the bytes of each).
std::tuple<OutArray<std::uint8_t>, Array64> InlineRagged(const PyIndex& self, std::size_t field,
                                                         std::uint64_t first,
                                                         std::optional<std::uint64_t> count) {
  const Index& index = *self.index;
  FieldOrThrow(index, field, /*is_inline=*/true);
  const std::uint64_t n = CountOrThrow("sample", first, count, index.sample_count());
  std::vector<std::uint8_t> values;
  std::vector<std::uint64_t> lengths(n);
  RunReleased([&]() -> Status {
    for (std::uint64_t i = 0; i < n; ++i) {
      HEADRACE_ASSIGN_OR_RETURN(const std::span<const std::byte> value,
                                index.inline_value(field, SampleId{first + i}));
      const auto* const bytes = reinterpret_cast<const std::uint8_t*>(value.data());
      values.insert(values.end(), bytes, bytes + value.size());
      lengths[i] = value.size();
    }
    return index.CheckIntact();
  });
  return {ToArray(std::move(values)), ToArray(std::move(lengths))};
}

nb::ndarray<nb::numpy> InlineValues(const PyIndex& self, std::size_t field, std::uint64_t first,
                                    std::optional<std::uint64_t> count) {
  const Index& index = *self.index;
  const FieldInfo& info = FieldOrThrow(index, field, /*is_inline=*/true);
  if (info.is_variable()) {
    ThrowStatus(InvalidArgument("field '{}': its values differ in length", info.name));
  }
  const std::uint64_t n = CountOrThrow("sample", first, count, index.sample_count());
  const std::uint64_t bytes = info.array_bytes();
  auto values = std::make_unique<std::vector<std::byte>>(n * bytes);
  const auto fill = [&]() -> Status {
    for (std::uint64_t i = 0; i < n; ++i) {
      HEADRACE_ASSIGN_OR_RETURN(const std::span<const std::byte> value,
                                index.inline_value(field, SampleId{first + i}));
      std::memcpy(values->data() + i * bytes, value.data(), bytes);
    }
    return {};
  };
  Status status;
  {
    const GilRelease release;
    status = AndIntact(index, fill());
  }
  ThrowIfError(status);
  std::vector<std::size_t> shape{n};
  shape.insert(shape.end(), info.shape.begin(), info.shape.end());
  void* data = values->data();
  const nb::capsule owner(values.get(),
                          [](void* p) noexcept { delete static_cast<std::vector<std::byte>*>(p); });
  static_cast<void>(values.release());
  return nb::ndarray<nb::numpy>(data, shape.size(), shape.data(), owner, nullptr,
                                DlpackType(info.dtype));
}

std::optional<Array64> Checksums(const PyIndex& self, std::size_t field, std::uint64_t first,
                                 std::optional<std::uint64_t> count) {
  const Index& index = *self.index;
  const FieldInfo& info = FieldOrThrow(index, field);
  const std::uint64_t n = CountOrThrow("sample", first, count, index.sample_count());
  if (!info.has_checksums) return std::nullopt;
  std::vector<std::uint64_t> checksums(n);
  {
    const GilRelease release;
    for (std::uint64_t i = 0; i < n; ++i) {
      checksums[i] = index.checksum(field, SampleId{first + i}).value_or(0);
    }
  }
  ThrowIfError(index.CheckIntact());
  return ToArray(std::move(checksums));
}

// Bytes of value that each sample decodes to; nothing of fields that are not decoded.
std::optional<Array64> DecodedSizes(const PyIndex& self, std::size_t field, std::uint64_t first,
                                    std::optional<std::uint64_t> count) {
  const Index& index = *self.index;
  const FieldInfo& info = FieldOrThrow(index, field);
  const std::uint64_t n = CountOrThrow("sample", first, count, index.sample_count());
  if (!info.is_compressed() && !info.has_decoded_sizes) return std::nullopt;
  std::vector<std::uint64_t> sizes(n);
  RunReleased([&]() -> Status {
    for (std::uint64_t i = 0; i < n; ++i) {
      HEADRACE_ASSIGN_OR_RETURN(sizes[i], index.decoded_bytes(field, SampleId{first + i}));
    }
    return index.CheckIntact();
  });
  return ToArray(std::move(sizes));
}

std::tuple<Array64, Array64, Array64, Array64, Array64, std::optional<Array64>> Blocks(
    const PyIndex& self, std::uint64_t first, std::optional<std::uint64_t> count) {
  const Index& index = *self.index;
  const std::uint64_t n = CountOrThrow("block", first, count, index.block_count());
  std::vector<std::uint64_t> first_samples(n);
  std::vector<std::uint64_t> counts(n);
  std::vector<std::uint64_t> objects(n);
  std::vector<std::uint64_t> offsets(n);
  std::vector<std::uint64_t> sizes(n);
  std::vector<std::uint64_t> checksums(n);
  bool has_checksums = true;
  const auto fill = [&]() -> Status {
    for (std::uint64_t i = 0; i < n; ++i) {
      HEADRACE_ASSIGN_OR_RETURN(const BlockInfo block, index.block(first + i));
      first_samples[i] = Raw(block.first_sample);
      counts[i] = block.sample_count;
      objects[i] = Raw(block.extent.object);
      offsets[i] = block.extent.range.offset;
      sizes[i] = block.extent.range.size;
      checksums[i] = block.checksum.value_or(0);
      has_checksums = has_checksums && block.checksum.has_value();
    }
    return {};
  };
  Status status;
  {
    const GilRelease release;
    status = AndIntact(index, fill());
  }
  ThrowIfError(status);
  std::optional<Array64> sums;
  if (has_checksums) sums = ToArray(std::move(checksums));
  return {ToArray(std::move(first_samples)), ToArray(std::move(counts)),
          ToArray(std::move(objects)),       ToArray(std::move(offsets)),
          ToArray(std::move(sizes)),         std::move(sums)};
}

std::tuple<nb::str, std::uint64_t, std::int64_t> Object(const PyIndex& self, std::uint64_t id) {
  const ObjectInfo info = ValueOrThrow(self.index->object(ObjectId{id}));
  return {ToName(info.name), info.size, info.mtime_ns};
}

// The content of an index, as text.
std::string ContentOf(const PyIndex& self) {
  const GilRelease release;
  return self.index->Content();
}

// Ranges that stand for all bytes: (objects, offsets, sizes).
std::tuple<Array64, Array64, Array64> Pieces(const PyIndex& self, std::uint64_t count,
                                             std::uint64_t bytes, std::uint64_t seed) {
  std::vector<std::uint64_t> objects;
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint64_t> sizes;
  {
    const GilRelease release;
    for (const Extent& each : self.index->Pieces(count, bytes, seed)) {
      objects.push_back(Raw(each.object));
      offsets.push_back(each.range.offset);
      sizes.push_back(each.range.size);
    }
  }
  return {ToArray(std::move(objects)), ToArray(std::move(offsets)), ToArray(std::move(sizes))};
}

// As headrace::FirstOtherObject().
std::optional<std::uint64_t> FirstOther(const PyIndex& self, const PyIndex& other) {
  const GilRelease release;
  const std::optional<ObjectId> found = FirstOtherObject(*self.index, *other.index);
  return found.has_value() ? std::optional(Raw(*found)) : std::nullopt;
}

PyIndex OpenIndex(const Text& path) {
  const std::string name = path.bytes();
  PyIndex opened{.index = nullptr, .path = name};
  RunReleased([&]() -> Status {
    HEADRACE_ASSIGN_OR_RETURN(opened.index, Index::Open(name));
    return {};
  });
  return opened;
}

std::uint64_t Hash(nb::handle data) {
  const Buffer buffer(data);
  const GilRelease release;
  return Hash64(buffer.bytes());
}

Array64 HashRanges(nb::handle data, const InArray<std::uint64_t>& offsets,
                   const InArray<std::uint64_t>& sizes) {
  const Buffer buffer(data);
  const std::span<const std::byte> bytes = buffer.bytes();
  if (offsets.size() != sizes.size()) {
    ThrowStatus(InvalidArgument("hash64_ranges: {} offsets and {} sizes, must be as many",
                                offsets.size(), sizes.size()));
  }
  const std::size_t n = offsets.size();
  const std::uint64_t* offset = offsets.data();
  const std::uint64_t* size = sizes.data();
  std::vector<std::uint64_t> hashes(n);
  RunReleased([&]() -> Status {
    for (std::size_t i = 0; i < n; ++i) {
      if (offset[i] > bytes.size() || size[i] > bytes.size() - offset[i]) {
        return OutOfRange("hash64_ranges: range {} ends past the {} bytes given", i, bytes.size());
      }
      hashes[i] = Hash64(bytes.subspan(offset[i], size[i]));
    }
    return {};
  });
  return ToArray(std::move(hashes));
}

void BindField(nb::module_& module) {
  nb::class_<FieldInfo>(module, "Field", "One named part of every sample.")
      .def_ro("name", &FieldInfo::name)
      .def_prop_ro("kind", [](const FieldInfo& self) { return KindName(self); })
      .def_prop_ro("dtype",
                   [](const FieldInfo& self) { return std::string(DTypeName(self.dtype)); })
      .def_prop_ro("shape",
                   [](const FieldInfo& self) {
                     return nb::typed<nb::tuple, std::uint64_t, nb::ellipsis>(
                         nb::tuple(nb::cast(self.shape)));
                   })
      .def_prop_ro(
          "batch_dtype",
          [](const FieldInfo& self) {
            return std::string(DTypeName(self.batch_dtype.value_or(self.dtype)));
          },
          "the dtype of the rows of a batch: `dtype`, or a wider one")
      .def_ro("is_inline", &FieldInfo::is_inline)
      .def_ro("has_checksums", &FieldInfo::has_checksums)
      .def_prop_ro(
          "coding", [](const FieldInfo& self) { return std::string(CodingName(self.coding)); },
          "how each sample is compressed; \"stored\": it is not")
      .def_ro("is_shuffled", &FieldInfo::is_shuffled)
      .def_ro("header_bytes", &FieldInfo::header_bytes, "in front of the value, of what is decoded")
      .def_ro("has_decoded_sizes", &FieldInfo::has_decoded_sizes);
}

void BindReading(nb::module_& module) {
  nb::class_<PyIndex>(module, "Index", "A memory-mapped index: where every sample's bytes lie.")
      .def_static("open", &OpenIndex, "path"_a)
      .def_prop_ro("sample_count", [](const PyIndex& self) { return self.index->sample_count(); })
      .def_prop_ro("object_count", [](const PyIndex& self) { return self.index->object_count(); })
      .def_prop_ro("block_count", [](const PyIndex& self) { return self.index->block_count(); })
      .def_prop_ro("file_bytes", [](const PyIndex& self) { return self.index->file_bytes(); })
      .def_prop_ro(
          "path", [](const PyIndex& self) { return ToName(self.path); },
          "Its file, as it was opened.")
      .def_prop_ro("root", [](const PyIndex& self) { return ToName(self.index->root()); })
      .def_prop_ro("fingerprint", [](const PyIndex& self) { return self.index->fingerprint(); })
      .def_prop_ro("fields",
                   [](const PyIndex& self) {
                     const auto fields = self.index->fields();
                     return std::vector<FieldInfo>(fields.begin(), fields.end());
                   })
      .def_prop_ro("attributes",
                   [](const PyIndex& self) {
                     nb::typed<nb::dict, nb::str, nb::str> attributes;
                     for (const auto& [key, value] : self.index->attributes()) {
                       attributes[ToName(key)] = ToName(value);
                     }
                     return attributes;
                   })
      .def("content", &ContentOf,
           "32 hexadecimal digits: the fingerprint without the objects' times of change")
      .def("pieces", &Pieces, "count"_a, "bytes"_a, "seed"_a,
           "(objects, offsets, sizes) of ranges that are spread over the bytes of all objects")
      .def("first_other_object", &FirstOther, "other"_a,
           "the first object that has another name or size in `other`, or is in one alone")
      .def("object", &Object, "id"_a, "(name, size, mtime_ns)")
      .def("extents", &Extents, "field"_a, "first"_a = 0, "count"_a = nb::none(),
           "(objects, offsets, sizes) of samples [first, first + count)")
      .def("inline_values", &InlineValues, "field"_a, "first"_a = 0, "count"_a = nb::none(),
           nb::sig("def inline_values(self, field: int, first: int = 0, count: int | None = None) "
                   "-> numpy.typing.NDArray[typing.Any]"))
      .def("inline_ragged", &InlineRagged, "field"_a, "first"_a = 0, "count"_a = nb::none(),
           "Values that differ in length: (all bytes end to end, the bytes of each)")
      .def("decoded_sizes", &DecodedSizes, "field"_a, "first"_a = 0, "count"_a = nb::none(),
           "The bytes of value that each sample decodes to; None of fields that are not decoded")
      .def("checksums", &Checksums, "field"_a, "first"_a = 0, "count"_a = nb::none(),
           "XXH3-64 of each sample's bytes; None where not known")
      .def("blocks", &Blocks, "first"_a = 0, "count"_a = nb::none(),
           "(first_samples, sample_counts, objects, offsets, sizes, checksums or None)")
      .def("verify_all",
           [](const PyIndex& self) { RunReleased([&] { return self.index->VerifyAll(); }); })
      .def("folder_is_current", [](const PyIndex& self) {
        const GilRelease release;
        return FolderIndexIsCurrent(*self.index);
      });
}

}  // namespace

void BindIndex(nb::module_& module) {
  BindField(module);
  BindReading(module);
  module.def("hash64", &Hash, "data"_a, "XXH3-64, seed 0.");
  module.def("hash64_ranges", &HashRanges, "data"_a, "offsets"_a, "sizes"_a,
             "XXH3-64 of each range of `data`.");
}

}  // namespace headrace::bindings
