#include "plan/epoch_order.h"

#include "plan/order_factory.h"

namespace headrace {
namespace {

class Factory final : public OrderFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return "epoch"; }
  [[nodiscard]] bool reads_blocks() const override { return true; }

  [[nodiscard]] Result<OrderParameters> Resolve(const OrderRequest& request) const override {
    return request.parameters;
  }
  [[nodiscard]] Result<std::uint64_t> ResidentUnits(
      const OrderRequest& /*request*/) const override {
    return std::uint64_t{0};
  }
  [[nodiscard]] Result<std::unique_ptr<Order>> Make(const OrderRequest& /*request*/,
                                                    Position /*start*/) const override {
    return Status(StatusCode::kFailedPrecondition, "to be built");
  }
};

}  // namespace

const OrderFactory& EpochOrderFactory() {
  static const Factory factory;
  return factory;
}

}  // namespace headrace
