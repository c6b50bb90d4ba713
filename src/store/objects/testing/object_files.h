#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "store/testing/temp_files.h"

namespace headrace {

// Files, and the catalogue of the objects that the fake fetcher serves from them.
class ObjectFiles final : public FileCatalog {
 public:
  // `faults`: see fake_fetcher.cc.
  void Add(ObjectId object, const std::string& bytes, const std::string& faults = {});
  // Replaces the entry of an object.
  void Enter(ObjectId object, FileInfo info) { objects_[object] = std::move(info); }

  [[nodiscard]] Result<FileInfo> file(ObjectId object) const override;
  // How many attempts of an object there were so far.
  [[nodiscard]] std::size_t tries(ObjectId object) const;

  // The command of the fake fetcher.
  [[nodiscard]] std::vector<std::string> fetcher() const;
  // Of the processes that were started by it, in order; some may have ended.
  [[nodiscard]] std::vector<pid_t> fetcher_pids() const;

 private:
  TempFiles folder_;
  std::map<ObjectId, FileInfo> objects_;
};

}  // namespace headrace
