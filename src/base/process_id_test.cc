#include "base/process_id.h"

#include <sys/wait.h>
#include <unistd.h>

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

}  // namespace
}  // namespace headrace
