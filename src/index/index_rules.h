#pragma once

// The rules for the contents of an index, each written once. The writer returns InvalidArgument for
// a violation, the reader DataLoss. Internal to index/.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/index.h"

namespace headrace::internal {

// Limits. The first three follow from the 16 bytes of a packed extent.
inline constexpr std::uint64_t kObjectsMax = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kOffsetsEnd = std::uint64_t{1} << 48;
inline constexpr std::uint64_t kLengthsEnd = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kFieldsMax = 4096;
inline constexpr std::uint64_t kAttributesMax = 4096;
inline constexpr std::uint64_t kFieldNameBytesMax = 1024;
inline constexpr std::uint64_t kRankMax = 64;

// The first violation, or std::nullopt.
std::optional<std::string> WhyFieldsAreWrong(std::span<const FieldInfo> fields);
std::optional<std::string> WhyAttributesAreWrong(std::span<const Attribute> attributes);
std::optional<std::string> WhyRootIsWrong(std::string_view root);
std::optional<std::string> WhyObjectNameIsWrong(std::string_view name);
// The bytes of value that a sample of the field decodes to from `stored` bytes.
std::optional<std::string> WhyDecodedBytesAreWrong(std::uint64_t decoded, std::uint64_t stored,
                                                   const FieldInfo& field);
// `object` is the extent's; `field` is the one that it belongs to, or null.
std::optional<std::string> WhyExtentIsWrong(const Extent& extent, const ObjectInfo& object,
                                            const FieldInfo* field);
// `block` is the one at `position`; `first_sample` is the end of its predecessor.
std::optional<std::string> WhyBlockIsWrong(const BlockInfo& block, std::uint64_t first_sample,
                                           std::uint64_t sample_count, bool is_last);
bool Contains(const Extent& outer, const Extent& inner);

// Names in messages: quoted, unprintable bytes escaped, long ones cut.
std::string Quoted(std::string_view name);
// "object 3 bytes [5, 9)".
std::string Describe(const Extent& extent);

}  // namespace headrace::internal
