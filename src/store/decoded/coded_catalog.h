#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"
#include "store/decoded/decompress.h"
#include "store/file_table.h"

namespace headrace {

// The scheme of a root whose files are decoded: "decoded:///data". An object's size is that of its
// decoded bytes; its name says how and where its file lies: "CODING:BYTES/PATH", of BYTES as
// stored, at PATH below "/data": "zstd:81920/train/shard.00000.mds.zstd".
inline constexpr std::string_view kDecodedScheme = "decoded";

// A file as it is stored, and what it decodes to.
struct CodedFile {
  FileInfo stored;
  Coding coding = Coding::kStored;
  std::uint64_t decoded_bytes = 0;
};

// The files behind the objects of a root of that scheme.
//
// Thread safety: every method may be called from any thread.
// Ownership: `objects` outlives it.
class CodedCatalog final : public FileCatalog {
 public:
  // `root`: as in the index. The paths of `objects` are names below it.
  CodedCatalog(const FileCatalog& objects, std::string root)
      : objects_(objects), root_(std::move(root)) {}

  // The file as it is stored.
  [[nodiscard]] Result<FileInfo> file(ObjectId object) const override;
  [[nodiscard]] const FileRemedies& remedies() const override { return objects_.remedies(); }

  // Errors: NotFound  no such object
  //         DataLoss  its name is not of that form
  [[nodiscard]] Result<CodedFile> coded(ObjectId object) const;

 private:
  const FileCatalog& objects_;
  const std::string root_;
};

}  // namespace headrace
