#include "engine/decode/sample_decoder.h"

#include <memory>
#include <string>
#include <vector>

#include "base/coding/testing/encoded.h"
#include "base/hash.h"
#include "codec/bytes_codec.h"
#include "gtest/gtest.h"
#include "index/testing/table_index.h"
#include "tier/ram_tier.h"

namespace headrace {
namespace {

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

// A codec that reverses the stored bytes, and needs as much scratch memory as they are.
class Reversing final : public FieldCodec {
 public:
  [[nodiscard]] std::uint64_t RowBytes(std::uint64_t bytes) const override { return bytes; }
  Status DecodeWithin(std::span<const std::byte> encoded, const SampleKey& /*key*/,
                      std::span<std::byte> row, ScratchLimit& limit) const override {
    limit.bytes_needed = encoded.size();
    if (limit.bytes_needed > limit.bytes_max) {
      return Status(StatusCode::kResourceExhausted, "reversing takes more");
    }
    std::copy(encoded.rbegin(), encoded.rend(), row.begin());
    return Status();
  }
};

// One stored field "text" of ragged rows and one inline field "label", samples in one object.
class SampleDecoderTest : public ::testing::Test {
 protected:
  SampleDecoderTest() {
    const std::vector<std::string> samples = {"first", "second sample", ""};
    index_.samples = samples.size();
    TableIndex::Column column{.info = {.name = "text", .has_checksums = true}};
    std::string object;
    for (const std::string& sample : samples) {
      column.extents.push_back({ObjectId{0}, {object.size(), sample.size()}});
      column.checksums.push_back(Hash64(Bytes(sample)));
      object += sample;
      index_.labels.push_back(static_cast<std::int64_t>(index_.labels.size()) * 11);
    }
    index_.objects = {object};
    index_.columns = {column};
    index_.infos = {column.info, {.name = "label", .kind = FieldKind::kArray, .is_inline = true}};
    schema_ = {{.name = "text", .index_field = 0, .codec = MakeBytesCodec(), .ragged = true},
               {.name = "label", .index_field = 1, .dtype = DType::kInt64, .row_bytes = 8}};
  }

  // Decodes into a batch of one row, and returns that as text.
  Result<std::string> Decode(std::uint64_t id, const StoredSample& sample, std::size_t row_bytes) {
    row_.assign(row_bytes, std::byte{'?'});
    label_.assign(8, std::byte{0});
    Batch batch;
    batch.samples = {SampleId{id}};
    batch.fields = {{.rows = {row_}}, {.packed = label_}};
    const Verifier verifier(index_, verify_);
    const StoredFields fields(index_, schema_);
    const SampleDecoder decoder(fields, cells_.get(), verifier);
    StoredSample keyed = sample;
    keyed.key = {.sample = SampleId{id}};
    HEADRACE_RETURN_IF_ERROR(decoder.Decode(keyed, batch, 0, scratch_, limit_, copied_));
    return std::string(reinterpret_cast<const char*>(row_.data()), row_.size());
  }

  std::int64_t label() const {
    std::int64_t value = 0;
    std::memcpy(&value, label_.data(), sizeof(value));
    return value;
  }

  static StoredPiece All(Fetch& read) {
    return {.read = &read, .offset = 0, .size = read.data.size()};
  }
  Fetch Read(std::string text) {
    text_ = std::move(text);
    return {.data = std::as_writable_bytes(std::span(text_))};
  }

  TableIndex index_;
  std::vector<BatchField> schema_;
  std::shared_ptr<CellPool> cells_;
  bool verify_ = true;
  std::string text_;
  std::vector<std::byte> row_;
  std::vector<std::byte> label_;
  SampleDecoder::GatheredBytes scratch_;
  ScratchLimit limit_;
  std::uint64_t copied_ = 0;
};

TEST_F(SampleDecoderTest, CopiesWhatAReadBroughtAndTheInlineValue) {
  Fetch read = Read("second sample");
  const StoredPiece piece = All(read);
  const Result<std::string> row = Decode(1, {.pieces = &piece}, 13);
  ASSERT_TRUE(row.ok()) << row.status().message();
  EXPECT_EQ(row.value(), "second sample");
  EXPECT_EQ(label(), 11);
  EXPECT_EQ(copied_, 13U + 8U);
}

TEST_F(SampleDecoderTest, DecompressesWhatIsCompressedAndCountsNoCopy) {
  schema_[0].coding = Coding::kGzip;
  index_.columns[0].decoded_sizes = {4, 500, 0};
  const std::string text(500, 'z');
  Fetch read = Read(Encoded(Coding::kGzip, text));
  index_.columns[0].checksums[1] = Hash64(Bytes(text_));
  const StoredPiece piece = All(read);
  EXPECT_EQ(Decode(1, {.pieces = &piece}, 500).value(), text);
  EXPECT_EQ(copied_, 8U);
}

TEST_F(SampleDecoderTest, DamageOfCompressedBytesNamesFieldFileAndBothSizes) {
  schema_[0].coding = Coding::kGzip;
  index_.columns[0].decoded_sizes = {4, 499, 0};
  Fetch read = Read(Encoded(Coding::kGzip, std::string(500, 'z')));
  index_.columns[0].checksums[1] = Hash64(Bytes(text_));
  const StoredPiece piece = All(read);
  const Status status = Decode(1, {.pieces = &piece}, 499).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.message(),
            "field text: gzip bytes [5, 18) of a: it decodes to 500 bytes or more, the index says "
            "499; copy or write the file again, or give on_error=\"substitute\"");
}

TEST_F(SampleDecoderTest, ARoomForAnotherSizeIsTheIndexsContradiction) {
  schema_[0].coding = Coding::kGzip;
  index_.columns[0].decoded_sizes = {4, 500, 0};
  Fetch read = Read(Encoded(Coding::kGzip, std::string(500, 'z')));
  index_.columns[0].checksums[1] = Hash64(Bytes(text_));
  const StoredPiece piece = All(read);
  const Status status = Decode(1, {.pieces = &piece}, 499).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("500 decoded bytes make a row of 500 bytes, the batch has room"),
            std::string_view::npos);
}

