#include "store/decoded/coded_catalog.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/format/errors.h"
#include "store/request.h"

namespace headrace {

Result<FileInfo> CodedCatalog::file(ObjectId object) const {
  HEADRACE_ASSIGN_OR_RETURN(CodedFile file, coded(object));
  return std::move(file.stored);
}

Result<CodedFile> CodedCatalog::coded(ObjectId object) const {
  HEADRACE_ASSIGN_OR_RETURN(const FileInfo info, objects_.file(object));
  const std::string_view name =
      std::string_view(info.path).substr(std::min(root_.size() + 1, info.path.size()));
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) return WrongName(object);
  const std::string_view head = name.substr(0, slash);
  const std::size_t colon = head.find(':');
  if (colon == std::string_view::npos) return WrongName(object);
  const std::size_t end_of_size = std::min(head.find(':', colon + 1), head.size());
  const std::string_view digits = head.substr(colon + 1, end_of_size - colon - 1);
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
  if (error != std::errc() || end != digits.data() + digits.size()) return WrongName(object);
  const std::string_view folder =
      std::string_view(root_).substr(std::min(root_.size(), root_.find("://") + 3));
  return CodedFile{.stored = {.path = std::string(folder) + std::string(name.substr(slash)),
                              .size = bytes,
                              .mtime_ns = info.mtime_ns},
                   .coding = std::string(head.substr(0, colon)),
                   .part = std::string(head.substr(std::min(end_of_size + 1, head.size()))),
                   .decoded_bytes = info.size};
}

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
