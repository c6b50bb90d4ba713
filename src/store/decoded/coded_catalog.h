#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"
#include "store/file_table.h"

namespace headrace {

// The scheme of a root whose files are decoded: "decoded:///data".
inline constexpr std::string_view kDecodedScheme = "decoded";

// A file as it is stored, and what it, or a part of it, decodes to.
struct CodedFile {
  FileInfo stored;
  std::string coding;  // the decoder's word for how
  std::string part;    // the decoder's text for which part; empty: all of it
  std::uint64_t decoded_bytes = 0;
};

// The files behind the objects of a root "SCHEME://FOLDER" whose objects are decoded files, or
// decoded parts of files. An object's size is that of its decoded bytes; its name says how and
// where its file lies: "CODING:BYTES/PATH" or "CODING:BYTES:PART/PATH", of BYTES as stored, at PATH
// below FOLDER. PART has no '/'.
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

  // The path of its file, for errors; "object 7" if there is none.
  [[nodiscard]] std::string Name(ObjectId object) const;

  // DataLoss: its name is of another form than its decoder expects.
  [[nodiscard]] Status WrongName(ObjectId object) const;

 private:
  const FileCatalog& objects_;
  const std::string root_;
};

}  // namespace headrace
