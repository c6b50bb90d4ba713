#include "fetch/sample_chain.h"

#include <memory>
#include <span>
#include <string_view>

#include "gtest/gtest.h"
#include "tier/ram_tier.h"
#include "tier/testing/ssd_folder.h"

namespace headrace {
namespace {

constexpr SampleId kSample{3};
constexpr Holders kNodes{.first = 1, .second = 2};

TEST(SampleChainTest, AChainOfNothingElseIsStorageWhichIsTheLast) {
  SampleChain chain;
  EXPECT_EQ(chain.first(), SampleSource::kStorage);
  EXPECT_FALSE(chain.DropFirst());
  EXPECT_EQ(chain.first(), SampleSource::kStorage);
}

TEST(SampleChainTest, AnEntryInMemoryIsTriedBeforeOtherNodesAndThoseBeforeStorage) {
  const auto ram = RamTier::Make(4096, 1024).value();
  ram->Insert(kSample, {std::as_bytes(std::span(std::string_view("an entry")))},
              [](const Status& status) { ASSERT_TRUE(status.ok()); });
  SampleChain chain(ram->Find(kSample), kNodes);
  EXPECT_EQ(chain.first(), SampleSource::kMemory);
  EXPECT_EQ(chain.entry().bytes(), 8U);
  EXPECT_TRUE(chain.DropFirst());
  EXPECT_EQ(chain.first(), SampleSource::kNode);
  EXPECT_EQ(chain.nodes(), kNodes);
  EXPECT_TRUE(chain.DropFirst());
  EXPECT_EQ(chain.first(), SampleSource::kStorage);
  EXPECT_FALSE(chain.DropFirst());
}

TEST(SampleChainTest, WhatJobsShareIsTriedBeforeStorage) {
  SampleChain chain({}, kNodes);
  chain.Share();
  EXPECT_EQ(chain.first(), SampleSource::kNode);
  EXPECT_TRUE(chain.DropFirst());
  EXPECT_EQ(chain.first(), SampleSource::kShare);
  EXPECT_TRUE(chain.DropFirst());
  EXPECT_EQ(chain.first(), SampleSource::kStorage);
  EXPECT_FALSE(chain.DropFirst());
}

TEST(SampleChainTest, AnEntryOnADiskIsASourceOfItsOwn) {
  SsdFolder folder;
  ASSERT_TRUE(folder.Open().ok());
  ASSERT_TRUE(folder.Insert(3, "an entry").ok());
  SampleChain chain(folder.tier().Find(kSample), {});
  EXPECT_EQ(chain.first(), SampleSource::kDisk);
  EXPECT_TRUE(chain.DropFirst());
  EXPECT_EQ(chain.first(), SampleSource::kStorage);
}

TEST(SampleChainTest, ADroppedEntryLeavesItsRoomInTheTier) {
  const auto ram = RamTier::Make(1024, 1024).value();
  const auto insert = [&] {
    Status inserted;
    ram->Insert(kSample, {std::as_bytes(std::span(std::string_view("an entry")))},
                [&](Status status) { inserted = std::move(status); });
    return inserted.code();
  };
  ASSERT_EQ(insert(), StatusCode::kOk);
  SampleChain chain(ram->Find(kSample), {});
  ram->Erase(kSample);
  EXPECT_EQ(insert(), StatusCode::kResourceExhausted) << "the chain refers to it";
  chain.Reset();
  EXPECT_EQ(insert(), StatusCode::kOk);
}

TEST(SampleChainTest, OnlyTiersAndNodesHaveANextSource) {
  const Tier::EntryRef entry;
  EXPECT_TRUE(HasNextSource(&entry));
  EXPECT_TRUE(HasNextSource(SampleAtNode{}));
  EXPECT_FALSE(HasNextSource(Extent{}));
  EXPECT_FALSE(HasNextSource(PartAtNode{})) << "a parcel's home alone reads it";
}

}  // namespace
}  // namespace headrace