TEST_F(SampleDecoderTest, TakesThePartOfAReadThatIsTheSamples) {
  Fetch read = Read("firstsecond sample");
  const StoredPiece piece{.read = &read, .offset = 5, .size = 13};
  EXPECT_EQ(Decode(1, {.pieces = &piece}, 13).value(), "second sample");
}

TEST_F(SampleDecoderTest, DamagedBytesAreAnErrorThatNamesTheField) {
  Fetch read = Read("second_sample");
  const StoredPiece piece = All(read);
  const Status status = Decode(1, {.pieces = &piece}, 13).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("field text: its checksum differs"), std::string::npos)
      << status.message();
}

TEST_F(SampleDecoderTest, DamagedBytesPassWhereNobodyVerifiesOrTheSourceHas) {
  Fetch read = Read("second_sample");
  const StoredPiece piece = All(read);
  verify_ = false;
  EXPECT_EQ(Decode(1, {.pieces = &piece}, 13).value(), "second_sample");
  verify_ = true;
  read.checked = true;
  EXPECT_EQ(Decode(1, {.pieces = &piece}, 13).value(), "second_sample");
}

TEST_F(SampleDecoderTest, BytesThatWereReadIntoTheirRowAreVerifiedAndNotCopied) {
  Fetch read = Read("first");
  read.room = read.data;
  const StoredPiece piece = All(read);
  EXPECT_EQ(Decode(0, {.pieces = &piece}, 5).value(), "?????") << "the row is where they lie";
  EXPECT_EQ(copied_, 8U) << "the label alone";
  text_ = "fIrst";
  EXPECT_EQ(Decode(0, {.pieces = &piece}, 5).status().code(), StatusCode::kDataLoss);
}

TEST_F(SampleDecoderTest, ARowOfAnotherSizeThanTheStoredBytesIsAnError) {
  Fetch read = Read("first");
  const StoredPiece piece = All(read);
  const Status status = Decode(0, {.pieces = &piece}, 6).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.message(),
            "field text: the index contradicts itself: 5 stored bytes make a row of 5 bytes, the "
            "batch has room for 6; index the dataset again (headrace index)");
}

TEST_F(SampleDecoderTest, NoBytesAreAnErrorWhereTheFieldMayNotBeEmpty) {
  Fetch read = Read("");
  const StoredPiece piece = All(read);
  EXPECT_EQ(Decode(2, {.pieces = &piece}, 0).value(), "");
  schema_[0].may_be_empty = false;
  const Status status = Decode(2, {.pieces = &piece}, 0).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("0 bytes when the dataset was indexed"), std::string::npos);
}

TEST_F(SampleDecoderTest, SamplesInSeveralCellsAreCopiedOrGathered) {
  cells_ = CellPool::Make(/*capacity_units=*/16, /*unit_bytes=*/4).value();
  // Every second cell is taken, so that no two neighbours are free.
  std::vector<CellRun> single(16);
  const std::vector<std::uint32_t> ones(16, 1);
  ASSERT_TRUE(cells_->Take(ones, single));
  for (std::size_t i = 0; i < single.size(); i += 2) cells_->Release(single[i]);
  std::vector<CellRun> run(1);
  const std::vector<std::uint32_t> four = {4};
  ASSERT_TRUE(cells_->Take(four, run));
  const std::string text = "second sample";
  cells_->CopyIn(run[0], 0, Bytes(text));

  const StoredPiece piece{.size = text.size()};
  EXPECT_EQ(Decode(1, {.pieces = &piece, .cells = run[0]}, 13).value(), text);

  schema_[0].codec = std::make_shared<Reversing>();
  EXPECT_EQ(Decode(1, {.pieces = &piece, .cells = run[0]}, 13).value(), "elpmas dnoces");
  EXPECT_EQ(limit_.bytes_needed, 26U) << "gathered, and reversed";

  scratch_.clear();
  limit_ = {.bytes_max = 12};
  EXPECT_EQ(Decode(1, {.pieces = &piece, .cells = run[0]}, 13).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(limit_.bytes_needed, 13U);

  cells_->Release(run[0]);
  for (std::size_t i = 1; i < single.size(); i += 2) cells_->Release(single[i]);
}

TEST_F(SampleDecoderTest, EntriesOfATierInMemoryAreComparedWithItsChecksum) {
  const std::unique_ptr<RamTier> tier = RamTier::Make(1 << 12, 64).value();
  const std::string text = "second sample";
  tier->Insert(SampleId{1}, {Bytes(text)}, [](const Status& status) { ASSERT_TRUE(status.ok()); });
  const Tier::EntryRef entry = tier->Find(SampleId{1});
  const StoredPiece piece{.size = text.size()};
  EXPECT_EQ(Decode(1, {.pieces = &piece, .entry = &entry}, 13).value(), text);

  const auto stored = tier->View(entry, 0, text.size());
  ASSERT_TRUE(stored.has_value());
  const_cast<std::byte&>(stored->front()) = std::byte{'S'};
  EXPECT_EQ(Decode(1, {.pieces = &piece, .entry = &entry}, 13).status().code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(tier->stats().corrupt, 1U);
}

}  // namespace
}  // namespace headrace
