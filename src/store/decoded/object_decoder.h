#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "headrace/ids.h"
#include "headrace/part_stats.h"
#include "headrace/status.h"

namespace headrace {

// What an object decodes to.
struct DecodedBytes {
  std::shared_ptr<const void> owner;  // of the memory
  std::span<const std::byte> bytes;
  // What keeping them counts as: more than their size where small ones cost more than their bytes.
  std::uint64_t charged_bytes = 0;
};

// Decodes whole objects, for a DecodedStore.
//
// Thread safety: every method may be called from any thread.
class ObjectDecoder {
 public:
  virtual ~ObjectDecoder() = default;

  // What errors call the object: the path of its file.
  [[nodiscard]] virtual std::string Name(ObjectId object) const = 0;

  // Errors: NotFound  no such object
  //         DataLoss  the catalogue's entry is not of this decoder
  [[nodiscard]] virtual Result<std::uint64_t> DecodedSize(ObjectId object) const = 0;

  // The memory that Decode() takes: DecodedSize(), and what it needs meanwhile.
  //
  // Errors: those of DecodedSize()
  [[nodiscard]] virtual Result<std::uint64_t> DecodeBytes(ObjectId object) const = 0;

  // As ByteStore::CheckObject().
  [[nodiscard]] virtual Status CheckObject(ObjectId object) = 0;

  // Adds what reading took beside the requests of the DecodedStore.
  virtual void AddTo(StoreStats& /*stats*/) const {}

  // All of the object: DecodedSize() bytes. May take seconds. One that can be interrupted calls
  // `wanted` now and then, and returns Cancelled some time after it was false.
  //
  // Errors: those of ByteStore::Read(); messages have the cause only
  virtual Result<DecodedBytes> Decode(ObjectId object, const std::function<bool()>& wanted) = 0;
};

}  // namespace headrace
