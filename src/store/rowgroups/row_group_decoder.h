#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"
#include "store/decoded/coded_catalog.h"
#include "store/decoded/object_decoder.h"
#include "store/file_table.h"
#include "store/rowgroups/reader_pool.h"

namespace headrace {

// The scheme of a root whose objects are decoded row groups: "rowgroups:///data".
inline constexpr std::string_view kRowGroupScheme = "rowgroups";

// Decodes row groups in reader processes: one for each thread that is in Decode(). An object's name
// is "FORMAT:BYTES:PART/PATH": the format reads PART of the file of BYTES at PATH.
//
// Memory: decoded objects are shared memory. A reader has a few times the size of a column of its
//         row group.
// Ownership: `objects` outlives it.
class RowGroupDecoder final : public ObjectDecoder {
 public:
  // `root`: see CodedCatalog.
  RowGroupDecoder(const FileCatalog& objects, std::string root, std::shared_ptr<ReaderPool> readers)
      : catalog_(objects, std::move(root)), files_(catalog_, {}), readers_(std::move(readers)) {}

  [[nodiscard]] std::string Name(ObjectId object) const override { return catalog_.Name(object); }
  [[nodiscard]] Result<std::uint64_t> DecodedSize(ObjectId object) const override;
  [[nodiscard]] Status CheckObject(ObjectId object) override { return files_.CheckObject(object); }
  Result<DecodedBytes> Decode(ObjectId object, const std::function<bool()>& wanted) override;

 private:
  const CodedCatalog catalog_;
  FileTable files_;
  const std::shared_ptr<ReaderPool> readers_;
};

}  // namespace headrace
