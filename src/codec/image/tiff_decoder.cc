#include "codec/image/tiff_decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include <tiffio.h>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "codec/image/resample.h"
#include "codec/tiff/tiff_deflate.h"
#include "codec/tiff/tiff_pixels.h"

namespace headrace {
namespace {

// libtiff's memory for one image, besides that which grows with it: its state, the tags, the tables
// of a decompressor.
constexpr std::uint64_t kTiffStateBytes = std::uint64_t{256} << 10;
// Of a strip or tile, whose place and length libtiff keeps.
constexpr std::uint64_t kCellBytes = 16;
// Of a pixel of a row, for the runs of fax codes.
constexpr std::uint64_t kFaxBytes = 32;
// What libtiff may allocate at once, besides some times the size of the file.
constexpr std::uint64_t kAllocationBytesMax = std::uint64_t{2} << 20;

constexpr std::uint64_t kTilePixelsMax = std::uint64_t{1} << 22;

// The file, for the functions through which libtiff reads. It maps the bytes, which costs nothing.
struct Source {
  std::span<const std::byte> bytes;
  std::uint64_t at = 0;
};

Source& SourceOf(thandle_t handle) { return *static_cast<Source*>(handle); }

tmsize_t ReadSource(thandle_t handle, void* to, tmsize_t count) {
  Source& source = SourceOf(handle);
  const std::uint64_t size = source.bytes.size();
  const std::uint64_t wanted = count > 0 ? static_cast<std::uint64_t>(count) : 0;
  const std::uint64_t taken = std::min(wanted, size - std::min(source.at, size));
  if (taken > 0) std::memcpy(to, source.bytes.data() + source.at, taken);
  source.at += taken;
  return static_cast<tmsize_t>(taken);
}

tmsize_t WriteNothing(thandle_t /*handle*/, void* /*from*/, tmsize_t /*count*/) { return 0; }

toff_t SeekSource(thandle_t handle, toff_t offset, int whence) {
  Source& source = SourceOf(handle);
  if (whence == SEEK_CUR) offset += source.at;
  if (whence == SEEK_END) offset += source.bytes.size();
  source.at = offset;
  return offset;
}

int CloseSource(thandle_t /*handle*/) { return 0; }

toff_t SizeOfSource(thandle_t handle) { return SourceOf(handle).bytes.size(); }

int MapSource(thandle_t handle, void** base, toff_t* size) {
  const Source& source = SourceOf(handle);
  *base = const_cast<std::byte*>(source.bytes.data());  // libtiff only reads it
  *size = source.bytes.size();
  return 1;
}

void UnmapSource(thandle_t /*handle*/, void* /*base*/, toff_t /*size*/) {}

// The first error and the first warning that libtiff reports for one image. Its own handlers print,
// and the whole process shares them.
struct Messages {
  std::array<char, 256> error{};  // empty: none
  std::array<char, 256> warning{};

  void Clear() { error[0] = warning[0] = '\0'; }
  [[nodiscard]] const char* first() const {
    return error[0] != '\0' ? error.data() : warning.data();
  }
};

void Keep(std::array<char, 256>& text, const char* format, std::va_list arguments) {
  if (text[0] == '\0') std::vsnprintf(text.data(), text.size(), format, arguments);
}

int OnError(TIFF* /*tiff*/, void* messages, const char* /*module*/, const char* format,
            std::va_list arguments) {
  Keep(static_cast<Messages*>(messages)->error, format, arguments);
  return 1;  // No other handler is called.
}

int OnWarning(TIFF* /*tiff*/, void* messages, const char* /*module*/, const char* format,
              std::va_list arguments) {
  Keep(static_cast<Messages*>(messages)->warning, format, arguments);
  return 1;
}

struct CloseTiff {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};

struct FreeOptions {
  void operator()(TIFFOpenOptions* options) const { TIFFOpenOptionsFree(options); }
};

class TiffDecoder final : public ImageDecoder {
 public:
  Status Open(std::span<const std::byte> encoded, std::uint64_t pixels_max);
  // Whether Open() failed because of the kind of the image.
  [[nodiscard]] bool is_refused() const { return is_refused_; }

  [[nodiscard]] std::uint64_t ScratchBytes(unsigned halvings) const override;
  Status Start(const ImageRegion& region) override;
  Status ReadRow(std::uint8_t* row) override;
  // Open() has checked that no strip or tile is truncated.
  Status Finish(std::uint8_t* /*row*/) override { return {}; }

