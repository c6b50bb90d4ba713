#pragma once

// The memory of a libjpeg decoder; large arrays come from scratch_memory.h.

#include <cstddef>
#include <cstdint>
#include <cstdio>  // jpeglib.h needs it

#include <jpeglib.h>

namespace headrace {

// Replaces libjpeg's functions that allocate arrays of samples and of coefficients, the only memory
// that grows with an image, and tables. Reports errors as libjpeg does.
//
// Thread safety: thread-compatible: const calls may be concurrent.
// Ownership: the caller owns the decoder and destroys it before this.
class JpegMemory {
 public:
  JpegMemory() = default;
  ~JpegMemory();
  JpegMemory(const JpegMemory&) = delete;
  JpegMemory& operator=(const JpegMemory&) = delete;

  // Call it after `info` is created, before it reads anything. Uses info->client_data.
  void Attach(j_decompress_ptr info);

  // Call it after each image, when `info` was aborted. Frees its arrays and takes its tables from
  // `info`: the next image, which need not have all, gets none that it did not bring. libjpeg frees
  // tables with the decoder alone, so they are kept, and given to the next image that asks.
  void Clear(j_decompress_ptr info);

  // Upper bound of the bytes that decoding allocates, with each side halved `halvings` times. The
  // header must have been read. `several_scans`: whether the decoder keeps all coefficients.
  static std::uint64_t BytesToDecode(const jpeg_decompress_struct& info, unsigned halvings,
                                     bool several_scans);

 private:
  struct Block;
  struct Coefficients;

  static JpegMemory& Of(j_common_ptr info) { return *static_cast<JpegMemory*>(info->client_data); }
  void FreeBlocks();
  static void* AllocateSmall(j_common_ptr info, int pool, std::size_t bytes);
  static void* Allocate(j_common_ptr info, std::size_t bytes);
  static JSAMPARRAY AllocateSamples(j_common_ptr info, int pool, JDIMENSION width, JDIMENSION rows);
  static jvirt_barray_ptr Request(j_common_ptr info, int pool, boolean zero, JDIMENSION width,
                                  JDIMENSION rows, JDIMENSION rows_at_once);
  static void Realize(j_common_ptr info);
  static JBLOCKARRAY Access(j_common_ptr info, jvirt_barray_ptr array, JDIMENSION first,
                            JDIMENSION rows, boolean writable);

  // Tables that earlier images left, for the next one. An image has at most `N`.
  template <typename Table, std::size_t N>
  struct Spares {
    Table* tables[N] = {};
    std::size_t count = 0;

    void TakeFrom(Table*& table) {
      if (table != nullptr && count < N) tables[count++] = table;
      table = nullptr;
    }
  };

  decltype(jpeg_memory_mgr::alloc_small) alloc_small_ = nullptr;  // libjpeg's own
  Spares<JQUANT_TBL, NUM_QUANT_TBLS> quantization_;
  Spares<JHUFF_TBL, std::size_t{2} * NUM_HUFF_TBLS> huffman_;
  Block* blocks_ = nullptr;               // all allocated blocks
  Coefficients* coefficients_ = nullptr;  // requested arrays
};

}  // namespace headrace
