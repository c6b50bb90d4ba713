#include "codec/sound/sound_file.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include <sndfile.h>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {
namespace {

constexpr std::size_t kHeadBytes = 44;  // WAV: 44; FLAC: 42

// Bytes of a header, one after the other.
class HeadWriter {
 public:
  void Text(std::string_view text) {
    for (const char c : text) head_[size_++] = static_cast<std::byte>(c);
  }
  void Little(std::uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; ++i) head_[size_++] = static_cast<std::byte>(value >> 8 * i);
  }
  void Big(std::uint64_t value, unsigned bytes) {
    for (unsigned i = bytes; i > 0; --i) {
      head_[size_++] = static_cast<std::byte>(value >> 8 * (i - 1));
    }
  }
  [[nodiscard]] const std::array<std::byte, kHeadBytes>& head() const { return head_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::array<std::byte, kHeadBytes> head_{};
  std::size_t size_ = 0;
};

HeadWriter WavHead(const SoundHeader& header) {
  const std::uint64_t frame_bytes = std::uint64_t{header.info.channels} * header.bits / 8;
  const std::uint64_t body_bytes = header.info.frames * frame_bytes;
  HeadWriter head;
  head.Text("RIFF");
  head.Little(36 + body_bytes, 4);
  head.Text("WAVEfmt ");
  head.Little(16, 4);
  head.Little(header.is_float ? 3 : 1, 2);
  head.Little(header.info.channels, 2);
  head.Little(header.info.rate, 4);
  head.Little(header.info.rate * frame_bytes, 4);
  head.Little(frame_bytes, 2);
  head.Little(header.bits, 2);
  head.Text("data");
  head.Little(body_bytes, 4);
  return head;
}

// The block of properties as it is stored, marked as the last one.
HeadWriter FlacHead(std::span<const std::byte> encoded) {
  constexpr std::size_t kProperties = 34;
  HeadWriter head;
  head.Text("fLaC");
  head.Big(0x80, 1);
  head.Big(kProperties, 3);
  head.Text({reinterpret_cast<const char*>(encoded.data()) + 8, kProperties});
  return head;
}

}  // namespace

// A file of two parts in memory, for libsndfile's calls.
struct SoundFile::Stream {
  std::array<std::byte, kHeadBytes> head{};
  std::uint64_t head_bytes = 0;
  std::span<const std::byte> body;
  std::uint64_t at = 0;
  SNDFILE* file = nullptr;

  static Stream& Of(void* user) { return *static_cast<Stream*>(user); }
  [[nodiscard]] std::uint64_t size() const { return head_bytes + body.size(); }

  static sf_count_t Size(void* user) { return static_cast<sf_count_t>(Of(user).size()); }
  static sf_count_t Tell(void* user) { return static_cast<sf_count_t>(Of(user).at); }
  static sf_count_t Seek(sf_count_t offset, int whence, void* user) {
    Stream& stream = Of(user);
    const auto base = whence == SEEK_CUR   ? static_cast<sf_count_t>(stream.at)
                      : whence == SEEK_END ? Size(user)
                                           : 0;
    sf_count_t to = 0;
    if (__builtin_add_overflow(base, offset, &to) || to < 0 || to > Size(user)) return -1;
    stream.at = static_cast<std::uint64_t>(to);
    return to;
  }
  static sf_count_t Read(void* to, sf_count_t count, void* user) {
    Stream& stream = Of(user);
    auto* out = static_cast<std::byte*>(to);
    std::uint64_t left =
        std::min(stream.size() - stream.at, count > 0 ? static_cast<std::uint64_t>(count) : 0);
    const std::uint64_t taken = left;
    if (stream.at < stream.head_bytes) {
      const std::uint64_t part = std::min(left, stream.head_bytes - stream.at);
      std::memcpy(out, stream.head.data() + stream.at, part);
      stream.at += part;
      out += part;
      left -= part;
    }
    if (left > 0) std::memcpy(out, stream.body.data() + (stream.at - stream.head_bytes), left);
    stream.at += left;
    return static_cast<sf_count_t>(taken);
  }
  static sf_count_t Write(const void* /*from*/, sf_count_t /*count*/, void* /*user*/) { return 0; }
};

SoundFile::SoundFile(const SoundHeader& header)
    : header_(header), stream_(std::make_unique<Stream>()) {}

SoundFile::~SoundFile() {
  if (stream_->file != nullptr) sf_close(stream_->file);
}

Result<std::unique_ptr<SoundFile>> SoundFile::Open(std::span<const std::byte> encoded,
                                                   const SoundHeader& header) {
  HEADRACE_CHECK(header.body_begin <= encoded.size() &&
                 header.body_bytes <= encoded.size() - header.body_begin);
  std::unique_ptr<SoundFile> file(new SoundFile(header));
  Stream& stream = *file->stream_;
  const HeadWriter head = header.is_flac ? FlacHead(encoded) : WavHead(header);
  stream.head = head.head();
  stream.head_bytes = head.size();
  stream.body = encoded.subspan(header.body_begin, header.body_bytes);
  SF_VIRTUAL_IO io{.get_filelen = Stream::Size,
                   .seek = Stream::Seek,
                   .read = Stream::Read,
                   .write = Stream::Write,
                   .tell = Stream::Tell};
  SF_INFO info{};
  stream.file = sf_open_virtual(&io, SFM_READ, &info, &stream);
  const bool same = stream.file != nullptr && info.frames >= 0 &&
                    static_cast<std::uint64_t>(info.frames) == header.info.frames &&
                    info.channels == static_cast<int>(header.info.channels);
  if (same) return file;
  const char* const said = stream.file != nullptr ? "another length than its header says"
                                                  : "libsndfile does not open it";
  return DataLoss("decoding {} sound of {}: damaged: {}", header.is_flac ? "FLAC" : "WAV",
                  Counted(header.info.frames, "frame"), said);
}

Status SoundFile::Read(std::span<float> to) {
  const std::size_t wanted = to.size() / header_.info.channels;
  const sf_count_t read = sf_readf_float(stream_->file, to.data(), static_cast<sf_count_t>(wanted));
  const int error = sf_error(stream_->file);
  if (error == SF_ERR_NO_ERROR && read == static_cast<sf_count_t>(wanted)) return {};
  return DataLoss("decoding {} sound of {}: damaged: {}", header_.is_flac ? "FLAC" : "WAV",
                  Counted(header_.info.frames, "frame"),
                  error != SF_ERR_NO_ERROR ? sf_error_number(error) : "frames are missing");
}

std::uint64_t SoundFile::BytesToDecode(const SoundHeader& header) {
  constexpr std::uint64_t kStateBytes = std::uint64_t{128} << 10;
  // Of a channel of a block: decoded, predicted, and the difference of two channels in 64 bits.
  constexpr std::uint64_t kFrameBytes = 16;
  if (!header.is_flac) return kStateBytes;
  return 2 * kStateBytes + kFrameBytes * header.block_frames_max * header.info.channels;
}

}  // namespace headrace
