// Where the samples of nodes come from, in the plan: shares_bench [options]
//
//   --nodes N       of one rank each; 8
//   --samples N     of the dataset, each of one unit; 20000
//   --epochs E      of the run, seen to its end; the first is not counted; 20
//   --aggregate A,..  what the tiers of all nodes hold together, as shares of the data; 2.4
//   --batch B,..    samples of a step and node; 32
//
// Prints one line of JSON for each order, aggregate, batch and placement: which shares of the uses
// of all nodes are served by a tier of the node itself (local), of another node (peer) and by
// storage; and how many samples tiers take ahead of their use (ahead), from other nodes or storage,
// as a share of the uses. And for each order, aggregate and batch what the locality costs: the
// share of the data that a node has used in all epochs (seen), and how much of what it uses in an
// epoch it used in the epoch before (again); and the verdict of the quality of the sequence that
// one rank gets. Nothing is read or written.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "plan/permutation.h"
#include "plan/placement/placement.h"
#include "plan/placement/testing/fixed_uses.h"
#include "plan/quality/quality.h"

namespace {

using headrace::Steps;
using headrace::StepUses;

struct Options {
  std::uint32_t nodes = 8;
  std::uint64_t samples = 20'000;
  std::uint64_t epochs = 20;
  std::vector<double> aggregates = {2.4};
  std::vector<std::uint32_t> batches = {32};
};

struct Case {
  std::string order;
  double aggregate = 0;
  std::uint32_t batch = 0;
};

// As hr.orders.dealt_homes: `copies` different nodes a sample, each node as often as any other.
headrace::SampleTable DealHomes(const Options& options, std::uint32_t copies) {
  const headrace::Permutation turns(options.samples, 7, 0, headrace::RandomStream::kPlacement);
  std::vector<std::uint32_t> homes;
  homes.reserve(options.samples * copies);
  for (std::uint64_t sample = 0; sample < options.samples; ++sample) {
    const std::uint64_t turn = turns.At(sample);
    homes.push_back(static_cast<std::uint32_t>(turn % options.nodes));
    for (std::uint64_t copy = 1; copy < copies; ++copy) {
      const std::uint64_t step = 1 + (turn / options.nodes + copy - 1) % (options.nodes - 1);
      homes.push_back(static_cast<std::uint32_t>((turn + step) % options.nodes));
    }
  }
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(homes));
}

// As many whole copies of the data as the tiers hold together.
std::uint32_t Copies(const Options& options, double aggregate) {
  return std::clamp<std::uint32_t>(static_cast<std::uint32_t>(aggregate), 1, options.nodes);
}

std::shared_ptr<const Steps> UsesOf(const Options& options, const Case& each) {
  headrace::OrderRequest request;
  request.job = {.sample_count = options.samples,
                 .batch_size = each.batch,
                 .world_size = options.nodes,
                 .seed = 7,
                 .epochs = options.epochs};
  if (each.order == "batch") request.homes = DealHomes(options, Copies(options, each.aggregate));
  auto stream = headrace::MakeOrderUses(*headrace::Orders().Find(each.order), request,
                                        headrace::MakeUniformBlocks(options.samples, 1),
                                        {.world_size = options.nodes, .ranks_per_node = 1}, {})
                    .value();
  Steps steps;
  StepUses uses;
  while (stream->Next(uses)) steps.push_back(uses);
  return std::make_shared<const Steps>(std::move(steps));
}

void PrintCase(const Options& options, const Case& each) {
  std::printf(
      "{\"order\": \"%s\", \"nodes\": %u, \"samples\": %llu, \"epochs\": %llu, "
      "\"aggregate\": %.3f, \"batch\": %u, ",
      each.order.c_str(), options.nodes, static_cast<unsigned long long>(options.samples),
      static_cast<unsigned long long>(options.epochs), each.aggregate, each.batch);
}

