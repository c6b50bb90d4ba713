#include "engine/blocks/parcel_parts.h"

#include <algorithm>
#include <span>

#include "base/format/errors.h"

namespace headrace {

void ParcelParts::Issue(const std::function<void(BlockPart&)>& copy) {
  while (!loop_.ended && !queued_.empty()) {
    BlockPart& part = *queued_.front();
    if (part.in_memory) {
      queued_.pop_front();
      copy(part);
      continue;
    }
    Fetch* const fetch = &part;
    const Fetcher::Memory memory = loop_.fetcher.Acquire({&fetch, 1}, loop_.parcels->memory);
    if (memory == Fetcher::Memory::kWait) break;
    queued_.pop_front();
    part.reading = true;
    if (memory == Fetcher::Memory::kNone) {
      loop_.fetcher.Refuse(part);
    } else {
      loop_.fetcher.Start(part);
    }
  }
  loop_.fetcher.Flush();
}

void ParcelParts::OnFailed(BlockPart& part, const Status& why) {
  const auto& from = part.Reads<PartAtNode>();
  const bool lost = why.code() != StatusCode::kDataLoss;
  if (lost || from.part.count == 1) {
    const Status status =
        lost ? why.WithContext(fmt::format("getting {} from node {}, which alone reads them",
                                           Counted(from.part.count, "sample"), from.node))
             : why;
    for (std::size_t i = 0; i < part.pieces.size(); ++i) part.failures.emplace_back(i, status);
    return;
  }
  // Each alone, so that the others are not lost with it.
  for (std::span<BlockPiece> rest = part.pieces; !rest.empty();) {
    const std::size_t of_sample = std::min(loop_.fields.size(), rest.size());
    BlockPart* const alone = parts_.MakeParcelPart(*part.block, rest.first(of_sample));
    std::get<PartAtNode>(alone->from).is_again = true;
    queued_.push_front(alone);
    rest = rest.subspan(of_sample);
  }
  part.pieces.clear();
}

}  // namespace headrace
