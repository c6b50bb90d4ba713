#include "sim/job/timed_nodes.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "base/check.h"
#include "sim/job/timed_tier.h"

namespace headrace {

void TimedNodes::Read(std::span<Fetch* const> fetches, const std::stop_token& /*stop*/,
                      const Done& done) {
  for (Fetch* const fetch : fetches) {
    if (const auto* const part = std::get_if<PartAtNode>(&fetch->from)) {
      ReadPart(*fetch, *part, done);
    } else {
      ReadSample(*fetch, fetch->Reads<SampleAtNode>(), done);
    }
  }
}

void TimedNodes::ReadPart(Fetch& fetch, const PartAtNode& wanted, const Done& done) {
  others_.take_part(
      wanted.node, node_, wanted.part, [this, &fetch, &done](Result<OwnedBytes> bytes) {
        if (!bytes.ok()) return done(fetch, bytes.status());
        const auto came = std::make_shared<OwnedBytes>(std::move(bytes).value());
        link_.Transfer(node_, scale_ * static_cast<double>(came->size), [&fetch, &done, came] {
          std::ranges::copy(came->bytes(), fetch.memory().begin());
          done(fetch, fetch.memory().first(came->size));
        });
      });
}

void TimedNodes::ReadSample(Fetch& fetch, const SampleAtNode& wanted, const Done& done) {
  others_.take(wanted.nodes.first, wanted.sample, fetch.deadline,
               [this, &fetch, &done](Result<Tier::EntryRef> entry) {
                 if (!entry.ok()) return done(fetch, entry.status());
                 Send(fetch, std::move(entry).value(), done);
               });
}

void TimedNodes::Send(Fetch& fetch, Tier::EntryRef entry, const Done& done) {
  auto* const tier = dynamic_cast<TimedTier*>(entry.tier());
  HEADRACE_CHECK(tier != nullptr);
  struct Transfer {
    Tier::EntryRef entry;
    int left = 2;
  };
  const auto transfer = std::make_shared<Transfer>(Transfer{.entry = std::move(entry)});
  const std::uint64_t bytes = transfer->entry.bytes();
  const auto part_done = [transfer, &fetch, &done] {
    if (--transfer->left > 0) return;
    const std::uint64_t sent = transfer->entry.bytes();
    transfer->entry.Reset();
    done(fetch, fetch.memory().first(sent));
  };
  tier->TakeTime(bytes, part_done);
  link_.Transfer(node_, scale_ * static_cast<double>(bytes), part_done);
}

}  // namespace headrace
