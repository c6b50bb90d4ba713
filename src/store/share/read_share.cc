#include "store/share/read_share.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/hash.h"

namespace headrace {
namespace {

constexpr std::uint64_t kHashedBytes = 64 * kKiB;  // with one checksum
constexpr std::int64_t kLookEveryNs = 50 * kNsPerMs;
constexpr int kRoundsMax = 3;

}  // namespace

struct ReadShare::Block {
  ByteRange range;
  Buffer buffer;
  std::vector<std::shared_ptr<Pending>> waiting;  // under the lock

  // Set when the read has ended, before `waiting` go on.
  bool ended = false;  // under the lock
  Status status;
  std::span<const std::byte> data;
  std::vector<std::uint64_t> hashes;  // of each kHashedBytes
};

struct ReadShare::Pending {
  struct Piece {
    ShareEntry entry{};
    std::shared_ptr<Block> block;
    bool own = false;  // read by this request
  };

  ShareUser* user = nullptr;
  ShareTable::Job job = 0;
  ReadRequest request;
  std::stop_token stop;
  int rounds = 0;             // kRoundsMax: past the share
  std::int64_t since_ns = 0;  // of this round
  std::vector<Piece> pieces;
  std::size_t left = 0;   // pieces whose reads have not ended; under the lock
  bool answered = false;  // or begun again; under the lock
};

ReadShare::ReadShare(ReadShareOptions options, std::unique_ptr<Executor> executor,
                     const Clock& clock)
    : options_(options),
      clock_(clock),
      pool_(BufferPool::Make(options.capacity_bytes)),
      table_({.capacity_bytes = options.capacity_bytes, .wait_max_ns = options.wait_max_ns}),
      executor_(std::move(executor)) {
  executor_->SubmitLong([this] { Watch(); });
}

ReadShare::~ReadShare() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
    changed_.NotifyAll();
  }
  executor_.reset();
}

std::optional<ShareTable::Job> ReadShare::Join(ShareUser& user, const std::string& dataset) {
  MutexLock lock(mutex_);
  return table_.Join(dataset, [&user](ByteRange range) {
    return BufferPool::ChargedBytes(user.storage().BufferBytes(range));
  });
}

void ReadShare::Leave(ShareTable::Job job) {
  MutexLock lock(mutex_);
  table_.Leave(job);
}

void ReadShare::Read(ShareUser& user, ShareTable::Job job, std::vector<ReadRequest> requests,
                     const std::stop_token& stop) {
  std::vector<std::shared_ptr<Pending>> begun;
  begun.reserve(requests.size());
  for (ReadRequest& request : requests) {
    begun.push_back(std::make_shared<Pending>());
    begun.back()->user = &user;
    begun.back()->job = job;
    begun.back()->request = std::move(request);
    begun.back()->stop = stop;
  }
  Begin(user, std::move(begun));
}

// All of one user and one stop.
void ReadShare::Begin(ShareUser& user, std::vector<std::shared_ptr<Pending>> requests) {
  std::vector<ReadRequest> reads;
  std::vector<std::shared_ptr<Pending>> complete;
  const std::stop_token stop = requests.front()->stop;
  {
    MutexLock lock(mutex_);
    for (const std::shared_ptr<Pending>& request : requests) {
      if (!Plan(request, reads)) {
        reads.push_back(PastShare(request));
      } else if (request->left == 0) {
        request->answered = true;
        complete.push_back(request);
      }
    }
  }
  for (std::shared_ptr<Pending>& request : complete) {
    executor_->Submit(0, [this, request = std::move(request)] { Finish(request); });
  }
  if (!reads.empty()) user.storage().Read(std::move(reads), stop);
}

