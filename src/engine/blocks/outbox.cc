#include "engine/blocks/outbox.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {

void Outbox::Queue(std::vector<Parcel> parcels) {
  for (Parcel& parcel : parcels) Queue(std::move(parcel));
}

void Outbox::Queue(Parcel parcel) {
  ToNode& to = nodes_[parcel.node];
  HEADRACE_CHECK(parcel.number == to.begin + to.parcels.size());
  Held& held = to.parcels.emplace_back();
  held.sequence = loop_.sequence;
  held.ahead = parcel.ahead;
  held.samples.resize(parcel.samples.size());
  for (std::uint32_t position = 0; position < held.samples.size(); ++position) {
    Sent& sent = held.samples[position];
    sent.sample = parcel.samples[position].sample;
    const Status found = loop_.fields.VisitExtents(
        sent.sample, [&sent](std::uint32_t, const Extent& e) { sent.bytes += e.range.size; });
    // Some of its fields may have a place. Nobody asks for it then, and Residency says why.
    if (!found.ok()) sent.bytes = 0;
    if (sent.bytes > 0) {
      ++held.left;
    } else if (found.ok()) {  // Nobody asks for it, but the other node counts it.
      blocks_.CountSent(/*samples=*/1, /*bytes=*/0);
    }
  }
  for (std::uint32_t position = 0; position < held.samples.size(); ++position) {
    const Place place{.to = parcel.node, .position = position, .parcel = parcel.number};
    std::uint32_t slot = static_cast<std::uint32_t>(places_.size());
    if (free_places_.empty()) {
      places_.push_back(place);
    } else {
      slot = free_places_.back();
      free_places_.pop_back();
      places_[slot] = place;
    }
    KeptBytes kept{.row = {.step = nullptr, .slot = slot}};
    const Release& release = parcel.samples[position];
    if (!blocks_.Take(release.block_read, release.sample, kept)) continue;
    free_places_.push_back(slot);
    Keep(place, held, kept);
  }
  const auto asked = to.asked.find(parcel.number);
  if (asked != to.asked.end()) {  // Before the plan came to it.
    std::vector<Waiting> before = std::move(asked->second);
    to.asked.erase(asked);  // Take() adds it again if one still waits.
    for (Waiting& waiting : before) {
      --to.waiting;
      Take(parcel.node, waiting.part, std::move(waiting.done));
    }
  }
  ForgetGone(to);
}

void Outbox::Keep(const Place& place, Held& held, KeptBytes& kept) {
  Sent& sent = held.samples[place.position];
  sent.cells = std::exchange(kept.cells, kNoCells);
  sent.state = Sent::State::kHeld;
  if (!kept.error.ok()) {
    sent.state = Sent::State::kFailed;
    held.failures.emplace(place.position, std::move(kept.error));
  } else if (sent.bytes == 0) {  // Nobody asks for it.
    cells_->Release(std::exchange(sent.cells, kNoCells));
  }
}

void Outbox::OnKept(std::span<KeptBytes> kept) {
  for (KeptBytes& each : kept) {
    const Place place = places_[each.row.slot];
    free_places_.push_back(each.row.slot);
    ToNode& to = nodes_.at(place.to);
    if (place.parcel < to.begin) {  // All of its bytes have gone: this one has none.
      if (each.cells != kNoCells) cells_->Release(each.cells);
      continue;
    }
    Keep(place, to.parcels[place.parcel - to.begin], each);
    Arrived(place);
  }
}

// Gives the parts that have waited for a sample, and for no other still.
void Outbox::Arrived(const Place& place) {
  ToNode& to = nodes_.at(place.to);
  const auto asked = to.asked.find(place.parcel);
  if (asked == to.asked.end()) return;
  std::vector<Waiting> ready;
  for (auto each = asked->second.begin(); each != asked->second.end();) {
    const ParcelPart& part = each->part;
    const bool waits = place.position >= part.first && place.position - part.first < part.count;
    if (!waits || --each->missing > 0) {
      ++each;
      continue;
    }
    ready.push_back(std::move(*each));
    each = asked->second.erase(each);
    --to.waiting;
  }
  if (asked->second.empty()) to.asked.erase(asked);
  for (Waiting& waiting : ready) Give(place.to, std::move(waiting));
  ForgetGone(to);
}

