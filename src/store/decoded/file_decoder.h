#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/ids.h"
#include "base/status.h"
#include "store/decoded/coded_catalog.h"
#include "store/decoded/object_decoder.h"
#include "store/file_table.h"

namespace headrace {

// Decodes files that are compressed as a whole, or parts of files that are compressed by
// themselves. The objects' names are "CODING:BYTES/PATH", as CodingOf() has them:
// "zstd:81920/train/shard.00000.mds.zstd"; of a part "CODING:BYTES:OFFSET+SIZE/PATH".
//
// Memory: while an object is decoded, that of its file or part, too.
// Ownership: `objects` outlives it.
class FileDecoder final : public ObjectDecoder {
 public:
  // `root`: see CodedCatalog.
  FileDecoder(const FileCatalog& objects, std::string root)
      : catalog_(objects, std::move(root)), files_(catalog_, {}) {}

  [[nodiscard]] std::string Name(ObjectId object) const override { return catalog_.Name(object); }
  [[nodiscard]] Result<std::uint64_t> DecodedSize(ObjectId object) const override;
  [[nodiscard]] Status CheckObject(ObjectId object) override { return files_.CheckObject(object); }
  Result<DecodedBytes> Decode(ObjectId object, const std::function<bool()>& wanted) override;

 private:
  const CodedCatalog catalog_;
  FileTable files_;
};

}  // namespace headrace
