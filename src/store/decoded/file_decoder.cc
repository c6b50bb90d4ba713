#include "store/decoded/file_decoder.h"

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "base/units.h"
#include "store/decoded/decompress.h"
#include "store/file_io.h"

namespace headrace {
namespace {

// A small object costs its place in tables, too. This bounds the number of those that are kept.
constexpr std::uint64_t kChargedBytesMin = 4096;

using Memory = std::unique_ptr<std::byte[]>;

// The system's own memory: an arena for each of many small objects would be a mapping for each.
Result<Memory> MakeMemory(std::uint64_t bytes) {
  Memory memory(new (std::nothrow) std::byte[bytes]);
  if (memory != nullptr) return memory;
  return Status(StatusCode::kResourceExhausted,
                "the system has no memory for " + FormatBytes(bytes));
}

std::uint64_t ChargedBytes(std::uint64_t decoded_bytes) {
  return std::max(decoded_bytes, kChargedBytesMin);
}

}  // namespace

ObjectMemory FileDecoder::MemoryOf(std::string_view name, std::uint64_t size) {
  const std::optional<CodedFile> file = ParseCodedName(name, size);
  return {.kept_bytes = ChargedBytes(size),
          .decode_bytes = ChargedBytes(size) + (file.has_value() ? file->stored.size : 0)};
}

Result<std::uint64_t> FileDecoder::DecodeBytes(ObjectId object) const {
  HEADRACE_ASSIGN_OR_RETURN(const CodedFile file, coded(object));
  return ChargedBytes(file.decoded_bytes) + file.stored.size;
}

Result<DecodedBytes> FileDecoder::Decode(ObjectId object, const std::function<bool()>& /*wanted*/) {
  HEADRACE_ASSIGN_OR_RETURN(const CodedFile file, coded(object));
  const Result<Coding> coding = CodingOf(file.coding);
  if (!coding.ok()) return catalog().WrongName(object);
  HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<OpenFile> open, files().OpenWhole(object));
  HEADRACE_ASSIGN_OR_RETURN(const Memory encoded, MakeMemory(file.stored.size));
  const std::span<std::byte> bytes(encoded.get(), file.stored.size);
  HEADRACE_ASSIGN_OR_RETURN(const std::size_t got, ReadAt(open->fd(), bytes, 0, 1));
  if (got < bytes.size()) return open->WhyShort(bytes.size() - got);
  HEADRACE_ASSIGN_OR_RETURN(Memory memory, MakeMemory(file.decoded_bytes));
  const std::span<std::byte> decoded(memory.get(), file.decoded_bytes);
  HEADRACE_RETURN_IF_ERROR(Decompress(coding.value(), bytes, decoded).WithContext("decoding"));
  return DecodedBytes{.owner = std::shared_ptr<std::byte[]>(std::move(memory)),
                      .bytes = decoded,
                      .charged_bytes = ChargedBytes(decoded.size())};
}

}  // namespace headrace
