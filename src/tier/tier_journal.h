#pragma once

// The format of a tier's journal: the position of each sample in the data file. docs/tiers.md
// specifies it to the byte. Pure: bytes in, bytes out.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/ids.h"
#include "headrace/status.h"
#include "tier/unit_space.h"

namespace headrace {

// Identifies a journal and its data file. Files with another header hold other samples.
struct JournalHeader {
  std::uint64_t unit_bytes = 0;
  std::uint64_t capacity_units = 0;
  std::array<std::uint64_t, 2> dataset{};  // its fingerprint

  // Identifies this file. Part of every record's checksum: records of an older journal that remain
  // on the disk are not valid in this one.
  std::uint64_t generation = 0;

  friend bool operator==(const JournalHeader&, const JournalHeader&) = default;
};

inline constexpr std::size_t kJournalHeaderBytes = 64;
inline constexpr std::size_t kEraseRecordBytes = 24;

struct JournalEntry {
  std::uint64_t number = 0;  // unique: a sample may be inserted, erased and inserted again
  SampleId sample{};
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
  std::vector<UnitRun> runs;  // Units(bytes) units in total

  friend bool operator==(const JournalEntry&, const JournalEntry&) = default;
};

constexpr std::uint64_t InsertRecordBytes(std::uint64_t runs) { return 48 + 8 * runs; }

// The checksum of an entry, over the Hash64 of its bytes, the sample, the size and the dataset: the
// bytes of another sample or dataset do not match it.
std::uint64_t EntryChecksum(std::uint64_t hash_of_bytes, SampleId sample, std::uint64_t bytes,
                            const std::array<std::uint64_t, 2>& dataset);

std::array<std::byte, kJournalHeaderBytes> EncodeJournalHeader(const JournalHeader& header);

// Appends records to `out`, whose position in the file is `offset`. A record is valid only at its
// own offset.
void EncodeInsert(const JournalHeader& header, std::uint64_t offset, const JournalEntry& entry,
                  std::vector<std::byte>& out);
void EncodeErase(const JournalHeader& header, std::uint64_t offset, std::uint64_t number,
                 std::vector<std::byte>& out);

struct JournalContents {
  JournalHeader header;
  std::vector<JournalEntry> live;  // inserted and not erased, the newest per sample; by number
  std::uint64_t next_number = 0;   // greater than all used numbers
  std::uint64_t valid_bytes = 0;   // header and valid records; ignore the rest of the file
};

// Reads a journal up to the first invalid record. Live entries may contradict each other: two may
// claim one unit if the disk lost a record.
// Memory: a few times the size of `file`.
//
// Errors: FailedPrecondition  another version
//         DataLoss            not a journal, or its header is damaged
Result<JournalContents> ParseJournal(std::span<const std::byte> file);

}  // namespace headrace
