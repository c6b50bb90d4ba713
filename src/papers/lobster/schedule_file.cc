#include "papers/lobster/schedule_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/hash.h"
#include "base/prng.h"
#include "base/units.h"

namespace headrace {
namespace {

constexpr std::array<unsigned char, 8> kMagic = {0x89, 'H', 'R', 'S', 0x0d, 0x0a, 0x1a, 0x0a};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kVersionEnd = 12;        // of magic and version
constexpr std::size_t kHeaderBytes = 96;       // before its checksum
constexpr std::size_t kChecksumBytes = 8;      // after the header and every record
constexpr std::size_t kRecordHeadBytes = 4;    // its size
constexpr std::size_t kRecordMax = 64U << 20;  // bytes of a payload
constexpr char kRemedy[] = "; copy the file again, or make it again";
constexpr std::uint64_t kStepsMax = std::uint64_t{1} << 62;

enum class Kind : std::uint8_t { kStep = 1, kEnd = 2 };

constexpr unsigned kSameThreads = 1;  // flag of a step: threads as in the step before
constexpr unsigned kNewEpoch = 2;

// Tiers in four bits.
constexpr unsigned kNoTierBits = 15;
constexpr unsigned kAheadBits = 14;  // an insert ahead of its use

// Files contain numbers in this machine's byte order; base/ refuses other machines.
template <typename T>
void Put(T value, std::vector<std::byte>& to) {
  static_assert(std::is_unsigned_v<T>);
  const std::size_t at = to.size();
  to.resize(at + sizeof value);
  std::memcpy(to.data() + at, &value, sizeof value);
}

template <typename T>
T Get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Seven bits a byte, the lowest first; all but the last byte have the highest bit set.
void PutVarint(std::uint64_t value, std::vector<std::byte>& to) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<std::byte>(value | 0x80));
  to.push_back(static_cast<std::byte>(value));
}

constexpr std::uint64_t ZigZag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
constexpr std::int64_t UnZigZag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

// Reads a payload; keeps the first error, and returns zeros after it.
class PayloadReader {
 public:
  explicit PayloadReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  unsigned Byte() {
    if (!ok_ || at_ == bytes_.size()) return Fail();
    return static_cast<unsigned>(bytes_[at_++]);
  }

