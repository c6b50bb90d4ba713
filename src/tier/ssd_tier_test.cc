#include "tier/ssd_tier.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <set>
#include <thread>

#include "base/testing/test_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/testing/temp_files.h"
#include "tier/testing/faulty_io.h"
#include "tier/testing/ssd_folder.h"
#include "tier/testing/tier_client.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kUnitBytes = 4096;

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::UnorderedElementsAre;

std::string Message(const Status& status) { return std::string(status.message()); }

// Samples 1, 2, 3 of 3 units each, with `extra` of 1 unit erased between them.
void Fill(SsdFolder& folder) {
  ASSERT_TRUE(folder.Open().ok());
  for (const std::uint64_t sample : {1U, 2U, 9U, 3U}) {
    ASSERT_TRUE(folder.Insert(sample, RandomBytes(sample, 10'000)).ok());
  }
  folder.tier().Erase(SampleId{9});
}

void ExpectFilled(SsdFolder& folder) {
  for (const std::uint64_t sample : {1U, 2U, 3U}) {
    const Result<std::string> read = folder.Read(sample);
    ASSERT_TRUE(read.ok()) << sample << ": " << read.status().ToString();
    EXPECT_TRUE(read.value() == RandomBytes(sample, 10'000));
  }
  EXPECT_EQ(folder.tier().stats().entries, 3U);
}

TEST(SsdTierTest, WhatCanNotBeIsRefusedWithItsNumbers) {
  SsdFolder folder;
  folder.options().unit_bytes = 1000;
  EXPECT_EQ(folder.Open().code(), StatusCode::kInvalidArgument);
  folder.options().unit_bytes = 2048;
  EXPECT_THAT(Message(folder.Open()),
              HasSubstr("units of 2.0 KiB, must be a power of two, 4.0 KiB"));
  folder.options().unit_bytes = 4096;
  folder.options().capacity_bytes = 4095;
  EXPECT_THAT(Message(folder.Open()), HasSubstr("got 4.0 KiB, must be at least one unit"));
  folder.options().capacity_bytes = kUnitBytes << 32;
  EXPECT_EQ(folder.Open().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(fs::exists(folder.options().folder));
}

TEST(SsdTierTest, AFolderIsMadeButNotItsParents) {
  SsdFolder folder;
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_EQ(folder.tier().note(), "new");
  EXPECT_EQ(folder.tier().name(), "SSD " + folder.options().folder);
  EXPECT_EQ(fs::file_size(folder.data_path()), folder.options().capacity_bytes);
  folder.Close();
  folder.options().folder = folder.parent() + "/no/such";
  const Status status = folder.Open();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(status), "SSD tier '" + folder.options().folder +
                                 "': the folder around it is missing; make it first");
  for (const auto& [name, why] :
       {std::pair(std::string(300, 'x'), ": making the folder: File name too long"),
        std::pair(std::string("tier/headrace-tier.data/in"),
                  ": making the folder: Not a directory")}) {
    folder.options().folder = folder.parent() + "/" + name;
    EXPECT_EQ(Message(folder.Open()), "SSD tier '" + folder.options().folder + "'" + why);
  }
}

TEST(SsdTierTest, ASecondUserIsRefusedAndToldTheWayOut) {
  SsdFolder folder;
  Fill(folder);
  ManualExecutor executor;
  const Status status = SsdTier::Open(folder.options(), executor).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), AllOf(HasSubstr(folder.options().folder),
                                     HasSubstr("another loader or process uses this folder"),
                                     HasSubstr("give each its own")));
  ExpectFilled(folder);
}

TEST(SsdTierTest, ASecondProcessIsRefused) {
  SsdFolder folder;
  Fill(folder);
  const pid_t child = ::fork();
  if (child == 0) {
    ManualExecutor executor;
    const auto tier = SsdTier::Open(folder.options(), executor);
    ::_exit(tier.status().code() == StatusCode::kFailedPrecondition ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(SsdTierTest, AForkedChildLeavesTheFolderToItsParent) {
  SsdFolder folder;
  Fill(folder);  // The journal does not have the erase yet.
  const std::string journal = ContentOf(folder.journal_path());
  const pid_t child = ::fork();
  if (child == 0) {
    folder.Close();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ContentOf(folder.journal_path()), journal);
  ExpectFilled(folder);
  folder.Close();
  EXPECT_NE(ContentOf(folder.journal_path()), journal);
}

// A worker process that is forked meanwhile and outlives the tier.
TEST(SsdTierTest, AFolderCanBeOpenedAnewWhileAForkedChildLives) {
  SsdFolder folder;
  Fill(folder);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::close(pipe[1]);
    char byte = 0;
    ::_exit(::read(pipe[0], &byte, 1) == 0 ? 0 : 1);  // When the parent closes its end.
  }
  folder.Close();
  ASSERT_EQ(folder.Open().message(), "");
  ExpectFilled(folder);
  (void)::close(pipe[0]);
  (void)::close(pipe[1]);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(SsdTierTest, EntriesOutliveTheTierAndErasedOnesDoNot) {
  SsdFolder folder;
  Fill(folder);
  folder.Close();
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_EQ(folder.tier().note(), "kept 3 entries");
  EXPECT_EQ(folder.tier().stats().entries_inherited, 3U);
  EXPECT_EQ(folder.tier().stats().used_bytes, 9 * kUnitBytes);
  EXPECT_EQ(folder.tier().stats().used_bytes_peak, 9 * kUnitBytes);
  ExpectFilled(folder);
  const std::string rest = RandomBytes(4, 23 * kUnitBytes);
  ASSERT_TRUE(folder.Insert(4, rest).ok());
  EXPECT_EQ(folder.Read(4).value(), rest);
}

TEST(SsdTierTest, EntriesOfAnotherDatasetAreCleared) {
  SsdFolder folder;
  Fill(folder);
  folder.Close();
  folder.options().dataset = "another";
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_EQ(folder.tier().note(), "cleared: its entries: they are of another dataset");
  EXPECT_EQ(folder.tier().stats().entries, 0U);
  EXPECT_EQ(ContentOf(folder.data_path()), std::string(32 * kUnitBytes, '\0'));
  folder.Close();
  folder.options().dataset = "dataset";
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_EQ(folder.tier().stats().entries, 0U);
}

TEST(SsdTierTest, EntriesInOtherUnitsAreCleared) {
  SsdFolder folder;
  Fill(folder);
  folder.Close();
  folder.options().unit_bytes = 8192;
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_EQ(folder.tier().note(),
            "cleared: its entries: they are in units of 4.0 KiB, not of 8.0 KiB");
  EXPECT_EQ(folder.tier().stats().entries, 0U);
}

TEST(SsdTierTest, AJournalThatIsNoneIsCleared) {
  for (const std::string& journal : {std::string(), std::string("HDRT"), std::string(1000, 'x')}) {
    SsdFolder folder;
    Fill(folder);
    folder.Close();
    WriteFile(folder.journal_path(), journal);
    ASSERT_TRUE(folder.Open().ok());
    EXPECT_THAT(folder.tier().note(), MatchesRegex("cleared: .* as a tier's journal does"));
    EXPECT_EQ(folder.tier().stats().entries, 0U);
    ASSERT_TRUE(folder.Insert(1, "one").ok());
  }
}

TEST(SsdTierTest, AJournalOfAnotherVersionIsCleared) {
  SsdFolder folder;
  Fill(folder);
  folder.Close();
  std::string journal = ContentOf(folder.journal_path());
  journal[8] = 2;
  WriteFile(folder.journal_path(), journal);
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_EQ(folder.tier().note(),
            "cleared: the journal has version 2, this headrace reads version 1");
}

TEST(SsdTierTest, FilesOfOthersAreLeftAlone) {
  SsdFolder folder;
  fs::create_directory(folder.options().folder);
  WriteFile(folder.PathOf("notes.txt"), "mine");
  WriteFile(folder.PathOf("headrace-tier.journal.newer"), "mine");
  fs::create_directory(folder.PathOf("other"));
  WriteFile(folder.PathOf(kTierJournalNewName), "left by a rewrite that did not end");
  ASSERT_TRUE(folder.Open().ok());
  ASSERT_TRUE(folder.Insert(1, "one").ok());
  folder.Close();
  folder.options().dataset = "another";
  ASSERT_TRUE(folder.Open().ok());
  std::vector<std::string> names;
  for (const auto& each : fs::directory_iterator(folder.options().folder)) {
    names.push_back(each.path().filename());
  }
  EXPECT_THAT(names, UnorderedElementsAre("notes.txt", "headrace-tier.journal.newer", "other",
                                          kTierDataName, kTierJournalName));
  EXPECT_EQ(ContentOf(folder.PathOf("notes.txt")), "mine");
}

TEST(SsdTierTest, ANameOfOursThatIsNoFileIsRefusedAndSaysWhatItIs) {
  SsdFolder folder;
  fs::create_directory(folder.options().folder);
  const std::string victim = folder.parent() + "/victim";
  WriteFile(victim, "precious");
  const auto expect_refused = [&](const std::string& path, const std::string& what) {
    const Status status = folder.Open();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status),
                HasSubstr("opening '" + path + "': it is " + what +
                          ", but a tier keeps a file of its own under this name and follows no "
                          "link; move it elsewhere, or give the tier another folder"));
  };
  for (const char* name : {kTierDataName, kTierJournalName, kTierJournalNewName}) {
    const std::string path = folder.PathOf(name);
    fs::create_directories(path + "/inside");
    expect_refused(path, "a folder");
    EXPECT_TRUE(fs::exists(path + "/inside"));
    fs::remove_all(path);
    for (const std::string& target : {victim, folder.parent() + "/gone"}) {
      fs::create_symlink(target, path);
      expect_refused(path, "a symbolic link to '" + target + "'");
      EXPECT_TRUE(fs::is_symlink(path));
      fs::remove(path);
    }
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    expect_refused(path, "a pipe");
    fs::remove(path);
  }
  EXPECT_EQ(ContentOf(victim), "precious");
  EXPECT_TRUE(folder.Open().ok());
}

TEST(SsdTierTest, AFolderThatIsAFileIsRefused) {
  SsdFolder folder;
  WriteFile(folder.options().folder, "a file");
  EXPECT_EQ(folder.Open().ToString(), "FailedPrecondition: SSD tier '" + folder.options().folder +
                                          "': it is no folder; give the tier another");
}

TEST(SsdTierTest, ASmallerCapacityKeepsWhatLiesInsideIt) {
  SsdFolder folder;
  Fill(folder);
  folder.Close();
  folder.options().capacity_bytes = 7 * kUnitBytes;
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_EQ(folder.tier().note(), "kept 2 entries, dropped 1");
  EXPECT_EQ(fs::file_size(folder.data_path()), 7 * kUnitBytes);
  EXPECT_EQ(folder.Read(1).value(), RandomBytes(1, 10'000));
  EXPECT_EQ(folder.Read(2).value(), RandomBytes(2, 10'000));
  EXPECT_EQ(folder.Read(3).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(folder.Insert(4, "four").ok());
  EXPECT_EQ(folder.Insert(5, "five").code(), StatusCode::kResourceExhausted);
}

TEST(SsdTierTest, ALargerCapacityKeepsEverything) {
  SsdFolder folder;
  Fill(folder);
  folder.Close();
  folder.options().capacity_bytes = 64 * kUnitBytes;
  ASSERT_TRUE(folder.Open().ok());
  ExpectFilled(folder);
  EXPECT_TRUE(folder.Insert(4, RandomBytes(4, 55 * kUnitBytes)).ok());
}

TEST(SsdTierTest, EntriesWhoseBytesAreGoneAreDropped) {
  SsdFolder folder;
  Fill(folder);
  folder.Close();
  fs::resize_file(folder.data_path(), 4 * kUnitBytes);
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_EQ(folder.tier().note(), "kept 1 entries, dropped 2");
  EXPECT_EQ(folder.Read(1).value(), RandomBytes(1, 10'000));
  folder.Close();
  fs::remove(folder.data_path());
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_EQ(folder.tier().stats().entries, 0U);
}

TEST(SsdTierTest, AFileThatShrinksWhileItIsOpenLosesItsEntries) {
  SsdFolder folder;
  Fill(folder);
  fs::resize_file(folder.data_path(), 5 * kUnitBytes);
  EXPECT_EQ(folder.Read(1).value(), RandomBytes(1, 10'000));
  EXPECT_EQ(folder.Read(2).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(folder.Read(3).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(folder.tier().stats().corrupt, 2U);
  EXPECT_FALSE(folder.tier().stats().degraded);
}

// An entry's bytes are valid only for that sample.
TEST(SsdTierTest, RightBytesOfAnotherSampleDoNotPass) {
  SsdFolder folder;
  Fill(folder);
  std::string data = ContentOf(folder.data_path());
  data.replace(3 * kUnitBytes, 3 * kUnitBytes, data.substr(0, 3 * kUnitBytes));
  folder.Close();
  WriteFile(folder.data_path(), data);
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_TRUE(folder.Read(1).ok());
  EXPECT_EQ(folder.Read(2).status().code(), StatusCode::kDataLoss);
}

// A possible state after a power loss: an old journal with newer data.
TEST(SsdTierTest, AnOldJournalOverNewerDataLosesOnlyWhatWasOverwritten) {
  SsdFolder folder;
  Fill(folder);
  const std::string old = ContentOf(folder.journal_path());
  folder.tier().Erase(SampleId{2});
  ASSERT_TRUE(folder.Insert(4, RandomBytes(4, 10'000)).ok());
  folder.Close();
  WriteFile(folder.journal_path(), old);
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_EQ(folder.Read(1).value(), RandomBytes(1, 10'000));
  EXPECT_EQ(folder.Read(3).value(), RandomBytes(3, 10'000));
  EXPECT_EQ(folder.Read(4).status().code(), StatusCode::kNotFound);
  const Result<std::string> second = folder.Read(2);
  EXPECT_TRUE(!second.ok() || second.value() == RandomBytes(2, 10'000));
}

TEST(SsdTierTest, RemovedWhileOpenItTakesNoMoreAndServesWhatItHas) {
  for (const bool whole_folder : {false, true}) {
    SsdFolder folder;
    Fill(folder);
    if (whole_folder) {
      fs::remove_all(folder.options().folder);
    } else {
      fs::remove(folder.journal_path());
    }
    ExpectFilled(folder);
    const Status status = folder.Insert(4, "four");
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(Message(status), HasSubstr("the file was removed"));
    EXPECT_TRUE(folder.tier().stats().degraded);
    ExpectFilled(folder);
    folder.tier().Erase(SampleId{1});
    folder.Close();
    ASSERT_TRUE(folder.Open().ok());
    EXPECT_EQ(folder.tier().stats().entries, 0U);
  }
}

TEST(SsdTierTest, TheJournalStaysBoundedAndRight) {
  SsdFolder folder;
  folder.options().journal_slack_bytes = 500;
  ASSERT_TRUE(folder.Open().ok());
  std::uint64_t largest = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::uint64_t sample = i % 10;
    folder.tier().Erase(SampleId{sample});
    ASSERT_TRUE(folder.Insert(sample, RandomBytes(i, 1 + i * 40)).ok());
    largest = std::max<std::uint64_t>(largest, fs::file_size(folder.journal_path()));
  }
  EXPECT_LE(largest, 2 * (64 + 32 * InsertRecordBytes(1)));
  EXPECT_GE(largest, 500U);
  folder.Close();
  ASSERT_TRUE(folder.Open().ok());
  for (std::uint64_t i = 290; i < 300; ++i) {
    EXPECT_EQ(folder.Read(i % 10).value(), RandomBytes(i, 1 + i * 40));
  }
}

// The journal is rewritten while inserts are between their record and their table.
TEST(SsdTierTest, WhatThreadsKeptIsThereAfterTheEnd) {
  constexpr std::uint64_t kThreads = 4;
  SsdFolder folder("/dev/shm", /*capacity_units=*/1000);
  folder.options().journal_slack_bytes = 200;
  std::set<std::uint64_t> kept;
  {
    TestExecutor executor(4);
    const auto tier = SsdTier::Open(folder.options(), executor).value();
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&tier, t] {
        for (std::uint64_t i = 0; i < 200; ++i) {
          const std::uint64_t sample = t + kThreads * i;
          EXPECT_TRUE(InsertAndWait(*tier, SampleId{sample}, std::to_string(sample)).ok());
          if (i % 3 != 0) tier->Erase(SampleId{sample});
        }
      });
    }
    threads.clear();
    for (const SampleId sample : tier->Held()) kept.insert(Raw(sample));
  }
  ASSERT_EQ(kept.size(), kThreads * 67);
  ASSERT_TRUE(folder.Open().ok());
  EXPECT_EQ(folder.tier().stats().entries, kept.size());
  for (const std::uint64_t sample : kept) {
    EXPECT_EQ(folder.Read(sample).value(), std::to_string(sample));
  }
}

TEST(SsdTierTest, AJournalThatCanNotBeRewrittenDegradesTheTierAndStaysRight) {
  for (const bool rename : {false, true}) {
    FaultyIo io;
    SsdFolder folder;
    folder.options().journal_slack_bytes = 300;
    folder.options().io = &io;
    Fill(folder);
    rename ? io.FailRenames(EIO) : io.FailSyncs(EIO);
    Status status;
    for (std::uint64_t i = 0; i < 20 && status.ok(); ++i) {
      folder.tier().Erase(SampleId{100});
      status = folder.Insert(100, "x");
    }
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(Message(status), AllOf(HasSubstr("rewriting"), HasSubstr("sample 100")));
    EXPECT_TRUE(folder.tier().stats().degraded);
    EXPECT_FALSE(fs::exists(folder.PathOf(kTierJournalNewName)));
    ExpectFilled(folder);
    folder.Close();
    folder.options().io = nullptr;
    ASSERT_TRUE(folder.Open().ok());
    EXPECT_EQ(folder.Read(1).value(), RandomBytes(1, 10'000));
    EXPECT_EQ(folder.Read(3).value(), RandomBytes(3, 10'000));
  }
}

TEST(SsdTierTest, ADiskThatIsFullAtTheStartIsAnError) {
  FaultyIo io;
  io.FailWrites(ENOSPC);
  SsdFolder folder;
  folder.options().io = &io;
  const Status status = folder.Open();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("free space there, or lower the tier's capacity"));
  io.FailWrites(0);
  ASSERT_TRUE(folder.Open().ok());
  folder.Close();
  io.FailReads(EIO);
  EXPECT_EQ(folder.Open().ToString(),
            "Unavailable: reading '" + folder.PathOf(kTierJournalName) +
                "': Input/output error; read the kernel's log (dmesg), and check the disk");
}

TEST(SsdTierTest, AFullFileSystemDegradesTheTier) {
  if (::geteuid() != 0) GTEST_SKIP() << "mounting a small file system takes root";
  TempFiles files;
  const std::string mounted = files.folder() + "/small";
  fs::create_directory(mounted);
  if (::mount("tmpfs", mounted.c_str(), "tmpfs", 0, "size=262144") != 0) {
    GTEST_SKIP() << "mounting a small file system is not allowed here";
  }
  {
    SsdFolder folder(mounted, /*capacity_units=*/1000);
    ASSERT_TRUE(folder.Open().ok());
    Status status;
    std::uint64_t kept = 0;
    for (; kept < 1000 && status.ok(); ++kept) {
      status = folder.Insert(kept, RandomBytes(kept, 10'000));
    }
    --kept;
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(Message(status), HasSubstr("No space left on device; free space there"));
    EXPECT_GT(kept, 5U);
    EXPECT_TRUE(folder.tier().stats().degraded);
    for (std::uint64_t i = 0; i < kept; ++i) {
      EXPECT_EQ(folder.Read(i).value(), RandomBytes(i, 10'000));
    }
  }
  EXPECT_EQ(::umount(mounted.c_str()), 0);
}

TEST(SsdTierTest, ReadsGoByDeadlineAndBeforeInserts) {
  SsdFolder folder;
  Fill(folder);
  const Tier::EntryRef entry = folder.tier().Find(SampleId{1});
  const AlignedBuffer buffer(folder.tier().BufferBytes(entry));
  std::string order;
  const std::string four = "four";
  folder.tier().Insert(SampleId{4}, PartsOf(four, 1), [&](const Status&) { order += 'i'; });
  folder.tier().Read(entry, 9, buffer.bytes(), {}, [&](const auto&) { order += '9'; });
  folder.tier().Read(entry, 3, buffer.bytes(), {}, [&](const auto&) { order += '3'; });
  folder.executor().RunAll();
  EXPECT_EQ(order, "39i");
}

TEST(SsdTierTest, InsertsThatWaitedFailWithTheFirst) {
  FaultyIo io;
  SsdFolder folder;
  folder.options().io = &io;
  Fill(folder);
  const std::string bytes = RandomBytes(4, 100);
  const TierAnswer first;
  const TierAnswer second;
  folder.tier().Insert(SampleId{4}, PartsOf(bytes, 1), first.done());
  folder.tier().Insert(SampleId{5}, PartsOf(bytes, 1), second.done());
  io.FailWrites(EIO);
  EXPECT_EQ(first.WaitStatus(folder.pump()).code(), StatusCode::kUnavailable);
  const Status status = second.WaitStatus(folder.pump());
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("sample 5"), HasSubstr("accepts no more")));
  EXPECT_EQ(folder.tier().stats().inserts_failed, 2U);
  EXPECT_EQ(folder.tier().stats().used_bytes, 9 * kUnitBytes);
}

}  // namespace
}  // namespace headrace
