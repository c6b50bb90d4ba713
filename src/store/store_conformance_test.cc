#include "store/store_conformance.h"

#include <utility>

#include "base/clock.h"
#include "base/testing/test_executor.h"
#include "store/decoded/decoded_store.h"
#include "store/decoded/file_decoder.h"
#include "store/decoded/testing/coded_files.h"
#include "store/memory_store.h"
#include "store/objects/object_store.h"
#include "store/objects/testing/object_files.h"
#include "store/retry_store.h"
#include "store/rowgroups/row_group_decoder.h"
#include "store/rowgroups/testing/group_files.h"
#include "store/share/read_share.h"
#include "store/share/shared_store.h"
#include "store/testing/faulty_store.h"
#include "store/testing/gated_store.h"
#include "store/testing/reader.h"
#include "store/testing/slow_store.h"
#include "store/testing/temp_files.h"
#include "store/thread_file_store.h"
#include "store/uring_file_store.h"

namespace headrace {
namespace {

// A store that needs nothing else.
template <typename Store>
class Alone : public StoreUnderTest {
 public:
  explicit Alone(std::unique_ptr<Store> store) : store_(std::move(store)) {}
  ByteStore& store() override { return *store_; }
  void DestroyStore() override { store_ = nullptr; }

 protected:
  std::unique_ptr<Store> store_;
};

std::unique_ptr<MemoryStore> InMemory(const StoreObjects& objects) {
  return std::make_unique<MemoryStore>(
      std::unordered_map<ObjectId, std::string>(objects.begin(), objects.end()));
}

using MakeResult = Result<std::unique_ptr<StoreUnderTest>>;

MakeResult MakeMemory(const StoreObjects& objects) {
  return MakeResult(std::make_unique<Alone<MemoryStore>>(InMemory(objects)));
}

MakeResult MakeRetry(const StoreObjects& objects) {
  return MakeResult(std::make_unique<Alone<RetryStore>>(
      std::make_unique<RetryStore>(InMemory(objects), /*tries_max=*/3)));
}

// Shared with a job that has read some of it.
class Shared final : public StoreUnderTest {
 public:
  Shared(const StoreObjects& objects, std::uint64_t capacity_bytes)
      : share_(std::make_shared<ReadShare>(ReadShareOptions{.capacity_bytes = capacity_bytes},
                                           std::make_unique<TestExecutor>(3), clock_)),
        other_(Make(objects)),
        store_(Make(objects)) {
    ReadAll(*other_, {{ObjectId{1}, {0, 100'000}}, {ObjectId{2}, {2, 3}}});
  }
  ByteStore& store() override { return *store_; }
  void DestroyStore() override { store_ = nullptr; }

 private:
  std::unique_ptr<ByteStore> Make(const StoreObjects& objects) {
    return SharedStore::Make(InMemory(objects), share_, "data", 4096);
  }

  MonotonicClock clock_;
  const std::shared_ptr<ReadShare> share_;
  const std::unique_ptr<ByteStore> other_;
  std::unique_ptr<ByteStore> store_;
};

// Late answers do not violate the contract.
MakeResult MakeFaulty(const StoreObjects& objects) {
  return MakeResult(std::make_unique<Alone<FaultyStore>>(
      std::make_unique<FaultyStore>(InMemory(objects), FaultyStoreOptions{.late = 0.5})));
}

class Gated final : public Alone<GatedStore> {
 public:
  using Alone::Alone;
  std::function<void()> pump() override {
    return [this] { store_->ReleaseAll(); };
  }
};

MakeResult MakeGated(const StoreObjects& objects) {
  return MakeResult(std::make_unique<Gated>(std::make_unique<GatedStore>(InMemory(objects))));
}

class Slow final : public StoreUnderTest {
 public:
  explicit Slow(const StoreObjects& objects)
      : executor_(2),
        store_(std::make_unique<SlowStore>(InMemory(objects), executor_, clock_,
                                           [](const Extent&) { return 1000; })) {}
  ByteStore& store() override { return *store_; }
  void DestroyStore() override { store_ = nullptr; }

 private:
  MonotonicClock clock_;
  TestExecutor executor_;
  std::unique_ptr<SlowStore> store_;
};

MakeResult MakeSlow(const StoreObjects& objects) {
  return MakeResult(std::make_unique<Slow>(objects));
}

// Files, threads, and the store that reads one with the other.
class OnFiles final : public StoreUnderTest {
 public:
  OnFiles(const StoreObjects& objects, const std::string& folder, int threads)
      : files_(folder), executor_(threads) {
    for (const auto& [id, bytes] : objects) files_.Add(id, bytes);
  }
  ByteStore& store() override { return *store_; }
  void DestroyStore() override { store_ = nullptr; }

  TempFiles files_;
  TestExecutor executor_;
  std::unique_ptr<ByteStore> store_;
};

MakeResult MakeThreads(const StoreObjects& objects, ThreadFileStoreOptions options) {
  auto made = std::make_unique<OnFiles>(objects, "", 4);
  made->store_ =
      std::make_unique<ThreadFileStore>(made->files_, made->executor_, std::move(options));
  return MakeResult(std::move(made));
}

// Compressed files, threads, and the store that decodes.
class OnCodedFiles final : public StoreUnderTest {
 public:
  OnCodedFiles(const StoreObjects& objects, Coding coding, std::uint64_t kept_bytes_max)
      : executor_(3) {
    for (const auto& [id, bytes] : objects) files_.Add(id, coding, bytes);
    store_ = std::make_unique<DecodedStore>(
        std::make_unique<FileDecoder>(files_, files_.root()), executor_,
        DecodedStoreOptions{.limits = {.kept_bytes_max = kept_bytes_max}, .name = "decoded"});
  }
  ByteStore& store() override { return *store_; }
  void DestroyStore() override { store_ = nullptr; }

 private:
  CodedFiles files_;
  TestExecutor executor_;
  std::unique_ptr<ByteStore> store_;
};

MakeResult MakeDecoded(const StoreObjects& objects, Coding coding, std::uint64_t kept_bytes_max) {
  return MakeResult(std::make_unique<OnCodedFiles>(objects, coding, kept_bytes_max));
}

// Files, threads, and the store whose readers are other processes.
class OnGroupFiles final : public StoreUnderTest {
 public:
  OnGroupFiles(const StoreObjects& objects, std::uint64_t kept_bytes_max) : executor_(2) {
    for (const auto& [id, bytes] : objects) files_.Add(id, bytes);
    store_ = std::make_unique<DecodedStore>(
        std::make_unique<RowGroupDecoder>(files_, files_.root(),
                                          std::make_shared<ReaderPool>(GroupFiles::reader())),
        executor_,
        DecodedStoreOptions{.limits = {.kept_bytes_max = kept_bytes_max}, .name = "decoded"});
  }
  ByteStore& store() override { return *store_; }
  void DestroyStore() override { store_ = nullptr; }

 private:
  GroupFiles files_;
  TestExecutor executor_;
  std::unique_ptr<ByteStore> store_;
};

MakeResult MakeRowGroups(const StoreObjects& objects, std::uint64_t kept_bytes_max) {
  return MakeResult(std::make_unique<OnGroupFiles>(objects, kept_bytes_max));
}

// Objects, and the store whose fetchers are other processes.
class OnObjects final : public StoreUnderTest {
 public:
  static MakeResult Make(const StoreObjects& objects, ObjectStoreOptions options) {
    auto made = std::make_unique<OnObjects>();
    for (const auto& [id, bytes] : objects) made->files_.Add(id, bytes);
    options.fetchers.command = made->files_.fetcher();
    HEADRACE_ASSIGN_OR_RETURN(made->store_,
                              ObjectStore::Open(made->files_, made->executor_, std::move(options)));
    return MakeResult(std::move(made));
  }
  ByteStore& store() override { return *store_; }
  void DestroyStore() override { store_ = nullptr; }

 private:
  ObjectFiles files_;
  TestExecutor executor_{1};
  std::unique_ptr<ByteStore> store_;
};

MakeResult MakeUring(const StoreObjects& objects, const std::string& folder,
                     UringFileStoreOptions options) {
  auto made = std::make_unique<OnFiles>(objects, folder, 1);
  HEADRACE_ASSIGN_OR_RETURN(
      made->store_, UringFileStore::Open(made->files_, made->executor_, std::move(options)));
  return MakeResult(std::move(made));
}

std::string CaseName(const testing::TestParamInfo<StoreCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreConformanceTest,
    testing::Values(
        StoreCase{"Memory", MakeMemory}, StoreCase{"RetryMemory", MakeRetry},
        StoreCase{"FaultyLate", MakeFaulty}, StoreCase{"Gated", MakeGated},
        StoreCase{"Slow", MakeSlow},
        StoreCase{"Shared",
                  [](const StoreObjects& o) {
                    return MakeResult(std::make_unique<Shared>(o, 64 * kMiB));
                  }},
        StoreCase{"SharedLittle",
                  [](const StoreObjects& o) {
                    return MakeResult(std::make_unique<Shared>(o, 200 * kKiB));
                  }},
        StoreCase{"DecodedZstd",
                  [](const StoreObjects& o) { return MakeDecoded(o, Coding::kZstd, 0); }},
        StoreCase{"DecodedGzip",
                  [](const StoreObjects& o) { return MakeDecoded(o, Coding::kGzip, 1 << 20); }},
        StoreCase{"DecodedStored",
                  [](const StoreObjects& o) { return MakeDecoded(o, Coding::kStored, 1 << 20); }},
        StoreCase{"RowGroups", [](const StoreObjects& o) { return MakeRowGroups(o, 1 << 20); }},
        StoreCase{"RowGroupsNotKept", [](const StoreObjects& o) { return MakeRowGroups(o, 0); }},
        StoreCase{"Objects", [](const StoreObjects& o) { return OnObjects::Make(o, {}); }},
        StoreCase{"ObjectsInPieces",
                  [](const StoreObjects& o) {
                    return OnObjects::Make(
                        o, {.fetchers = {.memory_bytes = 16 * CellSpace::kUnitBytes},
                            .piece_bytes = 5000});
                  }},
        StoreCase{"Threads", [](const StoreObjects& o) { return MakeThreads(o, {}); }},
        StoreCase{"ThreadsDirect",
                  [](const StoreObjects& o) {
                    return MakeThreads(o, {.direct = true, .page_cache = false});
                  }},
        StoreCase{"ThreadsDirectOrCached",
                  [](const StoreObjects& o) { return MakeThreads(o, {.direct = true}); }},
        StoreCase{"UringDirect",
                  [](const StoreObjects& o) { return MakeUring(o, "", {.page_cache = false}); }},
        StoreCase{"UringDirectOrCached",
                  [](const StoreObjects& o) { return MakeUring(o, "", {}); }},
        StoreCase{"UringShallow",
                  [](const StoreObjects& o) {
                    return MakeUring(o, "", {.queue_depth = 1, .page_cache = false});
                  }},
        StoreCase{"UringDirectRefused",
                  [](const StoreObjects& o) {
                    return MakeUring(o, "", {.page_cache = false, .direct_alignment = 1});
                  }},
        StoreCase{
            "UringBufferedTmpfs",
            [](const StoreObjects& o) { return MakeUring(o, "/dev/shm", {.direct = false}); }}),
    CaseName);

}  // namespace
}  // namespace headrace