  // Accepts only the shortest encoding of a number, so that a schedule has one form.
  std::uint64_t Varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint64_t byte = Byte();
      const std::uint64_t bits = byte & 0x7f;
      if (!ok_ || (shift == 63 && bits > 1)) return Fail();
      value |= bits << shift;
      if ((byte & 0x80) == 0) return byte == 0 && shift > 0 ? Fail() : value;
    }
    return Fail();
  }

  std::uint32_t Varint32() {
    const std::uint64_t value = Varint();
    return value > 0xffff'ffff ? Fail() : static_cast<std::uint32_t>(value);
  }

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::size_t left() const { return bytes_.size() - at_; }

 private:
  unsigned Fail() {
    ok_ = false;
    return 0;
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

Status CheckRange(std::string_view what, std::uint64_t value, std::uint64_t least,
                  std::uint64_t most) {
  if (value >= least && value <= most) return {};
  return InvalidArgument("schedule {}: got {}, must be in [{}, {}]", what, value, least, most);
}

Status DamagedFile(const std::string& name, std::size_t offset, const std::string& what) {
  return DataLoss("reading schedule {}, byte {}: {}", name, offset, what);
}

bool IsTier(TierNumber tier) { return tier == kNoTier || tier < kTiersMax; }

std::vector<std::byte> EncodeHeader(const ScheduleHeader& header) {
  std::vector<std::byte> bytes;
  bytes.reserve(kMagic.size());
  for (const unsigned char byte : kMagic) bytes.push_back(static_cast<std::byte>(byte));
  Put(kVersion, bytes);
  Put(std::uint32_t{0}, bytes);
  for (const std::uint64_t half : header.dataset) Put(half, bytes);
  for (const std::uint64_t half : header.plan) Put(half, bytes);
  Put(header.seed, bytes);
  for (const std::uint32_t number :
       {header.world_size, header.first_rank, header.lanes, header.loading_threads,
        header.decode_threads, std::uint32_t{0}}) {
    Put(number, bytes);
  }
  Put(header.start.epoch, bytes);
  Put(header.start.step, bytes);
  HEADRACE_CHECK(bytes.size() == kHeaderBytes);
  return bytes;
}

ScheduleHeader DecodeHeader(const std::byte* bytes) {
  const auto wide = [&](std::size_t at) { return Get<std::uint64_t>(bytes + at); };
  const auto number = [&](std::size_t at) { return Get<std::uint32_t>(bytes + at); };
  return {.dataset = {wide(16), wide(24)},
          .plan = {wide(32), wide(40)},
          .seed = wide(48),
          .world_size = number(56),
          .first_rank = number(60),
          .lanes = number(64),
          .loading_threads = number(68),
          .decode_threads = number(72),
          .start = {.epoch = wide(80), .step = wide(88)}};
}

// Covers a record and all records before it: none can be left out, repeated or moved without an
// error.
std::uint64_t DigestOf(std::uint64_t before, std::uint32_t size,
                       std::span<const std::byte> payload) {
  Hasher64 hasher;
  hasher.Add(std::as_bytes(std::span(&before, 1)));
  hasher.Add(std::as_bytes(std::span(&size, 1)));
  hasher.Add(payload);
  return hasher.Digest();
}

void EncodeOps(std::span<const CacheOp> ops, std::vector<std::byte>& payload) {
  PutVarint(ops.size(), payload);
  std::int64_t before = 0;
  for (const CacheOp& op : ops) {
    const std::int64_t block = op.block;
    PutVarint(ZigZag(block - before), payload);
    before = block;
    unsigned from = op.from == kNoTier ? kNoTierBits : op.from;
    if (op.ahead) from = kAheadBits;
    const unsigned to = op.to == kNoTier ? kNoTierBits : op.to;
    payload.push_back(static_cast<std::byte>(from << 4 | to));
  }
}

// Whether they are ops as EncodeOps() writes them; CheckScheduledStep() checks their values.
bool DecodeOps(PayloadReader& reader, std::vector<CacheOp>& ops) {
  const std::uint64_t count = reader.Varint();
  if (!reader.ok() || count > reader.left() / 2) return false;  // at least two bytes each
  ops.reserve(count);
  std::int64_t block = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::int64_t step = UnZigZag(reader.Varint());
    constexpr std::int64_t kBlocks = std::int64_t{1} << 32;
    if (step <= -kBlocks || step >= kBlocks) return false;
    block += step;
    if (!reader.ok() || block < 0 || block >= kBlocks) return false;
    const unsigned tiers = reader.Byte();
    const unsigned from = tiers >> 4;
    const unsigned to = tiers & 15;
    ops.push_back({.block = static_cast<std::uint32_t>(block),
                   .from = from >= kAheadBits ? kNoTier : static_cast<TierNumber>(from),
                   .to = to == kNoTierBits ? kNoTier : static_cast<TierNumber>(to),
                   .ahead = from == kAheadBits});
  }
  return reader.ok();
}

Status CheckOp(std::size_t number, const CacheOp& op) {
  if (IsTier(op.from) && IsTier(op.to) && op.from != op.to && !(op.ahead && op.from != kNoTier)) {
    return {};
  }
  return InvalidArgument(
      "schedule op {}: block {} from tier {} to {}{}: is not an insert, move or eviction", number,
      op.block, op.from, op.to, op.ahead ? ", ahead" : "");
}

}  // namespace

