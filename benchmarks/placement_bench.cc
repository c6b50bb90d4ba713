// What planning of tiers costs, and what it gives: placement_bench [options] [--json]
//
//   --samples N   of the dataset, each a block of one unit; 1281167
//   --epochs E    of the run, seen to its end; 90
//   --nodes N,..  1,4
//   --share S     of the dataset that the tiers of all nodes hold together, half in each of two
//                 tiers; 0.3
//   --tiers U,..  units of each tier of each node, in place of --share
//   --uneven      blocks of 1 to 53 units
//   --horizon H   epochs; 16
//   --policy P    all
//   --all-nodes   plan all nodes (all_nodes.h), not node 0 alone; the shares are those of all
//   --sums        plan with the sums that nodes compare, too (step_sums.h)
//
// For each policy and number of nodes, planned for node 0 with the order `exact` and global batches
// of 256, or of one sample a node if that is more: processor time, nanoseconds a sample and epoch,
// of which making the uses; seconds until the first step; the memory that the planner takes at its
// peak; and, without the first epoch, the shares of the node's uses that its tiers served because
// it had used them before (reuse), that its tiers served at all (local), peers and storage. No data
// is read or written.

#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/hash.h"
#include "plan/placement/all_nodes.h"
#include "plan/placement/placement.h"
#include "plan/placement/step_sums.h"

namespace {

using headrace::Placement;
using headrace::PlacementRequest;
using headrace::UseStream;

struct Options {
  std::uint64_t samples = 1'281'167;
  std::uint64_t epochs = 90;
  std::vector<std::uint32_t> nodes = {1, 4};
  double share = 0.3;
  std::vector<std::uint64_t> tiers;  // empty: by share
  std::uint64_t horizon = 16;
  std::string policy;
  bool uneven = false;
  bool all_nodes = false;
  bool json = false;
  bool sums = false;
};

// Blocks of one sample each, of 1 to 53 units: 27 on average.
class UnevenBlocks final : public headrace::BlockMap {
 public:
  explicit UnevenBlocks(std::uint64_t samples) : samples_(samples) {
    for (std::uint64_t i = 0; i < samples; ++i) total_ += Units(i);
  }

  [[nodiscard]] std::uint64_t sample_count() const override { return samples_; }
  [[nodiscard]] std::uint64_t block_count() const override { return samples_; }
  [[nodiscard]] Block block(std::uint64_t position) const override {
    return {.first = headrace::SampleId{position}, .count = 1};
  }
  [[nodiscard]] std::uint64_t unit_bytes() const override { return 4096; }
  void Charges(headrace::SampleId first, std::span<std::uint32_t> units) const override {
    for (std::uint64_t i = 0; i < units.size(); ++i) units[i] = Units(headrace::Raw(first) + i);
  }
  [[nodiscard]] std::uint64_t total_units() const override { return total_; }
  [[nodiscard]] std::uint64_t largest_block() const override { return 53; }
  [[nodiscard]] std::uint64_t largest_sample() const override { return 53; }

 private:
  static std::uint32_t Units(std::uint64_t sample) {
    return static_cast<std::uint32_t>(1 + headrace::Mix64(sample + 1) % 53);
  }

