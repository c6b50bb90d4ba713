#pragma once

// Decompressors of libjpeg, which are made beforehand and used again.
//
// Whenever libjpeg makes one it calls getenv("JPEGMEM"). Until version 2.41 of glibc a process may
// crash if another thread adds a variable to the environment meanwhile, and a Python program does
// that at any time (os.environ).

#include <csetjmp>
#include <cstddef>
#include <cstdio>  // jpeglib.h needs it
#include <memory>
#include <span>

#include <jpeglib.h>

#include "codec/jpeg/jpeg_memory.h"
#include "headrace/status.h"

namespace headrace {

// A decompressor with the source, the errors and the memory that it uses. When it is given back it
// loses the tables and markers of its image: the next image is decoded as by a new one.
//
// Thread safety: thread-compatible. Take(), Prepare() and giving back: from any thread, without a
// lock, so that a child may fork at any time.
class JpegDecompressor {
 public:
  struct GiveBack {
    void operator()(JpegDecompressor* taken) const;
  };
  using Taken = std::unique_ptr<JpegDecompressor, GiveBack>;

  // A free one, or a new one if all are in use, whose source is `encoded`: the caller keeps these
  // bytes until the decompressor is given back.
  //
  // Errors: ResourceExhausted  no memory for a new one
  static Result<Taken> Take(std::span<const std::byte> encoded);

  // Makes decompressors until `count` were made, at most kKept. Call it while no other thread
  // changes the environment; up to `count` threads may then decode whatever others do to it.
  //
  // Errors: ResourceExhausted  no memory
  static Status Prepare(std::size_t count);

  static constexpr std::size_t kKept = 512;  // More may be in use; they are not kept.

  ~JpegDecompressor();
  JpegDecompressor(const JpegDecompressor&) = delete;
  JpegDecompressor& operator=(const JpegDecompressor&) = delete;

  [[nodiscard]] jpeg_decompress_struct& info() { return info_; }
  [[nodiscard]] const jpeg_decompress_struct& info() const { return info_; }

  // Runs `call`, which calls libjpeg and holds no objects. False after an error of libjpeg, which
  // error_code() and error_text() then describe.
  template <typename Call>
  bool Runs(Call call) {
    // NOLINTNEXTLINE(cert-err52-cpp): see ErrorManager
    if (setjmp(errors_.escape) != 0) return false;
    call();
    return true;
  }
  [[nodiscard]] int error_code() const { return errors_.base.msg_code; }
  [[nodiscard]] const char* error_text() const { return errors_.text; }

  // Whether libjpeg asked for more than the bytes of the image.
  [[nodiscard]] bool source_ended() const { return source_.ended; }
  // What libjpeg has not read.
  [[nodiscard]] std::span<const JOCTET> rest() const {
    return {source_.base.next_input_byte, source_.base.bytes_in_buffer};
  }

 private:
  // libjpeg reports errors by a call that must not return: it jumps to the method that called
  // libjpeg. No frame in between may hold an object with a destructor. The frames are libjpeg's
  // own, which is C, and lambdas that hold none.
  struct ErrorManager {
    jpeg_error_mgr base;  // first, so that a pointer to it is a pointer to this object
    std::jmp_buf escape;
    char text[JMSG_LENGTH_MAX];
  };
  struct MemorySource {
    jpeg_source_mgr base;  // first, as in ErrorManager
    bool ended;
  };
  struct Callbacks;

  JpegDecompressor();

  static Result<std::unique_ptr<JpegDecompressor>> Make();
  static bool Keep(JpegDecompressor* free);
  void Reset();

  ErrorManager errors_{};
  MemorySource source_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
  JpegMemory memory_;
  bool created_ = false;
};

}  // namespace headrace
