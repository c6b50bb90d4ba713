#include "store/decoded/file_decoder.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/memory/buffer_pool.h"
#include "base/units.h"
#include "store/decoded/decompress.h"
#include "store/file_io.h"

namespace headrace {
namespace {

Result<Buffer> Memory(std::uint64_t bytes) {
  const std::uint64_t some = std::max<std::uint64_t>(bytes, 1);
  std::optional<Buffer> memory = BufferPool::Make(BufferPool::ChargedBytes(some))->Acquire(some);
  if (memory.has_value()) return *std::move(memory);
  return Status(StatusCode::kResourceExhausted,
                "the system has no memory for " + FormatBytes(bytes));
}

}  // namespace

Result<std::uint64_t> FileDecoder::DecodedSize(ObjectId object) const {
  HEADRACE_ASSIGN_OR_RETURN(const CodedFile file, catalog_.coded(object));
  return file.decoded_bytes;
}

Result<DecodedBytes> FileDecoder::Decode(ObjectId object, const std::function<bool()>& /*wanted*/) {
  HEADRACE_ASSIGN_OR_RETURN(const CodedFile file, catalog_.coded(object));
  const Result<Coding> coding = CodingOf(file.coding);
  if (!coding.ok() || !file.part.empty()) return catalog_.WrongName(object);
  HEADRACE_ASSIGN_OR_RETURN(
      const std::shared_ptr<OpenFile> open,
      files_.Open({.object = object, .range = {.offset = 0, .size = file.stored.size}}));
  HEADRACE_ASSIGN_OR_RETURN(const Buffer encoded, Memory(file.stored.size));
  const std::span<std::byte> bytes = encoded.bytes().first(file.stored.size);
  HEADRACE_ASSIGN_OR_RETURN(const std::size_t got, ReadAt(open->fd(), bytes, 0, 1));
  if (got < bytes.size()) return open->WhyShort(bytes.size() - got);
  HEADRACE_ASSIGN_OR_RETURN(Buffer memory, Memory(file.decoded_bytes));
  const std::span<std::byte> decoded = memory.bytes().first(file.decoded_bytes);
  HEADRACE_RETURN_IF_ERROR(
      Decompress(coding.value(), bytes, decoded).WithContext("decoding " + file.stored.path));
  return DecodedBytes{.owner = std::make_shared<const Buffer>(std::move(memory)), .bytes = decoded};
}

}  // namespace headrace
