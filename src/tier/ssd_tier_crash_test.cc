// The state of a tier after its process dies, or its files are damaged. Every sample has one
// content, so that a test knows what it must read.

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <set>

#include "base/check.h"
#include "base/prng.h"
#include "base/testing/test_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/testing/temp_files.h"
#include "tier/ssd_tier.h"
#include "tier/testing/faulty_io.h"
#include "tier/testing/ssd_folder.h"
#include "tier/testing/tier_client.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSamples = 24;
constexpr std::uint64_t kFolderUnits = 32;

std::string BytesOf(std::uint64_t sample) { return RandomBytes(sample, 1 + sample * 700); }

// Checks that each entry found is right, or dropped as damaged; returns the number of right ones.
std::uint64_t CountRight(SsdFolder& folder) {
  std::uint64_t right = 0;
  for (const SampleId sample : folder.tier().Held()) {
    const Result<std::string> read = folder.Read(Raw(sample));
    if (!read.ok()) {
      EXPECT_EQ(read.status().code(), StatusCode::kDataLoss) << read.status().ToString();
      EXPECT_FALSE(folder.tier().Find(sample));
      continue;
    }
    EXPECT_TRUE(read.value() == BytesOf(Raw(sample))) << "wrong bytes of sample " << Raw(sample);
    ++right;
  }
  return right;
}

void ExpectBounds(SsdFolder& folder) {
  const TierStats stats = folder.tier().stats();
  EXPECT_LE(stats.used_bytes, stats.capacity_bytes);
  EXPECT_EQ(fs::file_size(folder.data_path()), kFolderUnits * 4096);
  std::set<std::string> names;
  for (const auto& each : fs::recursive_directory_iterator(folder.parent())) {
    names.insert(each.path().filename());
  }
  EXPECT_EQ(names, (std::set<std::string>{"tier", kTierDataName, kTierJournalName}));
}

// Checks that no room was lost with dropped entries.
void ExpectAllRoomUsable(SsdFolder& folder) {
  for (const SampleId sample : folder.tier().Held()) folder.tier().Erase(sample);
  const std::string all = RandomBytes(1, kFolderUnits * 4096);
  ASSERT_TRUE(folder.Insert(1000, all).ok());
  EXPECT_EQ(folder.Read(1000).value(), all);
}

// Inserts and erases until the disk stops; returns the entries that must exist.
std::set<std::uint64_t> RunUntilDead(SsdFolder& folder, std::uint64_t seed) {
  std::set<std::uint64_t> kept;
  Prng prng(seed, 0, RandomStream::kOrder);
  for (int step = 0; step < 60; ++step) {
    const std::uint64_t sample = prng.Below(kSamples);
    if (prng.Below(3) == 0) {
      folder.tier().Erase(SampleId{sample});
      kept.erase(sample);
      continue;
    }
    const Status status = folder.Insert(sample, BytesOf(sample));
    if (status.ok()) kept.insert(sample);
    if (status.code() == StatusCode::kUnavailable) break;
  }
  return kept;
}

// A killed process: its writes persist, in their order. So no entry may be damaged, and every
// inserted entry must exist.
TEST(SsdTierCrashTest, AnEndAtAnyWriteLosesNothingThatWasKept) {
  for (std::uint64_t writes = 0;; ++writes) {
    bool died = false;
    for (const double part : {0.0, 0.5, 0.99}) {
      SCOPED_TRACE("after " + std::to_string(writes) + " writes and " + std::to_string(part));
      FaultyIo io;
      SsdFolder folder("/dev/shm", kFolderUnits);
      folder.options().io = &io;
      folder.options().journal_slack_bytes = 800;
      io.DieAfter(writes, part);
      std::set<std::uint64_t> kept;
      if (folder.Open().ok()) {
        kept = RunUntilDead(folder, /*seed=*/part > 0.6 ? 1 : 0);
        folder.Close();
      }
      died = died || io.dead();
      folder.options().io = nullptr;
      ASSERT_TRUE(folder.Open().ok());
      CountRight(folder);
      EXPECT_EQ(folder.tier().stats().corrupt, 0U);
      for (const std::uint64_t sample : kept) {
        EXPECT_TRUE(folder.tier().Find(SampleId{sample})) << "sample " << sample;
      }
      ExpectBounds(folder);
      ExpectAllRoomUsable(folder);
      ASSERT_FALSE(HasFailure());
    }
    if (!died) break;
    ASSERT_LT(writes, 1000U);
  }
}

[[noreturn]] void WriteUntilKilled(const SsdTierOptions& options, std::uint64_t seed, int pipe) {
  TestExecutor executor(2);
  auto opened = SsdTier::Open(options, executor);
  if (!opened.ok()) ::_exit(3);
  SsdTier& tier = *opened.value();
  Prng prng(seed, 0, RandomStream::kOrder);
  for (;;) {
    const std::uint64_t first = prng.Below(kSamples);
    const std::uint64_t second = prng.Below(kSamples);
    const std::string first_bytes = BytesOf(first);
    const std::string second_bytes = BytesOf(second);
    const TierAnswer one;
    const TierAnswer two;
    tier.Insert(SampleId{first}, PartsOf(first_bytes, 2), one.done());
    tier.Insert(SampleId{second}, PartsOf(second_bytes, 1), two.done());
    tier.Erase(SampleId{prng.Below(kSamples)});
    (void)one.Wait(nullptr);
    (void)two.Wait(nullptr);
    const auto read = FindAndRead(tier, SampleId{first});
    if (read.has_value() && (!read->ok() || read->value() != first_bytes)) ::_exit(4);
    const char step = '.';
    if (::write(pipe, &step, 1) != 1) ::_exit(5);
  }
}

