#pragma once

// File names as Python sees them, for indexes that must agree with a Python library on the order
// and the names of classes. A name is bytes. In comparisons and in JSON a byte that is not valid
// UTF-8 stands for a code point from U+DC80 to U+DCFF (PEP 383, "surrogateescape"). Internal to
// index/.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace::internal {

// Whether Python sorts `a` before `b`: by code points. For valid UTF-8 that is the order of bytes.
bool TextLess(std::string_view a, std::string_view b);

// Appends `text` as a JSON string, which json.loads() and os.fsencode() turn back into its bytes.
void AppendJsonString(std::string_view text, std::string& json);

std::string JsonList(const std::vector<std::string>& texts);
// Parses the output of JsonList(texts). Returns std::nullopt for any other text.
std::optional<std::vector<std::string>> ParseTexts(std::string_view json);

// [[text, number], ...]
using NumberedTexts = std::vector<std::pair<std::string, std::int64_t>>;
std::string JsonList(const NumberedTexts& pairs);

// Parses the output of JsonList(NumberedTexts). Returns std::nullopt for any other text.
std::optional<NumberedTexts> ParseNumberedTexts(std::string_view json);

}  // namespace headrace::internal
