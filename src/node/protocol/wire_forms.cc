#include "node/protocol/wire_forms.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace headrace {
namespace {

// A parameter as it travels: one of the two is not used.
struct WireParameter {
  std::string name;
  bool is_text = false;
  std::int64_t number = 0;
  std::string text;
};
HEADRACE_MEMBERS(WireParameter, name, is_text, number, text)

template <typename Codec, typename Hello>
void HelloFields(Codec& codec, Hello& hello) {
  codec(hello.library, hello.role, hello.pid, hello.rank);
}

template <typename Codec, typename Field>
void SchemaFields(Codec& codec, Field& field) {
  codec(field.name, field.dtype, field.shape, field.ragged, field.is_text, field.row_bytes);
}

// A list that is empty leaves `made` as it is: without limit.
template <typename T, typename Point>
void TakeMade(WireTake& codec, T& made) {
  std::vector<Point> points;
  codec(points);
  if (!codec.ok() || points.empty()) return;
  Result<T> taken = T::Make(std::move(points));
  if (!taken.ok()) return codec.Refuse(taken.status().message());
  made = std::move(taken).value();
}

}  // namespace

template <>
inline constexpr std::size_t kWireListMax<WireParameter> = 1024;

void Fields(WirePut& codec, const ClientHello& hello) {
  codec(hello.protocol);
  if (hello.protocol == kNodeProtocol) HelloFields(codec, hello);
}
void Fields(WireTake& codec, ClientHello& hello) {
  codec(hello.protocol);
  if (hello.protocol != kNodeProtocol) return codec.Skip();
  HelloFields(codec, hello);
}

void Fields(WirePut& codec, const BatchField& field) { SchemaFields(codec, field); }
void Fields(WireTake& codec, BatchField& field) { SchemaFields(codec, field); }

void Fields(WirePut& codec, const OrderParameters& parameters) {
  std::vector<WireParameter> list;
  for (const auto& [name, value] : parameters) {
    WireParameter& each = list.emplace_back();
    each.name = name;
    each.is_text = std::holds_alternative<std::string>(value);
    if (each.is_text) {
      each.text = std::get<std::string>(value);
    } else {
      each.number = std::get<std::int64_t>(value);
    }
  }
  codec(list);
}
void Fields(WireTake& codec, OrderParameters& parameters) {
  std::vector<WireParameter> list;
  codec(list);
  parameters.clear();
  for (WireParameter& each : list) {
    if (each.is_text) {
      parameters[std::move(each.name)] = std::move(each.text);
    } else {
      parameters[std::move(each.name)] = each.number;
    }
  }
}

void Fields(WirePut& codec, const Curve& curve) {
  codec(std::vector(curve.points().begin(), curve.points().end()));
}
void Fields(WireTake& codec, Curve& curve) { TakeMade<Curve, Curve::Point>(codec, curve); }

void Fields(WirePut& codec, const SizedRates& rates) {
  codec(std::vector(rates.sizes().begin(), rates.sizes().end()));
}
void Fields(WireTake& codec, SizedRates& rates) {
  TakeMade<SizedRates, SizedRates::Size>(codec, rates);
}

}  // namespace headrace
