#include "fetch/sources.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fetch/source_conformance.h"
#include "gtest/gtest.h"
#include "store/memory_store.h"
#include "store/testing/gated_store.h"
#include "tier/ram_tier.h"
#include "tier/testing/ssd_folder.h"

namespace headrace {
namespace {

// Storage, in memory, whose answers wait for Pump().
class Storage final : public SourceUnderTest {
 public:
  explicit Storage(const std::vector<std::string>& samples) : store_(Make(samples)) {
    std::uint64_t offset = 0;
    for (const std::string& sample : samples) {
      extents_.push_back({ObjectId{1}, {offset, sample.size()}});
      offset += sample.size();
    }
  }
  FetchSource& source() override { return source_; }
  void Aim(Fetch& fetch, std::uint64_t number) override { fetch.from = extents_[number]; }
  void Damage(std::uint64_t number) override { extents_[number].object = ObjectId{9}; }
  void Pump() override { store_.ReleaseAll(); }

 private:
  static std::unique_ptr<ByteStore> Make(const std::vector<std::string>& samples) {
    std::string object;
    for (const std::string& sample : samples) object += sample;
    return std::make_unique<MemoryStore>(
        std::unordered_map<ObjectId, std::string>{{ObjectId{1}, std::move(object)}});
  }

  GatedStore store_;
  StorageSource source_{store_};
  std::vector<Extent> extents_;
};

// Entries of a tier.
class Entries : public SourceUnderTest {
 public:
  FetchSource& source() override { return source_; }
  void Aim(Fetch& fetch, std::uint64_t number) override { fetch.from = &entries_.at(number); }

 protected:
  void Find(Tier& tier, std::size_t samples) {
    for (std::uint64_t number = 0; number < samples; ++number) {
      entries_.push_back(tier.Find(SampleId{number}));
      ASSERT_TRUE(entries_.back());
    }
  }
  std::vector<Tier::EntryRef> entries_;

 private:
  TierSource source_;
};

class RamEntries final : public Entries {
 public:
  explicit RamEntries(const std::vector<std::string>& samples) {
    for (std::uint64_t number = 0; number < samples.size(); ++number) {
      tier_->Insert(SampleId{number}, {std::as_bytes(std::span(samples[number]))},
                    [](const Status& status) { ASSERT_TRUE(status.ok()); });
    }
    Find(*tier_, samples.size());
  }
  ~RamEntries() override { entries_.clear(); }
  void Damage(std::uint64_t number) override {
    const auto bytes = tier_->View(entries_[number], 0, 1);
    const_cast<std::byte&>(bytes->front()) ^= std::byte{1};
  }

 private:
  const std::unique_ptr<RamTier> tier_ = RamTier::Make(1 << 16, 8192).value();
};

class SsdEntries final : public Entries {
 public:
  explicit SsdEntries(const std::vector<std::string>& samples) : samples_(samples) {
    EXPECT_TRUE(folder_.Open().ok());
    for (std::uint64_t number = 0; number < samples.size(); ++number) {
      EXPECT_TRUE(folder_.Insert(number, samples[number]).ok());
    }
    Find(folder_.tier(), samples.size());
  }
  ~SsdEntries() override { entries_.clear(); }
  void Damage(std::uint64_t number) override {
    std::fstream file(folder_.data_path(), std::ios::in | std::ios::out | std::ios::binary);
    const std::string data{std::istreambuf_iterator<char>(file), {}};
    const std::size_t at = data.find(samples_[number]);
    ASSERT_NE(at, std::string::npos);
    file.seekp(static_cast<std::streamoff>(at)).put('!');
  }
  void Pump() override { folder_.executor().RunAll(); }

 private:
  const std::vector<std::string> samples_;
  SsdFolder folder_;
};

// A source that nobody has written yet: another node, which answers late. It shows what a new one
// takes: this class, and its row in FetchSources.
class SlowPeer final : public FetchSource {
 public:
  explicit SlowPeer(std::vector<std::string> samples) : samples_(std::move(samples)) {}

  [[nodiscard]] std::size_t BufferBytes(const Fetch& fetch) const override { return fetch.bytes(); }
  void Read(std::span<Fetch* const> fetches, const std::stop_token& stop,
            const Done& done) override {
    for (Fetch* const fetch : fetches) {
      if (stop.stop_requested()) {
        done(*fetch, Status(StatusCode::kCancelled, "the run has ended"));
      } else {
        asked_.emplace_back(fetch, &done);
      }
    }
  }
  void Lose(std::uint64_t number) { samples_[number].clear(); }
  void Answer() {
    while (!asked_.empty()) {
      const auto [fetch, done] = asked_.back();  // The last one first.
      asked_.pop_back();
      const std::string& bytes = samples_[Raw(fetch->Reads<SampleAtNode>().sample)];
      if (bytes.empty()) {
        (*done)(*fetch, Status(StatusCode::kUnavailable, "the peer has lost it"));
        continue;
      }
      const std::span<std::byte> to = fetch->memory().first(bytes.size());
      std::memcpy(to.data(), bytes.data(), bytes.size());
      (*done)(*fetch, to);
    }
  }

 private:
  std::vector<std::string> samples_;
  std::vector<std::pair<Fetch*, const Done*>> asked_;
};

class Peer final : public SourceUnderTest {
 public:
  explicit Peer(const std::vector<std::string>& samples) : samples_(samples), peer_(samples) {}
  FetchSource& source() override { return peer_; }
  void Aim(Fetch& fetch, std::uint64_t number) override {
    fetch.from = SampleAtNode{
        .nodes = {.first = 1}, .sample = SampleId{number}, .bytes = samples_[number].size()};
  }
  void Damage(std::uint64_t number) override { peer_.Lose(number); }
  void Pump() override { peer_.Answer(); }

 private:
  const std::vector<std::string> samples_;
  SlowPeer peer_;
};

template <typename Source>
SourceCase Case(std::string name) {
  return {std::move(name), [](const auto& samples) { return std::make_unique<Source>(samples); }};
}

INSTANTIATE_TEST_SUITE_P(All, SourceConformanceTest,
                         testing::Values(Case<Storage>("storage"), Case<RamEntries>("ram_tier"),
                                         Case<SsdEntries>("ssd_tier"), Case<Peer>("slow_peer")),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace headrace
