#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "base/registry/registry.h"
#include "plan/placement/placement.h"

namespace headrace {

// How a node decides which other node it asks for a block: as the placement says, which names the
// nodes that are to have it; or by a guess of what they have already. A row of AskPolicies().
class AskPolicy {
 public:
  // The samples that this node was to insert into its tiers and that have come, modulo 2^32.
  using Filled = std::function<std::uint32_t()>;
  // Makes a placement that plans as `inner` does, and names another node as a source only where it
  // guesses that the block is there. `inner` was made with PlacementRequest::numbers_inserts, for
  // `node`.
  using MakeGuess = std::unique_ptr<Placement> (*)(std::unique_ptr<Placement> inner,
                                                   std::uint32_t node, Filled filled);

  // `make` may be null: nodes ask as the placement says.
  AskPolicy(std::string_view name, MakeGuess make) : name_(name), make_(make) {}

  [[nodiscard]] std::string_view name() const { return name_; }
  // Whether nodes guess. Then a node that is asked gives only what it has; otherwise it reads what
  // the plan says it has from storage, for the one that asks.
  [[nodiscard]] bool guesses() const { return make_ != nullptr; }
  // Only if it guesses.
  [[nodiscard]] std::unique_ptr<Placement> Guess(std::unique_ptr<Placement> inner,
                                                 std::uint32_t node, Filled filled) const {
    return make_(std::move(inner), node, std::move(filled));
  }

 private:
  const std::string_view name_;
  const MakeGuess make_;
};

// By the placement alone is the default.
Registry<AskPolicy>& AskPolicies();

}  // namespace headrace
