#pragma once

#include <map>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/file_table.h"

namespace headrace {

// A temporary folder for a test's files, and their catalogue. Removed with everything in it.
class TempFiles final : public FileCatalog {
 public:
  // In `parent`, which exists; the folder of temporary files if empty.
  explicit TempFiles(const std::string& parent = {});
  ~TempFiles() override;
  TempFiles(const TempFiles&) = delete;
  TempFiles& operator=(const TempFiles&) = delete;

  // Writes a file, and adds it to the catalogue as it is now.
  void Add(ObjectId object, const std::string& bytes);

  // Replaces a catalogue entry.
  void Enter(ObjectId object, FileInfo info) { files_[object] = std::move(info); }

  // Of all files.
  void Advise(FileRemedies remedies) { remedies_ = std::move(remedies); }

  [[nodiscard]] Result<FileInfo> file(ObjectId object) const override;
  [[nodiscard]] const FileRemedies& remedies() const override { return remedies_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string path(ObjectId object) const { return files_.at(object).path; }

 private:
  std::string folder_;
  FileRemedies remedies_;
  std::unordered_map<ObjectId, FileInfo> files_;
};

// Overwrites the file at `path`, or creates it.
void WriteFile(const std::string& path, const std::string& bytes);

// `count` pseudo-random bytes that depend on `seed` and position.
std::string RandomBytes(std::uint64_t seed, std::size_t count);

}  // namespace headrace
