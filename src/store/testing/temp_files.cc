#include "store/testing/temp_files.h"

#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/check.h"
#include "base/prng.h"
#include "base/units.h"

namespace headrace {

TempFiles::TempFiles(const std::string& parent) {
  const std::filesystem::path base =
      parent.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path(parent);
  std::string pattern = (base / "headrace_test_XXXXXX").string();
  HEADRACE_CHECK(::mkdtemp(pattern.data()) != nullptr);
  folder_ = pattern;
}

TempFiles::~TempFiles() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void TempFiles::Add(ObjectId object, const std::string& bytes) {
  FileInfo info;
  info.path = folder_ + "/object" + std::to_string(Raw(object));
  WriteFile(info.path, bytes);
  struct stat stat = {};
  HEADRACE_CHECK(::stat(info.path.c_str(), &stat) == 0);
  info.size = bytes.size();
  info.mtime_ns = stat.st_mtim.tv_sec * kNsPerSecond + stat.st_mtim.tv_nsec;
  Enter(object, std::move(info));
}

Result<FileInfo> TempFiles::file(ObjectId object) const {
  const auto found = files_.find(object);
  if (found == files_.end()) return Status(StatusCode::kNotFound, "no such object");
  return found->second;
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  HEADRACE_CHECK(file.good());
}

std::string RandomBytes(std::uint64_t seed, std::size_t count) {
  Prng prng(seed, 0, RandomStream::kOrder);
  std::string bytes(RoundUp(count, sizeof(std::uint32_t)), '\0');
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint32_t)) {
    const std::uint32_t word = prng.Next32();
    std::memcpy(&bytes[i], &word, sizeof(word));
  }
  bytes.resize(count);
  return bytes;
}

}  // namespace headrace
