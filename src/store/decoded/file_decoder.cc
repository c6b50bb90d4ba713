#include "store/decoded/file_decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "base/coding/decompress.h"
#include "base/units.h"
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

// Which bytes of its file an object decodes; nothing: its name is of another form.
std::optional<ByteRange> StoredRange(const CodedFile& file) {
  if (file.part.empty()) return ByteRange{.offset = 0, .size = file.stored.size};
  ByteRange range;
  const char* const last = file.part.data() + file.part.size();
  const auto [plus, offset_error] = std::from_chars(file.part.data(), last, range.offset);
  if (offset_error != std::errc() || plus == last || *plus != '+') return std::nullopt;
  const auto [end, size_error] = std::from_chars(plus + 1, last, range.size);
  if (size_error != std::errc() || end != last) return std::nullopt;
  if (range.offset > file.stored.size || range.size > file.stored.size - range.offset) {
    return std::nullopt;
  }
  return range;
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
  const std::optional<ByteRange> range = StoredRange(file);
  if (!coding.ok() || !range.has_value()) return catalog().WrongName(object);
  HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<OpenFile> open, files().OpenWhole(object));
  HEADRACE_ASSIGN_OR_RETURN(const Memory encoded, MakeMemory(range->size));
  const std::span<std::byte> bytes(encoded.get(), range->size);
  HEADRACE_ASSIGN_OR_RETURN(const std::size_t got, ReadAt(open->fd(), bytes, range->offset, 1));
  if (got < bytes.size()) return open->WhyShort(bytes.size() - got);
  HEADRACE_RETURN_IF_ERROR(open->CheckAsIndexed());  // It took long.
  HEADRACE_ASSIGN_OR_RETURN(Memory memory, MakeMemory(file.decoded_bytes));
  const std::span<std::byte> decoded(memory.get(), file.decoded_bytes);
  const Status status = Decompress(coding.value(), bytes, decoded);
  if (!status.ok()) {
    if (file.part.empty()) return status.WithContext("decoding");
    return status.WithContext(
        fmt::format("decoding its bytes [{}, {})", range->offset, range->end()));
  }
  return DecodedBytes{.owner = std::shared_ptr<std::byte[]>(std::move(memory)),
                      .bytes = decoded,
                      .charged_bytes = ChargedBytes(decoded.size())};
}

}  // namespace headrace
