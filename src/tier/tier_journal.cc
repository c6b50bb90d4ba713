#include "tier/tier_journal.h"

#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/format/errors.h"
#include "base/hash.h"

namespace headrace {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::array<char, 8> kMagic = {'H', 'D', 'R', 'T', 'I', 'E', 'R', '\n'};
constexpr std::uint64_t kVersion = 1;
constexpr std::uint32_t kInsert = 1;
constexpr std::uint32_t kErase = 2;

template <typename T>
T Load(std::span<const std::byte> from, std::size_t offset) {
  T value{};
  std::memcpy(&value, from.data() + offset, sizeof(T));
  return value;
}

template <typename T>
void Store(std::span<std::byte> to, std::size_t offset, T value) {
  std::memcpy(to.data() + offset, &value, sizeof(T));
}

template <std::size_t kCount>
std::uint64_t HashOf(const std::array<std::uint64_t, kCount>& numbers) {
  return Hash64(std::as_bytes(std::span(numbers)));
}

// The last 8 bytes of a record.
std::uint64_t Seal(std::uint64_t generation, std::uint64_t offset,
                   std::span<const std::byte> record) {
  const std::uint64_t content = Hash64(record.first(record.size() - 8));
  return HashOf<3>({content, generation, offset});
}

// Begins a record of `bytes` at the end of `out` and sets its first 16 bytes.
std::span<std::byte> Begin(std::vector<std::byte>& out, std::uint64_t bytes, std::uint32_t kind,
                           std::uint64_t number) {
  out.resize(out.size() + bytes);
  const std::span<std::byte> record = std::span(out).last(bytes);
  Store(record, 0, static_cast<std::uint32_t>(bytes));
  Store(record, 4, kind);
  Store(record, 8, number);
  return record;
}

// Applies records to the list of live entries.
class Replay {
 public:
  explicit Replay(const JournalHeader& header) : header_(header) {}

  // Applies the first record of `rest`, at `offset` of the file. Returns its size; 0 if it is
  // invalid.
  std::uint64_t Apply(std::span<const std::byte> rest, std::uint64_t offset) {
    if (rest.size() < kEraseRecordBytes) return 0;
    const auto bytes = Load<std::uint32_t>(rest, 0);
    if (bytes < kEraseRecordBytes || bytes % 8 != 0 || bytes > rest.size()) return 0;
    const std::span<const std::byte> record = rest.first(bytes);
    const auto seal = Load<std::uint64_t>(record, bytes - 8);
    if (seal != Seal(header_.generation, offset, record)) return 0;
    const auto kind = Load<std::uint32_t>(record, 4);
    const auto number = Load<std::uint64_t>(record, 8);
    const bool applied = kind == kInsert  ? Insert(number, record)
                         : kind == kErase ? bytes == kEraseRecordBytes && Erase(number)
                                          : false;
    return applied ? bytes : 0;
  }

  void Finish(JournalContents& contents) {
    for (std::optional<JournalEntry>& entry : entries_) {
      if (entry.has_value()) contents.live.push_back(std::move(*entry));
    }
    contents.next_number = next_number_;
  }

 private:
  bool Insert(std::uint64_t number, std::span<const std::byte> record) {
    if (record.size() <= InsertRecordBytes(0) || number < next_number_) return false;
    if (number == ~std::uint64_t{0}) return false;
    JournalEntry entry = {number,
                          SampleId{Load<std::uint64_t>(record, 16)},
                          Load<std::uint64_t>(record, 24),
                          Load<std::uint64_t>(record, 32),
                          {}};
    std::uint64_t units = 0;
    for (std::size_t at = 40; at + 8 < record.size(); at += 8) {
      const UnitRun run = {Load<std::uint32_t>(record, at), Load<std::uint32_t>(record, at + 4)};
      if (run.count == 0 || std::uint64_t{run.first} + run.count > header_.capacity_units) {
        return false;
      }
      units += run.count;
      entry.runs.push_back(run);
    }
    const std::uint64_t needed = entry.bytes == 0 ? 1 : (entry.bytes - 1) / header_.unit_bytes + 1;
    if (units != needed) return false;
    if (const auto old = by_sample_.find(entry.sample); old != by_sample_.end()) {
      Forget(old->second);
    }
    by_number_[number] = entries_.size();
    by_sample_[entry.sample] = entries_.size();
    entries_.emplace_back(std::move(entry));
    next_number_ = number + 1;
    return true;
  }

