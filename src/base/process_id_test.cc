#include "base/process_id.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "base/clock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

TEST(ProcessIdTest, IsTheProcessesOwnInAChildAndInItsChildToo) {
  ASSERT_EQ(ProcessId(), getpid());
  const pid_t child = fork();
  if (child == 0) {
    if (ProcessId() != getpid()) _exit(1);
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(ProcessId() == getpid() ? 0 : 2);
    int how = 0;
    waitpid(grandchild, &how, 0);
    _exit(WIFEXITED(how) ? WEXITSTATUS(how) : 3);
  }
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_EQ(how, 0);
  EXPECT_EQ(ProcessId(), getpid());
}

TEST(ProcessIdTest, AProcessIsStoppedFromSigstopUntilSigcont) {
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  EXPECT_FALSE(ProcessIsStopped(child));
  int how = 0;
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  ASSERT_EQ(waitpid(child, &how, WUNTRACED), child);
  EXPECT_TRUE(ProcessIsStopped(child));
  ASSERT_EQ(kill(child, SIGCONT), 0);
  ASSERT_EQ(waitpid(child, &how, WCONTINUED), child);
  EXPECT_FALSE(ProcessIsStopped(child));
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(ProcessIsStopped(child));
}

TEST(ProcessIdTest, AgeIsThatOfTheProcessWhateverItsNameAndOfNoneThatHasEnded) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const MonotonicClock clock;
  const std::int64_t before_ns = clock.NowNanos();
  const pid_t child = fork();
  if (child == 0) {
    (void)prctl(PR_SET_NAME, "a) S 1 (b c");
    const char named = 'x';
    if (write(ends[1], &named, 1) != 1) _exit(1);
    while (true) pause();
  }
  char named = 0;
  ASSERT_EQ(read(ends[0], &named, 1), 1);
  const auto age_ns = ProcessAgeNs(child);
  const auto own_ns = ProcessAgeNs(getpid());
  ASSERT_TRUE(age_ns.has_value());
  ASSERT_TRUE(own_ns.has_value());
  EXPECT_LE(*age_ns, clock.NowNanos() - before_ns);
  EXPECT_LE(*age_ns, *own_ns);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(ProcessAgeNs(child), std::nullopt);
  EXPECT_EQ(ProcessAgeNs(0), std::nullopt);  // A peer of another pid namespace has this number.
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace headrace