void PrintShares(const Options& options, const Case& each,
                 const std::shared_ptr<const Steps>& steps) {
  for (const headrace::PlacementFactory* factory : headrace::Placements().rows()) {
    if (!factory->keeps_blocks()) continue;
    std::map<std::string, double> later;
    for (std::uint32_t node = 0; node < options.nodes; ++node) {
      const auto units = static_cast<std::uint64_t>(
          each.aggregate * static_cast<double>(options.samples) / options.nodes);
      headrace::PlacementRequest request{.blocks = headrace::MakeUniformBlocks(options.samples, 1),
                                         .node = node,
                                         .horizon_epochs = options.epochs,
                                         .seed = 7};
      request.capacity_units.assign(options.nodes, std::vector<std::uint64_t>(1, units));
      request.uses = [steps]() -> headrace::Result<std::unique_ptr<headrace::UseStream>> {
        return std::unique_ptr<headrace::UseStream>(std::make_unique<headrace::FixedUses>(steps));
      };
      const auto plan = factory->Make(request).value();
      std::map<std::string, double> first;
      bool counted = false;
      while (const auto step = plan->Next()) {
        if (step->at.epoch == 0 || std::exchange(counted, true)) continue;
        first = plan->counters();  // With the first step of the second epoch, which is not counted.
      }
      for (const auto& [name, value] : plan->counters()) later[name] += value - first[name];
    }
    PrintCase(options, each);
    std::printf(
        "\"placement\": \"%s\", \"local\": %.4f, \"ahead\": %.4f, \"peer\": %.4f, "
        "\"storage\": %.4f}\n",
        std::string(factory->name()).c_str(), later["local"] / later["uses"],
        later["ahead"] / later["uses"], later["peer"] / later["uses"],
        later["storage"] / later["uses"]);
  }
}

void PrintCost(const Options& options, const Case& each, const Steps& steps) {
  std::vector<std::vector<std::uint64_t>> last(options.nodes);  // epoch of the last use, from 1 up
  for (auto& of_node : last) of_node.resize(options.samples);
  std::uint64_t seen = 0;
  std::uint64_t again = 0;
  std::uint64_t counted = 0;
  auto meter =
      headrace::QualityMeter::Make({.sample_count = options.samples,
                                    .blocks = headrace::MakeUniformBlocks(options.samples, 50),
                                    .batch = each.batch,
                                    .partial = true})
          .value();
  std::vector<std::uint64_t> ids;
  for (const StepUses& step : steps) {
    for (std::uint32_t node = 0; node < options.nodes; ++node) {
      for (const std::uint32_t sample : step.OfNode(node)) {
        std::uint64_t& before = last[node][sample];
        if (before == 0) ++seen;
        if (step.at.epoch > 0) {
          ++counted;
          again += before == step.at.epoch ? 1 : 0;
        }
        before = step.at.epoch + 1;
      }
    }
    ids.assign(step.OfNode(0).begin(), step.OfNode(0).end());
    meter->Add(ids);
    if (step.ends_epoch) meter->EndEpoch();
  }
  PrintCase(options, each);
  std::printf("\"seen\": %.4f, \"again\": %.4f, \"quality\": \"%s\"}\n",
              static_cast<double>(seen) / static_cast<double>(options.nodes * options.samples),
              static_cast<double>(again) / static_cast<double>(counted),
              meter->Report().verdict.c_str());
}

template <typename Number>
std::vector<Number> Numbers(const std::string& text) {
  std::vector<Number> numbers;
  std::stringstream stream(text);
  for (std::string each; std::getline(stream, each, ',');) {
    numbers.push_back(static_cast<Number>(std::strtod(each.c_str(), nullptr)));
  }
  return numbers;
}

bool Parse(int argc, char** argv, Options& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--nodes") {
      options.nodes = static_cast<std::uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    } else if (name == "--samples") {
      options.samples = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "--epochs") {
      options.epochs = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "--aggregate") {
      options.aggregates = Numbers<double>(value);
    } else if (name == "--batch") {
      options.batches = Numbers<std::uint32_t>(value);
    } else {
      return false;
    }
  }
  return argc % 2 == 1 && options.nodes > 1 && options.samples > 0 && options.epochs > 1 &&
         !options.aggregates.empty() && !options.batches.empty();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: shares_bench [--nodes N, at least 2] [--samples N] [--epochs E, at least "
                 "2] [--aggregate A,..] [--batch B,..]\n");
    return 2;
  }
  for (const char* order : {"exact", "batch"}) {
    for (const std::uint32_t batch : options.batches) {
      std::shared_ptr<const Steps> steps;
      std::uint32_t copies = 0;
      for (const double aggregate : options.aggregates) {
        const Case each{.order = order, .aggregate = aggregate, .batch = batch};
        if (steps == nullptr || (each.order == "batch" && copies != Copies(options, aggregate))) {
          copies = Copies(options, aggregate);
          steps = UsesOf(options, each);
          PrintCost(options, each, *steps);
        }
        PrintShares(options, each, steps);
        std::fflush(stdout);
      }
    }
  }
  return 0;
}
