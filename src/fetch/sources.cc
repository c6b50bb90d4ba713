#include "fetch/sources.h"

#include <utility>
#include <vector>

namespace headrace {

void StorageSource::Read(std::span<Fetch* const> fetches, const std::stop_token& stop,
                         const Done& done) {
  std::vector<ReadRequest> requests;
  requests.reserve(fetches.size());
  for (Fetch* const fetch : fetches) {
    requests.push_back(
        {.extent = fetch->extent(),
         .buffer = fetch->memory(),
         .done = [&done,
                  fetch](Result<std::span<std::byte>> data) { done(*fetch, std::move(data)); },
         .looked = fetch->not_held,
         .past_share = fetch->past_share});
  }
  store_.Read(std::move(requests), stop);
}

void TierSource::Read(std::span<Fetch* const> fetches, const std::stop_token& stop,
                      const Done& done) {
  for (Fetch* const fetch : fetches) {
    const Tier::EntryRef& entry = fetch->entry();
    entry.tier()->Read(
        entry, fetch->deadline, fetch->memory(), stop,
        [&done, fetch](Result<std::span<std::byte>> data) { done(*fetch, std::move(data)); });
  }
}

}  // namespace headrace
