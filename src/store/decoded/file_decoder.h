#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/decoded/coded_decoder.h"
#include "store/object_memory.h"
#include "store/store_table.h"

namespace headrace {

// Decodes files that are compressed as a whole, or parts of files that are compressed by
// themselves. The objects' names are "CODING:BYTES/PATH", as CodingOf() has them:
// "zstd:81920/train/shard.00000.mds.zstd"; of a part "CODING:BYTES:OFFSET+SIZE/PATH".
//
// Files in an object store are read by another store: see ReadBy().
//
// Memory: while an object is decoded, that of its file or part, too.
// Ownership: `objects` outlives it.
class FileDecoder final : public CodedDecoder {
 public:
  // `root`: see CodedCatalog.
  FileDecoder(const FileCatalog& objects, std::string root)
      : CodedDecoder(objects, std::move(root), /*needs_parts=*/false) {}

  // The files as they are stored.
  [[nodiscard]] const CodedCatalog& stored() const { return catalog(); }
  // What reads the files of stored(), which do not lie on a disk. Call it before all else.
  void ReadBy(StoreParts store) { store_ = std::move(store); }

  // Of an object of this name and size.
  static ObjectMemory MemoryOf(std::string_view name, std::uint64_t size);

  [[nodiscard]] Result<std::uint64_t> DecodeBytes(ObjectId object) const override;
  Result<DecodedBytes> Decode(ObjectId object, const std::function<bool()>& wanted) override;
  void AddTo(StoreStats& stats) const override;

 private:
  [[nodiscard]] Status CheckStored(ObjectId object) override;
  // Bytes of the file, at the beginning of `buffer` or behind it.
  Result<std::span<std::byte>> Read(ObjectId object, ByteRange range, std::span<std::byte> buffer,
                                    const std::function<bool()>& wanted);
  Result<std::span<std::byte>> ReadByStore(ObjectId object, ByteRange range,
                                           std::span<std::byte> buffer,
                                           const std::function<bool()>& wanted);

  StoreParts store_;
};

}  // namespace headrace
