#include "store/decoded/coded_catalog.h"

#include <charconv>
#include <utility>

#include "base/format/errors.h"

namespace headrace {

Result<FileInfo> CodedCatalog::file(ObjectId object) const {
  HEADRACE_ASSIGN_OR_RETURN(CodedFile file, coded(object));
  return std::move(file.stored);
}

Result<CodedFile> CodedCatalog::coded(ObjectId object) const {
  HEADRACE_ASSIGN_OR_RETURN(const FileInfo info, objects_.file(object));
  const std::string_view name =
      std::string_view(info.path).substr(std::min(root_.size() + 1, info.path.size()));
  const auto wrong = [&] {
    return DataLoss("object '{}': its name is not CODING:BYTES/PATH; index the dataset again",
                    info.path);
  };
  const std::size_t colon = name.find(':');
  const std::size_t slash = name.find('/');
  if (colon == std::string_view::npos || slash == std::string_view::npos || slash < colon) {
    return wrong();
  }
  const Result<Coding> coding = CodingOf(name.substr(0, colon));
  const std::string_view digits = name.substr(colon + 1, slash - colon - 1);
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
  if (!coding.ok() || error != std::errc() || end != digits.data() + digits.size()) return wrong();
  const std::string_view folder =
      std::string_view(root_).substr(std::min(root_.size(), kDecodedScheme.size() + 3));
  return CodedFile{.stored = {.path = std::string(folder) + std::string(name.substr(slash)),
                              .size = bytes,
                              .mtime_ns = info.mtime_ns},
                   .coding = coding.value(),
                   .decoded_bytes = info.size};
}

}  // namespace headrace
