#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headrace/status.h"
#include "reading.h"

namespace headrace {

// When a cell has enough readings: when the range of its last five, (max - min) / median, is small.
struct Protocol {
  int rounds = 20;         // at most. Fewer than five: each reading is taken as it is
  double range_max = 0.1;  // of the median
};

inline constexpr std::size_t kReadingsThatSettle = 5;

enum class CellState : std::uint8_t {
  kSettled,    // the last readings agree
  kReading,    // fewer rounds than it takes to settle were asked for
  kDiscarded,  // the readings do not agree: there is no figure
  kFailed,     // not measured
};

// One way of reading, at one load.
struct Cell {
  std::string name;
  std::function<Result<Reading>()> measure;

  std::vector<Reading> readings = {};
  Status failure = {};
};

// Ways of reading side by side.
struct Row {
  std::string phase;    // "cold", "warm", "memory"
  std::string pattern;  // "random", "sequential"
  Load load;
  std::vector<Cell> cells;
  std::string bare;  // the cell that `store` is compared with
};

// A cell's result: medians of its last readings.
struct Figure {
  CellState state = CellState::kFailed;
  Reading median;    // of kSettled and kReading
  double range = 0;  // (max - min) / median of their rates
};
[[nodiscard]] Figure FigureOf(const Cell& cell, const Protocol& protocol);

// How much of the bare cell's rate `store` reaches: the median over the rounds that have both.
[[nodiscard]] std::optional<double> StoreShare(const Row& row);

// Measures all cells of all rows in turn, round by round, in alternating directions. A cell that
// has settled or failed is left out. Calls `progress` with each round's number, from 1.
void MeasureRows(std::vector<Row>& rows, const Protocol& protocol,
                 const std::function<void(int round)>& progress);

// One line a row.
[[nodiscard]] std::string TableOf(const std::vector<Row>& rows, const Protocol& protocol);

// A JSON array of objects.
[[nodiscard]] std::string JsonOf(const std::vector<Row>& rows, const Protocol& protocol);

// `text` in quotes.
[[nodiscard]] std::string JsonText(const std::string& text);

}  // namespace headrace