// Finds the pieces of a request, and adds its own reads to `reads`. Returns whether it shares.
bool ReadShare::Plan(const std::shared_ptr<Pending>& request, std::vector<ReadRequest>& reads) {
  ShareUser& user = *request->user;
  const bool is_empty = request->request.extent.range.size == 0;
  if (is_empty || request->rounds >= kRoundsMax || request->stop.stop_requested()) return false;
  if (request->request.past_share) {
    for (const ShareEntry entry : table_.Find(request->job, request->request.extent)) {
      table_.Drop(entry);
    }
    FreeGone();
    return false;
  }
  const std::int64_t now_ns = clock_.NowNanos();
  const std::vector<SharePiece> pieces =
      table_.Take(request->job, request->request.extent, user.gap_bytes(), now_ns);
  FreeGone();
  if (pieces.empty()) return false;
  std::vector<Pending::Piece> found;
  for (const SharePiece& piece : pieces) {
    if (!piece.is_new) {
      found.push_back({.entry = piece.entry, .block = blocks_.at(piece.entry)});
      continue;
    }
    // What was evicted may still be in use.
    std::optional<Buffer> buffer = pool_->Acquire(user.storage().BufferBytes(piece.range));
    if (!buffer.has_value()) {
      for (const SharePiece& each : pieces) {
        if (each.is_new) table_.Drop(each.entry);
      }
      FreeGone();
      return false;
    }
    auto block = std::make_shared<Block>();
    block->range = piece.range;
    block->buffer = *std::move(buffer);
    found.push_back({.entry = piece.entry, .block = std::move(block), .own = true});
  }
  request->since_ns = now_ns;
  request->pieces = std::move(found);
  bool waits = false;
  for (const Pending::Piece& piece : request->pieces) {
    if (piece.own) {
      blocks_.emplace(piece.entry, piece.block);
      reads.push_back(ReadOf(user, piece.entry, piece.block));
      reads.back().extent.object = request->request.extent.object;
    } else if (piece.block->ended) {
      continue;
    }
    waits = waits || !piece.own;
    piece.block->waiting.push_back(request);
    ++request->left;
  }
  if (waits) {
    if (waiting_.empty()) changed_.NotifyAll();
    waiting_.insert(request);
  }
  return true;
}

void ReadShare::FreeGone() {
  for (const ShareEntry entry : table_.TakeGone()) blocks_.erase(entry);
}

ReadRequest ReadShare::ReadOf(ShareUser& user, ShareEntry entry,
                              const std::shared_ptr<Block>& block) {
  user.Enter();
  return {.extent = {ObjectId{}, block->range},
          .buffer = block->buffer.bytes(),
          .done = [this, &user, entry, block](Result<std::span<std::byte>> data) {
            executor_->Submit(
                0, [this, entry, block, data = std::move(data)] { Landed(entry, *block, data); });
            user.Leave();
          }};
}

ReadRequest ReadShare::PastShare(const std::shared_ptr<Pending>& request) {
  request->answered = true;
  const ReadRequest& asked = request->request;
  return {.extent = asked.extent,
          .buffer = asked.buffer,
          .done =
              [request](Result<std::span<std::byte>> data) {
                request->user->Answer(request->request, std::move(data), 0);
              },
          .looked = asked.looked};
}

void ReadShare::Landed(ShareEntry entry, Block& block, const Result<std::span<std::byte>>& data) {
  if (data.ok()) {
    block.data = data.value();
    for (std::uint64_t at = 0; at < block.data.size(); at += kHashedBytes) {
      block.hashes.push_back(
          Hash64(block.data.subspan(at, std::min(kHashedBytes, block.data.size() - at))));
    }
  }
  block.status = data.status();
  std::vector<std::shared_ptr<Pending>> complete;
  {
    MutexLock lock(mutex_);
    block.ended = true;
    if (data.ok()) {
      table_.Held(entry);
    } else {
      table_.Drop(entry);
      FreeGone();
    }
    for (std::shared_ptr<Pending>& request : std::exchange(block.waiting, {})) {
      if (--request->left > 0 || request->answered) continue;
      request->answered = true;
      waiting_.erase(request);
      complete.push_back(std::move(request));
    }
  }
  for (const std::shared_ptr<Pending>& request : complete) Finish(request);
}

