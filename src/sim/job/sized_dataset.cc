#include "sim/job/sized_dataset.h"

#include <string>
#include <utility>

#include "base/format/errors.h"
#include "codec/codec.h"

namespace headrace {
namespace {

constexpr std::uint64_t kRowBytes = 8;

class SizedIndex final : public Index {
 public:
  explicit SizedIndex(const std::vector<std::uint64_t>& sizes) {
    ends_.reserve(sizes.size());
    std::uint64_t end = 0;
    for (const std::uint64_t size : sizes) ends_.push_back(end += size);
  }

  [[nodiscard]] std::uint64_t sample_count() const override { return ends_.size(); }
  [[nodiscard]] std::span<const FieldInfo> fields() const override { return fields_; }
  [[nodiscard]] std::uint64_t object_count() const override { return 1; }
  [[nodiscard]] std::uint64_t block_count() const override { return 0; }
  [[nodiscard]] const std::string& root() const override { return none_; }
  [[nodiscard]] const std::string& fingerprint() const override { return none_; }
  [[nodiscard]] std::span<const Attribute> attributes() const override { return {}; }
  [[nodiscard]] std::uint64_t file_bytes() const override { return 0; }
  [[nodiscard]] Result<ObjectInfo> object(ObjectId id) const override {
    if (Raw(id) != 0) return OutOfRange("object {} of 1", Raw(id));
    return ObjectInfo{.name = "samples", .size = ends_.back()};
  }
  [[nodiscard]] Result<BlockInfo> block(std::uint64_t position) const override {
    return OutOfRange("block {} of 0", position);
  }
  [[nodiscard]] Result<Extent> extent(std::size_t /*field*/, SampleId id) const override {
    if (Raw(id) >= ends_.size()) return OutOfRange("sample {} of {}", Raw(id), ends_.size());
    return Extent{ObjectId{0}, {Begin(Raw(id)), ends_[Raw(id)] - Begin(Raw(id))}};
  }
  [[nodiscard]] Result<std::span<const std::byte>> inline_value(std::size_t /*field*/,
                                                                SampleId /*id*/) const override {
    return InvalidArgument("a simulated dataset has no inline field");
  }
  [[nodiscard]] std::optional<std::uint64_t> checksum(std::size_t /*field*/,
                                                      SampleId /*id*/) const override {
    return std::nullopt;
  }
  void SampleBytes(SampleId first, std::span<std::uint64_t> bytes) const override {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = ends_[Raw(first) + i] - Begin(Raw(first) + i);
    }
  }
  [[nodiscard]] Status VerifyAll() const override { return Status(); }

 private:
  [[nodiscard]] std::uint64_t Begin(std::uint64_t sample) const {
    return sample == 0 ? 0 : ends_[sample - 1];
  }

  const std::vector<FieldInfo> fields_ = {{.name = "bytes", .kind = FieldKind::kBytes}};
  const std::string none_;
  std::vector<std::uint64_t> ends_;  // of each sample in the object
};

// Decoding takes time only in the simulated executor.
class SizedCodec final : public FieldCodec {
 public:
  [[nodiscard]] std::uint64_t RowBytes(std::uint64_t /*encoded_bytes*/) const override {
    return kRowBytes;
  }
  Status DecodeWithin(std::span<const std::byte> /*encoded*/, const SampleKey& /*key*/,
                      std::span<std::byte> /*row*/, ScratchLimit& limit) const override {
    limit.bytes_needed = 0;
    return Status();
  }
};

}  // namespace

std::shared_ptr<const Index> MakeSizedIndex(const std::vector<std::uint64_t>& sizes) {
  return std::make_shared<SizedIndex>(sizes);
}

BatchField SizedField() {
  return {.name = "bytes",
          .index_field = 0,
          .codec = std::make_shared<SizedCodec>(),
          .dtype = DType::kUInt8,
          .shape = {kRowBytes},
          .row_bytes = kRowBytes};
}

}  // namespace headrace
