#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/decoded/coded_decoder.h"
#include "store/object_memory.h"

namespace headrace {

// Decodes files that are compressed as a whole, or parts of files that are compressed by
// themselves. The objects' names are "CODING:BYTES/PATH", as CodingOf() has them:
// "zstd:81920/train/shard.00000.mds.zstd"; of a part "CODING:BYTES:OFFSET+SIZE/PATH".
//
// Memory: while an object is decoded, that of its file or part, too.
// Ownership: `objects` outlives it.
class FileDecoder final : public CodedDecoder {
 public:
  // `root`: see CodedCatalog.
  FileDecoder(const FileCatalog& objects, std::string root)
      : CodedDecoder(objects, std::move(root), /*needs_parts=*/false) {}

  // Of an object of this name and size.
  static ObjectMemory MemoryOf(std::string_view name, std::uint64_t size);

  [[nodiscard]] Result<std::uint64_t> DecodeBytes(ObjectId object) const override;
  Result<DecodedBytes> Decode(ObjectId object, const std::function<bool()>& wanted) override;
};

}  // namespace headrace
