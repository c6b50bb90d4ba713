// What planning costs: planner_bench [samples] [--order O] [--json]
//
// For each order, processor time: nanoseconds when an epoch and a half are planned, a sample of the
// dataset and a row of the rank's; nanoseconds a sample that replay takes to enter an epoch at its
// last step; seconds until the first step is there; and the memory that the planner takes. Default:
// 10,000,000 samples, blocks of 64, global batches of 256. No data is read or written.

#include <malloc.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "headrace/papers.h"
#include "plan/order_factory.h"

namespace {

using headrace::Order;
using headrace::OrderFactory;
using headrace::OrderRequest;
using headrace::Position;

constexpr std::uint64_t kBlockSamples = 64;
constexpr std::uint64_t kBatch = 256;

struct Case {
  std::string name;
  std::string order;
  headrace::OrderParameters parameters;
  std::uint32_t world_size = 1;
  bool exchange = false;  // every rank is a node that reads its own blocks only
};

// An order is added to the benchmark here.
std::vector<Case> Cases(std::uint64_t samples) {
  const auto pool = [samples](std::uint64_t percent) {
    return headrace::OrderParameters{
        {"pool_bytes", static_cast<std::int64_t>(samples * percent / 100)}};
  };
  const auto with_homes = [&pool](std::int64_t homes) {
    headrace::OrderParameters parameters = pool(10);
    parameters.emplace("homes", homes);
    return parameters;
  };
  return {{.name = "exact", .order = "exact"},
          {.name = "batch, rank 0 of 8, no homes", .order = "batch", .world_size = 8},
          {.name = "epoch, pool 5 %", .order = "epoch", .parameters = pool(5)},
          {.name = "epoch, pool 10 %", .order = "epoch", .parameters = pool(10)},
          {.name = "epoch, pool 10 %, rank 0 of 8",
           .order = "epoch",
           .parameters = pool(10),
           .world_size = 8},
          {.name = "epoch, pool 10 %, node 0 of 3",
           .order = "epoch",
           .parameters = with_homes(3),
           .world_size = 3,
           .exchange = true},
          {.name = "redox", .order = "redox"},
          {.name = "redox, 4 nodes, window 5500",
           .order = "redox",
           .parameters = {{"nodes", 4}, {"prefetch", 5500}},
           .world_size = 4}};
}

// Of the processor: a planner waits for nothing, and others may be busy on the machine.
double Seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double ResidentBytes() {
  double total = 0;
  double resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

struct Figures {
  double plan_ns = 0;         // a sample of the dataset
  double row_ns = 0;          // a row of this rank's
  double replay_ns = 0;       // a sample of the dataset that lies before the position entered
  double first_step_s = 0;    // from making the order to its first step
  double resident_bytes = 0;  // what the order added
};

Figures Measure(const Case& each, std::uint64_t samples) {
  const OrderFactory& factory = *headrace::Orders().Find(each.order);
  OrderRequest request{.parameters = each.parameters};
  request.job = {.sample_count = samples,
                 .batch_size = kBatch / each.world_size,
                 .world_size = each.world_size,
                 .exchange = each.exchange,
                 .seed = 7};
  request.blocks = headrace::MakeUniformBlocks(samples, kBlockSamples);
  const auto make = [&](Position start) {
    auto made = factory.Make(request, start);
    if (!made.ok()) {
      std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
      std::exit(1);  // NOLINT(concurrency-mt-unsafe): one thread
    }
    return std::move(made).value();
  };
  const std::uint64_t steps = headrace::StepsPerEpoch(request.job).value();
  Figures figures;
  malloc_trim(0);
  const double before = ResidentBytes();
  double begin = Seconds();
  std::unique_ptr<Order> order = make({});
  (void)order->Next();
  figures.first_step_s = Seconds() - begin;
  std::uint64_t rows = 0;
  begin = Seconds();
  for (std::uint64_t i = 1; i < steps + steps / 2; ++i) rows += order->Next()->deliveries.size();
  figures.row_ns = (Seconds() - begin) * 1e9 / static_cast<double>(rows);
  figures.plan_ns = figures.row_ns / each.world_size;
  figures.resident_bytes = ResidentBytes() - before;
  order.reset();
  begin = Seconds();
  order = make({.epoch = 1, .step = steps - 1});
  (void)order->Next();
  figures.replay_ns = (Seconds() - begin) * 1e9 / static_cast<double>(samples);
  return figures;
}

}  // namespace

int main(int argc, char** argv) {
  headrace::RegisterPapers();
  std::uint64_t samples = 10'000'000;
  std::string order;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (std::strcmp(argv[i], "--order") == 0 && i + 1 < argc) {
      order = argv[++i];
    } else {
      samples = std::strtoull(argv[i], nullptr, 10);
    }
  }
  if (samples < 100'000) {
    std::fprintf(stderr, "usage: planner_bench [samples, at least 100000] [--order O] [--json]\n");
    return 2;
  }
  if (!json) {
    std::printf("%-30s %14s %8s %14s %12s %11s\n", "order", "plan ns/sample", "ns/row", "replay ns",
                "first step s", "memory MiB");
  }
  for (const Case& each : Cases(samples)) {
    if (!order.empty() && each.order != order && each.name != order) continue;
    const Figures f = Measure(each, samples);
    if (json) {
      std::printf(
          "{\"order\": \"%s\", \"samples\": %llu, \"plan_ns_per_sample\": %.2f, "
          "\"plan_ns_per_row\": %.2f, \"replay_ns_per_sample\": %.2f, \"first_step_s\": %.4f, "
          "\"resident_bytes\": %.0f}\n",
          each.name.c_str(), static_cast<unsigned long long>(samples), f.plan_ns, f.row_ns,
          f.replay_ns, f.first_step_s, f.resident_bytes);
    } else {
      std::printf("%-30s %14.1f %8.1f %14.1f %12.3f %11.1f\n", each.name.c_str(), f.plan_ns,
                  f.row_ns, f.replay_ns, f.first_step_s, f.resident_bytes / (1 << 20));
    }
  }
  return 0;
}
