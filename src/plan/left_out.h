#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/ids.h"
#include "headrace/status.h"
#include "plan/block_map.h"
#include "plan/exact_order.h"
#include "plan/order.h"
#include "plan/order_factory.h"

namespace headrace {

// Samples that a run leaves out, such as those that do not decode. Orders plan without them:
// they know *places*, 0, 1, ..., those of the samples that are left, by number, and what they plan
// is translated into sample numbers afterwards. So no sample has another number than without the
// list, and each order holds for what is left as it does for a dataset.
//
// Thread safety: every method may be called from any thread.
class LeftOut {
 public:
  // `numbers`: ascending, each once; not null.
  //
  // Errors: InvalidArgument  another order
  //         OutOfRange       a number that the dataset does not have
  static Result<std::shared_ptr<const LeftOut>> Make(SampleTable numbers,
                                                     std::uint64_t sample_count);

  [[nodiscard]] std::uint64_t places() const { return sample_count_ - numbers_->size(); }
  // The sample at `place`, which must be below places(). Takes O(log of the list).
  [[nodiscard]] SampleId At(SampleId place) const;
  // The number of places before `sample`, its own one if it has one.
  [[nodiscard]] std::uint64_t PlacesBefore(SampleId sample) const;
  [[nodiscard]] bool Has(SampleId sample) const;

  // By place, of a table with one row a sample, of any width. Null, and a table that has no such
  // rows, stay as they are: orders refuse the latter.
  [[nodiscard]] SampleTable Without(const SampleTable& table) const;

 private:
  LeftOut(SampleTable numbers, std::uint64_t sample_count);

  SampleTable numbers_;
  std::vector<std::uint64_t> places_;  // of each number: the places before it
  std::uint64_t sample_count_;
};

// Whether a list of samples that somebody else decided has none of these; null: none is left out.
//
// Errors: InvalidArgument  it has one
Status CheckNoneLeftOut(const ListOrderOptions& list, const SampleTable& left_out);

// The blocks of what is left, by place: those of `blocks` without the samples, and without blocks
// that have no other. Takes O(samples).
std::shared_ptr<const BlockMap> BlocksWithout(std::shared_ptr<const BlockMap> blocks,
                                              std::shared_ptr<const LeftOut> left_out);

// The steps of `order`, which plans places, in sample numbers. A read spans the samples that are
// left out between those that it keeps.
std::unique_ptr<Order> OrderWithout(std::unique_ptr<Order> order,
                                    std::shared_ptr<const LeftOut> left_out);

}  // namespace headrace