 private:
  [[nodiscard]] Status Error(const std::string& cause) const;
  Status Refused(const std::string& refusal);
  Status OpenFile();
  Status ReadSize();
  Status ReadCells(std::uint64_t pixels_max);
  Status CheckCells();
  Status LoadRow(std::uint32_t cell_row);
  Status LoadCell(unsigned plane, std::uint32_t cell_row, std::uint32_t column, std::uint8_t* to);
  Status LoadDeflated(std::uint32_t cell, std::uint32_t rows, std::uint8_t* to);
  [[nodiscard]] const char* cell_name() const { return tiled_ ? "tile" : "strip"; }
  [[nodiscard]] bool has_columns() const { return cells_across_ > 1; }
  [[nodiscard]] std::uint64_t cells_bytes() const;

  Source source_;
  Messages messages_;
  std::unique_ptr<TIFF, CloseTiff> tiff_;  // reads source_, writes messages_
  TiffPixels pixels_;
  bool is_refused_ = false;

  // A cell is a strip or a tile, of one plane. A strip is as wide as the image.
  bool tiled_ = false;
  std::uint32_t cell_width_ = 0;
  std::uint32_t cell_height_ = 0;
  std::uint32_t cells_across_ = 1;
  std::uint32_t cells_down_ = 1;
  std::uint64_t cell_row_bytes_ = 0;

  std::uint32_t column_first_ = 0;  // of the tiles that are decoded
  std::uint32_t column_end_ = 1;
  std::uint32_t next_row_ = 0;
  std::uint32_t loaded_ = ~0U;  // the row of cells in memory
  ScratchBuffer cells_;         // one cell of each plane; with columns, one cell
  ScratchBuffer rows_;          // with columns: a row of cells as RGB
  bool turns_bits_ = false;     // stored bytes have their first bit last
  ScratchBuffer turned_;        // by Deflate: such a cell
};

Status TiffDecoder::Error(const std::string& cause) const {
  std::string message = "decoding TIFF image";
  if (size_.width > 0) message += fmt::format(" of {} x {} pixels", size_.width, size_.height);
  return Status(StatusCode::kDataLoss, message + ": " + cause);
}

Status TiffDecoder::Refused(const std::string& refusal) {
  is_refused_ = true;
  return Error(refusal +
               "; convert it to one page of grey or RGB with 8 bits, or leave it to Pillow and a "
               "Python transform");
}

Status TiffDecoder::Open(std::span<const std::byte> encoded, std::uint64_t pixels_max) {
  source_.bytes = encoded;
  HEADRACE_RETURN_IF_ERROR(OpenFile());
  HEADRACE_RETURN_IF_ERROR(ReadSize());
  HEADRACE_RETURN_IF_ERROR(CheckPixels(size_, pixels_max));
  if (TIFFLastDirectory(tiff_.get()) == 0) return Refused("several pages are not decoded");
  pixels_.ReadTags(tiff_.get());
  if (const std::string refusal = pixels_.Refusal(); !refusal.empty()) return Refused(refusal);
  if (!pixels_.ReadColours(tiff_.get())) return Error("it has no colours for its palette");
  HEADRACE_RETURN_IF_ERROR(ReadCells(pixels_max));
  return CheckCells();
}

Status TiffDecoder::OpenFile() {
  const std::unique_ptr<TIFFOpenOptions, FreeOptions> options(TIFFOpenOptionsAlloc());
  if (options == nullptr) {
    return ResourceExhausted("making a TIFF decoder: the system has no memory");
  }
  TIFFOpenOptionsSetMaxSingleMemAlloc(
      options.get(), static_cast<tmsize_t>(kAllocationBytesMax + 8 * source_.bytes.size()));
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), OnError, &messages_);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), OnWarning, &messages_);
  // D: places of strips and tiles are read when they are asked for, after the checks of the size.
  tiff_.reset(TIFFClientOpenExt("", "rD", &source_, ReadSource, WriteNothing, SeekSource,
                                CloseSource, SizeOfSource, MapSource, UnmapSource, options.get()));
  return tiff_ == nullptr ? Error(messages_.error.data()) : Status();
}

Status TiffDecoder::ReadSize() {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  TIFFGetField(tiff_.get(), TIFFTAG_IMAGEWIDTH, &width);
  TIFFGetField(tiff_.get(), TIFFTAG_IMAGELENGTH, &height);
  if (width == 0 || height == 0) return Error("it has no width or no height");
  size_ = {width, height};
  return {};
}

