#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "sim/sim_loop.h"

namespace headrace {

// Transfers of bytes in virtual time that share a resource: storage that all nodes read, a link, a
// tier. While transfers begin and end, the rate of those under way changes with their number
// (processor sharing).
//
// Thread safety: none; a simulation is one thread.
// Shutdown: drained by running the loop; must have no transfer left when destroyed.
class SharedRate {
 public:
  // Bytes a second of each transfer of a user that has `transfers` of them, while `users` have
  // some. Both are above 0, and so is the rate.
  using EachRate = std::function<double(std::uint32_t users, std::uint64_t transfers)>;

  SharedRate(SimLoop& loop, std::uint32_t users, EachRate rate);
  ~SharedRate();
  SharedRate(const SharedRate&) = delete;
  SharedRate& operator=(const SharedRate&) = delete;

  // Runs `done` from the loop once `user` has got that many bytes.
  void Transfer(std::uint32_t user, double bytes, std::function<void()> done);

  // Asks for the rates again, which changed for another reason than a transfer.
  void Refresh();

  // Of all that have ended.
  [[nodiscard]] double bytes() const { return bytes_; }
  // From begin to end, summed over transfers that have ended.
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  struct Waiting {
    double end = 0;  // of User::served
    std::uint64_t number = 0;
    double bytes = 0;
    std::int64_t begin_ns = 0;
    std::function<void()> done;

    bool operator>(const Waiting& other) const {
      return end != other.end ? end > other.end : number > other.number;
    }
  };
  struct User {
    double served = 0;  // bytes that each of its transfers has got since it had none
    double rate = 0;
    std::vector<Waiting> heap;  // the first to end is in front
  };

  void Advance();
  void SetRates();
  void Schedule();
  void OnEvent(std::uint64_t number);

  SimLoop& loop_;
  const EachRate rate_;
  std::vector<User> users_;
  std::vector<std::uint32_t> active_;  // users that have transfers, ascending
  std::int64_t last_ns_ = 0;           // of User::served
  std::uint64_t next_number_ = 0;
  std::uint64_t event_ = 0;  // the number of the event that is due next; others do nothing
  std::int64_t due_ns_ = kNever;
  double bytes_ = 0;
  double seconds_ = 0;

  static constexpr std::int64_t kNever = INT64_MAX;
};

}  // namespace headrace