// All reads of its pieces have ended.
void ReadShare::Finish(const std::shared_ptr<Pending>& request) {
  for (const Pending::Piece& piece : request->pieces) {
    const Status& status = piece.block->status;
    if (status.ok()) continue;
    const bool whole = piece.block->range == request->request.extent.range;
    if (piece.own && (whole || status.code() == StatusCode::kCancelled)) {
      return request->user->Answer(request->request, status, 0);
    }
    // The error of a part does not name the request.
    return Again(*request, /*past_share=*/piece.own);
  }
  std::uint64_t shared_bytes = 0;
  if (!Copy(*request, shared_bytes)) return Again(*request, /*past_share=*/false);
  const ReadRequest& asked = request->request;
  request->user->Answer(request->request, asked.buffer.first(asked.extent.range.size),
                        shared_bytes);
}

void ReadShare::Again(Pending& request, bool past_share) {
  auto next = std::make_shared<Pending>();
  next->user = request.user;
  next->job = request.job;
  next->request = std::move(request.request);
  next->stop = request.stop;
  next->rounds = past_share ? kRoundsMax : request.rounds + 1;
  request.pieces.clear();
  ShareUser& user = *next->user;
  std::vector<std::shared_ptr<Pending>> requests;
  requests.push_back(std::move(next));
  Begin(user, std::move(requests));
}

// Copies the pieces to the request's buffer. Returns whether all checksums are right; drops what
// is damaged.
bool ReadShare::Copy(const Pending& request, std::uint64_t& shared_bytes) {
  const ByteRange& wanted = request.request.extent.range;
  for (const Pending::Piece& piece : request.pieces) {
    const Block& block = *piece.block;
    const std::uint64_t begin = std::max(wanted.offset, block.range.offset) - block.range.offset;
    const std::uint64_t end = std::min(wanted.end(), block.range.end()) - block.range.offset;
    for (std::uint64_t chunk = begin / kHashedBytes; chunk * kHashedBytes < end && !piece.own;
         ++chunk) {
      const std::uint64_t at = chunk * kHashedBytes;
      const auto bytes = block.data.subspan(at, std::min(kHashedBytes, block.data.size() - at));
      if (Hash64(bytes) == block.hashes[chunk]) continue;
      MutexLock lock(mutex_);
      table_.Drop(piece.entry);
      FreeGone();
      return false;
    }
    std::memcpy(request.request.buffer.data() + (block.range.offset + begin - wanted.offset),
                block.data.data() + begin, end - begin);
    if (!piece.own) shared_bytes += end - begin;
  }
  return true;
}

// Ends waits for other jobs that are stopped or take too long.
void ReadShare::Watch() {
  for (;;) {
    std::vector<std::shared_ptr<Pending>> ended;
    {
      MutexLock lock(mutex_);
      if (closing_) return;
      if (waiting_.empty()) {
        changed_.Wait(mutex_);
        continue;
      }
      static_cast<void>(changed_.WaitFor(mutex_, kLookEveryNs));
      const std::int64_t now_ns = clock_.NowNanos();
      for (auto next = waiting_.begin(); next != waiting_.end();) {
        Pending& request = **next;
        const bool late = now_ns - request.since_ns > options_.wait_max_ns;
        if (!late && !request.stop.stop_requested()) {
          ++next;
          continue;
        }
        request.answered = true;
        ended.push_back(*next);
        next = waiting_.erase(next);
      }
    }
    for (const std::shared_ptr<Pending>& request : ended) {
      if (request->stop.stop_requested()) {
        request->user->Answer(request->request,
                              Status(StatusCode::kCancelled, "reading: the run has ended"), 0);
      } else {
        Again(*request, /*past_share=*/true);
      }
    }
  }
}

}  // namespace headrace
