#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/decoded/coded_decoder.h"
#include "store/object_memory.h"
#include "store/rowgroups/reader_pool.h"

namespace headrace {

// Decodes row groups in reader processes: one for each thread that is in Decode(). An object's name
// is "FORMAT:BYTES:PART/PATH": the format reads PART of the file of BYTES at PATH. If that lies in
// an object store, the reader compares each answer with the size and version of the catalogue.
//
// Memory: decoded objects are shared memory. A reader has a column of its row group besides, which
//         counts as the whole group here.
// Ownership: `objects` outlives it.
class RowGroupDecoder final : public CodedDecoder {
 public:
  // `root`: see CodedCatalog.
  RowGroupDecoder(const FileCatalog& objects, std::string root, std::shared_ptr<ReaderPool> readers)
      : CodedDecoder(objects, std::move(root), /*needs_parts=*/true),
        readers_(std::move(readers)) {}

  // Of an object of this size.
  static ObjectMemory MemoryOf(std::uint64_t size);

  [[nodiscard]] Result<std::uint64_t> DecodeBytes(ObjectId object) const override;
  Result<DecodedBytes> Decode(ObjectId object, const std::function<bool()>& wanted) override;

 private:
  [[nodiscard]] Status CheckStored(ObjectId object) override;
  // Has a reader decode `bytes`, at least 1.
  Result<std::shared_ptr<SharedMemory>> Ask(const CodedFile& file, std::string part,
                                            std::uint64_t bytes,
                                            const std::function<bool()>& wanted);

  const std::shared_ptr<ReaderPool> readers_;
};

}  // namespace headrace