TEST(SsdTierCrashTest, AKillAtAnyMomentLeavesWhatIsRight) {
  SsdFolder folder({}, kFolderUnits);
  folder.options().journal_slack_bytes = 1500;
  Prng prng(1, 0, RandomStream::kOrder);
  std::uint64_t inherited = 0;
  for (std::uint64_t round = 0; round < 50; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    int pipe[2] = {};
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) WriteUntilKilled(folder.options(), round, pipe[1]);
    ::close(pipe[1]);
    for (std::uint64_t left = prng.Below(40); left > 0; --left) {
      char step = 0;
      ASSERT_EQ(::read(pipe[0], &step, 1), 1) << "the child ended by itself";
    }
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ::close(pipe[0]);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << status;
    ASSERT_TRUE(folder.Open().ok());
    inherited += CountRight(folder);
    EXPECT_EQ(folder.tier().stats().corrupt, 0U);
    ExpectBounds(folder);
    folder.Close();
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(inherited, 100U);
  ASSERT_TRUE(folder.Open().ok());
  ExpectAllRoomUsable(folder);
}

// A folder with entries, some in several runs, and erased ones; as two files.
class DamageTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_.options().journal_slack_bytes = 2000;
    ASSERT_TRUE(folder_.Open().ok());
    RunUntilDead(folder_, 7);
    folder_.Close();
    data_ = ContentOf(folder_.data_path());
    journal_ = ContentOf(folder_.journal_path());
    ASSERT_GT(journal_.size(), 500U);
  }

  // Opens the folder with these files; returns the number of right entries.
  std::uint64_t OpenWith(const std::string& data, const std::string& journal) {
    folder_.Close();
    WriteFile(folder_.data_path(), data);
    WriteFile(folder_.journal_path(), journal);
    const Status status = folder_.Open();
    EXPECT_TRUE(status.ok()) << status.ToString();
    const std::uint64_t right = CountRight(folder_);
    ExpectBounds(folder_);
    return right;
  }

  SsdFolder folder_{"/dev/shm", kFolderUnits};
  std::string data_;
  std::string journal_;
};

TEST_F(DamageTest, AJournalCutAnywhereGivesWhatItStillSays) {
  const std::uint64_t whole = OpenWith(data_, journal_);
  EXPECT_GT(whole, 3U);
  for (std::size_t size = 0; size < journal_.size(); size += size < 130 ? 1 : 7) {
    SCOPED_TRACE("cut at " + std::to_string(size));
    OpenWith(data_, journal_.substr(0, size));
    if (size % 50 == 0) ExpectAllRoomUsable(folder_);
    ASSERT_FALSE(HasFailure());
  }
}

TEST_F(DamageTest, FlippedBitsOfAJournalAreFound) {
  Prng prng(1, 0, RandomStream::kOrder);
  for (int i = 0; i < 200; ++i) {
    std::string journal = journal_;
    const std::uint64_t bit = prng.Below(journal.size() * 8);
    SCOPED_TRACE("bit " + std::to_string(bit));
    journal[bit / 8] = static_cast<char>(journal[bit / 8] ^ (1 << (bit % 8)));
    OpenWith(data_, journal);
    ASSERT_FALSE(HasFailure());
  }
}

TEST_F(DamageTest, FlippedBitsOfDataCostTheirEntryAndAreCounted) {
  const std::uint64_t whole = OpenWith(data_, journal_);
  Prng prng(2, 0, RandomStream::kOrder);
  std::uint64_t corrupt = 0;
  for (int i = 0; i < 100; ++i) {
    std::string data = data_;
    const std::uint64_t bit = prng.Below(data.size() * 8);
    SCOPED_TRACE("bit " + std::to_string(bit));
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ (1 << (bit % 8)));
    const std::uint64_t right = OpenWith(data, journal_);
    EXPECT_EQ(right + folder_.tier().stats().corrupt, whole);
    EXPECT_LE(folder_.tier().stats().corrupt, 1U);  // None, if it is empty.
    corrupt += folder_.tier().stats().corrupt;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(corrupt, 30U);
}

TEST_F(DamageTest, AnyJournalOverAnyDataGivesNoWrongBytes) {
  std::vector<std::string> journals;
  std::vector<std::string> datas;
  ASSERT_TRUE(folder_.Open().ok());
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    RunUntilDead(folder_, seed);
    journals.push_back(ContentOf(folder_.journal_path()));
    datas.push_back(ContentOf(folder_.data_path()));
  }
  for (const std::string& journal : journals) {
    for (const std::string& data : datas) OpenWith(data, journal);
  }
}

}  // namespace
}  // namespace headrace
