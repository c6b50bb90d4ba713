#include "index/index_rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_set>

#include "base/coding/coding.h"
#include "base/units.h"

namespace headrace::internal {
namespace {

// Bytes of one sample; std::nullopt if they exceed what an extent can hold.
std::optional<std::uint64_t> ArrayBytes(const FieldInfo& field) {
  std::uint64_t bytes = ElementBytes(field.dtype);
  for (const std::uint64_t extent : field.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes >= kLengthsEnd) return std::nullopt;
  }
  return bytes;
}

// What compression and decoders say of a field.
std::optional<std::string> WhyDecodingIsWrong(const FieldInfo& field) {
  if (field.coding > kCodingLast) return "has an unknown codec";
  if (field.is_inline && (field.is_compressed() || field.has_decoded_sizes)) {
    return "is inline and compressed";
  }
  if (!field.is_compressed() && (field.is_shuffled || field.header_bytes != 0)) {
    return "is shuffled or has a header but is not compressed";
  }
  if (field.is_shuffled && field.kind != FieldKind::kArray) return "is shuffled but no array";
  if (!field.is_variable() && field.has_decoded_sizes) {
    return "has decoded sizes but is an array of one shape";
  }
  if (field.is_variable() && field.is_compressed() && !field.has_decoded_sizes) {
    return "is compressed and has no decoded sizes";
  }
  return std::nullopt;
}

std::optional<std::string> WhyFieldIsWrong(const FieldInfo& field) {
  if (field.name.empty()) return "has no name";
  if (field.name.size() > kFieldNameBytesMax) {
    return fmt::format("its name has {} bytes, more than {}", field.name.size(),
                       kFieldNameBytesMax);
  }
  if (field.kind > FieldKind::kText) return "has an unknown kind";
  if (field.dtype > DType::kBool) return "has an unknown dtype";
  if (field.is_inline && field.has_checksums) return "is inline and has checksums";
  if (auto why = WhyDecodingIsWrong(field)) return why;
  if (field.batch_dtype) {
    if (*field.batch_dtype > DType::kBool) return "has an unknown dtype for batches";
    if (field.kind != FieldKind::kArray || field.is_inline) {
      return "has a dtype for batches but is no array outside the index";
    }
    if (!IsWider(*field.batch_dtype, field.dtype)) {
      return fmt::format("batches would hold {}, which is not a wider type than {}",
                         DTypeName(*field.batch_dtype), DTypeName(field.dtype));
    }
  }
  if (field.kind != FieldKind::kArray) {
    if (field.is_inline && field.kind == FieldKind::kImage) return "is an image and inline";
    if (!field.shape.empty() || field.dtype != DType::kUInt8 || field.is_list) {
      return "is not an array but has a shape";
    }
    return std::nullopt;
  }
  if (field.shape.size() > kRankMax) {
    return fmt::format("has {} dimensions, more than {}", field.shape.size(), kRankMax);
  }
  const std::optional<std::uint64_t> bytes = ArrayBytes(field);
  if (!bytes) return "has 2^40 bytes a sample or more";
  if (*bytes == 0) return "has a dimension of 0: no bytes a sample";
  return std::nullopt;
}

}  // namespace

std::optional<std::string> WhyFieldsAreWrong(std::span<const FieldInfo> fields) {
  if (fields.empty()) return "no fields";
  if (fields.size() > kFieldsMax) {
    return fmt::format("{} fields, more than {}", fields.size(), kFieldsMax);
  }
  std::unordered_set<std::string_view> names;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto at = [&] { return fmt::format("field {} {}", i, Quoted(fields[i].name)); };
    if (const auto why = WhyFieldIsWrong(fields[i])) return at() + ": " + *why;
    if (!names.insert(fields[i].name).second) return at() + ": the name is taken";
  }
  return std::nullopt;
}

std::optional<std::string> WhyAttributesAreWrong(std::span<const Attribute> attributes) {
  if (attributes.size() > kAttributesMax) {
    return fmt::format("{} attributes, more than {}", attributes.size(), kAttributesMax);
  }
  std::unordered_set<std::string_view> keys;
  for (const auto& [key, value] : attributes) {
    if (key.empty()) return "an attribute has no key";
    if (!keys.insert(key).second) return "attribute " + Quoted(key) + ": the key is taken";
  }
  return std::nullopt;
}

