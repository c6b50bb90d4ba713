#include "engine/blocks/block_copier.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

namespace headrace {

void BlockCopier::CopyToCells(BlockPart& part) const {
  std::vector<std::byte> scratch;
  for (std::size_t i = 0; i < part.pieces.size(); ++i) {
    if (loop_.stop.stop_requested()) return;
    if (Status status = Copy(part, part.pieces[i], scratch); !status.ok()) {
      part.failures.emplace_back(i, std::move(status));
    }
  }
}

Status BlockCopier::Copy(const BlockPart& part, const BlockPiece& piece,
                         std::vector<std::byte>& scratch) const {
  const ByteRange range = piece.extent.range;
  std::span<const std::byte> bytes;
  if (piece.from_pinned_block != nullptr) {
    bytes = std::span(piece.from_pinned_block, range.size);
  } else if (piece.entry == nullptr || !piece.entry->tier()->in_memory()) {
    bytes = part.BytesOf(piece);
  } else {
    Tier& tier = *piece.entry->tier();
    if (loop_.verifier.verifies()) {
      HEADRACE_RETURN_IF_ERROR(tier.Check(*piece.entry).status());
    }
    const auto view = tier.View(*piece.entry, piece.cells_offset, range.size);
    if (!view.has_value()) {
      scratch.resize(range.size);
      tier.CopyOut(*piece.entry, piece.cells_offset, scratch);
    }
    bytes = view.has_value() ? *view : std::span<const std::byte>(scratch);
  }
  if (piece.entry == nullptr) {  // A tier has compared its own checksum.
    const std::size_t field = loop_.fields[piece.field].index_field;
    HEADRACE_RETURN_IF_ERROR(loop_.verifier.Check(field, piece.sample, bytes));
  }
  cells_->CopyIn(part.block->samples[piece.place].cells, piece.cells_offset, bytes);
  return Status();
}

void BlockCopier::CopyToTiers(BlockPart& part, const std::function<void()>& inserted) const {
  if (loop_.stop.stop_requested()) return;
  const auto failed = [&part](std::size_t piece) {
    return std::any_of(part.failures.begin(), part.failures.end(),
                       [piece](const auto& failure) { return failure.first == piece; });
  };
  std::erase_if(part.inserts, [&](const BlockInsert& insert) {
    return std::any_of(insert.pieces.begin(), insert.pieces.end(), failed);
  });
  const auto on_disk = static_cast<std::uint64_t>(
      std::count_if(part.inserts.begin(), part.inserts.end(),
                    [](const BlockInsert& insert) { return !insert.tier->in_memory(); }));
  part.ends_left += on_disk;  // All before the first can come back to the loop.
  loop_.inbox.BeginWork(on_disk);
  for (BlockInsert& insert : part.inserts) {
    std::vector<std::span<const std::byte>> parts;
    for (const std::size_t i : insert.pieces) {
      parts.emplace_back(part.BytesOf(part.pieces[i]));
    }
    insert.tier->Insert(insert.sample, std::move(parts), [this, &insert, inserted](Status status) {
      insert.status = std::move(status);
      if (!insert.tier->in_memory()) loop_.Post(std::function(inserted));
    });
  }
}

}  // namespace headrace
