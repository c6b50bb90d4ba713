#pragma once

// index/ knows where the bytes of every sample are: object, range and checksum. It reads and writes
// the index file (docs/index-format.md) and builds indexes for formats that need no library (a
// folder of class folders). The layers above do not know formats: a sample is extents and inline
// values.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/ids.h"
#include "headrace/status.h"

namespace headrace {

// Element types of array-valued fields. Index files contain these numbers.
enum class DType : std::uint8_t {
  kUInt8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,
  kFloat32 = 6,
  kFloat64 = 7,
  kUInt16 = 8,
  kUInt32 = 9,
  kBool = 10,
};

// Bytes of one element.
std::uint64_t ElementBytes(DType dtype);
// "uint8", "int64", "float32", ... as NumPy writes it.
std::string_view DTypeName(DType dtype);
std::optional<DType> DTypeFromName(std::string_view name);
// Whether `to` is another type that holds every value of `from`: a wider integer or a wider float.
bool IsWider(DType to, DType from);

// The meaning of a field's bytes. Index files contain these numbers.
enum class FieldKind : std::uint8_t {
  kBytes = 0,  // anything, of any length
  kImage = 1,  // an encoded image: JPEG, PNG, ...
  kArray = 2,  // dtype and shape, the same for every sample; C order, little-endian
  kText = 3,   // UTF-8, of any length
};

// One named part of a sample: `image`, `label`.
struct FieldInfo {
  std::string name;
  FieldKind kind = FieldKind::kBytes;
  DType dtype = DType::kUInt8;            // of kArray; otherwise kUInt8
  std::vector<std::uint64_t> shape = {};  // of one sample, {} for a scalar; empty if not kArray
  // kArray only: a sample is any number of arrays of `shape`, end to end.
  bool is_list = false;
  bool is_inline = false;      // the index itself holds the values; not of kImage
  bool has_checksums = false;  // XXH3-64 of each sample's bytes is known; never if inline
  // How the bytes of each sample are compressed; never if inline. Extents and checksums are those
  // of the compressed bytes; kind, dtype and shape those of what they decode to.
  Coding coding = Coding::kStored;
  // Compressed arrays only: HDF5's shuffle filter put the bytes of their elements in another order.
  bool is_shuffled = false;
  // Compressed only: bytes of a header that precedes the value in the decoded bytes.
  std::uint32_t header_bytes = 0;
  // The index says how many bytes of value each sample decodes to. Never for arrays of one shape or
  // inline fields. Other compressed fields always have them; stored fields if a decoder needs them.
  bool has_decoded_sizes = false;
  // A wider type that batches hold instead of `dtype`; kArray only, never if inline.
  std::optional<DType> batch_dtype = std::nullopt;

  // Whether the values of two samples may differ in length.
  [[nodiscard]] bool is_variable() const { return kind != FieldKind::kArray || is_list; }

  [[nodiscard]] bool is_compressed() const { return coding != Coding::kStored; }

  // Bytes of one array of `shape`: of a sample, or of an element of a list; 1 if not kArray.
  [[nodiscard]] std::uint64_t array_bytes() const;
};

struct ObjectInfo {
  std::string_view name;      // path below Index::root(), '/' between its parts
  std::uint64_t size = 0;     // bytes
  std::int64_t mtime_ns = 0;  // nanoseconds since 1970; 0: unknown, then only the size is checked
};

// The consecutive samples [first_sample, first_sample + sample_count), stored so that one
// contiguous read returns the bytes of all their extent fields.
struct BlockInfo {
  SampleId first_sample{};
  std::uint64_t sample_count = 0;
  Extent extent;
  std::optional<std::uint64_t> checksum;  // XXH3-64 of the extent's bytes
};

// Of a piece: objects after the one where it begins. See Index::Pieces().
inline constexpr std::uint64_t kPieceObjectsMax = 15;

// Key and text.
using Attribute = std::pair<std::string_view, std::string_view>;

// The memory-mapped index of a dataset. Opening takes O(fields), not O(samples): the entry of a
// sample is checked on access.
//
// Large: it has a method for each section of the file.
//
// Thread safety: every method may be called from any thread.
// Ownership: strings and spans returned point into the mapping and live as long as the Index.
class Index {
 public:
  // Maps and checks `path`.
  //
  // Errors: NotFound            no such file
  //         DataLoss            not an index, truncated, or damaged in a part that Open() checks
  //         FailedPrecondition  a version that this build does not read, or the file cannot be read
  static Result<std::shared_ptr<const Index>> Open(const std::string& path);

  virtual ~Index() = default;

  [[nodiscard]] virtual std::uint64_t sample_count() const = 0;
  [[nodiscard]] virtual std::span<const FieldInfo> fields() const = 0;
  [[nodiscard]] virtual std::uint64_t object_count() const = 0;
  [[nodiscard]] virtual std::uint64_t block_count() const = 0;  // 0: the dataset has no blocks

