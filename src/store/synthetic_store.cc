#include "store/synthetic_store.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "store/store_table.h"

namespace headrace {
namespace {

constexpr std::string_view kSyntheticName = "synthetic";

class SyntheticFactory final : public StoreFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return kSyntheticName; }
  [[nodiscard]] bool Suits(const StoreRequest& /*request*/) const override { return false; }
  [[nodiscard]] bool reads_storage() const override { return false; }
  [[nodiscard]] Result<StoreParts> Open(const StoreRequest& request) const override {
    HEADRACE_ASSIGN_OR_RETURN(std::vector<std::string> prototypes, request.examples());
    StoreParts parts;
    parts.store = std::make_unique<SyntheticStore>(std::move(prototypes));
    return parts;
  }
};

}  // namespace

const StoreFactory& SyntheticStoreFactory() {
  static const SyntheticFactory factory;
  return factory;
}

StoreStats SyntheticStore::stats() const { return counters_.Snapshot(std::string(kSyntheticName)); }

SyntheticStore::SyntheticStore(std::vector<std::string> prototypes)
    : prototypes_(std::move(prototypes)) {
  std::stable_sort(prototypes_.begin(), prototypes_.end(),
                   [](const std::string& a, const std::string& b) { return a.size() < b.size(); });
}

void SyntheticStore::Read(std::vector<ReadRequest> requests, std::stop_token stop) {
  for (ReadRequest& request : requests) {
    const Extent& extent = request.extent;
    CheckBuffer(request, BufferBytes(extent.range));
    if (stop.stop_requested()) {
      counters_.Answer(request, Status(StatusCode::kCancelled, "stop requested")
                                    .WithContext(Doing(ObjectName(extent.object), extent.range)));
      continue;
    }
    const std::span<std::byte> dst = request.buffer.first(extent.range.size);
    Fill(dst);
    counters_.Answer(request, dst);
  }
}

void SyntheticStore::Fill(std::span<std::byte> dst) const {
  const auto larger = std::upper_bound(
      prototypes_.begin(), prototypes_.end(), dst.size(),
      [](std::size_t size, const std::string& prototype) { return size < prototype.size(); });
  auto rest = dst.begin();
  if (larger != prototypes_.begin()) {
    const auto source = std::as_bytes(std::span(*std::prev(larger)));
    rest = std::copy(source.begin(), source.end(), dst.begin());
  }
  std::fill(rest, dst.end(), std::byte{0});
}

}  // namespace headrace
