#pragma once

#include <map>
#include <string>

#include "base/coding/testing/encoded.h"
#include "store/testing/temp_files.h"

namespace headrace {

// Compressed files, and the catalogue of the objects that they decode to.
class CodedFiles final : public FileCatalog {
 public:
  void Add(ObjectId object, Coding coding, const std::string& bytes) {
    AddEncoded(object, coding, Encoded(coding, bytes), bytes.size());
  }
  void AddEncoded(ObjectId object, Coding coding, const std::string& encoded,
                  std::uint64_t decoded_bytes) {
    files_.Add(object, encoded);
    const FileInfo file = files_.file(object).value();
    objects_[object] = {.path = root() + "/" + std::string(CodingName(coding)) + ":" +
                                std::to_string(file.size) +
                                file.path.substr(files_.folder().size()),
                        .size = decoded_bytes,
                        .mtime_ns = file.mtime_ns};
  }
  // Part `part` of a file of many parts that are compressed by themselves.
  void AddPart(ObjectId object, Coding coding, ByteRange part, std::uint64_t decoded_bytes,
               const std::string& file_bytes) {
    AddEncoded(object, coding, file_bytes, decoded_bytes);
    std::string& path = objects_[object].path;
    path.insert(path.find('/', root().size() + 1),
                ":" + std::to_string(part.offset) + "+" + std::to_string(part.size));
  }
  // From now on the files are objects of s3://, of this version.
  void MoveToObjects(std::int64_t version) {
    const std::size_t begin = root().size();
    scheme_ = "decoded://s3://";
    for (auto& [id, file] : objects_) {
      file.path = root() + file.path.substr(begin);
      file.mtime_ns = version;
    }
  }
  // Replaces the whole name of an object.
  void Rename(ObjectId object, const std::string& name) {
    objects_[object].path = root() + "/" + name;
  }

  [[nodiscard]] std::string root() const { return scheme_ + files_.folder(); }
  [[nodiscard]] const std::string& folder() const { return files_.folder(); }
  [[nodiscard]] std::string path(ObjectId object) const { return files_.path(object); }
  [[nodiscard]] Result<FileInfo> file(ObjectId object) const override {
    const auto found = objects_.find(object);
    if (found == objects_.end()) return Status(StatusCode::kNotFound, "no such object");
    return found->second;
  }

 private:
  TempFiles files_;
  std::string scheme_ = "decoded://";
  std::map<ObjectId, FileInfo> objects_;
};

}  // namespace headrace
