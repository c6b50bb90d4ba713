#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "papers/redox/redox_layout.h"
#include "papers/redox/redox_order.h"
#include "papers/redox/redox_places.h"
#include "plan/order.h"

namespace headrace {

// What one node reads, sends and expects under the `redox` order, where each home reads its own
// chunks only. It receives all events of all nodes, in the order of the protocol, and adds its
// node's part to the step.
//
// A sample is resident at one node at a time. Reads and parcels are numbered as the events come, so
// in the order of events a stream never holds more than RedoxResidentUnits().
//
// Memory: 4 bytes a sample.
// Thread safety: none.
class RedoxNodeStream {
 public:
  RedoxNodeStream(const RedoxOrderOptions& options, std::shared_ptr<const RedoxLayout> layout);

  // The stream begins with these in memory, by read, then sample: their homes read them again, and
  // send those that were sent along in one parcel to each node.
  void Enter(std::vector<RedoxHeld> residents, Step& step);
  // `home` reads a chunk and keeps these positions of it, in any order.
  void Read(std::uint32_t home, std::uint32_t chunk, std::span<const std::uint32_t> kept,
            Step& step);
  // `home` sends `node` the answer to a request, and other samples along with it: in one parcel, or
  // in one after it.
  void Send(std::uint32_t home, std::uint32_t node, std::uint32_t answer,
            std::span<const RedoxResident> along, Step& step);
  // `node` takes a sample that it has. The number of the read or parcel that brought it, if the
  // stream is that node's.
  std::optional<std::uint64_t> Take(std::uint32_t node, std::uint32_t sample, bool sent_along);
  // `node` takes a sample that nobody has in memory: the number of the parcel that brings it, or
  // kNoBlockRead if the stream's node reads it alone; nothing if the stream is another node's.
  std::optional<std::uint64_t> TakeAnew(std::uint32_t node, std::uint32_t sample, Step& step);

  // Of the epoch that begins. The homes of samples stay.
  void SetLayout(std::shared_ptr<const RedoxLayout> layout) { layout_ = std::move(layout); }

  [[nodiscard]] std::uint32_t node() const { return node_; }
  [[nodiscard]] std::uint64_t read_again() const { return read_again_; }

  // Parcels, reads and memory of this node.
  void AddCounters(double unit_bytes, std::map<std::string, double>& counters) const;

 private:
  // Adds reads of these samples, ascending, to the step.
  void ReadAgain(std::span<const std::uint32_t> samples, Step& step);
  // Of samples in any order.
  void Pass(std::uint32_t home, std::uint32_t node, std::span<std::uint32_t> samples, bool ahead,
            Step& step);
  Parcel& SendParcel(std::uint32_t to, std::span<const std::uint32_t> samples, Step& step);
  void ExpectParcel(std::uint32_t home, std::span<const std::uint32_t> samples, bool again,
                    Step& step);
  void Keep(std::uint32_t sample);
  std::uint64_t Drop(std::uint32_t sample);

  std::shared_ptr<const RedoxLayout> layout_;
  const std::uint32_t node_;
  const std::uint32_t nodes_;
  const bool whole_;
  const bool split_;

  std::uint64_t issued_ = 0;              // reads of the stream
  std::vector<std::uint64_t> next_to_;    // parcels, by node
  std::vector<std::uint64_t> next_from_;  // parcels, by home
  std::vector<std::uint32_t> kept_by_;    // of resident samples: its read, modulo 2^32
  std::vector<std::uint32_t> samples_;    // of the parcel that is being made

  std::uint64_t units_ = 0;        // resident here
  std::uint64_t along_units_ = 0;  // of these, sent along and not yet requested
  std::uint64_t peak_units_ = 0;
  std::uint64_t peak_along_units_ = 0;
  std::uint64_t chunk_reads_ = 0;
  std::uint64_t read_again_ = 0;
  std::uint64_t parcels_sent_ = 0;
  std::uint64_t parcels_sent_ahead_ = 0;  // of these, what goes along, with `split_`
  std::uint64_t parcels_received_ = 0;
  std::uint64_t samples_sent_ = 0;
  std::uint64_t units_sent_ = 0;
};

}  // namespace headrace
