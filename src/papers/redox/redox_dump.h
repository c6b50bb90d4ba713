#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "papers/redox/redox_layout.h"
#include "papers/redox/redox_protocol.h"

namespace headrace {

// The state of the `redox` protocol in the papers' terms (Redox, table 3), as one JSON object:
// files, virtual chunks, physical chunks and, with a window, the prefetch buffers. For
// debugging. `asks` has the position of the request for each sample, kNotAsked for none.
//
// Memory: some 100 bytes a sample.
struct RedoxDump {
  static constexpr std::uint64_t kNotAsked = ~std::uint64_t{0};

  const RedoxLayout& layout;
  const RedoxProtocol& protocol;
  const std::vector<std::uint64_t>& asks;
  std::uint32_t nodes = 1;

  [[nodiscard]] std::string Json() const;

  [[nodiscard]] const RedoxPlaces& places() const { return protocol.places_; }
  [[nodiscard]] const RedoxChooser& chooser() const { return protocol.chooser_; }
  [[nodiscard]] const std::optional<RedoxWindow>& window() const { return protocol.window_; }
};

}  // namespace headrace
