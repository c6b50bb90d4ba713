#include "store/decoded/file_decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/coding/decompress.h"
#include "base/mutex.h"
#include "base/units.h"
#include "store/file_io.h"
#include "store/request.h"

namespace headrace {
namespace {

// A small object costs its place in tables, too. This bounds the number of those that are kept.
constexpr std::uint64_t kChargedBytesMin = 4096;
constexpr std::int64_t kAskEveryNs = 50 * kNsPerMs;  // whether anybody waits for a read

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

// The part of `memory` from its first address that buffers may begin at.
std::span<std::byte> Aligned(std::span<std::byte> memory) {
  void* begin = memory.data();
  std::size_t room = memory.size();
  std::align(kBufferAlignment, 0, begin, room);
  return memory.last(room);
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

Status FileDecoder::CheckStored(ObjectId object) { return store_.store->CheckObject(object); }

void FileDecoder::AddTo(StoreStats& stats) const {
  if (store_.store == nullptr) return;
  const StoreStats own = store_.store->stats();
  stats.retries += own.retries;
  stats.hedges += own.hedges;
  stats.slow_downs += own.slow_downs;
  stats.request_bytes += own.request_bytes;
  stats.request_bytes_peak += own.request_bytes_peak;
}

Result<std::span<std::byte>> FileDecoder::Read(ObjectId object, ByteRange range,
                                               std::span<std::byte> buffer,
                                               const std::function<bool()>& wanted) {
  if (store_.store != nullptr) return ReadByStore(object, range, Aligned(buffer), wanted);
  HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<OpenFile> open, files()->OpenWhole(object));
  HEADRACE_ASSIGN_OR_RETURN(const std::size_t got, ReadAt(open->fd(), buffer, range.offset, 1));
  if (got < buffer.size()) return open->WhyShort(buffer.size() - got);
  HEADRACE_RETURN_IF_ERROR(open->CheckAsIndexed());  // It took long.
  return buffer;
}

Result<std::span<std::byte>> FileDecoder::ReadByStore(ObjectId object, ByteRange range,
                                                      std::span<std::byte> buffer,
                                                      const std::function<bool()>& wanted) {
  Mutex mutex;
  CondVar changed;
  std::optional<Result<std::span<std::byte>>> answer;
  std::stop_source stop;
  std::vector<ReadRequest> requests;
  requests.push_back(
      {.extent = {object, range}, .buffer = buffer, .done = [&](Result<std::span<std::byte>> data) {
         MutexLock lock(mutex);
         answer.emplace(std::move(data));
         changed.NotifyAll();
       }});
  store_.store->Read(std::move(requests), stop.get_token());
  for (;;) {
    {
      MutexLock lock(mutex);
      if (!answer.has_value()) static_cast<void>(changed.WaitFor(mutex, kAskEveryNs));
      if (answer.has_value()) break;
    }
    if (!wanted()) stop.request_stop();
  }
  if (answer->ok()) return *std::move(answer);
  // The cause alone: the store that decodes names the file.
  const Status status = answer->status();
  const std::string doing = Doing(Name(object), range) + ": ";
  std::string_view cause = status.message();
  if (cause.starts_with(doing)) cause.remove_prefix(doing.size());
  return Status(status.code(), std::string(cause));
}

Result<DecodedBytes> FileDecoder::Decode(ObjectId object, const std::function<bool()>& wanted) {
  HEADRACE_ASSIGN_OR_RETURN(const CodedFile file, coded(object));
  const Result<Coding> coding = CodingOf(file.coding);
  const std::optional<ByteRange> range = StoredRange(file);
  if (!coding.ok() || !range.has_value()) return catalog().WrongName(object);
  const std::size_t room =
      store_.store == nullptr ? range->size : store_.store->BufferBytes(*range) + kBufferAlignment;
  HEADRACE_ASSIGN_OR_RETURN(const Memory encoded, MakeMemory(room));
  HEADRACE_ASSIGN_OR_RETURN(const std::span<std::byte> bytes,
                            Read(object, *range, {encoded.get(), room}, wanted));
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
