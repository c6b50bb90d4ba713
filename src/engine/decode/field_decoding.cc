#include "engine/decode/field_decoding.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/coding/decompress.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "codec/scratch_memory.h"

namespace headrace {
namespace {

// No sample decodes to more: a limit of the index.
constexpr std::uint64_t kContentBytesMax = std::uint64_t{1} << 40;

using Memory = std::unique_ptr<std::byte, FreesScratch>;

// What lies between the stored bytes and the codec, and the buffers for it.
struct Stages {
  bool to_scratch = false;          // decompressed into scratch memory; else into the row
  bool shuffled = false;            // put in order from there into another buffer, or into the row
  bool content_in_row = false;      // the codec would copy it there
  std::uint64_t decoded_bytes = 0;  // header included
  std::uint64_t buffer_bytes = 0;   // of all buffers
};

Stages StagesOf(const BatchField& field, std::uint64_t content_bytes) {
  Stages stages;
  stages.shuffled = field.shuffled_bytes > 1;
  stages.content_in_row = field.codec->is_copy();
  stages.to_scratch = stages.shuffled || field.header_bytes > 0 || !stages.content_in_row;
  stages.decoded_bytes = field.header_bytes + content_bytes;
  if (stages.to_scratch) stages.buffer_bytes += stages.decoded_bytes;
  if (stages.shuffled && !stages.content_in_row) stages.buffer_bytes += content_bytes;
  return stages;
}

Result<Memory> MakeMemory(std::uint64_t bytes) {
  Memory memory(static_cast<std::byte*>(AllocateScratch(bytes)));
  if (memory != nullptr) return memory;
  return ResourceExhausted("decompressing a sample: the system has no memory for {}",
                           FormatBytes(bytes));
}

Status DecodeCompressed(const BatchField& field, const StoredValue& value, const SampleKey& key,
                        std::span<std::byte> row, ScratchLimit& limit) {
  const Stages stages = StagesOf(field, value.content_bytes);
  const std::uint64_t state_bytes = DecompressBytesMax(field.coding);
  limit.bytes_needed = stages.buffer_bytes + state_bytes;
  if (limit.bytes_needed > limit.bytes_max) {
    return ResourceExhausted("decompressing {} to {} takes {} of memory, may take {}",
                             FormatBytes(value.bytes.size()), FormatBytes(stages.decoded_bytes),
                             FormatBytes(limit.bytes_needed), FormatBytes(limit.bytes_max));
  }
  HEADRACE_CHECK(!stages.content_in_row || row.size() == value.content_bytes);
  if (!stages.to_scratch) return Decompress(field.coding, value.bytes, row);

  HEADRACE_ASSIGN_OR_RETURN(const Memory decoded, MakeMemory(stages.decoded_bytes));
  const std::span<std::byte> whole(decoded.get(), stages.decoded_bytes);
  HEADRACE_RETURN_IF_ERROR(Decompress(field.coding, value.bytes, whole));
  std::span<std::byte> content = whole.subspan(field.header_bytes);
  Memory ordered;
  if (stages.shuffled) {
    std::span<std::byte> to = row;
    if (!stages.content_in_row) {
      HEADRACE_ASSIGN_OR_RETURN(ordered, MakeMemory(content.size()));
      to = {ordered.get(), content.size()};
    }
    Unshuffle(content, field.shuffled_bytes, to);
    content = to;
  }
  if (stages.content_in_row) {
    if (content.data() != row.data() && !content.empty()) {
      std::memcpy(row.data(), content.data(), content.size());
    }
    return Status();
  }
  ScratchLimit rest = limit;
  rest.bytes_max -= std::min(limit.bytes_max, stages.buffer_bytes);
  const Status status = field.codec->DecodeWithin(content, key, row, rest);
  limit.bytes_needed = stages.buffer_bytes + std::max(rest.bytes_needed, state_bytes);
  return status;
}

}  // namespace

Status DecodeField(const BatchField& field, const StoredValue& value, const SampleKey& key,
                   std::span<std::byte> row, ScratchLimit& limit) {
  return field.is_compressed() ? DecodeCompressed(field, value, key, row, limit)
                               : field.codec->DecodeWithin(value.bytes, key, row, limit);
}

std::uint64_t DecodeScratchBytesMax(const BatchField& field, const FieldInfo& info) {
  const std::uint64_t codec_bytes = field.codec->ScratchBytesMax();
  if (!field.is_compressed()) return codec_bytes;
  const std::uint64_t content = info.is_variable() ? kContentBytesMax : info.array_bytes();
  return StagesOf(field, content).buffer_bytes + DecompressBytesMax(field.coding) + codec_bytes;
}

}  // namespace headrace
