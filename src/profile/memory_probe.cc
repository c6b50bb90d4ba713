#include "profile/memory_probe.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/format/errors.h"
#include "engine/batch/row_rooms.h"
#include "engine/decode/field_decoding.h"
#include "loader/config/schema.h"

namespace headrace {
namespace {

constexpr std::uint64_t kPieceBytes = kMiB;
constexpr std::uint64_t kCopiedBytesMin = 16 * kMiB;  // of a thread
constexpr std::uint64_t kCopiedBytesMax = 64 * kMiB;
constexpr std::uint64_t kCopiedBytesOfAll = 256 * kMiB;

// What a thread copies from and to.
struct Pair {
  std::unique_ptr<std::byte[]> from;
  std::unique_ptr<std::byte[]> to;
};

}  // namespace

Result<Slice> MeasureCopy(int threads, const SliceLimits& limits) {
  const std::uint64_t bytes =
      std::clamp(kCopiedBytesOfAll / static_cast<std::uint64_t>(std::max(threads, 1)),
                 kCopiedBytesMin, kCopiedBytesMax);
  std::vector<Pair> pairs(static_cast<std::size_t>(std::max(threads, 1)));
  for (Pair& pair : pairs) {  // Written, so that the memory is there: else all of it is one page.
    pair.from = std::make_unique_for_overwrite<std::byte[]>(bytes);
    pair.to = std::make_unique_for_overwrite<std::byte[]>(bytes);
    std::memset(pair.from.get(), 1, bytes);
    std::memset(pair.to.get(), 2, bytes);
  }
  return MeasureThreads(std::max(threads, 1), limits,
                        [&](int thread, std::uint64_t round) -> Result<std::uint64_t> {
                          Pair& pair = pairs[static_cast<std::size_t>(thread)];
                          const std::uint64_t at = round * kPieceBytes % bytes;
                          std::memcpy(pair.to.get() + at, pair.from.get() + at, kPieceBytes);
                          return kPieceBytes;
                        });
}

Result<std::unique_ptr<DecodeProbe>> DecodeProbe::Make(const Index& index, StorageProbe& storage,
                                                       const DecodeProbeOptions& options,
                                                       const std::function<bool()>& keep_going) {
  const FieldInfo& info = index.fields()[storage.field()];
  LoaderField wanted{.name = info.name};
  if (info.kind == FieldKind::kImage) wanted.image = options.image;
  HEADRACE_ASSIGN_OR_RETURN(std::vector<BatchField> schema, MakeSchema(index, {wanted}));
  HEADRACE_ASSIGN_OR_RETURN(std::vector<FetchedSample> read,
                            storage.Fetch(options.samples_max, options.bytes_max, keep_going));
  std::vector<Sample> samples;
  for (FetchedSample& each : read) {
    HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t content,
                              ContentBytes(index, schema.front(), each.id, each.bytes.size()));
    samples.push_back({.stored = std::move(each.bytes), .content_bytes = content});
  }
  std::unique_ptr<DecodeProbe> probe(
      new DecodeProbe(std::move(schema.front()), std::move(samples)));
  // Decoded once each, for what is bad.
  std::vector<Sample> good;
  ProbeBuffer row;
  Status status(StatusCode::kInvalidArgument, "measuring decode: every sample is empty");
  for (std::size_t i = 0; i < probe->samples_.size(); ++i) {
    if (keep_going && !keep_going()) return StoppedMeasuring();
    if (probe->samples_[i].stored.empty()) continue;
    Status decoded = probe->Decode(i, row);
    if (decoded.ok()) {
      good.push_back(std::move(probe->samples_[i]));
    } else {
      status = decoded.WithContext("measuring decode: no sample of field '" + info.name +
                                   "' is good, the last");
    }
  }
  if (good.empty()) return status;
  probe->samples_ = std::move(good);
  return probe;
}

DecodeProbe::DecodeProbe(BatchField field, std::vector<Sample> samples)
    : field_(std::move(field)), samples_(std::move(samples)) {}

double DecodeProbe::mean_bytes() const {
  double bytes = 0;
  for (const Sample& sample : samples_) bytes += static_cast<double>(sample.stored.size());
  return bytes / static_cast<double>(samples_.size());
}

Status DecodeProbe::Decode(std::size_t sample, ProbeBuffer& row) const {
  const auto stored = std::as_bytes(std::span<const char>(samples_[sample].stored));
  const std::uint64_t content_bytes = samples_[sample].content_bytes;
  const std::size_t row_bytes = field_.codec->RowBytes(content_bytes);
  const std::span<std::byte> room = row.AtLeast(std::max<std::size_t>(row_bytes, 1));
  if (room.empty()) {
    return ResourceExhausted("measuring decode: no memory for a row of {}", FormatBytes(row_bytes));
  }
  if (IsCopy(field_)) {
    if (row_bytes != stored.size()) {
      return DataLoss("a sample of {}, not {}", FormatBytes(stored.size()), FormatBytes(row_bytes));
    }
    std::memcpy(room.data(), stored.data(), stored.size());
    return {};
  }
  ScratchLimit none;
  return DecodeField(field_, {stored, content_bytes}, {.sample = SampleId{sample}},
                     room.first(row_bytes), none);
}

Result<Slice> DecodeProbe::Run(int threads, const SliceLimits& limits) {
  const std::size_t count = static_cast<std::size_t>(std::max(threads, 1));
  std::vector<ProbeBuffer> rows(count);
  return MeasureThreads(static_cast<int>(count), limits,
                        [&](int thread, std::uint64_t round) -> Result<std::uint64_t> {
                          const std::size_t mine = static_cast<std::size_t>(thread);
                          const std::size_t sample = (mine + round * count) % samples_.size();
                          HEADRACE_RETURN_IF_ERROR(Decode(sample, rows[mine]));
                          return samples_[sample].stored.size();
                        });
}

}  // namespace headrace
