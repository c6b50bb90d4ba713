#include "store/decoded/coded_catalog.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/format/errors.h"
#include "store/request.h"

namespace headrace {

namespace {

std::string_view WithoutScheme(std::string_view root) {
  return root.substr(std::min(root.size(), root.find("://") + 3));
}

}  // namespace

std::string_view FileName(std::string_view root, std::string_view name) {
  const std::string_view scheme = root.substr(0, std::min(root.size(), root.find("://")));
  if (scheme != kDecodedScheme && scheme != kRowGroupScheme) return name;
  return name.substr(std::min(name.size(), name.find('/') + 1));
}

std::string FilePath(std::string_view root, std::string_view name) {
  const std::string_view file = FileName(root, name);
  const std::string_view folder = file.size() == name.size() ? root : WithoutScheme(root);
  return std::string(folder) + "/" + std::string(file);
}

std::optional<CodedFile> ParseCodedName(std::string_view name, std::uint64_t size) {
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view head = name.substr(0, slash);
  const std::size_t colon = head.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::size_t end_of_size = std::min(head.find(':', colon + 1), head.size());
  const std::string_view digits = head.substr(colon + 1, end_of_size - colon - 1);
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  CodedFile file;
  file.stored.path = name.substr(slash + 1);
  file.stored.size = bytes;
  file.coding = head.substr(0, colon);
  file.part = head.substr(std::min(end_of_size + 1, head.size()));
  file.decoded_bytes = size;
  return file;
}

Result<FileInfo> CodedCatalog::file(ObjectId object) const {
  HEADRACE_ASSIGN_OR_RETURN(CodedFile file, coded(object));
  return std::move(file.stored);
}

Result<CodedFile> CodedCatalog::coded(ObjectId object) const {
  HEADRACE_ASSIGN_OR_RETURN(const FileInfo info, objects_.file(object));
  const std::string_view name =
      std::string_view(info.path).substr(std::min(root_.size() + 1, info.path.size()));
  std::optional<CodedFile> file = ParseCodedName(name, info.size);
  if (!file.has_value()) return WrongName(object);
  file->stored.path.insert(0, std::string(WithoutScheme(root_)) + "/");
  file->stored.mtime_ns = info.mtime_ns;
  return *std::move(file);
}

std::string_view CodedCatalog::folder() const { return WithoutScheme(root_); }

std::string CodedCatalog::Name(ObjectId object) const {
  const Result<CodedFile> file = coded(object);
  return file.ok() ? file.value().stored.path : ObjectName(object);
}

Status CodedCatalog::WrongName(ObjectId object) const {
  const Result<FileInfo> info = objects_.file(object);
  return DataLoss(
      "object '{}': its name is not CODING:BYTES/PATH, or CODING:BYTES:PART/PATH, as its store "
      "reads them; index the dataset again",
      info.ok() ? info.value().path : ObjectName(object));
}

}  // namespace headrace
