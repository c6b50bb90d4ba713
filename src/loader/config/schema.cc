#include "loader/config/schema.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/format/errors.h"
#include "base/memory/buffer_pool.h"
#include "base/units.h"
#include "codec/bytes_codec.h"
#include "codec/image/image_codec.h"
#include "codec/image/whole_image.h"
#include "codec/sound/sound_codec.h"
#include "codec/widen_codec.h"
#include "engine/batch/row_rooms.h"

namespace headrace {
namespace {

Result<std::size_t> FindField(const Index& index, const std::string& name) {
  std::string names;
  for (std::size_t i = 0; i < index.fields().size(); ++i) {
    if (index.fields()[i].name == name) return i;
    names.append(names.empty() ? "" : ", ").append(index.fields()[i].name);
  }
  return InvalidArgument("field '{}': the dataset has no such field; it has {}", name, names);
}

NumberType TypeOf(DType dtype) {
  const char kind = DTypeName(dtype).front();  // of "uint8": 'u'
  using Kind = NumberType::Kind;
  return {kind == 'f'   ? Kind::kFloat
          : kind == 'i' ? Kind::kSigned
                        : Kind::kUnsigned,
          ElementBytes(dtype)};
}

// `field` with rows of the wider type; `count`: numbers of each, if that is fixed.
Result<BatchField> Widened(const FieldInfo& info, std::optional<std::uint64_t> count,
                           BatchField field) {
  field.dtype = *info.batch_dtype;
  auto codec = MakeWidenCodec(TypeOf(info.dtype), TypeOf(field.dtype), count);
  if (!codec.ok()) return codec.status().WithContext("field '" + info.name + "'");
  field.codec = std::move(codec).value();
  field.row_bytes = info.array_bytes() / ElementBytes(info.dtype) * ElementBytes(field.dtype);
  return field;
}

// Rows of any length are as long as the index says, which knows it of stored sounds alone.
Result<BatchField> MakeSoundField(const FieldInfo& info, const SoundTransform& sound) {
  if (info.kind != FieldKind::kBytes || info.is_inline || info.is_compressed()) {
    return InvalidArgument(
        "field '{}': a sound transform, but it holds no encoded sounds; leave the transform out",
        info.name);
  }
  BatchField field{.name = info.name, .may_be_empty = false};
  field.ragged = !sound.frames.has_value();
  if (field.ragged && (!info.has_decoded_sizes || sound.channels == 0)) {
    return InvalidArgument(
        "field '{}': sounds of any length, but the index does not say how long they are; give a "
        "length (headrace.audio.clip), index them with sounds= (formats HuggingFace, Manifest), or "
        "decode them in a Python transform (headrace.audio.decode)",
        info.name);
  }
  Result<std::unique_ptr<FieldCodec>> codec = MakeSoundCodec(sound);
  if (!codec.ok()) return codec.status().WithContext("field '" + info.name + "'");
  field.codec = std::move(codec).value();
  field.has_decoded_sizes = field.ragged;
  field.dtype = DType::kFloat32;
  field.shape = {sound.channels};
  if (!field.ragged) field.shape.insert(field.shape.begin(), *sound.frames);
  field.row_bytes = field.ragged ? sound.channels * sizeof(float) : field.codec->RowBytes(0);
  return field;
}

Result<BatchField> MakeField(const FieldInfo& info, const LoaderField& wanted) {
  if (wanted.sound.has_value()) return MakeSoundField(info, *wanted.sound);
  BatchField field{.name = info.name, .may_be_empty = info.kind != FieldKind::kImage};
  if (info.is_compressed()) {  // Sizes of others are for decoders that ask for them.
    field.coding = info.coding;
    field.shuffled_bytes = info.is_shuffled ? ElementBytes(info.dtype) : 1;
    field.header_bytes = info.header_bytes;
    field.has_decoded_sizes = info.has_decoded_sizes;
  }
  if (wanted.image.has_value()) {
    if (info.kind != FieldKind::kImage) {
      return InvalidArgument(
          "field '{}': an image transform, but it holds no encoded images; leave the transform out",
          info.name);
    }
    const ImageTransform& image = *wanted.image;
    Result<std::unique_ptr<FieldCodec>> codec = MakeImageCodec(image);
    if (!codec.ok()) return codec.status().WithContext("field '" + info.name + "'");
    field.codec = std::move(codec).value();
    field.dtype = image.to_float ? DType::kFloat32 : DType::kUInt8;
    field.shape = {image.height, image.width, 3};
    if (image.channels_first) field.shape = {3, image.height, image.width};
    field.row_bytes = field.codec->RowBytes(0);
    return field;
  }
  if (info.kind == FieldKind::kImage) {
    const bool checked = wanted.encoded != EncodedImages::kUnchecked;
    field.codec = checked ? MakeCheckedImageCodec(wanted.encoded) : MakeBytesCodec();
    field.ragged = true;
    field.row_bytes = 1;
    return field;
  }
  field.dtype = info.dtype;
  field.shape = info.shape;
  field.row_bytes = info.array_bytes();
  field.ragged = info.is_variable();
  field.is_text = info.kind == FieldKind::kText;
  std::optional<std::uint64_t> numbers;  // of a row, if that is fixed
  if (!field.ragged) numbers = field.row_bytes / ElementBytes(info.dtype);
  if (info.batch_dtype) return Widened(info, numbers, std::move(field));
  if (!info.is_inline)
    field.codec = field.ragged ? MakeBytesCodec() : MakeArrayCodec(field.row_bytes);
  return field;
}

}  // namespace

Result<std::vector<BatchField>> MakeSchema(const Index& index,
                                           const std::vector<LoaderField>& fields) {
  std::vector<LoaderField> wanted = fields;
  if (wanted.empty()) {
    for (const FieldInfo& info : index.fields()) wanted.push_back({.name = info.name});
  }
  std::vector<BatchField> schema;
  std::set<std::string> seen;
  for (const LoaderField& field : wanted) {
    if (!seen.insert(field.name).second) {
      return InvalidArgument("field '{}': asked for twice; name each field once", field.name);
    }
    HEADRACE_ASSIGN_OR_RETURN(const std::size_t position, FindField(index, field.name));
    HEADRACE_ASSIGN_OR_RETURN(BatchField made, MakeField(index.fields()[position], field));
    made.index_field = position;
    schema.push_back(std::move(made));
  }
  return schema;
}

SampleSizes LookAtSizes(const Index& index, const std::vector<BatchField>& schema) {
  constexpr std::uint64_t kLookedAtMax = 1000;
  const std::uint64_t count = std::min(index.sample_count(), kLookedAtMax);
  SampleSizes sizes;
  std::uint64_t reads = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t row_bytes = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const SampleId id{i * (index.sample_count() / count)};
    std::uint64_t stand_in_bytes = 0;
    for (const BatchField& field : schema) {
      if (field.is_inline()) {
        if (!field.ragged) continue;
        const auto value = index.inline_value(field.index_field, id);
        const std::uint64_t room = value.ok() ? value.value().size() : 0;
        row_bytes += RoundUp(room, kRowAlignment);
        stand_in_bytes += BufferPool::ChargedBytes(room);
        continue;
      }
      const Result<Extent> extent = index.extent(field.index_field, id);
      if (!extent.ok()) continue;  // Told when it is read.
      const std::uint64_t size = extent.value().range.size;
      ++reads;
      read_bytes += size;
      sizes.read_bytes_max = std::max(sizes.read_bytes_max, size);
      if (field.ragged) {
        const Result<std::uint64_t> content = ContentBytes(index, field, id, size);
        if (!content.ok()) continue;  // Told when it is decoded.
        const ByteRange room = RowRoom(field, content.value(), size + kWideningMax, 0);
        row_bytes +=
            RoundUp(room.size, ReadInPlace(field, size) ? kBufferAlignment : kRowAlignment);
        stand_in_bytes += BufferPool::ChargedBytes(room.size);
      }
    }
    sizes.stand_in_bytes_max = std::max(sizes.stand_in_bytes_max, stand_in_bytes);
  }
  if (reads != 0) sizes.read_bytes_mean = read_bytes / reads;
  if (count != 0) sizes.row_bytes_mean = row_bytes / count;
  return sizes;
}

}  // namespace headrace
