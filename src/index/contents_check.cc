#include "index/contents_check.h"

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/format/errors.h"
#include "index/index_format.h"
#include "index/index_rules.h"

namespace headrace::internal {
namespace {

using Field = IndexContents::Field;

Status CheckCount(const Field& field, const char* what, std::uint64_t count,
                  std::uint64_t expected) {
  if (count == expected) return Status();
  return InvalidArgument("field {}: {} {}, must be {}", Quoted(field.info.name), count, what,
                         expected);
}

// The ends of an inline field's values.
Status CheckEnds(const Field& field, std::uint64_t samples) {
  HEADRACE_RETURN_IF_ERROR(
      CheckCount(field, "ends of inline values", field.inline_ends.size(), samples));
  std::uint64_t begin = 0;
  for (const std::uint64_t end : field.inline_ends) {
    if (end < begin || (end - begin) % field.info.array_bytes() != 0) {
      return InvalidArgument(
          "field {}: an inline value at bytes [{}, {}), must be a multiple of {}",
          Quoted(field.info.name), begin, end, field.info.array_bytes());
    }
    begin = end;
  }
  return CheckCount(field, "bytes of inline values", field.inline_values.size(), begin);
}

Status CheckColumnSizes(const IndexContents& contents, const Field& field) {
  const std::uint64_t samples = contents.sample_count;
  if (HasInlineEnds(field.info)) {
    HEADRACE_RETURN_IF_ERROR(CheckEnds(field, samples));
    HEADRACE_RETURN_IF_ERROR(CheckCount(field, "extents", field.extents.size(), 0));
    HEADRACE_RETURN_IF_ERROR(CheckCount(field, "decoded sizes", field.decoded_sizes.size(), 0));
    return CheckCount(field, "checksums", field.checksums.size(), 0);
  }
  HEADRACE_RETURN_IF_ERROR(CheckCount(field, "ends of inline values", field.inline_ends.size(), 0));
  std::uint64_t inline_bytes = 0;
  if (field.info.is_inline &&
      __builtin_mul_overflow(samples, field.info.array_bytes(), &inline_bytes)) {
    return InvalidArgument("field {}: its values must be below 2^64 bytes",
                           Quoted(field.info.name));
  }
  HEADRACE_RETURN_IF_ERROR(
      CheckCount(field, "bytes of inline values", field.inline_values.size(), inline_bytes));
  HEADRACE_RETURN_IF_ERROR(
      CheckCount(field, "extents", field.extents.size(), field.info.is_inline ? 0 : samples));
  HEADRACE_RETURN_IF_ERROR(CheckCount(field, "decoded sizes", field.decoded_sizes.size(),
                                      field.info.has_decoded_sizes ? samples : 0));
  return CheckCount(field, "checksums", field.checksums.size(),
                    field.info.has_checksums ? samples : 0);
}

std::optional<std::string> WhyWrongIn(const IndexContents& contents, const Extent& extent,
                                      const FieldInfo* field) {
  if (Raw(extent.object) >= contents.objects.size()) {
    return fmt::format("object {}: there are {} objects", Raw(extent.object),
                       contents.objects.size());
  }
  const IndexContents::Object& object = contents.objects[Raw(extent.object)];
  return WhyExtentIsWrong(extent, {.name = object.name, .size = object.size}, field);
}

Status CheckField(const IndexContents& contents, const Field& field) {
  HEADRACE_RETURN_IF_ERROR(CheckColumnSizes(contents, field));
  for (std::size_t i = 0; i < field.extents.size(); ++i) {
    if (const auto why = WhyWrongIn(contents, field.extents[i], &field.info)) {
      return InvalidArgument("field {} sample {}: {}", Quoted(field.info.name), i, *why);
    }
    if (!field.info.is_compressed() && !field.info.has_decoded_sizes) continue;
    const std::uint64_t decoded =
        field.info.has_decoded_sizes ? field.decoded_sizes[i] : field.info.array_bytes();
    if (const auto why =
            WhyDecodedBytesAreWrong(decoded, field.extents[i].range.size, field.info)) {
      return InvalidArgument("field {} sample {}: {}", Quoted(field.info.name), i, *why);
    }
  }
  return Status();
}

Status CheckObjects(const IndexContents& contents) {
  for (std::size_t i = 0; i < contents.objects.size(); ++i) {
    if (const auto why = WhyObjectNameIsWrong(contents.objects[i].name)) {
      return InvalidArgument("object {}: {}", i, *why);
    }
  }
  return Status();
}

std::optional<std::string> WhyBlockMissesASample(const IndexContents& contents,
                                                 const BlockInfo& block) {
  for (const Field& field : contents.fields) {
    if (field.info.is_inline) continue;
    for (std::uint64_t i = 0; i < block.sample_count; ++i) {
      const std::uint64_t sample = Raw(block.first_sample) + i;
      if (Contains(block.extent, field.extents[sample])) continue;
      return fmt::format("{} must hold sample {} field {}: {}", Describe(block.extent), sample,
                         Quoted(field.info.name), Describe(field.extents[sample]));
    }
  }
  return std::nullopt;
}

Status CheckBlocks(const IndexContents& contents) {
  std::uint64_t first_sample = 0;
  for (std::size_t i = 0; i < contents.blocks.size(); ++i) {
    const BlockInfo& block = contents.blocks[i];
    const bool is_last = i + 1 == contents.blocks.size();
    auto why = WhyBlockIsWrong(block, first_sample, contents.sample_count, is_last);
    if (!why) why = WhyWrongIn(contents, block.extent, nullptr);
    if (!why) why = WhyBlockMissesASample(contents, block);
    if (why) return InvalidArgument("block {}: {}", i, *why);
    first_sample += block.sample_count;
  }
  return Status();
}

}  // namespace

Status CheckContents(const IndexContents& contents) {
  std::vector<FieldInfo> fields;
  for (const Field& field : contents.fields) fields.push_back(field.info);
  if (const auto why = WhyFieldsAreWrong(fields)) return InvalidArgument("{}", *why);
  const std::vector<Attribute> attributes(contents.attributes.begin(), contents.attributes.end());
  if (const auto why = WhyAttributesAreWrong(attributes)) return InvalidArgument("{}", *why);
  if (const auto why = WhyRootIsWrong(contents.root)) return InvalidArgument("root: {}", *why);
  HEADRACE_RETURN_IF_ERROR(CheckObjects(contents));
  for (const Field& field : contents.fields) {
    HEADRACE_RETURN_IF_ERROR(CheckField(contents, field));
  }
  return CheckBlocks(contents);
}

}  // namespace headrace::internal
