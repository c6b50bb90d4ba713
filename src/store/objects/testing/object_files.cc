#include "store/objects/testing/object_files.h"

#include <filesystem>
#include <fstream>

namespace headrace {

void ObjectFiles::Add(ObjectId object, const std::string& bytes, const std::string& faults) {
  const std::string path =
      folder_.folder() + "/" + faults + (faults.empty() ? "" : ",") + std::to_string(Raw(object));
  WriteFile(path, bytes);
  objects_[object] = {.path = "s3://" + path, .size = bytes.size(), .mtime_ns = 7};
}

Result<FileInfo> ObjectFiles::file(ObjectId object) const {
  const auto found = objects_.find(object);
  if (found == objects_.end()) return Status(StatusCode::kNotFound, "no such object");
  return found->second;
}

std::size_t ObjectFiles::tries(ObjectId object) const {
  std::error_code none;
  const auto bytes =
      std::filesystem::file_size(objects_.at(object).path.substr(5) + ".tries", none);
  return none ? 0 : bytes;
}

std::vector<std::string> ObjectFiles::fetcher() const {
  return {HEADRACE_FAKE_FETCHER, folder_.folder() + "/pids"};
}

std::vector<pid_t> ObjectFiles::fetcher_pids() const {
  std::ifstream file(folder_.folder() + "/pids");
  std::vector<pid_t> pids;
  for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
  return pids;
}

}  // namespace headrace
