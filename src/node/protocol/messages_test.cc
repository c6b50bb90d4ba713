#include "node/protocol/messages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ipc/sealed_bytes.h"
#include "ipc/wire.h"

namespace headrace {
namespace {

// What is written, read and written again is the same: so each part was read as it was written.
template <typename Message>
Message Returned(const Message& message) {
  const std::vector<std::byte> bytes = Encode(message);
  auto decoded = [&] {
    if constexpr (std::is_same_v<Message, ClientMessage>) {
      return DecodeClientMessage(bytes);
    } else {
      return DecodeNodeMessage(bytes);
    }
  }();
  EXPECT_TRUE(decoded.ok()) << decoded.status().ToString();
  if (!decoded.ok()) return message;
  EXPECT_EQ(Encode(decoded.value()), bytes);
  return std::move(decoded).value();
}

MachineModel SomeModel() {
  MachineModel model;
  const Curve curve = Curve::Make({{.users = 1, .rate = 2e9}, {.users = 4, .rate = 5e9}}).value();
  model.storage.rate = SizedRates::Make({{.bytes = 4096, .rate = curve}}).value();
  model.storage.rate_max = 1e10;
  model.readers = 3;
  model.tiers.push_back({.read = SizedRates::OfAnySize(curve), .write = {}, .threads = 2});
  model.decode = curve;
  model.preprocess_rate = 7e8;
  return model;
}

LoaderOptions SomeOptions() {
  LoaderOptions options;
  options.fields = {{.name = "label", .encoded = EncodedImages::kDecodable},
                    {.name = "image", .image = {{}}},
                    {.name = "sound", .sound = {{.frames = 160, .channels = 2, .rate = 8000}}}};
  options.fields[1].image->random_resized_crop = {{.scale = {0.5, 0.75}, .ratio = {1, 2}}};
  options.fields[1].image->mean = {0.25F, 0.5F, 0.75F};
  options.fields[1].image->pixels_max = 12345;
  options.job = {.batch_size = 32, .world_size = 8, .rank = 5, .seed = 77, .shuffle = false};
  options.order.name = "epoch";
  options.order.parameters = {{"pools", std::int64_t{48}}, {"refill", std::string("random")}};
  options.order.homes =
      std::make_shared<const std::vector<std::uint32_t>>(std::vector<std::uint32_t>{0, 1, 0});
  options.memory_bytes = std::uint64_t{1} << 33;
  options.threads = 3;
  options.io = "threads";
  options.on_error = OnError::kSubstitute;
  options.verify = false;
  options.worker_results = true;
  options.batches_behind = 4;
  options.tiers.tiers = {{.path = "", .capacity_bytes = 10, .threads = 1},
                         {.path = "/nvme", .capacity_bytes = 20, .threads = 8}};
  options.tiers.placement = "belady";
  options.tiers.horizon_epochs = 3;
  options.model = SomeModel();
  return options;
}

TEST(MessagesTest, WhatARankSaysIsReadAsItWasSaid) {
  const auto hello = std::get<ClientHello>(
      Returned(ClientMessage(ClientHello{.library = "1.2.3", .pid = 42, .rank = 7})));
  EXPECT_EQ(hello.library, "1.2.3");
  EXPECT_EQ(hello.pid, 42U);
  EXPECT_EQ(hello.rank, 7U);

  const auto open =
      std::get<OpenSession>(Returned(ClientMessage(OpenSession{.job = "a/0",
                                                               .local_rank = 1,
                                                               .local_ranks = 4,
                                                               .index_path = "/data/x.hri",
                                                               .fingerprint = "ff",
                                                               .options = SomeOptions()})));
  EXPECT_EQ(open.local_ranks, 4U);
  EXPECT_EQ(open.index_path, "/data/x.hri");
  const LoaderOptions wanted = SomeOptions();
  EXPECT_EQ(open.options.fields[1].image->random_resized_crop->scale[1], 0.75);
  EXPECT_EQ(open.options.fields[1].image->mean[2], 0.75F);
  EXPECT_FALSE(open.options.fields[0].image.has_value());
  EXPECT_EQ(open.options.fields[0].encoded, EncodedImages::kDecodable);
  EXPECT_FALSE(open.options.fields[1].sound.has_value());
  EXPECT_EQ(open.options.fields[2].sound->frames, 160U);
  EXPECT_EQ(open.options.fields[2].sound->rate, 8000U);
  EXPECT_EQ(open.options.job.rank, 5U);
  EXPECT_FALSE(open.options.job.shuffle);
  EXPECT_EQ(open.options.order.parameters, wanted.order.parameters);
  EXPECT_EQ(*open.options.order.homes, *wanted.order.homes);
  EXPECT_EQ(open.options.order.costs, nullptr);
  EXPECT_EQ(open.options.io, "threads");
  EXPECT_EQ(open.options.on_error, OnError::kSubstitute);
  EXPECT_EQ(open.options.batches_behind, 4U);
  EXPECT_EQ(open.options.tiers.tiers[1].path, "/nvme");
  EXPECT_EQ(open.options.model->storage.rate.Rate(4096, 4), 5e9);
  EXPECT_EQ(open.options.model->tiers[0].write.Rate(1, 1), kUnlimited);

  const auto list = std::get<StartListRun>(Returned(ClientMessage(StartListRun{
      .start = 3, .list = {.ids = {SampleId{9}, SampleId{1}}, .batch_ends = {1, 2}, .epoch = 4}})));
  EXPECT_EQ(list.list.ids[0], SampleId{9});
  EXPECT_EQ(list.list.batch_ends[1], 2U);
  const auto note = std::get<BatchNote>(Returned(ClientMessage(
      BatchNote{.taken = {{.number = 5, .at_ns = 7}}, .let_go = {3, 4}, .waiting = true})));
  EXPECT_EQ(note.let_go, (std::vector<std::uint64_t>{3, 4}));
  EXPECT_TRUE(note.waiting);
  Returned(ClientMessage(StartRun{.start = 1, .position = {.epoch = 2, .step = 3}}));
  Returned(ClientMessage(StopRun{}));
  Returned(ClientMessage(AskStats{.call = 8}));
  Returned(ClientMessage(AskRows{.call = 8, .position = {.epoch = 1, .step = 2}}));
  Returned(ClientMessage(AskRowsOf{.call = 8, .samples = {SampleId{1}}}));
  Returned(ClientMessage(CloseSession{}));
}

TEST(MessagesTest, WhatANodeSaysIsReadAsItWasSaid) {
  const auto refused = std::get<Refused>(
      Returned(NodeMessage(Refused{.status = Status(StatusCode::kNotFound, "no such order")})));
  EXPECT_EQ(refused.status.code(), StatusCode::kNotFound);
  EXPECT_EQ(refused.status.message(), "no such order");

  SessionFacts facts{.steps_per_epoch = 12,
                     .order_parameters = {{"pools", std::int64_t{4}}},
                     .order_origins = {{"pools", std::string("given")}}};
  facts.schema.push_back({.name = "image", .dtype = DType::kFloat32, .shape = {3, 8, 8}});
  facts.inflation = ExpectedInflation{
      .sharing = 0.5, .of_labels = 1.25, .of_blocks_first = 3, .of_labels_first = 2.5};
  const auto opened = std::get<SessionOpened>(
      Returned(NodeMessage(SessionOpened{.facts = facts, .batches_max = 7})));
  EXPECT_EQ(opened.batches_max, 7);
  EXPECT_EQ(opened.facts.steps_per_epoch, 12);
  EXPECT_EQ(opened.facts.schema[0].dtype, DType::kFloat32);
  EXPECT_EQ(opened.facts.schema[0].shape, facts.schema[0].shape);
  EXPECT_EQ(opened.facts.order_parameters, facts.order_parameters);
  EXPECT_EQ(opened.facts.order_origins, facts.order_origins);
  EXPECT_EQ(opened.facts.inflation->of_labels, 1.25);
  EXPECT_EQ(opened.facts.inflation->of_blocks_first, 3);
  EXPECT_EQ(opened.facts.inflation->of_labels_first, 2.5);

  BatchReady batch{.start = 1, .number = 9, .epoch = 2, .step = 3, .ends_epoch = true};
  batch.samples = {SampleId{4}, SampleId{5}};
  batch.substitutions = {{.epoch = 2, .step = 3, .slot = 1, .given = SampleId{5}, .reason = "bad"}};
  batch.sources = {0, kNoTier};
  batch.fields = {{{.memory = 1, .offset = 64, .size = 128}}};
  const auto ready = std::get<BatchReady>(Returned(NodeMessage(batch)));
  EXPECT_EQ(ready.samples, batch.samples);
  EXPECT_EQ(ready.substitutions[0].reason, "bad");
  EXPECT_EQ(ready.sources, batch.sources);
  EXPECT_EQ(ready.fields[0][0].offset, 64U);

  LoaderStats stats{.lane = 1, .threads = 2, .device_read_bytes = -1, .awaited = {1, 3}};
  stats.engine.lanes.push_back(
      {.batches = 6, .copied_bytes = 7, .stall_ns = {1, 2, 3, 4}, .gone = true});
  stats.store.note = "io_uring: EPERM";
  stats.cores = 5;
  stats.figures = {{},
                   {.step = {.count = 1, .p50_ns = 2, .p95_ns = 3, .p99_ns = 4},
                    .wait = {.count = 5},
                    .spanned_ns = 7,
                    .stall_ns = {0, 0, 8, 0}}};
  stats.imbalance = {.iterations = 9, .late = {0.5, 0.25, 0.0}, .busy = {1.0, 1.0, 0.75}};
  stats.tiers.push_back({.name = "RAM", .stats = {.degraded = true, .degraded_reason = "gone"}});
  const auto reply = std::get<StatsReply>(Returned(NodeMessage(StatsReply{.stats = stats})));
  EXPECT_EQ(reply.stats.device_read_bytes, -1);
  EXPECT_EQ(reply.stats.awaited, stats.awaited);
  EXPECT_EQ(reply.stats.engine.lanes[0].stall_ns[3], 4);
  EXPECT_TRUE(reply.stats.engine.lanes[0].gone);
  EXPECT_EQ(reply.stats.engine.lanes[0].copied_bytes, 7U);
  EXPECT_EQ(reply.stats.store.note, "io_uring: EPERM");
  EXPECT_EQ(reply.stats.tiers[0].stats.degraded_reason, "gone");
  EXPECT_EQ(reply.stats.cores, 5);
  EXPECT_EQ(reply.stats.figures[1].step.p95_ns, 3);
  EXPECT_EQ(reply.stats.figures[1].wait.count, 5U);
  EXPECT_EQ(reply.stats.figures[1].stall_ns[2], 8);
  EXPECT_EQ(reply.stats.imbalance.busy[2], 0.75);

  const auto rows = std::get<RowsReply>(
      Returned(NodeMessage(RowsReply{.call = 3, .rows = {{.slot = 2, .field = "image"}}})));
  EXPECT_EQ(rows.rows[0].field, "image");
  Returned(NodeMessage(NewMemory{.memory = 1, .bytes = 4096, .dedicated = true}));
  Returned(NodeMessage(RunEnded{.start = 1, .status = Status()}));
  Returned(NodeMessage(TierTrouble{.tiers = stats.tiers}));
}

TEST(MessagesTest, EveryShorterMessageIsAnErrorAndSoIsALongerOne) {
  std::vector<std::byte> bytes = Encode(ClientMessage(OpenSession{.options = SomeOptions()}));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto decoded = DecodeClientMessage(std::span(bytes).first(size));
    ASSERT_EQ(decoded.status().code(), StatusCode::kDataLoss) << size << " bytes";
  }
  bytes.push_back(std::byte{0});
  EXPECT_EQ(DecodeClientMessage(bytes).status().code(), StatusCode::kDataLoss);
}

TEST(MessagesTest, ListsAsLongAsADatasetGoOutOfBand) {
  StartListRun run{.start = 3, .list = {.epoch = 4}};
  for (std::uint64_t i = 0; i < 300'000; ++i) run.list.ids.push_back(SampleId{i * i});
  run.list.batch_ends = {7, 300'000};
  const IpcMessage packed = Pack(ClientMessage(run)).value();
  EXPECT_LT(packed.bytes.size(), 100U);
  ASSERT_EQ(packed.fds.size(), 1U);
  const auto decoded = DecodeClientMessage(packed.bytes, packed.fds).value();
  EXPECT_EQ(std::get<StartListRun>(decoded).list.ids, run.list.ids);
  EXPECT_EQ(std::get<StartListRun>(decoded).list.batch_ends, run.list.batch_ends);
  // Read again, as what differs between two ranks is.
  EXPECT_EQ(Encode(decoded), Encode(ClientMessage(run)));
  LoaderOptions options = SomeOptions();
  options.order.costs = std::make_shared<const std::vector<std::uint32_t>>(600'000, 5);
  const IpcMessage open = Pack(ClientMessage(OpenSession{.options = options})).value();
  ASSERT_EQ(open.fds.size(), 1U);
  const auto opened = DecodeClientMessage(open.bytes, open.fds).value();
  EXPECT_EQ(*std::get<OpenSession>(opened).options.order.costs, *options.order.costs);
}

TEST(MessagesTest, AnInvalidListOutOfBandIsAnError) {
  const AskRowsOf ask{.call = 1, .samples = std::vector<SampleId>(200'000)};
  IpcMessage packed = Pack(ClientMessage(ask)).value();
  const auto refused = [&](UniqueFd fd) {
    packed.fds.clear();
    packed.fds.push_back(std::move(fd));
    return DecodeClientMessage(packed.bytes, packed.fds).status().code();
  };
  EXPECT_EQ(DecodeClientMessage(packed.bytes).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(refused(UniqueFd(::dup(0))), StatusCode::kDataLoss);
  EXPECT_EQ(refused(MakeSealed(std::vector<std::byte>(9)).value()), StatusCode::kDataLoss);
  // More than its sender has memory for.
  UniqueFd hole(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(hole.get(), off_t{1} << 40), 0);
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  ASSERT_EQ(::fcntl(hole.get(), F_ADD_SEALS, kSeals), 0);
  EXPECT_EQ(refused(std::move(hole)), StatusCode::kDataLoss);
}

TEST(MessagesTest, AKindThatDoesNotExistIsNamed) {
  const std::vector<std::byte> bytes = {std::byte{77}};
  const Status status = DecodeClientMessage(bytes).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("a message of kind 77"), std::string_view::npos)
      << status.message();
}

TEST(MessagesTest, ACountThatCanNotBeIsAnError) {
  WireWriter writer;
  writer.PutU8(5);  // BatchNote
  writer.PutU32(std::numeric_limits<std::uint32_t>::max());
  EXPECT_EQ(DecodeClientMessage(writer.bytes()).status().code(), StatusCode::kDataLoss);
}

// Else a node could not tell an old client what is wrong.
TEST(MessagesTest, AHelloOfAnotherProtocolIsReadAsFarAsItsNumber) {
  WireWriter writer;
  writer.PutU8(0);
  writer.PutU32(kNodeProtocol + 1);
  writer.PutString("what no one knows");
  const auto decoded = DecodeClientMessage(writer.bytes());
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(std::get<ClientHello>(decoded.value()).protocol, kNodeProtocol + 1);
}

TEST(MessagesTest, ACurveThatCanNotBeIsAnError) {
  LoaderOptions options = SomeOptions();
  std::vector<std::byte> bytes = Encode(ClientMessage(OpenSession{.options = options}));
  // The users of the curve's first point, 1.0, become 9.0: they no longer ascend.
  WireWriter pattern;
  pattern.PutF64(1.0);
  pattern.PutF64(2e9);
  const auto at =
      std::search(bytes.begin(), bytes.end(), pattern.bytes().begin(), pattern.bytes().end());
  ASSERT_NE(at, bytes.end());
  WireWriter other;
  other.PutF64(9.0);
  std::copy(other.bytes().begin(), other.bytes().end(), at);
  EXPECT_EQ(DecodeClientMessage(bytes).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace headrace
