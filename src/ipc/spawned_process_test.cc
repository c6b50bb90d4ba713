#include "ipc/spawned_process.h"

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kLongNs = 60 * kNsPerSecond;

Result<std::unique_ptr<SpawnedProcess>> Shell(std::string script) {
  return SpawnedProcess::Start({"/bin/sh", "-c", std::move(script), "sh"}, "starting a test");
}

TEST(SpawnedProcessTest, SaysHowItEnded) {
  EXPECT_EQ(Shell("exit 3").value()->End(kLongNs), "ended with status 3");
  EXPECT_EQ(Shell("kill -KILL $$").value()->End(kLongNs), "was ended by signal 9");
}

TEST(SpawnedProcessTest, EndKillsItAfterTheGrace) {
  auto process = Shell("exec tail -f /dev/null").value();
  EXPECT_EQ(process->End(/*grace_ns=*/kNsPerMs), "was ended by signal 9");
  EXPECT_EQ(process->End(), "was ended before");
  EXPECT_EQ(::kill(process->pid(), 0), -1) << "nothing is left of it";
}

TEST(SpawnedProcessTest, HasItsEndOfTheConnectionAndTheNumberOfThisProcess) {
  auto process = Shell("[ -S /proc/self/fd/$1 ] && [ $2 = $PPID ] && exit 7").value();
  EXPECT_EQ(process->End(kLongNs), "ended with status 7");
  EXPECT_EQ(process->connection().Receive(kLongNs).status().code(), StatusCode::kUnavailable)
      << "its end has closed";
}

TEST(SpawnedProcessTest, AProgramThatIsNotThereIsNamed) {
  const auto started = SpawnedProcess::Start({"/no/such/program"}, "starting a test");
  EXPECT_EQ(started.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(started.status().message(),
              HasSubstr("starting a test (/no/such/program): No such file or directory; see"));
}

}  // namespace
}  // namespace headrace