  // The folder that contains the objects, absolute; the folder of the index file if it was written
  // with a relative root.
  [[nodiscard]] virtual const std::string& root() const = 0;

  // 32 hexadecimal digits: XXH3-128 over fields with all their values and extents, and objects
  // (names, sizes, mtimes); without root, blocks and attributes. Two indexes with one fingerprint
  // give the same samples in the same order.
  [[nodiscard]] virtual const std::string& fingerprint() const = 0;

  // 32 hexadecimal digits: XXH3-128 over what a copy of the data keeps: fields with all their
  // values and extents, and objects (names, sizes); without their times of change. Reads the sizes
  // of all objects: takes O(objects).
  [[nodiscard]] virtual std::string Content() const { return fingerprint(); }

  // Ranges of objects that stand for the bytes of all: these are divided into `count` equal parts,
  // and of each part one piece of at most `bytes` bytes is taken. Where in its part a piece begins
  // is drawn from `seed`; a part of at most `bytes` bytes is taken as a whole. A piece that goes
  // over the end of its object is several ranges, in at most kPieceObjectsMax more objects. Takes
  // O(objects).
  [[nodiscard]] std::vector<Extent> Pieces(std::uint64_t count, std::uint64_t bytes,
                                           std::uint64_t seed) const;

  // Whether the file is what Open() mapped. It is not if it was cut or written again in place (not
  // replaced by a rename); what this object returned since may then be of zeros, or of the other
  // file. Takes about 0.3 us, and reads no storage. Never fails for an index in memory.
  //
  // Errors: DataLoss  it is not
  [[nodiscard]] virtual Status CheckIntact() const { return Status(); }

  // Texts that the builder of the index stored by key: "format" ("folder", "pack"), "classes" (JSON
  // list of names), ... See FindAttribute().
  [[nodiscard]] virtual std::span<const Attribute> attributes() const = 0;

  // Bytes of the mapped file.
  [[nodiscard]] virtual std::uint64_t file_bytes() const = 0;

  // The next five methods check what they return, such as that an extent lies inside its object.
  // `field` is a position in fields().
  //
  // Errors: DataLoss         the check fails; the message names the index and the entry
  //         OutOfRange       no such id
  //         InvalidArgument  extent() of an inline field, or inline_value() of another;
  //                          decoded_bytes() of a field that is not decoded
  [[nodiscard]] virtual Result<ObjectInfo> object(ObjectId id) const = 0;
  // The size of an object, which must exist, without the check of its name.
  [[nodiscard]] virtual std::uint64_t object_bytes(ObjectId id) const;
  [[nodiscard]] virtual Result<BlockInfo> block(std::uint64_t position) const = 0;
  // For fields that are not inline.
  [[nodiscard]] virtual Result<Extent> extent(std::size_t field, SampleId id) const = 0;
  // For inline fields: FieldInfo::array_bytes() bytes, or any multiple of a variable field.
  [[nodiscard]] virtual Result<std::span<const std::byte>> inline_value(std::size_t field,
                                                                        SampleId id) const = 0;
  // Bytes of the value that the sample's stored bytes decode to: of fields that are compressed or
  // have has_decoded_sizes.
  [[nodiscard]] virtual Result<std::uint64_t> decoded_bytes(std::size_t field, SampleId id) const;

  // XXH3-64 of the sample's bytes, if the field has has_checksums. `id` must exist.
  [[nodiscard]] virtual std::optional<std::uint64_t> checksum(std::size_t field,
                                                              SampleId id) const = 0;

  // Brings what extent(), decoded_bytes() and checksum() look up into the processor's cache. A
  // hint: it waits for nothing and checks nothing.
  virtual void Prefetch(std::size_t /*field*/, SampleId /*id*/) const {}

  // Sets bytes[i] to the stored bytes of sample first + i outside the index: the sum over all
  // fields with extents. The samples must exist. An extent that extent() refuses counts as 0. Takes
  // a few ns per sample; extent() takes tens.
  virtual void SampleBytes(SampleId first, std::span<std::uint64_t> bytes) const;

  // Fills `values` with the inline values of samples first, first + 1, ..., one after the other. As
  // fast as memory; inline_value() takes tens of ns per sample. For fields that are not variable.
  //
  // Errors: those of inline_value()
  virtual Status CopyInlineValues(std::size_t field, SampleId first,
                                  std::span<std::byte> values) const;

  // Reads the whole file and checks the checksum of each section, and each entry. Takes O(samples).
  // `headrace verify` calls it.
  //
  // Errors: DataLoss  the message names the section or the entry
  [[nodiscard]] virtual Status VerifyAll() const = 0;
};

// The text of the attribute `key`. Empty if there is no such key.
std::string_view FindAttribute(const Index& index, std::string_view key);

// The first object that has another name or size in `b` than in `a`, or that only one of them has;
// nothing: there is none. Times of change are not compared. Takes O(objects). Thread-safe.
std::optional<ObjectId> FirstOtherObject(const Index& a, const Index& b);

}  // namespace headrace
