#include "runtime/workers/worker_messages.h"

#include <algorithm>
#include <cstring>

namespace headrace {
namespace {

constexpr std::size_t kDtypeBytes = 16;
constexpr std::uint64_t kRankMax = 64;       // NumPy's
constexpr std::uint64_t kItemBytesMax = 64;  // of an element
constexpr std::uint64_t kLeavesMax = 4096;
constexpr std::uint64_t kRowsMax = std::uint64_t{1} << 24;

// Reads words and bytes, never past the end; after that everything is 0 or empty and ok() is false.
class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> message) : left_(message) {}

  std::uint64_t Word() {
    std::uint64_t word = 0;
    if (left_.size() < sizeof word) {
      ok_ = false;
      left_ = {};
      return 0;
    }
    std::memcpy(&word, left_.data(), sizeof word);
    left_ = left_.subspan(sizeof word);
    return word;
  }

  // A word that must not be above `most`.
  std::uint64_t Word(std::uint64_t most) {
    const std::uint64_t word = Word();
    if (word <= most) return word;
    ok_ = false;
    return 0;
  }

  std::string Bytes(std::uint64_t bytes) {
    if (left_.size() < bytes) {
      ok_ = false;
      left_ = {};
      return {};
    }
    std::string text(bytes, '\0');
    if (bytes > 0) std::memcpy(text.data(), left_.data(), bytes);
    left_ = left_.subspan(bytes);
    return text;
  }

  [[nodiscard]] std::size_t left() const { return left_.size(); }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  std::span<const std::byte> left_;
  bool ok_ = true;
};

LeafShape ReadLeaf(MessageReader& reader, std::uint64_t rows) {
  LeafShape leaf;
  leaf.object = reader.Word(1) == 1;
  leaf.item_bytes = reader.Word(kItemBytesMax);
  leaf.dtype = reader.Bytes(kDtypeBytes);
  leaf.dtype.resize(std::min(leaf.dtype.find('\0'), leaf.dtype.size()));
  leaf.rank = reader.Word(kRankMax);
  const std::uint64_t times = reader.Word(rows) == 1 ? 1 : rows;
  const std::uint64_t count = leaf.rank * times;
  if (count > reader.left() / sizeof(std::uint64_t)) {
    static_cast<void>(reader.Bytes(reader.left() + 1));  // fails
    return leaf;
  }
  for (std::uint64_t i = 0; i < count; ++i) leaf.dims.push_back(reader.Word());
  return leaf;
}

void ReadShapes(MessageReader& reader, TaskShapes& shapes) {
  shapes.rows = reader.Word(kRowsMax);
  const std::uint64_t tree_bytes = reader.Word();
  const std::uint64_t leaves = reader.Word(kLeavesMax);
  for (std::uint64_t i = 0; i < leaves && reader.ok(); ++i) {
    shapes.leaves.push_back(ReadLeaf(reader, shapes.rows));
  }
  shapes.tree = reader.Bytes(tree_bytes);
}

}  // namespace

void MessageWriter::Word(std::uint64_t word) {
  const auto bytes = std::as_bytes(std::span(&word, 1));
  message_.insert(message_.end(), bytes.begin(), bytes.end());
}

void MessageWriter::Words(std::span<const std::uint64_t> words) {
  const auto bytes = std::as_bytes(words);
  message_.insert(message_.end(), bytes.begin(), bytes.end());
}

void MessageWriter::Bytes(std::string_view bytes) {
  const auto view = std::as_bytes(std::span(bytes));
  message_.insert(message_.end(), view.begin(), view.end());
}

void MessageWriter::Append(const MessageWriter& other) {
  message_.insert(message_.end(), other.message_.begin(), other.message_.end());
}

Result<WorkerReply> ParseReply(std::span<const std::byte> message) {
  MessageReader reader(message);
  WorkerReply reply;
  reply.kind = static_cast<ReplyMessage>(reader.Word());
  switch (reply.kind) {
    case ReplyMessage::kReady:
      break;
    case ReplyMessage::kFailed:
    case ReplyMessage::kError: {
      if (reply.kind == ReplyMessage::kError) {
        reply.task = reader.Word();
        reply.slot = reader.Word(kRowsMax);
      }
      const std::uint64_t text_bytes = reader.Word();
      const std::uint64_t pickle_bytes = reader.Word();
      reply.text = reader.Bytes(text_bytes);
      reply.pickle = reader.Bytes(pickle_bytes);
      break;
    }
    case ReplyMessage::kDone:
      reply.task = reader.Word();
      reply.busy_ns = reader.Word();
      reply.objects = reader.Bytes(reader.Word());
      break;
    case ReplyMessage::kShaped:
      reply.task = reader.Word();
      reply.busy_ns = reader.Word();
      ReadShapes(reader, reply.shapes);
      break;
    default:
      return Status(StatusCode::kDataLoss, "reading a worker's message: it is of no known kind");
  }
  if (!reader.ok() || reader.left() > 0) {
    return Status(StatusCode::kDataLoss, "reading a worker's message of " +
                                             std::to_string(message.size()) +
                                             " bytes: it does not end where it says");
  }
  return reply;
}

void AppendLayout(const OutputLayout& layout, MessageWriter& writer) {
  writer.Word(layout.tree.size());
  writer.Word(layout.leaves.size());
  for (const OutputLeaf& leaf : layout.leaves) {
    writer.Word(leaf.kind == OutputLeaf::Kind::kObject ? 1 : 0);
    writer.Word(leaf.item_bytes);
    std::string dtype = leaf.dtype;
    dtype.resize(kDtypeBytes);
    writer.Bytes(dtype);
    writer.Word(leaf.rank);
    writer.Word(1);
    writer.Words(leaf.dims);
  }
  writer.Bytes(layout.tree);
}

}  // namespace headrace
