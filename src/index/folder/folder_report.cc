#include "index/folder/folder_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "index/folder/text.h"

namespace headrace::internal {
namespace {

constexpr std::array kDecoded = std::to_array<std::string_view>({
    ".jpg",
    ".jpeg",
    ".png",
    ".webp",
#ifndef HEADRACE_WITHOUT_TIFF
    ".tif",
    ".tiff",
#endif
});

// With its dot, in lower case; the whole name if there is no dot.
std::string ExtensionOf(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  std::string extension(name.substr(dot == std::string_view::npos ? 0 : dot));
  for (char& c : extension) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return extension;
}

}  // namespace

void FolderReport::Add(std::string_view kind, std::string_view name) {
  Entry& entry = entries_.try_emplace(std::string(kind)).first->second;
  ++entry.count;
  if (entry.names.size() < kNamesShown) entry.names.emplace_back(name);
}

std::string FolderReport::Json() const {
  std::string json = "[";
  for (const auto& [kind, entry] : entries_) {
    json.append(json.size() > 1 ? ",[" : "[");
    AppendJsonString(kind, json);
    json.append(fmt::format(",{},{}]", entry.count, JsonList(entry.names)));
  }
  return json + "]";
}

std::string KindOf(FileFinding finding, std::string_view name) {
  switch (finding) {
    case FileFinding::kNone:
      break;
    case FileFinding::kFormat:
      return ExtensionOf(name);
    case FileFinding::kEmpty:
      return "empty";
    case FileFinding::kBrokenLink:
      return "broken_link";
    case FileFinding::kSpecial:
      return "special";
    case FileFinding::kUnreadable:
      return "unreadable";
  }
  return "";
}

bool IsDecodedByName(std::string_view name) {
  return std::find(kDecoded.begin(), kDecoded.end(), ExtensionOf(name)) != kDecoded.end();
}

bool IsHidden(std::string_view path) {
  return path.starts_with('.') || path.find("/.") != std::string_view::npos;
}

}  // namespace headrace::internal
