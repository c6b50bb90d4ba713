#include "workers/task_sender.h"

#include <algorithm>

#include "workers/batch_place.h"
#include "workers/worker_messages.h"

namespace headrace {
namespace {

// Descriptors that go with one message.
constexpr std::size_t kMemoriesAMessage = 4;

void AddOnce(const std::shared_ptr<SharedMemory>& memory,
             std::vector<std::shared_ptr<SharedMemory>>& memories) {
  if (std::find(memories.begin(), memories.end(), memory) == memories.end()) {
    memories.push_back(memory);
  }
}

}  // namespace

Status TaskSender::Compute(std::size_t worker, const TaskSlots& task, const Batch& in,
                           const TransformedBatch& out, bool direct) {
  std::vector<std::shared_ptr<SharedMemory>> memories;
  WireWriter layout;
  if (direct) AppendLayout(out.layout, layout);
  WireWriter body;
  body.PutU64(static_cast<std::uint64_t>(TaskMessage::kCompute));
  PutHead(ComputeHead{.task = task.number,
                      .epoch = out.epoch,
                      .step = out.step,
                      .first_slot = task.first,
                      .rows = task.rows,
                      .whole = task.whole},
          body);
  body.PutBytes(layout.bytes());
  for (std::uint64_t i = 0; i < task.rows; ++i) body.PutU64(Raw(out.samples[task.first + i]));
  for (std::size_t field = 0; field < schema_.size(); ++field) {
    const std::uint64_t rows = schema_[field].ragged ? task.rows : 1;
    for (std::uint64_t i = 0; i < rows; ++i) {
      const std::span<std::byte> row = in.row(schema_, field, task.first + i);
      const BufferPlace place = PlaceOfRow(in, row);
      if (place.memory != nullptr) AddOnce(place.memory, memories);
      body.PutU64(place.memory == nullptr ? kNoMemory : NumberOf(place.memory));
      body.PutU64(place.offset);
      if (schema_[field].ragged) body.PutU64(row.size());
    }
  }
  if (direct) {
    const BufferPlace& place = out.memory.place();
    AddOnce(place.memory, memories);
    body.PutU64(NumberOf(place.memory));
    for (const OutputLeaf& leaf : out.layout.leaves) {
      body.PutU64(place.offset + leaf.offset + leaf.row_bytes() * task.first);
    }
  }
  return Send(worker, memories, body);
}

Status TaskSender::Write(std::size_t worker, const TaskSlots& task, const TransformedBatch& out) {
  const BufferPlace& place = out.memory.place();
  const std::uint64_t memory = NumberOf(place.memory);
  WireWriter body;
  body.PutU64(static_cast<std::uint64_t>(TaskMessage::kWrite));
  PutHead(WriteHead{.task = task.number, .leaves = out.layout.leaves.size()}, body);
  for (const OutputLeaf& leaf : out.layout.leaves) {
    body.PutU64(static_cast<std::uint64_t>(leaf.kind));
    if (leaf.kind == OutputLeaf::Kind::kObject) continue;
    body.PutU64(memory);
    if (leaf.kind == OutputLeaf::Kind::kList) {
      for (std::uint64_t i = 0; i < task.rows; ++i) {
        body.PutU64(place.offset + leaf.row_offsets[task.first + i]);
      }
      continue;
    }
    body.PutU64(place.offset + leaf.offset + leaf.row_bytes() * task.first);
    if (leaf.kind == OutputLeaf::Kind::kPadded) {
      for (const std::uint64_t dim : leaf.dims) body.PutU64(dim);
    }
  }
  return Send(worker, std::span(&place.memory, 1), body);
}

Status TaskSender::Forget(std::size_t worker, std::uint64_t number) {
  WireWriter body;
  body.PutU64(static_cast<std::uint64_t>(TaskMessage::kWrite));
  PutHead(WriteHead{.task = number}, body);
  return Send(worker, {}, body);
}

std::uint64_t TaskSender::NumberOf(const std::shared_ptr<SharedMemory>& memory) {
  for (const auto& [known, number] : memories_) {
    if (known.lock() == memory) return number;
  }
  memories_.emplace_back(memory, ++memory_number_);
  return memory_number_;
}

Status TaskSender::Send(std::size_t worker, std::span<const std::shared_ptr<SharedMemory>> memories,
                        const WireWriter& body) {
  if (workers_[worker].closed) return Status();
  std::erase_if(memories_, [](const auto& each) { return each.first.expired(); });
  std::vector<std::uint64_t>& known = workers_[worker].memories;
  const auto first_gone = std::stable_partition(known.begin(), known.end(), [this](auto number) {
    return std::ranges::any_of(memories_, [number](auto& each) { return each.second == number; });
  });
  const std::vector<std::uint64_t> gone(first_gone, known.end());
  known.erase(first_gone, known.end());
  std::vector<std::pair<std::uint64_t, std::shared_ptr<SharedMemory>>> fresh;
  for (const std::shared_ptr<SharedMemory>& memory : memories) {
    const std::uint64_t number = NumberOf(memory);
    if (std::find(known.begin(), known.end(), number) != known.end()) continue;
    fresh.emplace_back(number, memory);
  }
  for (std::size_t begin = 0;; begin += kMemoriesAMessage) {
    const std::size_t end = std::min(begin + kMemoriesAMessage, fresh.size());
    const bool last = end == fresh.size();
    WireWriter message;
    std::vector<int> fds;
    message.PutCount(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      message.PutU64(fresh[i].first);
      message.PutU64(fresh[i].second->bytes().size());
      fds.push_back(fresh[i].second->fd());
    }
    message.PutVector(last ? gone : std::vector<std::uint64_t>(),
                      [](WireWriter& to, std::uint64_t number) { to.PutU64(number); });
    message.PutBytes(last ? body.bytes() : std::span<const std::byte>());
    if (const Status sent = connections_[worker]->Send(message.bytes(), fds); !sent.ok()) {
      return sent.WithContext("sending it a task");
    }
    for (std::size_t i = begin; i < end; ++i) known.push_back(fresh[i].first);
    if (last) return Status();
  }
}

}  // namespace headrace
