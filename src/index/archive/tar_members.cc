#include "index/archive/tar_members.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>

namespace headrace {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kAheadBytes = std::size_t{64} * 1024;  // read at once where members are small
constexpr std::size_t kNearBytes = 4 * kBlock;  // a pax header, its records, and the member's
constexpr std::uint64_t kSmallBytes = std::uint64_t{16} * 1024;
constexpr std::uint64_t kPaxBytesMax = std::uint64_t{16} * 1024;

using Bytes = std::span<const unsigned char>;

// Reads a file from its beginning to its end, some blocks ahead.
class Ahead {
 public:
  Ahead(int fd, std::uint64_t file_bytes) : fd_(fd), file_bytes_(file_bytes) {}

  // Reads so many bytes at once from now on.
  void SetSize(std::size_t size) { size_ = size; }

  // These bytes; empty if the file does not have them, or cannot be read.
  Bytes At(std::uint64_t offset, std::size_t size) {
    if (offset > file_bytes_ || size > file_bytes_ - offset) return {};
    if (offset < at_ || offset + size > at_ + filled_) {
      if (!Fill(offset, std::max(size, size_)) || size > filled_) return {};
    }
    return Bytes(buffer_).subspan(offset - at_, size);
  }

 private:
  bool Fill(std::uint64_t offset, std::size_t size) {
    buffer_.resize(std::max(buffer_.size(), size));
    ssize_t got = 0;
    do {
      got = pread(fd_, buffer_.data(), size, static_cast<off_t>(offset));
    } while (got < 0 && errno == EINTR);
    at_ = offset;
    filled_ = got < 0 ? 0 : static_cast<std::size_t>(got);
    return got > 0;
  }

  const int fd_;
  const std::uint64_t file_bytes_;
  std::size_t size_ = kAheadBytes;
  std::vector<unsigned char> buffer_;
  std::uint64_t at_ = 0;
  std::size_t filled_ = 0;
};

std::string_view TextOf(Bytes field) {
  const auto* const begin = reinterpret_cast<const char*>(field.data());
  return {begin, static_cast<std::size_t>(std::find(begin, begin + field.size(), '\0') - begin)};
}

// Octal digits between spaces; none is 0.
std::optional<std::uint64_t> NumberOf(Bytes field) {
  std::string_view digits = TextOf(field);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  std::uint64_t number = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '7') return std::nullopt;
    number = number * 8 + static_cast<std::uint64_t>(digit - '0');
  }
  return number;
}

bool HasRightChecksum(Bytes header) {
  const auto sum = [](Bytes bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
  };
  const auto found = NumberOf(header.subspan(148, 8));
  return found && *found == sum(header) - sum(header.subspan(148, 8)) + std::uint64_t{8} * ' ';
}

void AppendName(Bytes header, std::string& names) {
  const std::string_view prefix = TextOf(header.subspan(345, 155));
  const bool is_ustar = std::ranges::equal(header.subspan(257, 6), std::string_view("ustar\0", 6));
  if (is_ustar && !prefix.empty()) names.append(prefix).push_back('/');
  names.append(TextOf(header.first(100)));
}

// Whether records "LENGTH KEY=VALUE\n" have neither the place nor the name of a member.
bool AreHarmless(std::string_view records) {
  while (!records.empty()) {
    const std::size_t space = records.find(' ');
    if (space == std::string_view::npos || space == 0 || space > 10) return false;
    std::size_t length = 0;
    for (const char digit : records.substr(0, space)) {
      if (digit < '0' || digit > '9') return false;
      length = length * 10 + static_cast<std::size_t>(digit - '0');
    }
    if (length <= space + 1 || length > records.size() || records[length - 1] != '\n') return false;
    const std::string_view record = records.substr(space + 1, length - space - 1);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = record.substr(0, equals);
    if (key == "path" || key == "size" || key.starts_with("GNU.sparse")) return false;
    records.remove_prefix(length);
  }
  return true;
}

std::uint64_t Rounded(std::uint64_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

// A header, and where the bytes behind it end. std::nullopt: it is not plain.
struct Header {
  Bytes bytes;
  char kind = 0;
  std::uint64_t size = 0;
  std::uint64_t data = 0;  // where they begin
};

std::optional<Header> HeaderAt(std::uint64_t at, std::uint64_t file_bytes, Ahead& ahead) {
  const Bytes bytes = ahead.At(at, kBlock);
  if (bytes.empty() || !HasRightChecksum(bytes)) return std::nullopt;
  const auto size = NumberOf(bytes.subspan(124, 12));
  const std::uint64_t data = at + kBlock;
  if (!size || *size > file_bytes - data) return std::nullopt;
  return Header{bytes, static_cast<char>(bytes[156]), *size, data};
}

}  // namespace

TarMembers ReadTarMembers(int fd, std::uint64_t file_bytes, std::uint64_t at,
                          std::size_t members_max) {
  TarMembers found;
  found.next = at;
  Ahead ahead(fd, file_bytes);
  while (found.sizes.size() < members_max) {
    auto header = HeaderAt(at, file_bytes, ahead);
    if (header && header->kind == 'x' && header->size <= kPaxBytesMax) {
      const Bytes records = ahead.At(header->data, header->size);
      if (records.size() != header->size ||
          !AreHarmless({reinterpret_cast<const char*>(records.data()), records.size()})) {
        break;
      }
      header = HeaderAt(header->data + Rounded(header->size), file_bytes, ahead);
    }
    const bool is_file = header && (header->kind == '0' || header->kind == '\0');
    if (!is_file && !(header && header->kind == '5')) break;
    if (is_file) {
      const std::size_t before = found.names.size();
      AppendName(header->bytes, found.names);
      if (found.names.size() > before && found.names.back() == '/') {
        found.names.resize(before);  // A folder, as old tars have them.
      } else {
        found.names.push_back('\0');
        found.offsets.push_back(static_cast<std::int64_t>(header->data));
        found.sizes.push_back(static_cast<std::int64_t>(header->size));
      }
    }
    ahead.SetSize(header->size < kSmallBytes ? kAheadBytes : kNearBytes);
    at = header->data + Rounded(header->size);
    found.next = at;
  }
  found.is_plain = found.sizes.size() == members_max;
  return found;
}

}  // namespace headrace
