#include "node/client/batch_mapper.h"

#include <fcntl.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/batch/batch_memory.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Of a message "reading a message of the node process: CAUSE; report this defect of headrace".
std::string Cause(const Status& status) {
  const std::string text(status.message());
  const std::size_t from = text.find(": ") + 2;
  return text.substr(from, text.rfind("; ") - from);
}

class BatchMapperTest : public ::testing::Test {
 protected:
  BatchMapperTest() {
    schema_.push_back({.name = "text", .ragged = true});
    schema_.push_back({.name = "pair", .row_bytes = 2});
  }

  // A memory of the node that holds `text`, under a number.
  void Add(std::uint32_t number, const std::string& text, bool dedicated = false) {
    const auto memory = SharedMemory::Make("test", 4096).value();
    std::memcpy(memory->bytes().data(), text.data(), text.size());
    IpcMessage message;
    message.fds.emplace_back(::fcntl(memory->fd(), F_DUPFD_CLOEXEC, 0));
    const Status added =
        mapper_.Add({.memory = number, .bytes = 4096, .dedicated = dedicated}, message);
    ASSERT_TRUE(added.ok()) << added.ToString();
  }

  // Two samples: their texts in memory 1, their pairs in memory 2.
  static BatchReady TwoSamples() {
    BatchReady ready;
    ready.epoch = 3;
    ready.samples = {SampleId{8}, SampleId{5}};
    ready.fields = {{{.memory = 1, .offset = 4, .size = 3}, {.memory = 1, .offset = 0, .size = 4}},
                    {{.memory = 2, .offset = 1, .size = 4}}};
    return ready;
  }
  std::string Refusal(BatchReady ready) {
    const Status status = mapper_.Map(std::move(ready), schema_).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    return Cause(status);
  }

  std::vector<BatchField> schema_;
  BatchMapper mapper_;
};

TEST_F(BatchMapperTest, RowsLieWhereTheNodeSays) {
  Add(1, "zeroone");
  Add(2, "-abcd");
  const auto batch = mapper_.Map(TwoSamples(), schema_);
  ASSERT_TRUE(batch.ok()) << batch.status().ToString();
  EXPECT_EQ(batch.value()->epoch, 3U);
  EXPECT_EQ(batch.value()->samples, (std::vector<SampleId>{SampleId{8}, SampleId{5}}));
  EXPECT_EQ(Text(batch.value()->row(schema_, 0, 0)), "one");
  EXPECT_EQ(Text(batch.value()->row(schema_, 0, 1)), "zero");
  EXPECT_EQ(Text(batch.value()->row(schema_, 1, 0)), "ab");
  EXPECT_EQ(Text(batch.value()->row(schema_, 1, 1)), "cd");
}

TEST_F(BatchMapperTest, ADedicatedMemoryIsTheNextBatchsAlone) {
  Add(1, "zeroone");
  Add(2, "-abcd", /*dedicated=*/true);
  EXPECT_TRUE(mapper_.Map(TwoSamples(), schema_).ok());
  EXPECT_EQ(Refusal(TwoSamples()), "a batch lies in memory 2, which is unknown");
}

TEST_F(BatchMapperTest, OwnRowsAreCopiesThatNeedNoLease) {
  Add(1, "zeroone");
  Add(2, "-abcd");
  const auto shared = mapper_.Map(TwoSamples(), schema_).value();
  const auto own = mapper_.Map(TwoSamples(), schema_).value();
  const auto lease = std::make_shared<int>();
  own->memory->lease = lease;
  ASSERT_TRUE(OwnRows(*own).ok());
  EXPECT_EQ(lease.use_count(), 1);
  EXPECT_TRUE(own->memory->mapped.empty());
  shared->row(schema_, 0, 0)[0] = std::byte{'x'};
  shared->row(schema_, 1, 1)[0] = std::byte{'x'};
  EXPECT_EQ(Text(own->row(schema_, 0, 0)), "one");
  EXPECT_EQ(Text(own->row(schema_, 0, 1)), "zero");
  EXPECT_EQ(Text(own->row(schema_, 1, 0)), "ab");
  EXPECT_EQ(Text(own->row(schema_, 1, 1)), "cd");
  for (const std::span<std::byte> row : {own->row(schema_, 0, 1), own->fields[1].packed}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(row.data()) % kRowAlignment, 0U);
  }
}

TEST_F(BatchMapperTest, NothingThatTheNodeSaysIsTakenOnTrust) {
  Add(1, "zeroone");
  Add(2, "-abcd");
  BatchReady past = TwoSamples();
  past.fields[1][0].offset = 4093;
  EXPECT_EQ(Refusal(past),
            "a batch takes 4 bytes from byte 4093 on of memory 2, which has 4096 bytes");
  BatchReady huge = TwoSamples();
  huge.fields[0][0] = {.memory = 1, .offset = 8, .size = ~std::uint64_t{0}};
  EXPECT_NE(Refusal(huge).find("of memory 1, which has 4096 bytes"), std::string::npos);
  BatchReady odd = TwoSamples();
  odd.fields[1][0].size = 6;
  EXPECT_EQ(Refusal(odd), "2 rows of field pair have 6 bytes, must be 2 each");
  BatchReady few = TwoSamples();
  few.fields[0].pop_back();
  EXPECT_EQ(Refusal(few), "a batch of 2 rows has 1 places of field text");
  BatchReady other = TwoSamples();
  other.fields.pop_back();
  EXPECT_EQ(Refusal(other), "a batch has 1 fields, the loader 2");
  IpcMessage without;
  EXPECT_EQ(Cause(mapper_.Add({.memory = 3, .bytes = 4096}, without)),
            "a new memory with 0 descriptors, must be 1");
}

}  // namespace
}  // namespace headrace
