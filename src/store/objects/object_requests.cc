#include "store/objects/object_requests.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "store/objects/cell_space.h"
#include "store/objects/fetcher_messages.h"

namespace headrace {
namespace {

Status StopRequested() { return {StatusCode::kCancelled, "stop requested"}; }

}  // namespace

ObjectRequests::ObjectRequests(const FileCatalog& catalog, ObjectReads& reads, Limits limits)
    : catalog_(catalog), reads_(reads), limits_(limits) {
  HEADRACE_CHECK(limits_.piece_bytes > 0);
  HEADRACE_CHECK(CellSpace::ChargedBytes(limits_.piece_bytes) <= limits_.memory_bytes);
}

void ObjectRequests::Add(std::vector<std::shared_ptr<ObjectRequest>> requests) {
  std::ranges::move(requests, std::back_inserter(waiting_));
}

void ObjectRequests::Stop(const ObjectBatch& batch, std::int64_t now_ns) {
  // Those that have begun may be in both places.
  std::vector<std::shared_ptr<ObjectRequest>> stopped;
  for (const auto& [id, piece] : pieces_) {
    if (piece.request->batch.get() == &batch) stopped.push_back(piece.request);
  }
  for (const std::shared_ptr<ObjectRequest>& request : waiting_) {
    if (request->batch.get() == &batch) stopped.push_back(request);
  }
  for (const std::shared_ptr<ObjectRequest>& request : stopped)
    Fail(*request, StopRequested(), now_ns);
}

void ObjectRequests::Begin(std::int64_t now_ns) {
  while (!waiting_.empty()) {
    const std::shared_ptr<ObjectRequest> request = waiting_.front();
    if (!request->error.ok() || (request->begun == 0 && AnswerWithoutRead(*request))) {
      waiting_.pop_front();
      continue;
    }
    if (!MayBegin()) return;
    const ByteRange bytes = NextPiece(*request);
    pieces_bytes_ += CellSpace::ChargedBytes(bytes.size);
    request->begun += bytes.size;
    if (request->begun == request->request.extent.range.size) waiting_.pop_front();
    const ReadId id = reads_.Add(bytes.size, now_ns);
    pieces_.emplace(id, Piece{.request = request, .bytes = bytes});
    request->pieces.push_back(id);
    ++request->pieces_left;
  }
}

ByteRange ObjectRequests::NextPiece(const ObjectRequest& request) const {
  const std::uint64_t left = request.request.extent.range.size - request.begun;
  return {request.begun, std::min(left, limits_.piece_bytes)};
}

bool ObjectRequests::MayBegin() const {
  if (waiting_.empty()) return false;
  const ObjectRequest& request = *waiting_.front();
  if (!request.error.ok()) return true;
  const std::uint64_t charged = CellSpace::ChargedBytes(NextPiece(request).size);
  return pieces_bytes_ + charged <= limits_.memory_bytes;
}

bool ObjectRequests::AnswerWithoutRead(ObjectRequest& request) {
  const Extent& extent = request.request.extent;
  const auto answer = [&](const Status& status) {
    Answer(request, status);
    return true;
  };
  if (request.stop.stop_requested()) return answer(StopRequested());
  Result<FileInfo> file = catalog_.file(extent.object);
  if (!file.ok()) return answer(file.status());
  request.file = std::move(file).value();
  const Status in_range = CheckRange(extent.range, request.file.size);
  if (!in_range.ok() || extent.range.size == 0) return answer(in_range);
  if (request.file.path.size() > kFetcherUrlBytesMax) {
    return answer(FailedPrecondition("its URL has {} bytes, at most {} can be read",
                                     request.file.path.size(), kFetcherUrlBytesMax));
  }
  return false;
}

void ObjectRequests::End(ReadId read, const Status& status, std::int64_t now_ns) {
  const Piece piece = pieces_.extract(read).mapped();
  pieces_bytes_ -= CellSpace::ChargedBytes(piece.bytes.size);
  --piece.request->pieces_left;
  if (status.ok()) {
    AnswerIfEnded(*piece.request);
  } else {
    Fail(*piece.request, status, now_ns);
  }
}

void ObjectRequests::Fail(ObjectRequest& request, const Status& error, std::int64_t now_ns) {
  if (request.answered) return;
  if (request.error.ok()) {
    request.error = error;
    for (const ReadId piece : request.pieces) reads_.Cancel(piece, now_ns);
  }
  AnswerIfEnded(request);
}

void ObjectRequests::AnswerIfEnded(ObjectRequest& request) {
  const bool all = request.begun == request.request.extent.range.size;
  if (request.pieces_left == 0 && (all || !request.error.ok())) Answer(request, request.error);
}

void ObjectRequests::Answer(ObjectRequest& request, const Status& status) {
  request.answered = true;
  // Waits for a stop that runs now: after the last answer the loop may be destroyed.
  if (request.batch != nullptr && --request.batch->left == 0) request.batch->on_stop.reset();
  const Extent& extent = request.request.extent;
  Result<std::span<std::byte>> result = request.request.buffer.first(extent.range.size);
  if (!status.ok()) {
    const std::string what =
        request.file.path.empty() ? ObjectName(extent.object) : request.file.path;
    result = status.WithContext(request.check ? "opening " + what : Doing(what, extent.range));
  }
  if (request.check) {
    request.request.done(std::move(result));
  } else {
    counters_.Answer(request.request, std::move(result));
  }
  request.request.done = nullptr;  // Its captures must not outlive the store.
}

}  // namespace headrace