Status CheckScheduleHeader(const ScheduleHeader& header) {
  HEADRACE_RETURN_IF_ERROR(CheckRange("lanes", header.lanes, 1, ScheduleHeader::kLanesMax));
  HEADRACE_RETURN_IF_ERROR(CheckRange("world_size", header.world_size, header.lanes, 0xffff'ffff));
  HEADRACE_RETURN_IF_ERROR(
      CheckRange("first_rank", header.first_rank, 0, header.world_size - header.lanes));
  HEADRACE_RETURN_IF_ERROR(CheckRange("loading_threads", header.loading_threads, header.lanes,
                                      ScheduleHeader::kThreadsMax));
  HEADRACE_RETURN_IF_ERROR(
      CheckRange("decode_threads", header.decode_threads, 0, ScheduleHeader::kThreadsMax));
  HEADRACE_RETURN_IF_ERROR(CheckRange("start epoch", header.start.epoch, 0, kEpochsMax - 1));
  return CheckRange("start step", header.start.step, 0, kStepsMax);
}

Status CheckScheduledStep(const ScheduleHeader& header, const ScheduledStep& step) {
  if (step.lanes.size() != header.lanes) {
    return InvalidArgument("schedule {}: threads of {} lanes, there are {}", StepText(step.at),
                           step.lanes.size(), header.lanes);
  }
  std::uint64_t loading = 0;
  std::uint64_t decode = 0;
  for (const LaneThreads& lane : step.lanes) {
    if (lane.loading == 0) {
      return InvalidArgument("schedule {}: a lane has 0 loading threads, must have 1 or more",
                             StepText(step.at));
    }
    loading += lane.loading;
    decode += lane.decode;
  }
  if (loading > header.loading_threads || decode > header.decode_threads) {
    return InvalidArgument("schedule {}: {} loading and {} decode threads, there are {} and {}",
                           StepText(step.at), loading, decode, header.loading_threads,
                           header.decode_threads);
  }
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    if (const Status status = CheckOp(i, step.ops[i]); !status.ok()) {
      return status.WithContext(StepText(step.at));
    }
  }
  return {};
}

Result<ScheduleWriter> ScheduleWriter::Make(const ScheduleHeader& header, Sink sink) {
  HEADRACE_CHECK(sink != nullptr);
  HEADRACE_RETURN_IF_ERROR(CheckScheduleHeader(header));
  ScheduleWriter writer(header, std::move(sink));
  std::vector<std::byte> bytes = EncodeHeader(header);
  writer.digest_ = Hash64(bytes);
  Put(writer.digest_, bytes);
  HEADRACE_RETURN_IF_ERROR(writer.sink_(bytes));
  return writer;
}

Status ScheduleWriter::WriteRecord(std::span<const std::byte> payload) {
  if (payload.size() > kRecordMax) {
    return ResourceExhausted("writing schedule: a step of {}, at most {}",
                             Counted(payload.size(), "byte"), kRecordMax);
  }
  const auto size = static_cast<std::uint32_t>(payload.size());
  digest_ = DigestOf(digest_, size, payload);
  std::vector<std::byte> record;
  record.reserve(kRecordHeadBytes + payload.size() + kChecksumBytes);
  Put(size, record);
  record.insert(record.end(), payload.begin(), payload.end());
  Put(digest_, record);
  status_ = sink_(record);
  return status_;
}

Status ScheduleWriter::Add(const ScheduledStep& step) {
  HEADRACE_RETURN_IF_ERROR(status_);
  HEADRACE_RETURN_IF_ERROR(CheckScheduledStep(header_, step));
  Position next = header_.start;
  if (last_) next = {.epoch = last_->epoch, .step = last_->step + 1};
  const bool new_epoch = last_ && step.at == Position{.epoch = last_->epoch + 1, .step = 0};
  if (!new_epoch && step.at != next) {
    return InvalidArgument("schedule {}: out of order, the next must be {}{}", StepText(step.at),
                           StepText(next), last_ ? " or the first of the next epoch" : "");
  }
  const bool same_threads = last_ && step.lanes == threads_;
  std::vector<std::byte> payload;
  payload.push_back(static_cast<std::byte>(Kind::kStep));
  payload.push_back(
      static_cast<std::byte>((same_threads ? kSameThreads : 0U) | (new_epoch ? kNewEpoch : 0U)));
  if (!same_threads) {
    for (const LaneThreads& lane : step.lanes) {
      PutVarint(lane.loading, payload);
      PutVarint(lane.decode, payload);
    }
  }
  EncodeOps(step.ops, payload);
  HEADRACE_RETURN_IF_ERROR(WriteRecord(payload));
  last_ = step.at;
  threads_ = step.lanes;
  ++steps_;
  return {};
}

Status ScheduleWriter::Finish() {
  HEADRACE_RETURN_IF_ERROR(status_);
  std::vector<std::byte> payload;
  payload.push_back(static_cast<std::byte>(Kind::kEnd));
  PutVarint(steps_, payload);
  return WriteRecord(payload);
}

Result<ScheduleReader> ScheduleReader::Open(ScheduleFile from) {
  const std::span<const std::byte> file = from.bytes;
  const auto damaged = [&](std::size_t offset, const std::string& what) {
    return DamagedFile(from.name, offset, what);
  };
  if (file.size() < kVersionEnd || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    return damaged(0, "not a schedule; give a file that `headrace plan --schedule` wrote");
  }
  const auto version = Get<std::uint32_t>(file.data() + kMagic.size());
  if (version != kVersion) {
    return FailedPrecondition(
        "reading schedule {}, byte {}: format version {}, this headrace reads {}: make it again",
        from.name, kMagic.size(), version, kVersion);
  }
  if (file.size() < kHeaderBytes + kChecksumBytes) {
    return damaged(file.size(), std::string("cut off inside the header") + kRemedy);
  }
  const auto digest = Get<std::uint64_t>(file.data() + kHeaderBytes);
  if (Hash64(file.first(kHeaderBytes)) != digest) {
    return damaged(kHeaderBytes, std::string("checksum of the header is wrong") + kRemedy);
  }
  const ScheduleHeader header = DecodeHeader(file.data());
  if (const Status status = CheckScheduleHeader(header); !status.ok()) {
    return damaged(0, std::string(status.message()));
  }
  if (const auto bytes = EncodeHeader(header);
      !std::equal(bytes.begin(), bytes.end(), file.begin())) {
    return damaged(kVersionEnd, std::string("reserved bytes of the header are not 0") + kRemedy);
  }
  ScheduleReader reader(std::move(from), header);
  reader.offset_ = kHeaderBytes + kChecksumBytes;
  reader.digest_ = digest;
  return reader;
}

Status ScheduleReader::CheckStart(Position start) const {
  if (start >= header_.start) return {};
  return FailedPrecondition(
      "following schedule {}: it begins at {}, after the run's start at {}: start the run later, "
      "or make a schedule that begins earlier",
      file_.name, StepText(header_.start), StepText(start));
}

Status ScheduleReader::Damaged(std::size_t offset, const std::string& what) const {
  return DamagedFile(file_.name, offset, what);
}

Result<bool> ScheduleReader::Next(ScheduledStep& step) {
  HEADRACE_RETURN_IF_ERROR(status_);
  if (ended_) return false;
  const std::size_t offset = offset_;
  auto payload = Record();
  if (!payload.ok()) {
    status_ = payload.status();
    return status_;
  }
  const std::span<const std::byte> bytes = payload.value();
  if (!bytes.empty() && bytes[0] == static_cast<std::byte>(Kind::kEnd)) {
    status_ = ReadEnd(bytes);
    ended_ = true;
  } else {
    status_ = ReadStep(bytes, step);
  }
  if (!status_.ok()) {
    status_ = Damaged(offset, std::string(status_.message()));
  } else if (ended_ && offset_ != file_.bytes.size()) {
    status_ = Damaged(offset_,
                      Counted(file_.bytes.size() - offset_, "byte") + " after the end" + kRemedy);
  }
  HEADRACE_RETURN_IF_ERROR(status_);
  return !ended_;
}

Result<std::span<const std::byte>> ScheduleReader::Record() {
  const std::size_t left = file_.bytes.size() - offset_;
  const auto cut_off = [&] {
    return Damaged(file_.bytes.size(), "cut off after " + Counted(steps_, "step") + kRemedy);
  };
  if (left < kRecordHeadBytes) return cut_off();
  const auto size = Get<std::uint32_t>(file_.bytes.data() + offset_);
  if (size > kRecordMax) {
    return Damaged(offset_, fmt::format("a record of {}, at most {}{}", Counted(size, "byte"),
                                        kRecordMax, kRemedy));
  }
  if (left - kRecordHeadBytes < size + kChecksumBytes) return cut_off();
  const auto payload = file_.bytes.subspan(offset_ + kRecordHeadBytes, size);
  const std::uint64_t digest = DigestOf(digest_, size, payload);
  if (Get<std::uint64_t>(payload.data() + size) != digest) {
    return Damaged(offset_, fmt::format("checksum of the record after {} is wrong{}",
                                        Counted(steps_, "step"), kRemedy));
  }
  digest_ = digest;
  offset_ += kRecordHeadBytes + size + kChecksumBytes;
  return payload;
}

Status ScheduleReader::ReadStep(std::span<const std::byte> payload, ScheduledStep& step) {
  const auto malformed = [&] {
    return InvalidArgument("schedule record after {}: malformed{}", Counted(steps_, "step"),
                           kRemedy);
  };
  PayloadReader reader(payload);
  const unsigned kind = reader.Byte();
  const unsigned flags = reader.Byte();
  if (kind != static_cast<unsigned>(Kind::kStep) || flags > (kSameThreads | kNewEpoch)) {
    return malformed();
  }
  if (!last_ && flags != 0) return malformed();  // there is no step before it
  step.at = header_.start;
  if (last_) {
    step.at = (flags & kNewEpoch) != 0 ? Position{.epoch = last_->epoch + 1, .step = 0}
                                       : Position{.epoch = last_->epoch, .step = last_->step + 1};
  }
  step.lanes.clear();
  for (std::uint32_t lane = 0; lane < header_.lanes && (flags & kSameThreads) == 0; ++lane) {
    const std::uint32_t loading = reader.Varint32();
    step.lanes.push_back({.loading = loading, .decode = reader.Varint32()});
  }
  if ((flags & kSameThreads) != 0) {
    step.lanes = threads_;
  } else if (last_ && step.lanes == threads_) {
    return malformed();  // a flag stands for this
  }
  step.ops.clear();
  if (!DecodeOps(reader, step.ops) || reader.left() > 0) return malformed();
  HEADRACE_RETURN_IF_ERROR(CheckScheduledStep(header_, step));
  last_ = step.at;
  threads_ = step.lanes;
  ++steps_;
  return {};
}

Status ScheduleReader::ReadEnd(std::span<const std::byte> payload) const {
  PayloadReader reader(payload.subspan(1));
  const std::uint64_t steps = reader.Varint();
  if (!reader.ok() || reader.left() > 0 || steps != steps_) {
    return InvalidArgument("schedule end: it says {}, the file has {}{}", Counted(steps, "step"),
                           steps_, kRemedy);
  }
  return {};
}

Result<ScheduleHeader> VerifySchedule(ScheduleFile file) {
  HEADRACE_ASSIGN_OR_RETURN(ScheduleReader reader, ScheduleReader::Open(std::move(file)));
  ScheduledStep step;
  while (true) {
    HEADRACE_ASSIGN_OR_RETURN(const bool more, reader.Next(step));
    if (!more) return reader.header();
  }
}

}  // namespace headrace