std::optional<std::string> WhyRootIsWrong(std::string_view root) {
  if (root.find('\0') != std::string_view::npos) return "has a zero byte in its path";
  if (root.starts_with("file://")) return "is " + Quoted(root) + ": write the path alone";
  // "SCHEME://...": objects of a store that is no file system.
  const std::size_t scheme = root.find("://");
  const auto is_of_scheme = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (scheme != 0 && scheme != std::string_view::npos &&
      std::ranges::all_of(root.substr(0, scheme), is_of_scheme)) {
    return std::nullopt;
  }
  if (root != "." && !root.starts_with('/')) {
    return "is " + Quoted(root) + ": neither an absolute path nor \".\"";
  }
  return std::nullopt;
}

// Names from an untrusted file must not lead out of the root.
std::optional<std::string> WhyObjectNameIsWrong(std::string_view name) {
  if (name.empty()) return "has no name";
  if (name.find('\0') != std::string_view::npos) return Quoted(name) + " has a zero byte";
  if (name.starts_with('/')) return Quoted(name) + " is not below the root";
  for (std::string_view rest = name; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    if (part == "..") return Quoted(name) + " has a part '..'";
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  }
  return std::nullopt;
}

std::optional<std::string> WhyDecodedBytesAreWrong(std::uint64_t decoded, std::uint64_t stored,
                                                   const FieldInfo& field) {
  if (decoded >= kLengthsEnd) return fmt::format("{} bytes decoded: 2^40 or more", decoded);
  const std::uint64_t bytes = field.array_bytes();
  if (field.kind == FieldKind::kArray &&
      (field.is_list ? decoded % bytes != 0 : decoded != bytes)) {
    return fmt::format("{} decoded, a sample of field {} has {}{}", Counted(decoded, "byte"),
                       Quoted(field.name), field.is_list ? "a multiple of " : "", bytes);
  }
  // Nobody is to reserve memory for what cannot be.
  if (!field.is_compressed()) return std::nullopt;
  const std::uint64_t most = DecodedBytesMax(field.coding, stored);
  if (decoded + field.header_bytes <= most) return std::nullopt;
  return fmt::format("{} stored decode to {}: {} gives {} at most", Counted(stored, "byte"),
                     decoded + field.header_bytes, CodingName(field.coding), most);
}

std::optional<std::string> WhyExtentIsWrong(const Extent& extent, const ObjectInfo& object,
                                            const FieldInfo* field) {
  const ByteRange range = extent.range;
  if (range.offset >= kOffsetsEnd) return Describe(extent) + ": offset of 2^48 or more";
  if (range.size >= kLengthsEnd) return Describe(extent) + ": length of 2^40 or more";
  if (range.offset > object.size || range.size > object.size - range.offset) {
    return fmt::format("{}: {} has {}", Describe(extent), Quoted(object.name),
                       Counted(object.size, "byte"));
  }
  if (field == nullptr || field->kind != FieldKind::kArray || field->is_compressed() ||
      field->has_decoded_sizes) {
    return std::nullopt;
  }
  const std::uint64_t bytes = field->array_bytes();
  if (field->is_list ? range.size % bytes == 0 : range.size == bytes) return std::nullopt;
  return fmt::format("{}: {}, a sample of field {} has {}{}", Describe(extent),
                     Counted(range.size, "byte"), Quoted(field->name),
                     field->is_list ? "a multiple of " : "", bytes);
}

std::optional<std::string> WhyBlockIsWrong(const BlockInfo& block, std::uint64_t first_sample,
                                           std::uint64_t sample_count, bool is_last) {
  const std::uint64_t first = Raw(block.first_sample);
  if (first != first_sample) {
    return fmt::format("begins at sample {}, its predecessor ends at {}", first, first_sample);
  }
  if (block.sample_count == 0) return "holds no samples";
  if (first > sample_count || block.sample_count > sample_count - first) {
    return fmt::format("holds {} from {}, the index has {}", Counted(block.sample_count, "sample"),
                       first, sample_count);
  }
  if (is_last && block.sample_count != sample_count - first) {
    return fmt::format("is the last and ends at sample {}, the index has {}",
                       first + block.sample_count, sample_count);
  }
  return std::nullopt;
}

bool Contains(const Extent& outer, const Extent& inner) {
  return outer.object == inner.object && inner.range.offset >= outer.range.offset &&
         inner.range.end() <= outer.range.end();
}

std::string Quoted(std::string_view name) {
  constexpr std::size_t kShownMax = 200;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text = "'";
  for (const char c : name.substr(0, kShownMax)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      text.append("\\x").push_back(kHex[byte >> 4]);
      text.push_back(kHex[byte & 0xf]);
    } else {
      text.push_back(c);
    }
  }
  return text + (name.size() > kShownMax ? "...'" : "'");
}

std::string Describe(const Extent& extent) {
  return fmt::format("object {} bytes [{}, {})", Raw(extent.object), extent.range.offset,
                     extent.range.end());
}

}  // namespace headrace::internal
