#include "plan/order_factory.h"

#include <fmt/core.h>

#include <bit>
#include <span>
#include <utility>

#include "base/format/errors.h"
#include "base/hash.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

constexpr std::string_view kBijectionFrom = "bijection_from";

std::string TextOf(const OrderParameter& value) {
  const auto* word = std::get_if<std::string>(&value);
  return word != nullptr ? *word : fmt::format("{}", std::get<std::int64_t>(value));
}

}  // namespace

Registry<OrderFactory>& Orders() {
  static Registry<OrderFactory> orders(
      "order", {&ExactOrderFactory(), &BatchOrderFactory(), &EpochOrderFactory()});
  return orders;
}

Result<std::map<std::string, ParameterOrigin>> ParameterOrigins(const OrderFactory& factory,
                                                                const OrderRequest& request) {
  HEADRACE_ASSIGN_OR_RETURN(const OrderParameters resolved, factory.Resolve(request));
  OrderRequest roomy = request;
  roomy.rank_units.reset();
  HEADRACE_ASSIGN_OR_RETURN(const OrderParameters useful, factory.Resolve(roomy));
  std::map<std::string, ParameterOrigin> origins;
  for (const auto& [name, value] : resolved) {
    ParameterOrigin origin = ParameterOrigin::kGiven;
    if (!request.parameters.contains(name)) {
      origin = useful.at(name) == value ? ParameterOrigin::kDefault : ParameterOrigin::kMemory;
    }
    origins.emplace(name, origin);
  }
  return origins;
}

std::uint32_t GivenCount(const OrderParameters& given, std::string_view name,
                         std::uint32_t otherwise) {
  const auto found = given.find(name);
  if (found == given.end()) return otherwise;
  const auto* const value = std::get_if<std::int64_t>(&found->second);
  const bool counts = value != nullptr && *value >= 1 && *value <= 0xffff'ffff;
  return counts ? static_cast<std::uint32_t>(*value) : otherwise;
}

std::uint64_t BijectionFrom(const OrderParameters& resolved) {
  return static_cast<std::uint64_t>(std::get<std::int64_t>(resolved.find(kBijectionFrom)->second));
}

std::string TableHash(const SampleTable& table) {
  static_assert(std::endian::native == std::endian::little, "hashes are of little-endian numbers");
  if (!table) return "none";
  constexpr std::string_view kDigits = "0123456789abcdef";
  const std::uint64_t hash = Hash64(std::as_bytes(std::span(*table)));
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text.push_back(kDigits[hash >> shift & 0xf]);
  return text;
}

const OrderParameter* ParameterReader::Given(std::string_view name) const {
  const auto found = given_.find(name);
  return found == given_.end() ? nullptr : &found->second;
}

void ParameterReader::Mistake(StatusCode code, std::string_view name, const std::string& what) {
  if (!status_.ok()) return;
  status_ = Status(code, fmt::format("{} of order {}: {}", name, order_, what));
}

std::int64_t ParameterReader::Integer(std::string_view name, std::int64_t default_value,
                                      std::int64_t least, std::int64_t most) {
  std::int64_t value = default_value;
  if (const OrderParameter* given = Given(name)) {
    const auto* number = std::get_if<std::int64_t>(given);
    if (number == nullptr) {
      Mistake(StatusCode::kInvalidArgument, name,
              "got '" + std::get<std::string>(*given) + "', must be a whole number");
    } else if (*number < least || *number > most) {
      Mistake(StatusCode::kInvalidArgument, name,
              fmt::format("got {}, must be in [{}, {}]", *number, least, most));
    } else {
      value = *number;
    }
  }
  read_.insert_or_assign(std::string(name), value);
  return value;
}

std::size_t ParameterReader::Choice(std::string_view name,
                                    std::span<const std::string_view> choices) {
  std::size_t chosen = 0;
  if (const OrderParameter* given = Given(name)) {
    const std::string got = TextOf(*given);
    std::string all;
    bool known = false;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      all.append(i == 0 ? "'" : ", '").append(choices[i]).append("'");
      if (got == choices[i]) {
        chosen = i;
        known = true;
      }
    }
    if (!known) {
      Mistake(StatusCode::kInvalidArgument, name,
              fmt::format("got '{}', must be one of {}", got, all));
    }
  }
  read_.insert_or_assign(std::string(name), std::string(choices[chosen]));
  return chosen;
}

std::uint64_t ParameterReader::BijectionFrom() {
  return static_cast<std::uint64_t>(
      Integer(kBijectionFrom, static_cast<std::int64_t>(OrderOptions{}.bijection_from), 1,
              static_cast<std::int64_t>(Permutation::kTableMax + 1)));
}

void ParameterReader::Computed(std::string_view name, std::string value) {
  if (const OrderParameter* given = Given(name);
      given != nullptr && *given != OrderParameter(value)) {
    Mistake(StatusCode::kFailedPrecondition, name,
            fmt::format("differs from the given parameters: given {}, now {}; use the inputs that "
                        "they were made with, or start without these parameters",
                        TextOf(*given), value));
  }
  read_.insert_or_assign(std::string(name), std::move(value));
}

Result<OrderParameters> ParameterReader::Finish() const {
  HEADRACE_RETURN_IF_ERROR(status_);
  for (const auto& [name, value] : given_) {
    if (read_.contains(name)) continue;
    std::string has;
    for (const auto& [known, unused] : read_) has.append(has.empty() ? "" : ", ").append(known);
    return InvalidArgument("order {}: has no parameter '{}'; it has {}", order_, name,
                           has.empty() ? "none" : has);
  }
  return read_;
}

}  // namespace headrace
