#pragma once

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "base/check.h"
#include "store/decoded/decompress.h"
#include "store/testing/temp_files.h"

namespace headrace {

// `bytes` in frames or members of up to `part` bytes each.
inline std::string Encoded(Coding coding, const std::string& bytes, std::size_t part = 100'000) {
  if (coding == Coding::kStored) return bytes;
  std::string all;
  for (std::size_t at = 0; at == 0 || at < bytes.size(); at += part) {
    const std::string piece = bytes.substr(at, part);
    std::string out(ZSTD_compressBound(piece.size()) + compressBound(piece.size()) + 64, '\0');
    if (coding == Coding::kZstd) {
      const std::size_t size = ZSTD_compress(out.data(), out.size(), piece.data(), piece.size(), 1);
      HEADRACE_CHECK(ZSTD_isError(size) == 0);
      out.resize(size);
    } else {
      z_stream stream = {};
      HEADRACE_CHECK(deflateInit2(&stream, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) ==
                     Z_OK);
      std::string in = piece;
      stream.next_in = reinterpret_cast<Bytef*>(in.data());
      stream.avail_in = static_cast<uInt>(in.size());
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      HEADRACE_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
      out.resize(stream.total_out);
      deflateEnd(&stream);
    }
    all += out;
  }
  return all;
}

// Compressed files, and the catalogue of the objects that they decode to.
class CodedFiles final : public FileCatalog {
 public:
  void Add(ObjectId object, Coding coding, const std::string& bytes) {
    AddEncoded(object, coding, Encoded(coding, bytes), bytes.size());
  }
  void AddEncoded(ObjectId object, Coding coding, const std::string& encoded,
                  std::uint64_t decoded_bytes) {
    files_.Add(object, encoded);
    const FileInfo file = files_.file(object).value();
    constexpr const char* kNames[] = {"stored", "zstd", "gzip"};
    objects_[object] = {.path = root() + "/" + kNames[static_cast<int>(coding)] + ":" +
                                std::to_string(file.size) +
                                file.path.substr(files_.folder().size()),
                        .size = decoded_bytes,
                        .mtime_ns = file.mtime_ns};
  }
  // Replaces the whole name of an object.
  void Rename(ObjectId object, const std::string& name) {
    objects_[object].path = root() + "/" + name;
  }

  [[nodiscard]] std::string root() const { return "decoded://" + files_.folder(); }
  [[nodiscard]] std::string path(ObjectId object) const { return files_.path(object); }
  [[nodiscard]] Result<FileInfo> file(ObjectId object) const override {
    const auto found = objects_.find(object);
    if (found == objects_.end()) return Status(StatusCode::kNotFound, "no such object");
    return found->second;
  }

 private:
  TempFiles files_;
  std::map<ObjectId, FileInfo> objects_;
};

}  // namespace headrace
