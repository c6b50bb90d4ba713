#include "codec/jpeg/jpeg_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <jerror.h>

#include "base/units.h"
#include "codec/scratch_memory.h"

// libjpeg calls everything here except the destructor, and its errors leave with longjmp(): no
// frame may hold an object with a destructor.

namespace headrace {
namespace {

// libjpeg's vector code may write up to this many bytes past the end of a row.
constexpr std::size_t kRowAlignment = 64;

// Tables of a decoder: they do not grow with the image.
constexpr std::uint64_t kTableBytes = std::uint64_t{96} << 10;

[[noreturn]] void OutOfMemory(j_common_ptr info) {
  info->err->msg_code = JERR_OUT_OF_MEMORY;
  info->err->msg_parm.i[0] = 0;
  info->err->error_exit(info);
  __builtin_unreachable();
}

std::uint64_t SampleStride(std::uint64_t width) {
  return RoundUp(width, kRowAlignment) + kRowAlignment;
}

std::uint64_t BlocksOf(std::uint64_t pixels, int factor, int factor_max) {
  const auto unit = static_cast<std::uint64_t>(factor_max) * DCTSIZE;
  const auto blocks = (pixels * static_cast<std::uint64_t>(factor) + unit - 1) / unit;
  return RoundUp(blocks, static_cast<std::uint64_t>(factor));
}

}  // namespace

// Precedes each block of memory.
struct alignas(64) JpegMemory::Block {
  Block* next = nullptr;
};

struct JpegMemory::Coefficients {
  Coefficients* next = nullptr;
  JBLOCKARRAY rows = nullptr;  // null until Realize()
  JDIMENSION width = 0;        // blocks
  JDIMENSION height = 0;
  bool zero = false;
};

JpegMemory::~JpegMemory() { FreeBlocks(); }

void JpegMemory::FreeBlocks() {
  while (blocks_ != nullptr) {
    Block* const block = blocks_;
    blocks_ = block->next;
    FreeScratch(block);
  }
  coefficients_ = nullptr;
}

void JpegMemory::Attach(j_decompress_ptr info) {
  info->client_data = this;
  alloc_small_ = std::exchange(info->mem->alloc_small, AllocateSmall);
  info->mem->alloc_sarray = AllocateSamples;
  info->mem->request_virt_barray = Request;
  info->mem->realize_virt_arrays = Realize;
  info->mem->access_virt_barray = Access;
}

void JpegMemory::Clear(j_decompress_ptr info) {
  FreeBlocks();
  for (JQUANT_TBL*& each : info->quant_tbl_ptrs) quantization_.TakeFrom(each);
  for (JHUFF_TBL*& each : info->dc_huff_tbl_ptrs) huffman_.TakeFrom(each);
  for (JHUFF_TBL*& each : info->ac_huff_tbl_ptrs) huffman_.TakeFrom(each);
}

void* JpegMemory::AllocateSmall(j_common_ptr info, int pool, std::size_t bytes) {
  JpegMemory& self = Of(info);
  if (pool == JPOOL_PERMANENT) {
    if (bytes == sizeof(JQUANT_TBL) && self.quantization_.count > 0) {
      return self.quantization_.tables[--self.quantization_.count];
    }
    if (bytes == sizeof(JHUFF_TBL) && self.huffman_.count > 0) {
      return self.huffman_.tables[--self.huffman_.count];
    }
  }
  return self.alloc_small_(info, pool, bytes);
}

void* JpegMemory::Allocate(j_common_ptr info, std::size_t bytes) {
  void* const memory = AllocateScratch(sizeof(Block) + bytes);
  if (memory == nullptr) OutOfMemory(info);
  JpegMemory& self = Of(info);
  self.blocks_ = new (memory) Block{.next = self.blocks_};
  return self.blocks_ + 1;
}

JSAMPARRAY JpegMemory::AllocateSamples(j_common_ptr info, int /*pool*/, JDIMENSION width,
                                       JDIMENSION rows) {
  const std::size_t stride = SampleStride(width);
  const std::size_t pointers = RoundUp(rows * sizeof(JSAMPROW), kRowAlignment);
  auto* const memory = static_cast<std::uint8_t*>(Allocate(info, pointers + stride * rows));
  auto* const array = reinterpret_cast<JSAMPARRAY>(memory);
  for (JDIMENSION row = 0; row < rows; ++row) array[row] = memory + pointers + stride * row;
  return array;
}

jvirt_barray_ptr JpegMemory::Request(j_common_ptr info, int /*pool*/, boolean zero,
                                     JDIMENSION width, JDIMENSION rows,
                                     JDIMENSION /*rows_at_once*/) {
  JpegMemory& self = Of(info);
  void* const memory = Allocate(info, sizeof(Coefficients));
  self.coefficients_ = new (memory) Coefficients{
      .next = self.coefficients_, .width = width, .height = rows, .zero = zero != FALSE};
  return reinterpret_cast<jvirt_barray_ptr>(self.coefficients_);
}

void JpegMemory::Realize(j_common_ptr info) {
  for (Coefficients* each = Of(info).coefficients_; each != nullptr; each = each->next) {
    if (each->rows != nullptr) continue;
    const std::size_t row_bytes = std::size_t{each->width} * sizeof(JBLOCK);
    const std::size_t pointers = RoundUp(each->height * sizeof(JBLOCKROW), kRowAlignment);
    const std::size_t bytes = pointers + row_bytes * each->height;
    auto* const memory = static_cast<std::uint8_t*>(Allocate(info, bytes));
    if (each->zero && !IsScratchZeroed(bytes)) std::memset(memory + pointers, 0, bytes - pointers);
    each->rows = reinterpret_cast<JBLOCKARRAY>(memory);
    for (JDIMENSION row = 0; row < each->height; ++row) {
      each->rows[row] = reinterpret_cast<JBLOCKROW>(memory + pointers + row_bytes * row);
    }
  }
}

JBLOCKARRAY JpegMemory::Access(j_common_ptr info, jvirt_barray_ptr array, JDIMENSION first,
                               JDIMENSION rows, boolean /*writable*/) {
  const auto* const coefficients = reinterpret_cast<Coefficients*>(array);
  if (coefficients->rows == nullptr || first > coefficients->height ||
      rows > coefficients->height - first) {
    info->err->msg_code = JERR_BAD_VIRTUAL_ACCESS;
    info->err->error_exit(info);
    return nullptr;  // Not reached: the error jumps.
  }
  return coefficients->rows + first;
}

std::uint64_t JpegMemory::BytesToDecode(const jpeg_decompress_struct& info, unsigned halvings,
                                        bool several_scans) {
  const auto factor = static_cast<std::uint64_t>(std::max(info.max_v_samp_factor, 1));
  const auto padding = static_cast<std::uint64_t>(std::max(info.max_h_samp_factor, 1)) * DCTSIZE;
  const auto components = static_cast<std::uint64_t>(info.num_components);
  // After upsampling no component is wider than the image. `padding` is the width of an MCU.
  const std::uint64_t width = ((std::uint64_t{info.image_width} - 1) >> halvings) + 1;
  const std::uint64_t row = SampleStride(RoundUp(width, padding) + padding) + sizeof(JSAMPROW);
  const std::uint64_t block_rows = DCTSIZE >> halvings;
  // A row of MCUs, a row of blocks as context on each side, and the upsampled rows. These count
  // twice: a crop allocates them again.
  std::uint64_t bytes = kTableBytes + components * factor * row * (block_rows + 2 + 2);
  if (!several_scans) return bytes;
  for (int i = 0; i < info.num_components; ++i) {
    const jpeg_component_info& each = info.comp_info[i];
    const std::uint64_t across =
        BlocksOf(info.image_width, each.h_samp_factor, info.max_h_samp_factor);
    const std::uint64_t down =
        BlocksOf(info.image_height, each.v_samp_factor, info.max_v_samp_factor);
    bytes += down * (across * sizeof(JBLOCK) + sizeof(JBLOCKROW)) + 3 * kRowAlignment;
  }
  return bytes;
}

}  // namespace headrace
