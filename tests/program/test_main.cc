// The program of a folder's tests: all its *_test.cc, linked once. CMake names the sources of each
// test of ctest, and the program runs what these define, so that each source still has a process of
// its own.
//
// HEADRACE_MESSAGES=build/messages: all messages of errors that a source's tests make go into a
// file there, unless a filter of the caller's own leaves some out; ctest of the release preset sets
// it.
//
// base_tests --sources=gate_test.cc      what `ctest -R gate_test` runs; any option of GoogleTest
// besides base_tests                             all tests of the folder
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "message_recorder.h"

// The names of all sources that have tests of this program, by commas; CMake writes it.
extern const char kTestSources[];

namespace {

std::string_view NameOf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool Holds(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// GoogleTest's filter of the tests that `sources` define. Nothing, and a message, if there is a
// test of a source that no ctest runs.
std::optional<std::string> FilterOf(const std::vector<std::string_view>& sources) {
  const std::vector<std::string_view> known = Split(kTestSources);
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  std::string filter;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      const std::string_view source = NameOf(test.file());
      if (!Holds(known, source)) {
        std::fprintf(stderr, "%s.%s: its source %s is in no headrace_test()\n", suite.name(),
                     test.name(), test.file());
        return std::nullopt;
      }
      if (Holds(sources, source)) filter += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  constexpr std::string_view kSources = "--sources=";
  std::optional<std::filesystem::path> messages;  // where they go
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kSources)) continue;
    const std::optional<std::string> filter = FilterOf(Split(argument.substr(kSources.size())));
    if (!filter) return 2;
    if (filter->empty()) {
      std::fprintf(stderr, "%s: defines no test\n", argv[i]);
      return 2;
    }
    // A filter of the caller's own stays: it asks for less.
    if (testing::GTEST_FLAG(filter) != "*") continue;
    testing::GTEST_FLAG(filter) = *filter;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs yet
    if (const char* folder = std::getenv("HEADRACE_MESSAGES"); folder != nullptr) {
      messages = headrace::testing::FileOfMessages(folder, argv[0],
                                                   std::string(argument.substr(kSources.size())));
    }
  }
  if (!messages) return RUN_ALL_TESTS();
  headrace::testing::MessageRecorder::OfProcess().Start();
  const int failed = RUN_ALL_TESTS();
  headrace::testing::MessageRecorder::OfProcess().Write(*messages);
  return failed;
}
