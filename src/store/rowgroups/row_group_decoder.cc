#include "store/rowgroups/row_group_decoder.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "store/decoded/decoded_store.h"
#include "store/helper_command.h"
#include "store/store_table.h"

namespace headrace {
namespace {

// Processes, and groups that are decoded at the same time; more of an object store, for whose
// answers they wait, where there are cores for them.
constexpr int kReaders = 2;
constexpr int kReadersOfObjectsMax = 4;

int ReadersOfObjects() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), kReaders,
                    kReadersOfObjectsMax);
}
// Each group that is kept has a descriptor and a mapping. This bounds their number.
constexpr std::uint64_t kGroupBytesMin = std::uint64_t{1} << 20;

class RowGroupFactory final : public StoreFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return kRowGroupScheme; }
  [[nodiscard]] bool Suits(const StoreRequest& request) const override {
    return request.scheme == kRowGroupScheme;
  }
  [[nodiscard]] Result<StoreParts> Open(const StoreRequest& request) const override {
    HEADRACE_RETURN_IF_ERROR(CheckScheme(request, kRowGroupScheme));
    auto decoder = std::make_unique<RowGroupDecoder>(
        *request.catalog, request.root, ReaderPool::Shared(HelperCommand(kGroupReaderProgram)));
    StoreParts parts;
    HEADRACE_ASSIGN_OR_RETURN(
        parts.executor, request.start_threads(decoder->on_disk() ? kReaders : ReadersOfObjects(),
                                              "headrace-groups"));
    parts.store = std::make_unique<DecodedStore>(
        std::move(decoder), *parts.executor,
        DecodedStoreOptions{
            .limits = request.decoded, .name = std::string(name()), .note = request.note});
    return parts;
  }
  [[nodiscard]] std::optional<ObjectMemory> MemoryOf(std::string_view /*name*/,
                                                     std::uint64_t size) const override {
    return RowGroupDecoder::MemoryOf(size);
  }
};

}  // namespace

const StoreFactory& RowGroupStoreFactory() {
  static const RowGroupFactory factory;
  return factory;
}

ObjectMemory RowGroupDecoder::MemoryOf(std::uint64_t size) {
  const std::uint64_t charged = std::max(size, kGroupBytesMin);
  return {.kept_bytes = charged, .decode_bytes = charged + size};
}

Result<std::uint64_t> RowGroupDecoder::DecodeBytes(ObjectId object) const {
  HEADRACE_ASSIGN_OR_RETURN(const CodedFile file, coded(object));
  return MemoryOf(file.decoded_bytes).decode_bytes;
}

Result<std::shared_ptr<SharedMemory>> RowGroupDecoder::Ask(const CodedFile& file, std::string part,
                                                           std::uint64_t bytes,
                                                           const std::function<bool()>& wanted) {
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<ReaderProcess> reader, readers_->Take());
  const GroupRequest request{.format = file.coding, .file = file.stored, .part = std::move(part)};
  Result<std::shared_ptr<SharedMemory>> memory = reader->Decode(request, bytes, wanted);
  readers_->Give(std::move(reader));
  return memory;
}

Status RowGroupDecoder::CheckStored(ObjectId object) {
  const auto check = [&]() -> Status {
    HEADRACE_ASSIGN_OR_RETURN(const CodedFile file, coded(object));
    return Ask(file, /*part=*/{}, /*bytes=*/1, [] { return true; }).status();
  };
  return check().WithContext("opening " + Name(object));
}

Result<DecodedBytes> RowGroupDecoder::Decode(ObjectId object, const std::function<bool()>& wanted) {
  HEADRACE_ASSIGN_OR_RETURN(const CodedFile file, coded(object));
  std::shared_ptr<OpenFile> open;
  if (files() != nullptr) {
    HEADRACE_ASSIGN_OR_RETURN(open, files()->OpenWhole(object));
  }
  if (file.decoded_bytes == 0) return DecodedBytes{.charged_bytes = kGroupBytesMin};
  Result<std::shared_ptr<SharedMemory>> memory = Ask(file, file.part, file.decoded_bytes, wanted);
  if (open != nullptr) {
    // The reader opened the file again: it may have read a file that replaced it.
    HEADRACE_RETURN_IF_ERROR(open->CheckAsIndexed());
    HEADRACE_RETURN_IF_ERROR(files()->OpenWhole(object).status());
  }
  HEADRACE_RETURN_IF_ERROR(memory.status());
  const std::span<const std::byte> bytes = memory.value()->bytes();
  return DecodedBytes{.owner = std::move(memory.value()),
                      .bytes = bytes,
                      .charged_bytes = MemoryOf(bytes.size()).kept_bytes};
}

}  // namespace headrace
