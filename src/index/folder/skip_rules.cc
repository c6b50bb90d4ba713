#include "index/folder/skip_rules.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/format/errors.h"
#include "index/index_rules.h"

namespace headrace::internal {
namespace {

constexpr std::array kFailing = {FileFinding::kFormat, FileFinding::kEmpty,
                                 FileFinding::kBrokenLink, FileFinding::kSpecial,
                                 FileFinding::kUnreadable};

std::string_view NameOf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Length in bytes of the first character of `text`, which is not empty.
std::size_t CharacterBytes(std::string_view text) {
  std::size_t bytes = 1;
  if (static_cast<unsigned char>(text[0]) < 0xc0) return bytes;
  while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xc0U) == 0x80) ++bytes;
  return bytes;
}

}  // namespace

// Backtracks to the last '*' only: it can match whatever an earlier one could.
bool MatchesGlob(std::string_view pattern, std::string_view text) {
  constexpr std::size_t kNone = std::string_view::npos;
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t after_star = kNone;
  std::size_t star_end = 0;  // end of the text that the last '*' matches
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      star_end = t;
    } else if (p < pattern.size() && pattern[p] == '?' && text[t] != '/') {
      ++p;
      t += CharacterBytes(text.substr(t));
    } else if (p < pattern.size() && pattern[p] != '?' && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (after_star != kNone && text[star_end] != '/') {
      p = after_star;
      t = ++star_end;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Result<SkipRules> SkipRules::Parse(const std::vector<std::string>& skip) {
  SkipRules rules;
  rules.given_ = skip;
  rules.noted_.resize(skip.size(), true);
  for (std::size_t position = 0; position < skip.size(); ++position) {
    const std::string& each = skip[position];
    if (each == ":undecodable") {
      rules.findings_.insert(rules.findings_.end(), kFailing.begin(), kFailing.end());
    } else if (each == ":hidden") {
      rules.hidden_ = true;
    } else if (each.starts_with(':')) {
      const auto* const found =
          std::find_if(kFailing.begin(), kFailing.end(), [&](FileFinding finding) {
            return finding != FileFinding::kFormat && ":" + KindOf(finding, "") == each;
          });
      if (found == kFailing.end()) {
        return InvalidArgument(
            "skip: got {}, a kind is one of :undecodable, :empty, :broken_link, :special, "
            ":unreadable, :hidden",
            Quoted(each));
      }
      rules.findings_.push_back(*found);
    } else {
      std::string_view text = each;
      const bool anchored = text.starts_with('/');
      while (text.starts_with('/')) text.remove_prefix(1);
      while (text.ends_with('/')) text.remove_suffix(1);
      if (text.empty()) {
        return InvalidArgument(
            "skip: got {}, must be the name of a file or folder, a path below the root, or a "
            "pattern of them with * and ?",
            Quoted(each));
      }
      const bool whole_path = anchored || text.find('/') != std::string_view::npos;
      rules.noted_[position] = false;
      const bool is_path = whole_path && text.find_first_of("*?") == std::string_view::npos;
      if (is_path && rules.paths_.emplace(text, position).second) continue;
      rules.patterns_.push_back(
          {.position = position, .text = std::string(text), .whole_path = whole_path});
    }
  }
  return rules;
}

bool SkipRules::Pattern::Matches(std::string_view path) const {
  return MatchesGlob(text, whole_path ? path : NameOf(path));
}

bool SkipRules::Pattern::MayMatchBelow(std::string_view path) const {
  const auto parts = std::count(path.begin(), path.end(), '/') + 1;
  std::size_t end = text.find('/');
  for (std::ptrdiff_t i = 1; i < parts && end != std::string::npos; ++i) {
    end = text.find('/', end + 1);
  }
  return end != std::string::npos && MatchesGlob(std::string_view(text).substr(0, end), path);
}

bool SkipRules::Matches(std::string_view path) const {
  return (hidden_ && NameOf(path).starts_with('.')) || paths_.contains(path) ||
         std::any_of(patterns_.begin(), patterns_.end(),
                     [path](const Pattern& pattern) { return pattern.Matches(path); });
}

bool SkipRules::LeavesOut(std::string_view path) {
  if (!Matches(path)) return false;
  for (const Pattern& pattern : patterns_) {
    if (pattern.Matches(path) || pattern.MayMatchBelow(path)) noted_[pattern.position] = true;
  }
  if (const auto found = paths_.find(path); found != paths_.end()) noted_[found->second] = true;
  const std::string below = std::string(path) + '/';
  for (auto found = paths_.lower_bound(below);
       found != paths_.end() && found->first.starts_with(below); ++found) {
    noted_[found->second] = true;
  }
  return true;
}

std::vector<std::string> SkipRules::Unmatched() const {
  std::vector<std::string> unmatched;
  for (std::size_t i = 0; i < given_.size(); ++i) {
    if (!noted_[i]) unmatched.push_back(given_[i]);
  }
  return unmatched;
}

bool SkipRules::LeavesOut(FileFinding finding) const {
  return std::find(findings_.begin(), findings_.end(), finding) != findings_.end();
}

}  // namespace headrace::internal
