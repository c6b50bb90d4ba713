#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "store/testing/temp_files.h"

namespace headrace {

// Files, and the catalogue of the row groups that the fake reader decodes them to: the same bytes.
class GroupFiles final : public FileCatalog {
 public:
  // `part`: see fake_reader.cc.
  void Add(ObjectId object, const std::string& bytes, const std::string& part = "all") {
    files_.Add(object, bytes);
    const FileInfo file = files_.file(object).value();
    objects_[object] = {.path = root() + "/fake:" + std::to_string(file.size) + ":" + part +
                                file.path.substr(files_.folder().size()),
                        .size = file.size,
                        .mtime_ns = file.mtime_ns};
  }
  // From now on the files are objects of s3://, of this version.
  void MoveToObjects(std::int64_t version) {
    const std::size_t begin = root().size();
    scheme_ = "rowgroups://s3://";
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
  [[nodiscard]] std::string path(ObjectId object) const { return files_.path(object); }
  [[nodiscard]] Result<FileInfo> file(ObjectId object) const override {
    const auto found = objects_.find(object);
    if (found == objects_.end()) return Status(StatusCode::kNotFound, "no such object");
    return found->second;
  }

  // The command of the fake reader.
  static std::vector<std::string> reader() { return {HEADRACE_FAKE_READER, "fake"}; }

 private:
  TempFiles files_;
  std::string scheme_ = "rowgroups://";
  std::map<ObjectId, FileInfo> objects_;
};

}  // namespace headrace