// Behind those that wait for memory. None of its samples is expected.
void Outbox::Give(NodeNumber to_node, Waiting waiting) {
  ToNode& to = nodes_.at(to_node);
  const std::uint64_t parcel = waiting.part.parcel;
  const bool ahead = parcel >= to.begin && to.parcels[parcel - to.begin].ahead;
  ++to.waiting;
  ++ready_;
  (ahead ? to.ready_ahead : to.ready).push_back(std::move(waiting));
  GiveWaiting();
}

// One part of each node in turn, until none gets any.
void Outbox::GiveAllWaiting() {
  std::size_t visited = 0;
  auto next = nodes_.lower_bound(turn_);
  while (ready_ > 0 && visited < nodes_.size() && !loop_.ended) {
    if (next == nodes_.end()) next = nodes_.begin();
    auto& [node, to] = *next++;
    ++visited;
    if (!GiveNext(to, to.ready) && !(to.ready.empty() && GiveNext(to, to.ready_ahead))) continue;
    turn_ = node + 1;
    visited = 0;
  }
}

// Gives the first of `ready`, if there is memory for it.
bool Outbox::GiveNext(ToNode& to, std::deque<Waiting>& ready) {
  if (ready.empty()) return false;
  Waiting& waiting = ready.front();
  // Parts that overlap may have been asked for: another one may have gone meanwhile.
  Status bad = CheckKnown(to, waiting.part);
  if (!bad.ok()) {
    waiting.done(std::move(bad));
  } else if (!Serve(to, waiting)) {
    return false;
  }
  --to.waiting;
  --ready_;
  ready.pop_front();
  ForgetGone(to);
  return true;
}

// Of a parcel that the plan has come to.
Status Outbox::CheckKnown(const ToNode& to, const ParcelPart& part) {
  if (part.parcel < to.begin) {
    return InvalidArgument("taking a part of parcel {}: it was given before", part.parcel);
  }
  return Check(to.parcels[part.parcel - to.begin], part);
}

Status Outbox::Check(const Held& held, const ParcelPart& part) {
  const std::uint64_t end = std::uint64_t{part.first} + part.count;
  if (part.count == 0 || end > held.samples.size()) {
    return InvalidArgument("taking samples {} to {} of parcel {}: it has {}", part.first, end,
                           part.parcel, held.samples.size());
  }
  const auto gone = [](const Sent& sent) { return sent.state == Sent::State::kGone; };
  if (std::ranges::any_of(std::span(held.samples).subspan(part.first, part.count), gone)) {
    return InvalidArgument("taking samples {} to {} of parcel {}: they were given before",
                           part.first, end, part.parcel);
  }
  std::uint64_t ids = 0;
  for (std::uint64_t i = part.first; i < end; ++i) ids = NextHashOfIds(ids, held.samples[i].sample);
  if (ids == part.ids) return Status();
  return FailedPrecondition(
      "taking samples {} to {} of parcel {}: the nodes have planned different samples for it; see "
      "that all run the same version of headrace, and go on from a state that was saved before",
      part.first, end, part.parcel);
}

void Outbox::Take(NodeNumber to_node, const ParcelPart& part, TakenParcel done) {
  if (loop_.ended) return done(Status(StatusCode::kCancelled, "the run has ended"));
  Waiting waiting{.part = part, .done = std::move(done)};
  const auto known = nodes_.find(to_node);  // A number that is refused must not stay.
  if (known != nodes_.end() && part.parcel < known->second.begin + known->second.parcels.size()) {
    const ToNode& to = known->second;
    if (Status bad = CheckKnown(to, part); !bad.ok()) return waiting.done(std::move(bad));
    const Held& held = to.parcels[part.parcel - to.begin];
    for (const Sent& sent : std::span(held.samples).subspan(part.first, part.count)) {
      if (sent.state == Sent::State::kExpected) ++waiting.missing;
    }
    if (waiting.missing == 0) return Give(to_node, std::move(waiting));
  }
  ToNode& to = nodes_[to_node];
  if (to.waiting >= 2 * kPartsOpenMax) {
    return waiting.done(ResourceExhausted(
        "taking a part of parcel {}: node {} waits for {} other parts; report this defect of "
        "headrace",
        part.parcel, to_node, to.waiting));
  }
  ++to.waiting;
  to.asked[part.parcel].push_back(std::move(waiting));
}

