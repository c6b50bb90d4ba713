#pragma once

#include <cstddef>
#include <span>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/byte_store.h"
#include "store/request.h"

namespace headrace {

// Objects in memory. Answers inside Read().
//
// Thread safety, shutdown: as ByteStore.
class MemoryStore final : public ByteStore {
 public:
  explicit MemoryStore(std::unordered_map<ObjectId, std::string> objects);

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override { return range.size; }
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override;
  [[nodiscard]] StoreStats stats() const override { return counters_.Snapshot("memory"); }

 private:
  Result<std::span<std::byte>> Copy(const ReadRequest& request) const;

  const std::unordered_map<ObjectId, std::string> objects_;
  StoreCounters counters_;
};

}  // namespace headrace