Status TiffDecoder::ReadCells(std::uint64_t pixels_max) {
  tiled_ = TIFFIsTiled(tiff_.get()) != 0;
  if (tiled_) {
    TIFFGetField(tiff_.get(), TIFFTAG_TILEWIDTH, &cell_width_);
    TIFFGetField(tiff_.get(), TIFFTAG_TILELENGTH, &cell_height_);
    const std::uint64_t pixels = std::uint64_t{cell_width_} * cell_height_;
    const std::uint64_t allowed = std::min(pixels_max, kTilePixelsMax);
    if (pixels == 0 || pixels > allowed) {
      return Error(fmt::format("tiles of {} x {} pixels, a tile may have 1 to {}", cell_width_,
                               cell_height_, allowed));
    }
  } else {
    cell_width_ = size_.width;
    TIFFGetFieldDefaulted(tiff_.get(), TIFFTAG_ROWSPERSTRIP, &cell_height_);
    cell_height_ = std::min(cell_height_, size_.height);
    if (cell_height_ == 0) return Error("strips of 0 rows");
  }
  cells_across_ = (size_.width - 1) / cell_width_ + 1;
  cells_down_ = (size_.height - 1) / cell_height_ + 1;
  cell_row_bytes_ = pixels_.StoredBytes(cell_width_);
  turns_bits_ = TiffNumber(tiff_.get(), TIFFTAG_FILLORDER) == FILLORDER_LSB2MSB;
  return {};
}

// That each strip or tile lies in the file.
Status TiffDecoder::CheckCells() {
  messages_.Clear();
  const std::uint64_t expected =
      std::uint64_t{cells_across_} * cells_down_ * pixels_.stored_planes();
  const std::uint32_t count =
      tiled_ ? TIFFNumberOfTiles(tiff_.get()) : TIFFNumberOfStrips(tiff_.get());
  if (count != expected) {
    return Error(fmt::format("{}, its size needs {}", Counted(count, cell_name()), expected));
  }
  const std::uint64_t file_bytes = source_.bytes.size();
  for (std::uint32_t cell = 0; cell < count; ++cell) {
    int failed = 0;
    const std::uint64_t offset = TIFFGetStrileOffsetWithErr(tiff_.get(), cell, &failed);
    const std::uint64_t bytes =
        failed != 0 ? 0 : TIFFGetStrileByteCountWithErr(tiff_.get(), cell, &failed);
    if (failed != 0) {
      return Error(fmt::format("{} {}: {}", cell_name(), cell, messages_.first()));
    }
    if (bytes == 0 || offset > file_bytes || bytes > file_bytes - offset) {
      return Error(fmt::format("truncated: {} {} has {} from byte {}, the file has {}", cell_name(),
                               cell, Counted(bytes, "byte"), offset, file_bytes));
    }
  }
  return {};
}

std::uint64_t TiffDecoder::cells_bytes() const {
  return cell_row_bytes_ * cell_height_ * (has_columns() ? 1 : pixels_.planes());
}

// Stored bytes are copied only to turn the order of their bits.
std::uint64_t TiffDecoder::ScratchBytes(unsigned /*halvings*/) const {
  const std::uint64_t cell_rows = std::min(cell_height_, size_.height);
  const std::uint64_t rows = has_columns() ? kPixelBytes * size_.width * cell_rows : 0;
  const std::uint64_t count = std::uint64_t{cells_across_} * cells_down_ * pixels_.stored_planes();
  return kTiffStateBytes + cells_bytes() + rows + kCellBytes * count +
         (pixels_.is_fax() ? kFaxBytes * size_.width : 0) +
         (turns_bits_ ? source_.bytes.size() : 0);
}

Status TiffDecoder::Start(const ImageRegion& region) {
  HEADRACE_CHECK(region.halvings == 0 && region.width > 0 && region.height > 0);
  HEADRACE_CHECK(region.x + region.width <= size_.width &&
                 region.y + region.height <= size_.height);
  next_row_ = region.y;
  column_first_ = region.x / cell_width_;
  column_end_ = (region.x + region.width - 1) / cell_width_ + 1;
  const std::uint32_t left = column_first_ * cell_width_;
  const std::uint64_t right = std::uint64_t{column_end_} * cell_width_;
  row_lead_ = region.x - left;
  row_pixels_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(size_.width, right)) - left;
  cells_.Reserve(cells_bytes());
  if (has_columns()) {
    rows_.Reserve(kPixelBytes * row_pixels_ * std::min(cell_height_, size_.height));
  }
  return {};
}

