#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/registry/registry.h"
#include "headrace/order_options.h"
#include "headrace/status.h"
#include "plan/block_map.h"
#include "plan/order.h"

namespace headrace {

class Mixture;

// The inputs of an order.
struct OrderRequest {
  OrderOptions job;
  OrderParameters parameters;              // as given, or as returned by OrderFactory::Resolve()
  std::shared_ptr<const BlockMap> blocks;  // not null for orders that read blocks
  SampleTable homes;                       // nodes of each sample; null: no sample has a home
  SampleTable costs;                       // of each sample, in any unit; null: equal
  // Null: each sample comes once an epoch. Else job.sample_count is its epoch_samples().
  std::shared_ptr<const Mixture> mixture;
  // Units (of `blocks`) that each rank has memory for, if it has a process of its own. Limits the
  // default of a budget_parameter(). std::nullopt: no limit.
  std::optional<std::uint64_t> rank_units;
};

// The origin of a parameter's value.
enum class ParameterOrigin {
  kGiven,    // in OrderRequest::parameters
  kDefault,  // computed from dataset and global batch (and world size: docs/orders.md)
  kMemory,   // a default limited by OrderRequest::rank_units
};

// How much more often two samples of one global batch are of one block than any two of the dataset,
// as a share of what is possible.
struct BatchSharing {
  double mean = 0;   // over whole epochs
  double first = 0;  // while the rest of a run's partial first fill joins
};

// Makes one kind of order. A new order is one new file, with its factory, and one row of Orders().
// Stateless.
//
// Thread safety: every method may be called from any thread.
class OrderFactory {
 public:
  virtual ~OrderFactory() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual bool reads_blocks() const = 0;
  // Whether a run of it may follow a list of samples that somebody else decided.
  [[nodiscard]] virtual bool follows_lists() const { return false; }
  // Whether it looks at OrderRequest::costs.
  [[nodiscard]] virtual bool takes_costs() const { return false; }
  // Whether it follows OrderRequest::mixture.
  [[nodiscard]] virtual bool takes_mixtures() const { return false; }
  // The order whose requests this one answers by other samples; a report of its quality compares
  // the two. Null: there is none.
  [[nodiscard]] virtual const OrderFactory* reproduces_requests_of() const { return nullptr; }
  // The nodes that exchange samples in a run of several nodes (OrderOptions::exchange), by the
  // parameters as given; 1: each node reads all that it delivers.
  [[nodiscard]] virtual std::uint32_t exchanging_nodes(const OrderParameters& /*given*/) const {
    return 1;
  }
  // The name of the parameter that limits the bytes resident in the whole job; empty if there is
  // none. Its default is the useful amount or, if that is less, the memory of the ranks.
  [[nodiscard]] virtual std::string_view budget_parameter() const { return {}; }

  // Samples a block, where neither the user nor the dataset says how many and the machine was
  // measured. std::nullopt: it does not choose by measurements, but as MakeIndexBlocks() does.
  [[nodiscard]] virtual std::optional<std::uint64_t> BlockSamples(
      const BlockFacts& /*facts*/) const {
    return std::nullopt;
  }

  // Every parameter with its value, defaults filled in. Resolving a resolved request changes
  // nothing, on any rank and world size that the job may continue with.
  //
  // Errors: InvalidArgument  an unknown parameter or an invalid value, by name; those of
  //                          StepsPerEpoch
  [[nodiscard]] virtual Result<OrderParameters> Resolve(const OrderRequest& request) const = 0;

  // The most units (of BlockMap) that the stream of request.job's ranks has resident at once.
  //
  // Errors: those of Resolve()
  [[nodiscard]] virtual Result<std::uint64_t> ResidentUnits(const OrderRequest& request) const = 0;

  // Of an order that shuffles (job.shuffle). Nothing: no closed form is known. `resolved` are the
  // parameters as Resolve() gave them.
  [[nodiscard]] virtual std::optional<BatchSharing> ExpectedSharing(
      const OrderRequest& /*resolved*/) const {
    return std::nullopt;
  }

  // Errors: those of Resolve() and CheckStart
  [[nodiscard]] virtual Result<std::unique_ptr<Order>> Make(const OrderRequest& request,
                                                            Position start) const = 0;
};

// The origin of every parameter that Resolve() returns for `request`.
//
// Errors: those of Resolve()
Result<std::map<std::string, ParameterOrigin>> ParameterOrigins(const OrderFactory& factory,
                                                                const OrderRequest& request);

// An integer among parameters as given; `otherwise`, if it is none of them or out of [1, 2^32 - 1].
std::uint32_t GivenCount(const OrderParameters& given, std::string_view name,
                         std::uint32_t otherwise);

// The value of ParameterReader::BijectionFrom() among the parameters that Resolve() returned.
std::uint64_t BijectionFrom(const OrderParameters& resolved);

// From the strictest on; those that were added come last.
Registry<OrderFactory>& Orders();

const OrderFactory& ExactOrderFactory();
const OrderFactory& BatchOrderFactory();
const OrderFactory& EpochOrderFactory();

// What states keep of a table: XXH3-64 of its numbers, 4 bytes each, little-endian, as 16
// hexadecimal digits; "none" without a table.
std::string TableHash(const SampleTable& table);

// Reads an order's parameters, each once, with its default and its bounds. Keeps the first error
// until Finish().
//
// Thread safety: none.
class ParameterReader {
 public:
  ParameterReader(std::string_view order, const OrderParameters& given)
      : order_(order), given_(given) {}

  // An integer in [least, most].
  std::int64_t Integer(std::string_view name, std::int64_t default_value, std::int64_t least,
                       std::int64_t most);

  // The position of the given word among `choices`; the default is the first.
  std::size_t Choice(std::string_view name, std::span<const std::string_view> choices);

  // OrderOptions::bijection_from, a parameter of every order that makes a permutation.
  std::uint64_t BijectionFrom();

  // A word that the order computes. A user may give it, if it is the same.
  //
  // Errors, at Finish(): FailedPrecondition  the given word is a different one
  void Computed(std::string_view name, std::string value);

  // All parameters that were read, with their values.
  //
  // Errors: the first error of the calls above; InvalidArgument  a given parameter that no call
  // read
  Result<OrderParameters> Finish() const;

 private:
  void Mistake(StatusCode code, std::string_view name, const std::string& what);
  const OrderParameter* Given(std::string_view name) const;

  const std::string_view order_;
  const OrderParameters& given_;
  OrderParameters read_;
  Status status_;
};

}  // namespace headrace
