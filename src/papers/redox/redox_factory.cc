// The `redox` order among all orders: its parameters by name.

#include <array>
#include <string_view>

#include "base/check.h"
#include "base/format/errors.h"
#include "papers/redox/redox_order.h"
#include "papers/redox/redox_sizes.h"
#include "plan/order_factory.h"

namespace headrace {
namespace {

constexpr std::int64_t kCountMax = 0x7fff'ffff;
constexpr std::string_view kName = "redox";
constexpr std::int64_t kRedoxNodesMax = 4096;
constexpr std::int64_t kBytesMax = std::int64_t{1} << 60;

class RedoxFactory final : public OrderFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return kName; }
  [[nodiscard]] bool reads_blocks() const override { return true; }
  [[nodiscard]] std::uint32_t exchanging_nodes(const OrderParameters& given) const override {
    return GivenCount(given, "nodes", 1);
  }
  [[nodiscard]] const OrderFactory* reproduces_requests_of() const override {
    return &ExactOrderFactory();
  }

  [[nodiscard]] std::optional<std::uint64_t> BlockSamples(const BlockFacts& facts) const override {
    return ChooseRedoxChunk(facts);
  }

  [[nodiscard]] Result<OrderParameters> Resolve(const OrderRequest& request) const override {
    OrderParameters resolved;
    HEADRACE_ASSIGN_OR_RETURN(const RedoxOrderOptions options, Read(request, resolved));
    HEADRACE_RETURN_IF_ERROR(RedoxResidentUnits(options).status());
    return resolved;
  }
  [[nodiscard]] Result<std::uint64_t> ResidentUnits(const OrderRequest& request) const override {
    OrderParameters resolved;
    HEADRACE_ASSIGN_OR_RETURN(const RedoxOrderOptions options, Read(request, resolved));
    return RedoxResidentUnits(options);
  }
  [[nodiscard]] Result<std::unique_ptr<Order>> Make(const OrderRequest& request,
                                                    Position start) const override {
    OrderParameters resolved;
    HEADRACE_ASSIGN_OR_RETURN(const RedoxOrderOptions options, Read(request, resolved));
    return MakeRedoxOrder(options, start);
  }

 private:
  static Result<RedoxOrderOptions> Read(const OrderRequest& request, OrderParameters& resolved) {
    constexpr std::array<std::string_view, 2> kMappings = {"consecutive", "interleaved"};
    constexpr std::array<std::string_view, 2> kRefills = {"max_fill", "random"};
    constexpr std::array<std::string_view, 2> kTies = {"random", "first"};
    constexpr std::array<std::string_view, 2> kReads = {"kept", "chunk"};
    constexpr std::array<std::string_view, 2> kFramings = {"one", "split"};
    HEADRACE_CHECK(request.blocks != nullptr);
    if (!request.job.shuffle) {
      return InvalidArgument(
          "order redox: shuffle=False, but slots give whichever sample of theirs is in memory; use "
          "order 'exact' to have them in sequence, or shuffle=True");
    }
    ParameterReader reader(kName, request.parameters);
    const auto integer = [&](std::string_view name, std::int64_t otherwise, std::int64_t least,
                             std::int64_t most) {
      return static_cast<std::uint64_t>(reader.Integer(name, otherwise, least, most));
    };
    const auto count = [&](std::string_view name, std::int64_t otherwise, std::int64_t least,
                           std::int64_t most = kCountMax) {
      return static_cast<std::uint32_t>(integer(name, otherwise, least, most));
    };
    RedoxOrderOptions options;
    options.job = request.job;
    options.job.bijection_from = reader.BijectionFrom();
    options.blocks = request.blocks;
    options.prefetch = count("prefetch", 0, 0);
    const RedoxSizes sizes = ChooseRedoxSizes(RoomOf(request, options.prefetch));
    options.chunks_per_virtual = count("chunks_per_virtual", sizes.chunks_per_virtual, 1);
    options.mapping =
        RedoxOrderOptions::Mapping{static_cast<std::uint8_t>(reader.Choice("mapping", kMappings))};
    options.refill =
        RedoxOrderOptions::Refill{static_cast<std::uint8_t>(reader.Choice("refill", kRefills))};
    options.ties = RedoxOrderOptions::Ties{static_cast<std::uint8_t>(reader.Choice("ties", kTies))};
    options.read =
        RedoxOrderOptions::Reading{static_cast<std::uint8_t>(reader.Choice("read", kReads))};
    options.framing =
        RedoxOrderOptions::Framing{static_cast<std::uint8_t>(reader.Choice("framing", kFramings))};
    options.remap = reader.Integer("remap", 0, 0, 1) != 0;
    options.arrival = reader.Integer("arrival", 0, 0, 1) != 0;
    const bool fill_ahead = reader.Integer("fill_ahead", 0, 0, 1) != 0;
    options.homes = request.homes;
    reader.Computed("home_table", TableHash(request.homes));
    options.slot_classes = count("slot_classes", 0, 0);
    options.nodes = count("nodes", request.job.nodes(), 1, kRedoxNodesMax);
    const std::uint64_t remote_bytes = integer(
        "remote_bytes",
        static_cast<std::int64_t>(sizes.remote_units * request.blocks->unit_bytes()), 0, kBytesMax);
    const std::uint64_t memory_bytes = integer("memory_bytes", 0, 0, kBytesMax);
    HEADRACE_ASSIGN_OR_RETURN(resolved, reader.Finish());
    if (fill_ahead) {
      return InvalidArgument(
          "fill_ahead of order redox: got 1, but slots filled before an epoch begins make its "
          "order "
          "depend on all epochs before, so that no state could be continued without planning "
          "these; "
          "leave it 0: the loader reads ahead into the next epoch as soon as memory is free");
    }
    HEADRACE_ASSIGN_OR_RETURN(options.remote_units,
                              Units("remote_bytes", remote_bytes, *request.blocks));
    HEADRACE_ASSIGN_OR_RETURN(options.memory_units,
                              Units("memory_bytes", memory_bytes, *request.blocks));
    return options;
  }

  static RedoxRoom RoomOf(const OrderRequest& request, std::uint32_t prefetch) {
    RedoxRoom room;
    room.total_units = request.blocks->total_units();
    room.block_count = request.blocks->block_count();
    room.nodes = request.job.nodes();
    room.sends_along = room.nodes > 1 && prefetch > 1;
    if (request.rank_units.has_value()) room.room_units = *request.rank_units * request.job.ranks;
    return room;
  }

  // Whole units: a fraction of a unit could not be used.
  static Result<std::uint64_t> Units(std::string_view name, std::uint64_t bytes,
                                     const BlockMap& blocks) {
    const std::uint64_t unit = blocks.unit_bytes();
    if (bytes != 0 && bytes < unit) {
      return InvalidArgument(
          "{} of order redox: got {}, must be 0 (no limit) or at least {}, the bytes in which "
          "memory is counted",
          name, bytes, unit);
    }
    return bytes / unit;
  }
};

}  // namespace

const OrderFactory& RedoxOrderFactory() {
  static const RedoxFactory factory;
  return factory;
}

}  // namespace headrace
