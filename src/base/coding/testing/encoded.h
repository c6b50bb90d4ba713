#pragma once

// Compressed bytes for tests.

#include <zlib.h>
#include <zstd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/coding/coding.h"

namespace headrace {

inline std::string EncodedZstd(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t size = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 1);
  HEADRACE_CHECK(ZSTD_isError(size) == 0);
  out.resize(size);
  return out;
}

// `window_bits`: as for deflateInit2().
inline std::string EncodedDeflate(std::string bytes, int window_bits) {
  std::string out(compressBound(bytes.size()) + 64, '\0');
  z_stream stream = {};
  HEADRACE_CHECK(deflateInit2(&stream, 1, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  HEADRACE_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Adds a literal of snappy with its length in the tag, or in two bytes behind it.
inline void AddSnappyLiteral(const std::string& literal, std::string& out) {
  if (literal.empty()) return;
  const std::size_t length = literal.size() - 1;
  if (length < 60) {
    out.push_back(static_cast<char>(length << 2));
  } else {
    HEADRACE_CHECK(length < 0x10000);
    out.push_back(static_cast<char>(61 << 2));
    out.push_back(static_cast<char>(length & 0xff));
    out.push_back(static_cast<char>(length >> 8));
  }
  out += literal;
}

// Repeats of four bytes and more become copies, of all three kinds; the rest literals.
inline std::string EncodedSnappy(const std::string& bytes) {
  std::string out;
  for (std::uint64_t size = bytes.size();; size >>= 7) {
    out.push_back(static_cast<char>((size & 0x7f) | (size > 0x7f ? 0x80 : 0)));
    if (size <= 0x7f) break;
  }
  std::map<std::string, std::size_t> seen;
  std::string literal;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::string four = bytes.substr(at, 4);
    const auto found = seen.find(four);
    std::size_t length = 0;
    std::size_t offset = 0;
    if (found != seen.end() && four.size() == 4) {
      offset = at - found->second;
      while (length < 64 && at + length < bytes.size() &&
             bytes[at + length] == bytes[at + length - offset]) {
        ++length;
      }
    }
    if (four.size() == 4) seen[four] = at;
    if (length < 4) {
      literal.push_back(bytes[at++]);
      if (literal.size() == 60'000) AddSnappyLiteral(std::exchange(literal, {}), out);
      continue;
    }
    AddSnappyLiteral(std::exchange(literal, {}), out);
    if (length < 12 && offset < 2048) {
      out.push_back(static_cast<char>(1U | ((length - 4) << 2) | ((offset >> 8) << 5)));
      out.push_back(static_cast<char>(offset & 0xff));
    } else {
      const std::size_t offset_bytes = offset < 0x10000 ? 2 : 4;
      out.push_back(static_cast<char>((offset_bytes == 2 ? 2U : 3U) | ((length - 1) << 2)));
      for (std::size_t i = 0; i < offset_bytes; ++i) {
        out.push_back(static_cast<char>((offset >> (8 * i)) & 0xff));
      }
    }
    at += length;
  }
  AddSnappyLiteral(literal, out);
  return out;
}

inline std::string EncodedWhole(Coding coding, const std::string& bytes) {
  switch (coding) {
    case Coding::kStored:
      return bytes;
    case Coding::kZstd:
      return EncodedZstd(bytes);
    case Coding::kZlib:
      return EncodedDeflate(bytes, MAX_WBITS);
    case Coding::kDeflate:
      return EncodedDeflate(bytes, -MAX_WBITS);
    case Coding::kSnappy:
      return EncodedSnappy(bytes);
    case Coding::kGzip:
      return EncodedDeflate(bytes, 16 + MAX_WBITS);
  }
  return bytes;
}

// `bytes` in frames or members of up to `part` bytes each, where the coding has such.
inline std::string Encoded(Coding coding, const std::string& bytes, std::size_t part = 100'000) {
  if (coding != Coding::kZstd && coding != Coding::kGzip) return EncodedWhole(coding, bytes);
  std::string all;
  for (std::size_t at = 0; at == 0 || at < bytes.size(); at += part) {
    all += EncodedWhole(coding, bytes.substr(at, part));
  }
  return all;
}

}  // namespace headrace