Status TiffDecoder::ReadRow(std::uint8_t* row) {
  const std::uint32_t y = next_row_++;
  if (y / cell_height_ != loaded_) HEADRACE_RETURN_IF_ERROR(LoadRow(y / cell_height_));
  const std::size_t inside = y % cell_height_;
  if (has_columns()) {
    const std::size_t row_bytes = kPixelBytes * row_pixels_;
    std::copy_n(rows_.data() + inside * row_bytes, row_bytes, row);
    return {};
  }
  for (unsigned plane = 0; plane < pixels_.planes(); ++plane) {
    const std::size_t cell_row = std::size_t{plane} * cell_height_ + inside;
    pixels_.Convert(cells_.data() + cell_row * cell_row_bytes_, plane, row_pixels_, row);
  }
  return {};
}

Status TiffDecoder::LoadRow(std::uint32_t cell_row) {
  loaded_ = cell_row;
  if (!has_columns()) {
    for (unsigned plane = 0; plane < pixels_.planes(); ++plane) {
      std::uint8_t* const to = cells_.data() + plane * cell_row_bytes_ * cell_height_;
      HEADRACE_RETURN_IF_ERROR(LoadCell(plane, cell_row, 0, to));
    }
    return {};
  }
  const std::uint32_t rows = std::min(cell_height_, size_.height - cell_row * cell_height_);
  for (std::uint32_t column = column_first_; column < column_end_; ++column) {
    const std::uint32_t x = (column - column_first_) * cell_width_;
    const std::uint32_t count = std::min(cell_width_, row_pixels_ - x);
    for (unsigned plane = 0; plane < pixels_.planes(); ++plane) {
      HEADRACE_RETURN_IF_ERROR(LoadCell(plane, cell_row, column, cells_.data()));
      for (std::size_t y = 0; y < rows; ++y) {
        pixels_.Convert(cells_.data() + y * cell_row_bytes_, plane, count,
                        rows_.data() + (y * row_pixels_ + x) * kPixelBytes);
      }
    }
  }
  return {};
}

// A warning is an error here: libtiff goes on with pixels that it invents.
Status TiffDecoder::LoadCell(unsigned plane, std::uint32_t cell_row, std::uint32_t column,
                             std::uint8_t* to) {
  messages_.Clear();
  const std::uint32_t cell = (plane * cells_down_ + cell_row) * cells_across_ + column;
  const std::uint32_t rows =
      tiled_ ? cell_height_ : std::min(cell_height_, size_.height - cell_row * cell_height_);
  if (pixels_.is_deflate()) return LoadDeflated(cell, rows, to);
  const auto bytes = static_cast<tmsize_t>(cell_row_bytes_ * rows);
  const tmsize_t decoded = tiled_ ? TIFFReadEncodedTile(tiff_.get(), cell, to, bytes)
                                  : TIFFReadEncodedStrip(tiff_.get(), cell, to, bytes);
  const char* const said = messages_.first();
  if (decoded == bytes && said[0] == '\0') return {};
  return Error(fmt::format("{} {}: {}", cell_name(), cell,
                           said[0] != '\0' ? said : "it holds too few pixels"));
}

// CheckCells() has checked that the cell lies in the file.
Status TiffDecoder::LoadDeflated(std::uint32_t cell, std::uint32_t rows, std::uint8_t* to) {
  std::span<const std::byte> stored = source_.bytes.subspan(
      TIFFGetStrileOffset(tiff_.get(), cell), TIFFGetStrileByteCount(tiff_.get(), cell));
  if (turns_bits_) {
    std::uint8_t* const turned = turned_.Reserve(stored.size());
    std::memcpy(turned, stored.data(), stored.size());
    TIFFReverseBits(turned, static_cast<tmsize_t>(stored.size()));
    stored = std::as_bytes(std::span(turned, stored.size()));
  }
  DeflateCell layout = pixels_.CellOf(tiff_.get(), cell_width_);
  layout.rest_bytes_max = 2 * cell_row_bytes_ * cell_height_;
  Status status = DecodeDeflateCell(stored, layout, {to, cell_row_bytes_ * rows});
  if (status.code() != StatusCode::kDataLoss) return status;
  return Error(fmt::format("{} {}: {}", cell_name(), cell, status.message()));
}

}  // namespace

Result<std::unique_ptr<ImageDecoder>> OpenTiff(std::span<const std::byte> encoded,
                                               std::uint64_t pixels_max) {
  auto decoder = std::make_unique<TiffDecoder>();
  HEADRACE_RETURN_IF_ERROR(decoder->Open(encoded, pixels_max));
  return std::unique_ptr<ImageDecoder>(std::move(decoder));
}

bool IsRefusedTiff(std::span<const std::byte> encoded) {
  TiffDecoder decoder;
  const Status status = decoder.Open(encoded, ~std::uint64_t{0});
  return !status.ok() && decoder.is_refused();
}

}  // namespace headrace
