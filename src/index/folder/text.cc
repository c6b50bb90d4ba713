#include "index/folder/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

namespace headrace::internal {
namespace {

constexpr char32_t kEscapedByte = 0xdc00;  // plus the byte
constexpr std::string_view kHexDigits = "0123456789abcdef";

unsigned char ByteAt(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;
};

// The length in bytes of a sequence that starts with `lead`, and the range of its second byte
// (Unicode, table 3-7: no overlong forms, no surrogates, nothing past U+10FFFF); 0 bytes if `lead`
// is invalid.
struct Sequence {
  std::size_t bytes = 0;
  unsigned char second_min = 0x80;
  unsigned char second_max = 0xbf;
};

Sequence SequenceOf(unsigned char lead) {
  if (lead >= 0xc2 && lead <= 0xdf) return {.bytes = 2};
  if (lead == 0xe0) return {.bytes = 3, .second_min = 0xa0};
  if (lead == 0xed) return {.bytes = 3, .second_max = 0x9f};
  if (lead >= 0xe1 && lead <= 0xef) return {.bytes = 3};
  if (lead == 0xf0) return {.bytes = 4, .second_min = 0x90};
  if (lead >= 0xf1 && lead <= 0xf3) return {.bytes = 4};
  if (lead == 0xf4) return {.bytes = 4, .second_max = 0x8f};
  return {.bytes = 0};
}

// The first code point of `text`, which is not empty.
CodePoint First(std::string_view text) {
  const unsigned char lead = ByteAt(text, 0);
  if (lead < 0x80) return {.value = lead, .bytes = 1};
  const CodePoint escaped{.value = kEscapedByte + lead, .bytes = 1};
  const Sequence sequence = SequenceOf(lead);
  if (sequence.bytes == 0 || text.size() < sequence.bytes) return escaped;
  if (ByteAt(text, 1) < sequence.second_min || ByteAt(text, 1) > sequence.second_max) {
    return escaped;
  }
  char32_t value = lead & (0x7fU >> sequence.bytes);
  for (std::size_t i = 1; i < sequence.bytes; ++i) {
    const unsigned char next = ByteAt(text, i);
    if ((next & 0xc0U) != 0x80) return escaped;
    value = value << 6 | (next & 0x3fU);
  }
  return {.value = value, .bytes = sequence.bytes};
}

void AppendEscape(char32_t value, std::string& json) {
  json.append("\\u");
  for (int shift = 12; shift >= 0; shift -= 4) json.push_back(kHexDigits[(value >> shift) & 0xf]);
}

// Reads the JSON that this file writes.
class Parser {
 public:
  explicit Parser(std::string_view json) : rest_(json) {}

  bool Skip(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::optional<std::int64_t> Number() {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (error != std::errc()) return std::nullopt;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return number;
  }

  std::optional<std::string> String() {
    std::string text;
    if (!Skip('"')) return std::nullopt;
    while (!Skip('"')) {
      if (rest_.empty()) return std::nullopt;
      const std::optional<char> c = Skip('\\') ? Escaped() : Plain();
      if (!c) return std::nullopt;
      text.push_back(*c);
    }
    return text;
  }

  [[nodiscard]] bool empty() const { return rest_.empty(); }

 private:
  std::optional<char> Plain() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }

  std::optional<char> Escaped() {
    if (Skip('"')) return '"';
    if (Skip('\\')) return '\\';
    if (!Skip('u') || rest_.size() < 4) return std::nullopt;
    unsigned value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + 4, value, 16);
    if (error != std::errc() || end != rest_.data() + 4) return std::nullopt;
    rest_.remove_prefix(4);
    const bool is_byte = value < 0x20 || (value >= kEscapedByte + 0x80 && value <= 0xdcff);
    if (!is_byte) return std::nullopt;
    return static_cast<char>(value & 0xff);
  }

  std::string_view rest_;
};

}  // namespace

// A byte below 0x80 is always a whole code point, so after the common prefix the comparison starts
// at the last such byte.
bool TextLess(std::string_view a, std::string_view b) {
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  auto at = static_cast<std::size_t>(std::distance(a.begin(), differ));
  while (at > 0 && ByteAt(a, at - 1) >= 0x80) --at;
  a.remove_prefix(at);
  b.remove_prefix(at);
  while (!a.empty() && !b.empty()) {
    const CodePoint of_a = First(a);
    const CodePoint of_b = First(b);
    if (of_a.value != of_b.value) return of_a.value < of_b.value;
    a.remove_prefix(of_a.bytes);
    b.remove_prefix(of_b.bytes);
  }
  return a.empty() && !b.empty();
}

void AppendJsonString(std::string_view text, std::string& json) {
  json.push_back('"');
  while (!text.empty()) {
    const CodePoint point = First(text);
    const bool is_escaped_byte = point.bytes == 1 && point.value >= 0x80;
    if (point.value < 0x20 || is_escaped_byte) {
      AppendEscape(point.value, json);
    } else {
      if (point.value == '"' || point.value == '\\') json.push_back('\\');
      json.append(text.substr(0, point.bytes));
    }
    text.remove_prefix(point.bytes);
  }
  json.push_back('"');
}

std::string JsonList(const std::vector<std::string>& texts) {
  std::string json = "[";
  for (const std::string& text : texts) {
    if (json.size() > 1) json.push_back(',');
    AppendJsonString(text, json);
  }
  return json + "]";
}

std::optional<std::vector<std::string>> ParseTexts(std::string_view json) {
  std::vector<std::string> texts;
  Parser parser(json);
  if (!parser.Skip('[')) return std::nullopt;
  while (!parser.Skip(']')) {
    if (!texts.empty() && !parser.Skip(',')) return std::nullopt;
    std::optional<std::string> text = parser.String();
    if (!text) return std::nullopt;
    texts.push_back(std::move(*text));
  }
  if (!parser.empty()) return std::nullopt;
  return texts;
}

std::string JsonList(const NumberedTexts& pairs) {
  std::string json = "[";
  for (const auto& [text, number] : pairs) {
    json.append(json.size() > 1 ? ",[" : "[");
    AppendJsonString(text, json);
    json.append(fmt::format(",{}]", number));
  }
  return json + "]";
}

std::optional<NumberedTexts> ParseNumberedTexts(std::string_view json) {
  NumberedTexts pairs;
  Parser parser(json);
  if (!parser.Skip('[')) return std::nullopt;
  while (!parser.Skip(']')) {
    if (!pairs.empty() && !parser.Skip(',')) return std::nullopt;
    if (!parser.Skip('[')) return std::nullopt;
    std::optional<std::string> text = parser.String();
    if (!text || !parser.Skip(',')) return std::nullopt;
    const std::optional<std::int64_t> number = parser.Number();
    if (!number || !parser.Skip(']')) return std::nullopt;
    pairs.emplace_back(std::move(*text), *number);
  }
  if (!parser.empty()) return std::nullopt;
  return pairs;
}

}  // namespace headrace::internal
