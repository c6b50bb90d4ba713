#include "message_recorder.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "headrace/status.h"

namespace headrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Read(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(MessageRecorder, NotesWhatTheCoreMakesAndItsContext) {
  MessageRecorder& recorder = MessageRecorder::OfProcess();
  recorder.Start();
  const Status made(StatusCode::kNotFound, "object 7 of \"tests\": not there");
  const Status whole = made.WithContext("reading tab\tA");
  static_cast<void>(Status(StatusCode::kNotFound, "object 8 of \"tests\": not there"));
  static_cast<void>(Status().WithContext("no error"));

  const std::filesystem::path file =
      FileOfMessages(::testing::TempDir() + "messages", "bin/x_tests", "a_test.cc,b_test.cc");
  EXPECT_EQ(file.filename(), "core-x_tests-a_test.cc+b_test.cc.json");
  recorder.Write(file);
  EXPECT_THAT(
      Read(file),
      AllOf(HasSubstr("\n\"object 7 of \\u0022tests\\u0022: not there\""),
            HasSubstr("\n\"reading tab\\u0009A: object 7 of \\u0022tests\\u0022: not there\""),
            Not(HasSubstr("object 8")), Not(HasSubstr("no error"))));
  std::filesystem::remove_all(file.parent_path());
}

}  // namespace
}  // namespace headrace::testing
