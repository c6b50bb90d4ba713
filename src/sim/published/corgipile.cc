#include "sim/published/corgipile.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

constexpr double kCorgiBlockBytes = 10e6;  // the paper's
constexpr double kCorgiBufferShare = 0.1;  // of a node's samples, likewise

class CorgiPile final : public PublishedPolicy {
 public:
  explicit CorgiPile(const PolicyRequest& request) : PublishedPolicy(request) {
    const double bytes = std::accumulate(job().sizes.begin(), job().sizes.end(), 0.0);
    const auto count = static_cast<double>(job().sizes.size());
    const double mean = std::max(1.0, bytes / count);
    block_samples_ = static_cast<std::uint64_t>(std::clamp(kCorgiBlockBytes / mean, 1.0, count));
    const double room =
        std::min(kCorgiBufferShare * bytes / cluster().nodes, cluster().staging_bytes);
    const double blocks = room / (mean * static_cast<double>(block_samples_));
    buffer_samples_ = block_samples_ * static_cast<std::uint64_t>(std::max(1.0, blocks));
  }

  Result<Preload> Begin(Streams& streams) override {
    const std::uint64_t of_node = streams.steps_per_epoch() * job().batch_size;
    std::vector<std::vector<std::uint32_t>> nodes(cluster().nodes);
    for (std::uint64_t epoch = 0; epoch < job().epochs; ++epoch) {
      const std::vector<std::uint32_t> samples = InBlocks(epoch);
      for (std::uint32_t node = 0; node < cluster().nodes; ++node) {
        const auto begin = samples.begin() + static_cast<std::ptrdiff_t>(node * of_node);
        std::vector<std::uint32_t> own(begin, begin + static_cast<std::ptrdiff_t>(of_node));
        ShuffleBuffers(own, epoch, node);
        nodes[node].insert(nodes[node].end(), own.begin(), own.end());
      }
    }
    for (std::uint32_t node = 0; node < cluster().nodes; ++node) {
      streams.Replace(node, std::move(nodes[node]));
    }
    return Preload();
  }

  SampleFetch FetchOf(std::uint32_t /*node*/, std::uint64_t /*place*/, std::uint32_t /*sample*/,
                      double /*begin*/) override {
    return {.from = SampleFetch::From::kStorage, .neighbours = block_samples_};
  }

 private:
  // All samples, block by block, in the epoch's order of blocks.
  [[nodiscard]] std::vector<std::uint32_t> InBlocks(std::uint64_t epoch) const {
    const std::uint64_t count = job().sizes.size();
    std::vector<std::uint32_t> blocks((count + block_samples_ - 1) / block_samples_);
    std::iota(blocks.begin(), blocks.end(), 0);
    Shuffle(blocks, Prng(job().seed, epoch, RandomStream::kShare, count));
    std::vector<std::uint32_t> samples;
    samples.reserve(count);
    for (const std::uint64_t block : blocks) {
      const std::uint64_t end = std::min(count, (block + 1) * block_samples_);
      for (std::uint64_t sample = block * block_samples_; sample < end; ++sample) {
        samples.push_back(static_cast<std::uint32_t>(sample));
      }
    }
    return samples;
  }

  void ShuffleBuffers(std::vector<std::uint32_t>& samples, std::uint64_t epoch,
                      std::uint32_t node) const {
    for (std::uint64_t first = 0; first < samples.size(); first += buffer_samples_) {
      const std::uint64_t count = std::min<std::uint64_t>(samples.size() - first, buffer_samples_);
      const std::uint64_t place = node * samples.size() + first;
      Shuffle(std::span(samples).subspan(first, count),
              Prng(job().seed, epoch, RandomStream::kShare, place));
    }
  }

  std::uint64_t block_samples_ = 1;
  std::uint64_t buffer_samples_ = 1;
};

}  // namespace

std::unique_ptr<PublishedPolicy> MakePublishedCorgiPile(const PolicyRequest& request) {
  return std::make_unique<CorgiPile>(request);
}

}  // namespace headrace
