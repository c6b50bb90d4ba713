#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/file_table.h"

namespace headrace {

// The schemes of roots whose objects are decoded files, "decoded:///data", and decoded row groups.
inline constexpr std::string_view kDecodedScheme = "decoded";
inline constexpr std::string_view kRowGroupScheme = "rowgroups";

// The path below the root of the file behind an object: its name, without what says how it is
// decoded if the root's objects are. For people.
std::string_view FileName(std::string_view root, std::string_view name);

// The absolute path of that file.
std::string FilePath(std::string_view root, std::string_view name);

// A file as it is stored, and what it, or a part of it, decodes to.
struct CodedFile {
  FileInfo stored;
  std::string coding;  // the decoder's word for how
  std::string part;    // the decoder's text for which part; empty: all of it
  std::uint64_t decoded_bytes = 0;
};

// What the name of an object says; `stored.path` is that below the folder. std::nullopt: another
// form. `size`: of the object.
std::optional<CodedFile> ParseCodedName(std::string_view name, std::uint64_t size);

// The files behind the objects of a root "SCHEME://FOLDER" whose objects are decoded files, or
// decoded parts of files. An object's size is that of its decoded bytes; its name says how and
// where its file lies: "CODING:BYTES/PATH" or "CODING:BYTES:PART/PATH", of BYTES as stored, at PATH
// below FOLDER, which may be a URL: "decoded://s3://bucket/data". PART has no '/'.
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

  // What the files lie below: a folder, or the URL of one in an object store.
  [[nodiscard]] std::string_view folder() const;

  // The path of its file, for errors; "object 7" if there is none.
  [[nodiscard]] std::string Name(ObjectId object) const;

  // DataLoss: its name is of another form than its decoder expects.
  [[nodiscard]] Status WrongName(ObjectId object) const;

 private:
  const FileCatalog& objects_;
  const std::string root_;
};

}  // namespace headrace
