#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/decoded/coded_catalog.h"
#include "store/decoded/object_decoder.h"
#include "store/file_table.h"
#include "store/store_table.h"

namespace headrace {

// The common part of decoders whose objects a CodedCatalog names.
//
// Ownership: `objects` outlives it.
class CodedDecoder : public ObjectDecoder {
 public:
  // Whether the files do not lie in an object store.
  [[nodiscard]] bool on_disk() const { return files_.has_value(); }

  [[nodiscard]] std::string Name(ObjectId object) const override { return catalog_.Name(object); }
  [[nodiscard]] Result<std::uint64_t> DecodedSize(ObjectId object) const override {
    HEADRACE_ASSIGN_OR_RETURN(const CodedFile file, coded(object));
    return file.decoded_bytes;
  }
  [[nodiscard]] Status CheckObject(ObjectId object) override {
    return files_ ? files_->CheckObject(object) : CheckStored(object);
  }

 protected:
  // `root`: see CodedCatalog. `needs_parts`: whether no object is a whole file.
  CodedDecoder(const FileCatalog& objects, std::string root, bool needs_parts)
      : catalog_(objects, std::move(root)), needs_parts_(needs_parts) {
    if (SchemeOf(catalog_.folder()) == kFileScheme) files_.emplace(catalog_, FileTableOptions{});
  }

  // CheckObject() of a file that lies in an object store.
  [[nodiscard]] virtual Status CheckStored(ObjectId object) = 0;

  // Errors: NotFound  no such object
  //         DataLoss  its name is not of that form
  [[nodiscard]] Result<CodedFile> coded(ObjectId object) const {
    HEADRACE_ASSIGN_OR_RETURN(CodedFile file, catalog_.coded(object));
    if (needs_parts_ && file.part.empty()) return catalog_.WrongName(object);
    return file;
  }

  [[nodiscard]] const CodedCatalog& catalog() const { return catalog_; }
  // Null: not on_disk().
  [[nodiscard]] FileTable* files() { return files_ ? &*files_ : nullptr; }

 private:
  const CodedCatalog catalog_;
  std::optional<FileTable> files_;
  const bool needs_parts_;
};

}  // namespace headrace
