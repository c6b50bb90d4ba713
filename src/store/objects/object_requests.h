#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <unordered_map>
#include <vector>

#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/byte_store.h"
#include "store/file_table.h"
#include "store/objects/object_reads.h"
#include "store/request.h"

namespace headrace {

// The requests of one call of ByteStore::Read(), which one token stops.
struct ObjectBatch {
  std::size_t left = 0;  // not answered
  std::optional<std::stop_callback<std::function<void()>>> on_stop;
};

struct ObjectRequest {
  ReadRequest request;
  std::shared_ptr<ObjectBatch> batch;  // null: cannot be stopped
  std::stop_token stop;
  bool check = false;  // for CheckObject(): its message is another, and it is not counted

  // Once it begins.
  FileInfo file;
  std::uint64_t begun = 0;      // bytes of the range whose pieces have begun
  std::vector<ReadId> pieces;   // that have begun
  std::size_t pieces_left = 0;  // of those, not ended
  Status error;                 // the first
  bool answered = false;
};

// The requests of an ObjectStore, in pieces, each of which is a read of `reads`. A request is
// answered once all its pieces have ended; if one fails, or it is stopped, the others are
// cancelled. Pieces that have begun and not ended take at most as much memory as given; others
// wait, in order.
//
// Thread safety: counters() from any thread, for the rest none: one thread drives.
// Ownership: `catalog` and `reads` must outlive it.
class ObjectRequests {
 public:
  struct Limits {
    std::uint64_t piece_bytes = 0;
    std::uint64_t memory_bytes = 0;  // at least that of a piece
  };
  struct Piece {
    std::shared_ptr<ObjectRequest> request;
    ByteRange bytes;  // of the request's range
  };

  ObjectRequests(const FileCatalog& catalog, ObjectReads& reads, Limits limits);

  void Add(std::vector<std::shared_ptr<ObjectRequest>> requests);
  void Stop(const ObjectBatch& batch, std::int64_t now_ns);
  // Begins pieces while there is memory, and answers requests that need no read.
  void Begin(std::int64_t now_ns);
  // Whether Begin() would do something.
  [[nodiscard]] bool MayBegin() const;

  // Of a read that has not ended.
  [[nodiscard]] const Piece& piece(ReadId read) const { return pieces_.at(read); }
  void End(ReadId read, const Status& status, std::int64_t now_ns);

  [[nodiscard]] bool empty() const { return waiting_.empty() && pieces_.empty(); }
  StoreCounters& counters() { return counters_; }

 private:
  [[nodiscard]] ByteRange NextPiece(const ObjectRequest& request) const;
  // Answers a request that needs no read. Returns whether it did.
  bool AnswerWithoutRead(ObjectRequest& request);
  void Fail(ObjectRequest& request, const Status& error, std::int64_t now_ns);
  void AnswerIfEnded(ObjectRequest& request);
  void Answer(ObjectRequest& request, const Status& status);

  const FileCatalog& catalog_;
  ObjectReads& reads_;
  const Limits limits_;
  StoreCounters counters_;
  std::deque<std::shared_ptr<ObjectRequest>> waiting_;  // the first may have begun
  std::unordered_map<ReadId, Piece> pieces_;            // that have begun and not ended
  std::uint64_t pieces_bytes_ = 0;                      // memory of those
};

}  // namespace headrace