  // An unknown one was dropped before this journal was written.
  bool Erase(std::uint64_t number) {
    const auto found = by_number_.find(number);
    if (found != by_number_.end()) Forget(found->second);
    return true;
  }

  void Forget(std::size_t place) {
    std::optional<JournalEntry>& entry = entries_[place];
    if (!entry.has_value()) return;
    by_number_.erase(entry->number);
    by_sample_.erase(entry->sample);
    entry.reset();
  }

  const JournalHeader header_;
  std::vector<std::optional<JournalEntry>> entries_;  // in the order of their numbers
  std::unordered_map<std::uint64_t, std::size_t> by_number_;
  std::unordered_map<SampleId, std::size_t> by_sample_;
  std::uint64_t next_number_ = 0;
};

}  // namespace

std::uint64_t EntryChecksum(std::uint64_t hash_of_bytes, SampleId sample, std::uint64_t bytes,
                            const std::array<std::uint64_t, 2>& dataset) {
  return HashOf<5>({hash_of_bytes, Raw(sample), bytes, dataset[0], dataset[1]});
}

std::array<std::byte, kJournalHeaderBytes> EncodeJournalHeader(const JournalHeader& header) {
  std::array<std::byte, kJournalHeaderBytes> out{};
  Store(out, 0, kMagic);
  Store(out, 8, kVersion);
  Store(out, 16, header.unit_bytes);
  Store(out, 24, header.capacity_units);
  Store(out, 32, header.dataset[0]);
  Store(out, 40, header.dataset[1]);
  Store(out, 48, header.generation);
  Store(out, 56, Hash64(std::span(out).first(56)));
  return out;
}

void EncodeInsert(const JournalHeader& header, std::uint64_t offset, const JournalEntry& entry,
                  std::vector<std::byte>& out) {
  const std::uint64_t bytes = InsertRecordBytes(entry.runs.size());
  const std::span<std::byte> record = Begin(out, bytes, kInsert, entry.number);
  Store(record, 16, Raw(entry.sample));
  Store(record, 24, entry.bytes);
  Store(record, 32, entry.checksum);
  std::size_t at = 40;
  for (const UnitRun run : entry.runs) {
    Store(record, at, run.first);
    Store(record, at + 4, run.count);
    at += 8;
  }
  Store(record, at, Seal(header.generation, offset, record));
}

void EncodeErase(const JournalHeader& header, std::uint64_t offset, std::uint64_t number,
                 std::vector<std::byte>& out) {
  const std::span<std::byte> record = Begin(out, kEraseRecordBytes, kErase, number);
  Store(record, 16, Seal(header.generation, offset, record));
}

Result<JournalContents> ParseJournal(std::span<const std::byte> file) {
  if (file.size() < kJournalHeaderBytes || Load<std::array<char, 8>>(file, 0) != kMagic) {
    return DataLoss("the journal's {} bytes do not begin as a tier's journal does", file.size());
  }
  if (const auto version = Load<std::uint64_t>(file, 8); version != kVersion) {
    return FailedPrecondition("the journal has version {}, this headrace reads version {}", version,
                              kVersion);
  }
  JournalContents contents;
  contents.header = {Load<std::uint64_t>(file, 16),
                     Load<std::uint64_t>(file, 24),
                     {Load<std::uint64_t>(file, 32), Load<std::uint64_t>(file, 40)},
                     Load<std::uint64_t>(file, 48)};
  if (Load<std::uint64_t>(file, 56) != Hash64(file.first(56)) || contents.header.unit_bytes == 0 ||
      contents.header.capacity_units > 0xffff'ffff) {
    return Status(StatusCode::kDataLoss, "the journal's header is damaged");
  }
  Replay replay(contents.header);
  std::uint64_t offset = kJournalHeaderBytes;
  while (const std::uint64_t bytes = replay.Apply(file.subspan(offset), offset)) offset += bytes;
  contents.valid_bytes = offset;
  replay.Finish(contents);
  return contents;
}

}  // namespace headrace
