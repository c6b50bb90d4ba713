#include "plan/packing/packing.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/format/errors.h"
#include "plan/packing/free_rows.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

constexpr std::uint32_t kRowTokensMax = std::uint32_t{1} << 24;

// Pieces of documents, and the row of each, while they are packed.
class Packer {
 public:
  Packer(std::span<const std::uint32_t> lengths, const PackingOptions& options)
      : lengths_(lengths), options_(options) {
    pieces_.reserve(lengths.size());
  }

  PackedRows Pack(Prng order) {
    if (options_.kind == PackingKind::kConcatenate) {
      Concatenate();
    } else {
      for (std::uint32_t i = 0; i < lengths_.size(); ++i) AddDocument(i);
      rows_.resize(pieces_.size());
      if (options_.kind == PackingKind::kBestFit) {
        FitBest();
      } else {
        std::iota(rows_.begin(), rows_.end(), 0);
        row_count_ = static_cast<std::uint32_t>(rows_.size());
      }
    }
    return Sorted(order);
  }

 private:
  void AddDocument(std::uint32_t document) {
    std::uint32_t left = lengths_[document];
    std::uint32_t begin = 0;
    if (left > options_.row_tokens && options_.longer == LongDocuments::kCut) {
      packed_.cut_tokens += left - options_.row_tokens;
      left = options_.row_tokens;
    }
    if (left == 0 || (left > options_.row_tokens && options_.longer == LongDocuments::kLeaveOut)) {
      ++packed_.left_out;
      return;
    }
    while (left > 0) {
      const std::uint32_t part = std::min(left, options_.row_tokens);
      pieces_.push_back({.document = document, .begin = begin, .tokens = part});
      begin += part;
      left -= part;
    }
  }

  void Concatenate() {
    std::uint32_t at = 0;
    for (std::uint32_t document = 0; document < lengths_.size(); ++document) {
      if (lengths_[document] == 0) ++packed_.left_out;
      for (std::uint32_t begin = 0; begin < lengths_[document];) {
        if (at == 0) ++row_count_;
        const std::uint32_t part = std::min(lengths_[document] - begin, options_.row_tokens - at);
        pieces_.push_back({.document = document, .begin = begin, .tokens = part});
        rows_.push_back(row_count_ - 1);
        begin += part;
        at = (at + part) % options_.row_tokens;
      }
    }
  }

  void FitBest() {
    std::vector<std::uint64_t> longest_first(pieces_.size());
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      longest_first[i] = std::uint64_t{options_.row_tokens - pieces_[i].tokens} << 32 | i;
    }
    std::sort(longest_first.begin(), longest_first.end());
    FreeRows free_rows(options_.row_tokens);
    for (const std::uint64_t next : longest_first) {
      const auto piece = static_cast<std::uint32_t>(next);
      const std::uint32_t tokens = pieces_[piece].tokens;
      std::uint32_t free = free_rows.LeastFree(tokens);
      if (free == FreeRows::kNone) {
        rows_[piece] = row_count_++;
        free = options_.row_tokens;
      } else {
        rows_[piece] = free_rows.Take(free);
      }
      if (free > tokens) free_rows.Add(rows_[piece], free - tokens);
    }
  }

  // The pieces by row, rows in an order that is drawn.
  PackedRows Sorted(Prng order) {
    std::vector<std::uint32_t> place(row_count_);
    std::iota(place.begin(), place.end(), 0);
    // What is concatenated keeps its order.
    if (options_.kind != PackingKind::kConcatenate) Shuffle(place, order);
    std::vector<std::uint64_t> ends(row_count_);
    for (const std::uint32_t row : rows_) ++ends[place[row]];
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    std::vector<std::uint64_t> next(row_count_);
    for (std::size_t i = 1; i < next.size(); ++i) next[i] = ends[i - 1];
    packed_.pieces.resize(pieces_.size());
    std::vector<std::uint32_t> filled(row_count_);
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const std::uint32_t row = place[rows_[i]];
      PackedPiece& piece = packed_.pieces[next[row]++];
      piece = pieces_[i];
      piece.at = filled[row];
      filled[row] += piece.tokens;
      packed_.tokens += piece.tokens;
    }
    packed_.row_ends = std::move(ends);
    return std::move(packed_);
  }

  const std::span<const std::uint32_t> lengths_;
  const PackingOptions options_;
  std::vector<PackedPiece> pieces_;  // in the order of the documents
  std::vector<std::uint32_t> rows_;  // of each piece
  std::uint32_t row_count_ = 0;
  PackedRows packed_;
};

}  // namespace

Result<PackedRows> PackDocuments(std::span<const std::uint32_t> lengths,
                                 const PackingOptions& options, Prng order) {
  if (options.row_tokens < 1 || options.row_tokens > kRowTokensMax) {
    return InvalidArgument("packing: rows of {} tokens, must be in [1, {}]", options.row_tokens,
                           kRowTokensMax);
  }
  std::uint64_t pieces = 0;
  for (const std::uint32_t length : lengths) pieces += 1 + length / options.row_tokens;
  if (pieces >= std::uint64_t{1} << 32) {
    return InvalidArgument("packing: {} documents or parts of them at once, must be below 2^32",
                           pieces);
  }
  return Packer(lengths, options).Pack(order);
}

}  // namespace headrace
