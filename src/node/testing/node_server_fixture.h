#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "gtest/gtest.h"
#include "headrace/loader.h"
#include "ipc/testing/raw_socket.h"
#include "loader/testing/bytes_dataset.h"
#include "node/client/remote_loader.h"
#include "node/server/node_server.h"

namespace headrace {

inline constexpr std::uint64_t kSamples = 96;
inline constexpr std::uint64_t kGlobalBatch = 8;
inline constexpr std::uint64_t kSteps = kSamples / kGlobalBatch;
inline constexpr std::uint64_t kEpochs = 2;

// For tests: a node process's server and its clients, in one process: what they share is what two
// processes would, a socket and sealed memory.
class NodeServerTest : public ::testing::Test {
 protected:
  void SetUp() override { fds_before_ = OpenFds(); }

  void TearDown() override {
    EndServer();
    EXPECT_EQ(OpenFds(), fds_before_);
  }

  void Serve(NodeServerOptions options = {}) {
    options.name = socket_;
    server_ = NodeServer::Make(std::move(options)).value();
    serving_ = std::jthread([this] { server_->Run(); });
  }

  // Returns when it has ended by itself: when the last client is gone.
  void WaitForEnd() {
    serving_.join();
    server_.reset();
  }

  void EndServer() {
    if (server_ == nullptr) return;
    server_->Stop();
    WaitForEnd();
  }

  static LoaderOptions OptionsOf(std::uint32_t ranks, const std::string& order = "exact") {
    return {.job = {.batch_size = kGlobalBatch / ranks,
                    .world_size = ranks,
                    .seed = 3,
                    .epochs = kEpochs},
            .order = {.name = order},
            .memory_bytes = 4 * kMiB,
            .threads = 1,
            .io = "threads"};
  }

  Result<std::unique_ptr<RemoteLoader>> TryOpen(
      std::uint32_t rank, LoaderOptions options, const std::string& job = "job",
      std::shared_ptr<const Clock> clock = std::make_shared<MonotonicClock>()) const {
    const NodeAddress address{.socket = socket_,
                              .job = job,
                              .local_rank = rank,
                              .local_ranks = options.job.world_size,
                              .index_path = dataset_.index_path(),
                              .fingerprint = dataset_.index()->fingerprint()};
    options.job.rank = rank;
    return RemoteLoader::Open(
        address, std::move(options), [] { return true; }, std::move(clock));
  }

  std::unique_ptr<RemoteLoader> Open(
      std::uint32_t rank, LoaderOptions options, const std::string& job = "job",
      std::shared_ptr<const Clock> clock = std::make_shared<MonotonicClock>()) const {
    auto opened = TryOpen(rank, std::move(options), job, std::move(clock));
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return std::move(opened).value();
  }

  // Two of four ranks differ, and leave; why the second was refused.
  [[nodiscard]] std::string FailToOpen(LoaderOptions options) const {
    const auto first = Open(0, options);
    ++options.job.seed;
    return std::string(TryOpen(1, std::move(options)).status().message());
  }

  // What the rank would get without a node process.
  std::vector<RowList> Alone(std::uint32_t rank, LoaderOptions options) const {
    options.job.rank = rank;
    const auto loader = Loader::Open(dataset_.index(), std::move(options)).value();
    EXPECT_TRUE(loader->Start({}).ok());
    return Drain(*loader);
  }

  // Takes batches until there is an error: it, and how many. Fails at the end of the job, or if
  // nothing comes in kHangNs.
  static std::pair<Status, std::uint64_t> TakeUntilTold(RemoteLoader& loader,
                                                        const LoaderOptions& options) {
    const std::uint64_t all = kSteps * options.job.epochs;
    for (std::uint64_t taken = 0; taken < all; ++taken) {
      const Result<TakenBatch> next = loader.Next(kHangNs);
      if (!next.ok()) return {next.status(), taken};
      if (next.value().batch == nullptr) {
        ADD_FAILURE() << "nothing came after " << taken << " batches";
        return {Status(), taken};
      }
    }
    ADD_FAILURE() << "no error in " << all << " batches";
    return {Status(), all};
  }

  // Every rank on a thread of its own.
  static void OnEachRank(std::uint32_t ranks, const std::function<void(std::uint32_t)>& work) {
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&work, rank] { work(rank); });
    }
  }

  const BytesDataset dataset_{{.samples = kSamples, .sample_bytes_max = 9000}};
  std::size_t fds_before_ = 0;
  const std::string socket_ = UniqueSocketName();
  std::unique_ptr<NodeServer> server_;
  std::jthread serving_;
};

}  // namespace headrace
