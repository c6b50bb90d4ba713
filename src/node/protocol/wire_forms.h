#pragma once

// How types that are not described (headrace/members.h) lie in the messages of a node: see
// wire_codec.h.

#include "engine/loop/engine_options.h"
#include "headrace/batch.h"
#include "headrace/loader_options.h"
#include "node/protocol/messages.h"
#include "node/protocol/wire_codec.h"

namespace headrace {

template <>
struct WireChoice<EncodedImages> {
  static constexpr EncodedImages kLast = EncodedImages::kDecodableOrOtherKind;
};
template <>
struct WireChoice<OnError> {
  static constexpr OnError kLast = OnError::kSubstitute;
};
template <>
struct WireChoice<MixtureEnd> {
  static constexpr MixtureEnd kLast = MixtureEnd::kAll;
};
template <>
struct WireChoice<DType> {
  static constexpr DType kLast = DType::kBool;
};
template <>
struct WireChoice<NodeRole> {
  static constexpr NodeRole kLast = NodeRole::kRank;
};

template <>
inline constexpr std::size_t kWireListMax<LoaderField> = 4096;
template <>
inline constexpr std::size_t kWireListMax<TierSpec> = 1024;
template <>
inline constexpr std::size_t kWireListMax<TierModel> = 1024;
template <>
inline constexpr std::size_t kWireListMax<Curve::Point> = 4096;
template <>
inline constexpr std::size_t kWireListMax<SizedRates::Size> = 4096;

// Of another protocol only its number.
void Fields(WirePut& codec, const ClientHello& hello);
void Fields(WireTake& codec, ClientHello& hello);

// Without the codec, which is the node's: who reads one has fields that look inline.
void Fields(WirePut& codec, const BatchField& field);
void Fields(WireTake& codec, BatchField& field);

void Fields(WirePut& codec, const OrderParameters& parameters);
void Fields(WireTake& codec, OrderParameters& parameters);

void Fields(WirePut& codec, const Curve& curve);
void Fields(WireTake& codec, Curve& curve);

void Fields(WirePut& codec, const SizedRates& rates);
void Fields(WireTake& codec, SizedRates& rates);

}  // namespace headrace
