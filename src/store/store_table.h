#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/executor.h"
#include "base/registry/registry.h"
#include "headrace/part_options.h"
#include "headrace/status.h"
#include "store/byte_store.h"
#include "store/file_table.h"
#include "store/object_memory.h"

namespace headrace {

// The scheme of objects whose names are paths.
inline constexpr std::string_view kFileScheme = "file";

// The "s3" of a root "s3://bucket/data"; kFileScheme for a path.
std::string_view SchemeOf(std::string_view root);

// The request to open a store.
struct StoreRequest {
  const FileCatalog* catalog = nullptr;  // outlives the store
  std::string scheme;                    // SchemeOf(root)
  std::string root;                      // of the index
  bool large_files = false;              // objects hold many samples each
  bool avoid_page_cache = false;         // to measure storage, not memory
  std::string note;                      // for StoreStats::note
  int reads_at_once = 0;                 // 0: enough to keep an SSD busy
  DecodedLimits decoded;                 // if it decodes objects as a whole
  RequestLimits requests;                // if requests take memory of its own
  // Makes threads for the store, whose owner keeps them as long as the store.
  std::function<Result<std::unique_ptr<Executor>>(int threads, std::string name)> start_threads;
  // Some stored samples, read through another store.
  std::function<Result<std::vector<std::string>>()> examples;

  [[nodiscard]] bool direct() const { return large_files || avoid_page_cache; }
};

// A store, and the threads that it runs on.
struct StoreParts {
  std::unique_ptr<Executor> executor;  // null: it needs none. Destroyed after the store
  std::unique_ptr<ByteStore> store;
  bool retries_itself = false;  // even if StoreNeeds does not say so
};

// Opens one kind of store. Each lies beside its store and has a row in store_table.cc: a new store
// is one new file and one such row. Stateless.
class StoreFactory {
 public:
  virtual ~StoreFactory() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  // Whether it reads such objects. False for a store that is used only if its name is given.
  [[nodiscard]] virtual bool Suits(const StoreRequest& request) const = 0;
  // Whether it returns the stored bytes. If not, checksums do not apply, each read must be of one
  // sample, and tiers keep nothing.
  [[nodiscard]] virtual bool reads_storage() const { return true; }
  [[nodiscard]] virtual StoreNeeds needs() const { return {}; }
  // Memory for an object of this name and size; std::nullopt: the store decodes none as a whole.
  [[nodiscard]] virtual std::optional<ObjectMemory> MemoryOf(std::string_view /*name*/,
                                                             std::uint64_t /*size*/) const {
    return std::nullopt;
  }

  // Errors: FailedPrecondition, ResourceExhausted  it cannot be used here
  //         those of StoreRequest's functions
  [[nodiscard]] virtual Result<StoreParts> Open(const StoreRequest& request) const = 0;
};

// The first store that suits and can be opened is used.
Registry<StoreFactory>& Stores();

const StoreFactory& UringStoreFactory();
const StoreFactory& ThreadStoreFactory();
const StoreFactory& DecodedStoreFactory();
const StoreFactory& RowGroupStoreFactory();
const StoreFactory& ObjectStoreFactory();
const StoreFactory& SyntheticStoreFactory();

// Errors: InvalidArgument  no store of that name, or it reads no objects of that scheme
Status CheckStore(std::string_view name, std::string_view scheme);

// The store that OpenStoreOf() tries first; null: none suits. The name must be valid.
const StoreFactory* FindStore(std::string_view name, const StoreRequest& request);

// What the store needs that OpenStoreOf() tries first.
StoreNeeds NeedsOf(std::string_view name, std::string_view scheme);

// Whether the store of that name returns the stored bytes: see StoreFactory. True if there is none.
bool ReadsStorage(std::string_view name);

// For factories of stores that read one scheme only, which has the store's name.
//
// Errors: FailedPrecondition  the request is of another scheme
Status CheckScheme(const StoreRequest& request, std::string_view scheme);

// Opens the store of that name, or with kAnyStore the first that suits; the note of its statistics
// says why those before it could not be opened. Reads that are Unavailable are repeated,
// unless the store does that itself.
//
// Errors: those of CheckStore, and of StoreFactory::Open
//         FailedPrecondition  no store suits
Result<StoreParts> OpenStoreOf(StoreRequest request, std::string_view name);

}  // namespace headrace