  const std::uint64_t samples_;
  std::uint64_t total_ = 0;
};

struct Case {
  std::string policy;
  std::uint32_t nodes = 1;
};

struct Figures {
  double ns = 0;            // a sample and epoch
  double first_step_s = 0;  // from making the placement to its first step
  double peak_bytes = 0;
  double reuse = 0;  // shares of the uses after the first epoch
  double local = 0;
  double peer = 0;
  double storage = 0;
};

// Of the processor: a planner waits for nothing, and others may be busy on the machine.
double Seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double PeakBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

PlacementRequest RequestOf(const Options& options, const Case& each) {
  const std::shared_ptr<const headrace::BlockMap> blocks =
      options.uneven ? std::make_shared<const UnevenBlocks>(options.samples)
                     : headrace::MakeUniformBlocks(options.samples, 1);
  headrace::OrderRequest order;
  order.job = {.sample_count = options.samples,
               .batch_size = std::max(256 / each.nodes, 1U),
               .world_size = each.nodes,
               .seed = 7,
               .epochs = options.epochs};
  const auto units = static_cast<std::uint64_t>(
      options.share * static_cast<double>(blocks->total_units()) / each.nodes / 2);
  PlacementRequest request{.blocks = blocks, .horizon_epochs = options.horizon, .seed = 7};
  request.capacity_units.assign(each.nodes,
                                options.tiers.empty() ? std::vector{units, units} : options.tiers);
  request.uses = [order, blocks, nodes = each.nodes] {
    return headrace::MakeOrderUses(*headrace::Orders().Find("exact"), order, blocks,
                                   {.world_size = nodes, .ranks_per_node = 1}, {});
  };
  return request;
}

// Plans all steps of a Placement or of AllNodes. `next` takes one, and returns its position if
// there is one; `counters` gives their counters.
template <typename Next, typename Counters>
void Plan(const Next& next, const Counters& counters, double begin, Figures& figures) {
  (void)next();
  figures.first_step_s = Seconds() - begin;
  std::map<std::string, double> first;
  while (const std::optional<headrace::Position> at = next()) {
    if (*at == headrace::Position{.epoch = 1, .step = 0}) first = counters();
  }
  std::map<std::string, double> all = counters();
  const auto share = [&](const char* kind) {
    return (all[kind] - first[kind]) / (all["uses"] - first["uses"]);
  };
  figures.reuse = share("reuse");
  figures.local = share("local");
  figures.peer = share("peer");
  figures.storage = share("storage");
}

Figures Measure(const Options& options, const Case& each) {
  Figures figures;
  const double before = PeakBytes();
  const PlacementRequest request = RequestOf(options, each);
  const double begin = Seconds();
  std::unique_ptr<Placement> placement;
  std::unique_ptr<headrace::AllNodes> all;
  std::unique_ptr<UseStream> uses;
  if (each.policy == "(uses)") {
    uses = std::move(request.uses()).value();
    headrace::StepUses step;
    while (uses->Next(step)) {
    }
  } else if (options.all_nodes) {
    all = headrace::Placements().Get(each.policy).value()->MakeAllNodes(request).value();
    headrace::NodesStep step;
    const auto next = [&] { return all->Next(step) ? std::optional(step.at) : std::nullopt; };
    Plan(
        next, [&] { return all->counters(); }, begin, figures);
  } else {
    const headrace::PlacementFactory& factory = *headrace::Placements().Get(each.policy).value();
    placement = (options.sums ? headrace::MakeSummedPlacement(factory, request,
                                                              [](const headrace::StepSums&) {})
                              : factory.Make(request))
                    .value();
    const auto next = [&] {
      const auto step = placement->Next();
      return step.has_value() ? std::optional(step->at) : std::nullopt;
    };
    Plan(
        next, [&] { return placement->counters(); }, begin, figures);
  }
  figures.ns = (Seconds() - begin) * 1e9 / static_cast<double>(options.samples * options.epochs);
  figures.peak_bytes = PeakBytes() - before;
  return figures;
}

void Print(const Options& options, const Case& each, const Figures& f) {
  if (options.json) {
    std::printf(
        "{\"policy\": \"%s\", \"nodes\": %u, \"samples\": %llu, \"epochs\": %llu, "
        "\"ns_per_sample_epoch\": %.1f, \"first_step_s\": %.4f, \"peak_bytes\": %.0f, "
        "\"reuse\": %.4f, \"local\": %.4f, \"peer\": %.4f, \"storage\": %.4f}\n",
        each.policy.c_str(), each.nodes, static_cast<unsigned long long>(options.samples),
        static_cast<unsigned long long>(options.epochs), f.ns, f.first_step_s, f.peak_bytes,
        f.reuse, f.local, f.peer, f.storage);
  } else {
    std::printf("%-12s %5u %10.1f %12.3f %11.1f %7.3f %7.3f %7.3f %7.3f\n", each.policy.c_str(),
                each.nodes, f.ns, f.first_step_s, f.peak_bytes / (1 << 20), f.reuse, f.local,
                f.peer, f.storage);
  }
  std::fflush(stdout);
}

// Each case in a process of its own: the peak of memory is a process's.
bool Run(const Options& options, const Case& each) {
  const pid_t child = fork();
  if (child == 0) {
    Print(options, each, Measure(options, each));
    _exit(0);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

template <typename Number>
std::vector<Number> Numbers(std::stringstream& value) {
  std::vector<Number> numbers;
  for (std::string each; std::getline(value, each, ',');) {
    numbers.push_back(static_cast<Number>(std::strtoull(each.c_str(), nullptr, 10)));
  }
  return numbers;
}

bool Parse(int argc, char** argv, Options& options) {
  const std::map<std::string, bool*> flags = {{"--json", &options.json},
                                              {"--sums", &options.sums},
                                              {"--uneven", &options.uneven},
                                              {"--all-nodes", &options.all_nodes}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (const auto flag = flags.find(name); flag != flags.end()) {
      *flag->second = true;
      continue;
    }
    if (i + 1 == argc) return false;
    std::stringstream value(argv[++i]);
    if (name == "--samples") {
      value >> options.samples;
    } else if (name == "--epochs") {
      value >> options.epochs;
    } else if (name == "--share") {
      value >> options.share;
    } else if (name == "--policy") {
      value >> options.policy;
    } else if (name == "--horizon") {
      value >> options.horizon;
    } else if (name == "--nodes") {
      options.nodes = Numbers<std::uint32_t>(value);
    } else if (name == "--tiers") {
      options.tiers = Numbers<std::uint64_t>(value);
    } else {
      return false;
    }
  }
  return options.samples > 0 && options.epochs > 1 && !options.nodes.empty();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: placement_bench [--samples N] [--epochs E, at least 2] [--nodes N,..] "
                 "[--share S | --tiers U,..] [--uneven] [--horizon H] [--policy P] "
                 "[--all-nodes | --sums] [--json]\n");
    return 2;
  }
  if (!options.json) {
    std::printf("%-12s %5s %10s %12s %11s %7s %7s %7s %7s\n", "policy", "nodes", "ns", "1st step s",
                "memory MiB", "reuse", "local", "peer", "storage");
    std::fflush(stdout);  // Once: each case has a process with a copy of what is left.
  }
  bool done = true;
  for (const std::uint32_t nodes : options.nodes) {
    if (options.policy.empty()) done = Run(options, {.policy = "(uses)", .nodes = nodes}) && done;
    for (const headrace::PlacementFactory* factory : headrace::Placements().rows()) {
      if (!options.policy.empty() && factory->name() != options.policy) continue;
      done = Run(options, {.policy = std::string(factory->name()), .nodes = nodes}) && done;
    }
  }
  return done ? 0 : 1;
}
