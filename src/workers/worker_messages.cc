#include "workers/worker_messages.h"

#include "base/format/errors.h"

namespace headrace {
namespace {

constexpr std::size_t kDtypeBytesMax = 64;
constexpr std::uint32_t kRankMax = 64;  // NumPy's
constexpr std::uint32_t kRowsMax = std::uint32_t{1} << 24;
constexpr std::uint32_t kThreadsMax = std::uint32_t{1} << 16;
constexpr std::size_t kLeafBytesMin = 1 + 4 * sizeof(std::uint32_t);

template <typename Head>
Head TakeHead(WireReader& reader) {
  Head head;
  const auto take = [&](const char* /*name*/, auto& number) {
    if constexpr (sizeof(number) == 8) number = reader.TakeU64();
    if constexpr (sizeof(number) == 4) number = reader.TakeU32();
    if constexpr (sizeof(number) == 1) number = reader.TakeBool();
  };
  ForEachMember(take, head);
  return head;
}

std::string TakeText(WireReader& reader) { return reader.TakeString(kIpcMessageBytesMax); }

LeafShape TakeLeaf(WireReader& reader, std::uint64_t rows) {
  LeafShape leaf;
  const auto head = TakeHead<LeafHead>(reader);
  if (head.item_bytes > kItemBytesMax) reader.Refuse("an item size of no array");
  leaf.object = head.object;
  leaf.item_bytes = head.item_bytes;
  leaf.dtype = reader.TakeString(kDtypeBytesMax);
  leaf.rank = reader.TakeU32(kRankMax);
  leaf.dims = reader.TakeVector(kRankMax * rows, sizeof(std::uint64_t),
                                [](WireReader& from) { return from.TakeU64(); });
  if (leaf.dims.size() != leaf.rank && leaf.dims.size() != leaf.rank * rows) {
    reader.Refuse("dimensions of neither one row nor all");
  }
  if (leaf.object && leaf.rank > 0) reader.Refuse("an object with dimensions");
  return leaf;
}

void TakeShapes(WireReader& reader, TaskShapes& shapes) {
  shapes.tree = TakeText(reader);
  shapes.leaves = reader.TakeVector(kLeavesMax, kLeafBytesMin,
                                    [&](WireReader& from) { return TakeLeaf(from, shapes.rows); });
}

}  // namespace

Result<WorkerReply> ParseReply(std::span<const std::byte> message) {
  WireReader reader("a worker's message", message);
  WorkerReply reply;
  reply.kind = static_cast<ReplyMessage>(reader.TakeU64());
  switch (reply.kind) {
    case ReplyMessage::kReady:
      reply.threads = TakeHead<ReadyHead>(reader).threads;
      if (reply.threads == 0 || reply.threads > kThreadsMax) {
        reader.Refuse("a number of threads that no worker has");
      }
      break;
    case ReplyMessage::kUnlike:
      reply.task = TakeHead<UnlikeHead>(reader).task;
      break;
    case ReplyMessage::kFailed:
    case ReplyMessage::kError:
      if (reply.kind == ReplyMessage::kError) {
        const auto head = TakeHead<ErrorHead>(reader);
        if (head.slot > kRowsMax) reader.Refuse("a slot of no batch");
        reply.task = head.task;
        reply.slot = head.slot;
      }
      reply.text = TakeText(reader);
      reply.pickle = TakeText(reader);
      break;
    case ReplyMessage::kDone: {
      const auto head = TakeHead<DoneHead>(reader);
      reply.task = head.task;
      reply.busy_ns = head.busy_ns;
      reply.ran_ns = head.ran_ns;
      reply.objects = TakeText(reader);
      break;
    }
    case ReplyMessage::kShaped: {
      const auto head = TakeHead<ShapedHead>(reader);
      if (head.rows > kRowsMax) reader.Refuse("more rows than a batch has");
      reply.task = head.task;
      reply.busy_ns = head.busy_ns;
      reply.ran_ns = head.ran_ns;
      reply.shapes.rows = head.rows;
      if (reader.ok()) TakeShapes(reader, reply.shapes);
      break;
    }
    default:
      reader.Refuse(fmt::format("a message of unknown kind {}", static_cast<int>(reply.kind)));
  }
  HEADRACE_RETURN_IF_ERROR(reader.Finish());
  return reply;
}

void AppendLayout(const OutputLayout& layout, WireWriter& writer) {
  writer.PutString(layout.tree);
  writer.PutVector(layout.leaves, [](WireWriter& to, const OutputLeaf& leaf) {
    PutHead(LeafHead{.object = leaf.kind == OutputLeaf::Kind::kObject,
                     .item_bytes = static_cast<std::uint32_t>(leaf.item_bytes)},
            to);
    to.PutString(leaf.dtype);
    to.PutU32(static_cast<std::uint32_t>(leaf.rank));
    to.PutVector(leaf.dims, [](WireWriter& of, std::uint64_t dim) { of.PutU64(dim); });
  });
}

}  // namespace headrace
