#pragma once

// What every FetchSource must do. A source passes it by a SourceCase in an INSTANTIATE_TEST_SUITE_P
// of SourceConformanceTest; the tests are in source_conformance.cc.

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "fetch/fetch.h"
#include "gtest/gtest.h"

namespace headrace {

// A source that has some samples, with whatever it needs to live.
class SourceUnderTest {
 public:
  virtual ~SourceUnderTest() = default;
  virtual FetchSource& source() = 0;

  // Has `fetch` read sample `number` of those that the source was made with.
  virtual void Aim(Fetch& fetch, std::uint64_t number) = 0;
  // Has the source fail to read sample `number`.
  virtual void Damage(std::uint64_t number) = 0;

  // For sources that answer only when told: tells them. Called until everything is answered.
  virtual void Pump() {}
};

struct SourceCase {
  std::string name;
  std::function<std::unique_ptr<SourceUnderTest>(const std::vector<std::string>& samples)> make;
};

inline void PrintTo(const SourceCase& source, std::ostream* out) { *out << source.name; }

class SourceConformanceTest : public testing::TestWithParam<SourceCase> {
 protected:
  // How a read ended, and how often.
  struct Read {
    Fetch fetch;
    int ended = 0;
    Status status;
    std::string bytes;
  };

  void SetUp() override;

  // Reads the samples at once, each into memory of its own.
  std::vector<std::unique_ptr<Read>> ReadAll(const std::vector<std::uint64_t>& numbers,
                                             const std::stop_token& stop = {});

  const std::vector<std::string> samples_ = {std::string(5000, 'a'), "second",
                                             std::string(70, 'c')};
  std::unique_ptr<SourceUnderTest> made_;
};

}  // namespace headrace