// The part passed Check(), and all of its samples have come, or failed. If one failed nothing is
// given: the other node asks for each alone. False: there is no memory now.
bool Outbox::Serve(ToNode& to, Waiting& waiting) {
  Held& held = to.parcels[waiting.part.parcel - to.begin];
  const std::span<Sent> samples =
      std::span(held.samples).subspan(waiting.part.first, waiting.part.count);
  const auto failed = std::ranges::find(samples, Sent::State::kFailed, &Sent::state);
  if (failed != samples.end()) {
    if (samples.size() == 1) {
      failed->state = Sent::State::kGone;
      if (failed->bytes > 0) --held.left;
    }
    const auto position =
        static_cast<std::uint32_t>(waiting.part.first + (failed - samples.begin()));
    waiting.done(
        DataLoss("sample {}: {}", Raw(failed->sample), held.failures.at(position).message()));
    return true;
  }
  std::uint64_t bytes = 0;
  for (const Sent& sent : samples) bytes += sent.bytes;
  bool waits = false;
  std::optional<Buffer> memory = Acquire(to, bytes, waits);
  if (waits) return false;
  if (!memory.has_value()) {
    waiting.done(ResourceExhausted("sending {}: the system has no memory", FormatBytes(bytes)));
    return true;
  }
  struct Piece {
    CellRun cells = kNoCells;
    std::uint64_t bytes = 0;
  };
  std::vector<Piece> pieces;
  for (Sent& sent : samples) {
    sent.state = Sent::State::kGone;
    if (sent.bytes == 0) continue;
    --held.left;
    pieces.push_back({std::exchange(sent.cells, kNoCells), sent.bytes});
  }
  blocks_.CountSent(pieces.size(), bytes);
  auto owned = std::make_shared<OwnedBytes>();
  owned->memory = *std::move(memory);
  const std::uint64_t charged = owned->memory.bytes().size();
  *to.on_way += charged;
  owned->gone = {nullptr, [on_way = to.on_way, charged](void*) { *on_way -= charged; }};
  owned->size = bytes;
  owned->ahead = held.ahead;
  loop_.Submit(loop_.FirstDeadline(), [this, pieces = std::move(pieces), owned = std::move(owned),
                                       done = std::move(waiting.done)] {
    std::span<std::byte> rest = owned->bytes();
    for (const Piece& piece : pieces) {
      cells_->CopyOut(piece.cells, 0, rest.first(piece.bytes));
      rest = rest.subspan(piece.bytes);
      cells_->Release(piece.cells);
    }
    done(std::move(*owned));
    loop_.Post([] {});  // Cells are free.
  });
  return true;
}

// Memory for a part of a node. `waits`: there is none now; nothing, too: the system has none.
std::optional<Buffer> Outbox::Acquire(const ToNode& to, std::uint64_t bytes, bool& waits) {
  const std::uint64_t on_way = *to.on_way;
  const BufferStats stats = memory_->stats();
  const std::uint64_t free_bytes = stats.capacity_bytes - stats.used_bytes;
  waits = on_way > 0 && on_way + BufferPool::ChargedBytes(bytes) > free_bytes;
  if (waits) return std::nullopt;
  std::optional<Buffer> memory = memory_->Acquire(bytes);
  if (memory.has_value()) return memory;
  // What is on its way comes back; without any, waiting would be in vain.
  waits = memory_->in_use();
  return waits ? std::nullopt : memory_->AcquireBeyond(bytes);
}

bool Outbox::Owes(std::uint64_t sequence) const {
  return std::ranges::any_of(nodes_, [sequence](const auto& each) {
    const std::deque<Held>& parcels = each.second.parcels;
    return !parcels.empty() && parcels.front().sequence <= sequence;
  });
}

void Outbox::ForgetGone(ToNode& to) {
  for (; !to.parcels.empty() && to.parcels.front().left == 0; ++to.begin) {
    to.parcels.pop_front();
    blocks_.CountSentParcel();
  }
}

std::vector<TakenParcel> Outbox::Drop() {
  std::vector<TakenParcel> waiting;
  for (auto& [node, to] : nodes_) {
    for (auto& [parcel, asked] : std::exchange(to.asked, {})) {
      for (Waiting& each : asked) waiting.push_back(std::move(each.done));
    }
    for (std::deque<Waiting>* const ready : {&to.ready, &to.ready_ahead}) {
      for (Waiting& each : std::exchange(*ready, {})) waiting.push_back(std::move(each.done));
    }
    to.waiting = 0;
  }
  ready_ = 0;
  return waiting;
}

void Outbox::ReleaseAll() {
  for (auto& [node, to] : nodes_) {
    for (Held& held : to.parcels) {
      for (const Sent& sent : held.samples) {
        if (sent.cells != kNoCells) cells_->Release(sent.cells);
      }
    }
  }
  nodes_.clear();
}

}  // namespace headrace
