#include "workers/worker_messages.h"

namespace headrace {
namespace {

constexpr std::size_t kDtypeBytesMax = 64;
constexpr std::uint32_t kRankMax = 64;  // NumPy's
constexpr std::uint32_t kRowsMax = std::uint32_t{1} << 24;
constexpr std::size_t kLeafBytesMin = 1 + 4 * sizeof(std::uint32_t);

std::string TakeText(WireReader& reader) { return reader.TakeString(kIpcMessageBytesMax); }

LeafShape TakeLeaf(WireReader& reader, std::uint64_t rows) {
  LeafShape leaf;
  leaf.object = reader.TakeBool();
  leaf.item_bytes = reader.TakeU32(kItemBytesMax);
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
  shapes.rows = reader.TakeU32(kRowsMax);
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
      break;
    case ReplyMessage::kFailed:
    case ReplyMessage::kError:
      if (reply.kind == ReplyMessage::kError) {
        reply.task = reader.TakeU64();
        reply.slot = reader.TakeU32(kRowsMax);
      }
      reply.text = TakeText(reader);
      reply.pickle = TakeText(reader);
      break;
    case ReplyMessage::kDone:
      reply.task = reader.TakeU64();
      reply.busy_ns = reader.TakeU64();
      reply.objects = TakeText(reader);
      break;
    case ReplyMessage::kShaped:
      reply.task = reader.TakeU64();
      reply.busy_ns = reader.TakeU64();
      TakeShapes(reader, reply.shapes);
      break;
    default:
      return Status(StatusCode::kDataLoss, "reading a worker's message: it is of no known kind");
  }
  if (reader.Finish().ok()) return reply;
  return Status(StatusCode::kDataLoss, "reading a worker's message of " +
                                           std::to_string(message.size()) +
                                           " bytes: it does not end where it says");
}

void AppendLayout(const OutputLayout& layout, WireWriter& writer) {
  writer.PutString(layout.tree);
  writer.PutVector(layout.leaves, [](WireWriter& to, const OutputLeaf& leaf) {
    to.PutBool(leaf.kind == OutputLeaf::Kind::kObject);
    to.PutU32(static_cast<std::uint32_t>(leaf.item_bytes));
    to.PutString(leaf.dtype);
    to.PutU32(static_cast<std::uint32_t>(leaf.rank));
    to.PutVector(leaf.dims, [](WireWriter& of, std::uint64_t dim) { of.PutU64(dim); });
  });
}

}  // namespace headrace
