#include "rounds.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/units.h"

namespace headrace {
namespace {

constexpr double kMegabyte = 1e6;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The last readings, as many as must agree.
std::vector<double> Last(const Cell& cell, double Reading::*value) {
  const std::size_t count = std::min(cell.readings.size(), kReadingsThatSettle);
  std::vector<double> values;
  for (std::size_t i = cell.readings.size() - count; i < cell.readings.size(); ++i) {
    values.push_back(cell.readings[i].*value);
  }
  return values;
}

std::string_view NameOf(CellState state) {
  switch (state) {
    case CellState::kSettled:
      return "settled";
    case CellState::kReading:
      return "reading";
    case CellState::kDiscarded:
      return "discarded";
    case CellState::kFailed:
      return "failed";
  }
  return "";
}

bool Done(const Cell& cell, const Protocol& protocol) {
  const CellState state = FigureOf(cell, protocol).state;
  return !cell.failure.ok() || (!cell.readings.empty() && state == CellState::kSettled);
}

std::string SizeText(std::uint64_t bytes) {
  if (bytes % kMiB == 0) return fmt::format("{} MiB", bytes / kMiB);
  return fmt::format("{} KiB", bytes / kKiB);
}

std::string TextOf(const Cell& cell, const Protocol& protocol) {
  const Figure figure = FigureOf(cell, protocol);
  switch (figure.state) {
    case CellState::kSettled:
    case CellState::kReading:
      return fmt::format("{:.0f} MB/s", figure.median.bytes_per_second / kMegabyte);
    case CellState::kDiscarded:
      return fmt::format("discarded ({:.0f} %)", 100 * figure.range);
    case CellState::kFailed:
      return "failed";
  }
  return "";
}

std::string JsonOf(const Cell& cell, const Protocol& protocol) {
  const Figure figure = FigureOf(cell, protocol);
  std::string text = fmt::format("{{\"state\": \"{}\"", NameOf(figure.state));
  if (figure.state == CellState::kSettled || figure.state == CellState::kReading) {
    text += fmt::format(
        ", \"MB_per_s\": {:.1f}, \"blocks_per_s\": {:.1f}, \"cpu_us_per_block\": {:.3f}",
        figure.median.bytes_per_second / kMegabyte, figure.median.operations_per_second,
        figure.median.cpu_us_per_operation);
  }
  if (figure.state == CellState::kFailed) {
    return text + fmt::format(", \"reason\": {}}}", JsonText(std::string(cell.failure.message())));
  }
  text += fmt::format(", \"range\": {:.4f}, \"readings_MB_per_s\": [", figure.range);
  for (std::size_t i = 0; i < cell.readings.size(); ++i) {
    text +=
        fmt::format("{}{:.1f}", i == 0 ? "" : ", ", cell.readings[i].bytes_per_second / kMegabyte);
  }
  return text + "]}";
}

}  // namespace

Figure FigureOf(const Cell& cell, const Protocol& protocol) {
  Figure figure;
  if (!cell.failure.ok() || cell.readings.empty()) return figure;
  const std::vector<double> rates = Last(cell, &Reading::bytes_per_second);
  const auto [min, max] = std::minmax_element(rates.begin(), rates.end());
  figure.median.bytes_per_second = Median(rates);
  figure.median.operations_per_second = Median(Last(cell, &Reading::operations_per_second));
  figure.median.cpu_us_per_operation = Median(Last(cell, &Reading::cpu_us_per_operation));
  figure.range = (*max - *min) / figure.median.bytes_per_second;
  if (protocol.rounds < static_cast<int>(kReadingsThatSettle)) {
    figure.state = CellState::kReading;
  } else {
    const bool settled = rates.size() == kReadingsThatSettle && figure.range <= protocol.range_max;
    figure.state = settled ? CellState::kSettled : CellState::kDiscarded;
  }
  return figure;
}

std::optional<double> StoreShare(const Row& row) {
  const auto cell_of = [&row](std::string_view name) -> const Cell* {
    const auto found = std::find_if(row.cells.begin(), row.cells.end(),
                                    [name](const Cell& cell) { return cell.name == name; });
    return found == row.cells.end() ? nullptr : &*found;
  };
  const Cell* const store = cell_of("store");
  const Cell* const bare = cell_of(row.bare);
  if (store == nullptr || bare == nullptr) return std::nullopt;
  std::vector<double> shares;
  for (std::size_t i = 0; i < std::min(store->readings.size(), bare->readings.size()); ++i) {
    shares.push_back(store->readings[i].bytes_per_second / bare->readings[i].bytes_per_second);
  }
  if (shares.empty()) return std::nullopt;
  return Median(std::move(shares));
}

void MeasureRows(std::vector<Row>& rows, const Protocol& protocol,
                 const std::function<void(int round)>& progress) {
  for (int round = 1; round <= protocol.rounds; ++round) {
    bool measured = false;
    for (Row& row : rows) {
      for (std::size_t i = 0; i < row.cells.size(); ++i) {
        Cell& cell = row.cells[round % 2 != 0 ? i : row.cells.size() - 1 - i];
        if (Done(cell, protocol)) continue;
        if (!std::exchange(measured, true)) progress(round);
        Result<Reading> reading = cell.measure();
        if (reading.ok()) {
          cell.readings.push_back(reading.value());
        } else {
          cell.failure = reading.status();
        }
      }
    }
    if (!measured) return;
  }
}

std::string TableOf(const std::vector<Row>& rows, const Protocol& protocol) {
  std::string text;
  const Row* before = nullptr;
  for (const Row& row : rows) {
    if (before == nullptr || before->phase != row.phase) {
      text += fmt::format("{}{:<8}{:<12}{:>9}{:>7}{:>9}", before == nullptr ? "" : "\n", row.phase,
                          "pattern", "block", "depth", "threads");
      for (const Cell& cell : row.cells) text += fmt::format("{:>18}", cell.name);
      text += row.bare.empty() ? "\n" : fmt::format("{:>15}\n", "store/" + row.bare);
    }
    before = &row;
    text +=
        fmt::format("{:<8}{:<12}{:>9}{:>7}{:>9}", "", row.pattern, SizeText(row.load.block_bytes),
                    row.load.depth == 0 ? "-" : std::to_string(row.load.depth), row.load.threads);
    for (const Cell& cell : row.cells) text += fmt::format("{:>18}", TextOf(cell, protocol));
    if (const std::optional<double> share = StoreShare(row))
      text += fmt::format("{:>15.3f}", *share);
    text += "\n";
    for (const Cell& cell : row.cells) {
      if (cell.failure.ok()) continue;
      text += fmt::format("{:<8}{}: {}\n", "", cell.name, cell.failure.ToString());
    }
  }
  return text;
}

std::string JsonOf(const std::vector<Row>& rows, const Protocol& protocol) {
  std::string text = "[";
  for (const Row& row : rows) {
    if (text.size() > 1) text += ",";
    text += fmt::format(
        "\n  {{\"phase\": \"{}\", \"pattern\": \"{}\", \"block_bytes\": {}, \"depth\": {}, "
        "\"threads\": {}",
        row.phase, row.pattern, row.load.block_bytes, row.load.depth, row.load.threads);
    if (const std::optional<double> share = StoreShare(row)) {
      text += fmt::format(", \"store_of_{}\": {:.4f}", row.bare, *share);
    }
    text += ", \"cells\": {";
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      const Cell& cell = row.cells[i];
      text +=
          fmt::format("{}\n    \"{}\": {}", i == 0 ? "" : ",", cell.name, JsonOf(cell, protocol));
    }
    text += "}}";
  }
  return text + "]";
}

std::string JsonText(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace headrace
