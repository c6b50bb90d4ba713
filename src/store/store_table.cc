#include "store/store_table.h"

#include <utility>

#include "store/retry_store.h"

namespace headrace {
namespace {

constexpr int kReadTries = 3;

Result<StoreParts> OpenWith(const StoreFactory& factory, const StoreRequest& request) {
  HEADRACE_ASSIGN_OR_RETURN(StoreParts parts, factory.Open(request));
  if (factory.reads_storage()) {
    parts.store = std::make_unique<RetryStore>(std::move(parts.store), kReadTries);
  }
  return parts;
}

}  // namespace

const Registry<StoreFactory>& Stores() {
  static const Registry<StoreFactory> stores(
      "io", {&UringStoreFactory(), &ThreadStoreFactory(), &DecodedStoreFactory(),
             &RowGroupStoreFactory(), &SyntheticStoreFactory()});
  return stores;
}

Status CheckStoreName(std::string_view name) {
  if (name == kAnyStore || Stores().Find(name) != nullptr) return Status();
  return Status(StatusCode::kInvalidArgument, "io: got '" + std::string(name) +
                                                  "', must be one of '" + std::string(kAnyStore) +
                                                  "', " + Stores().Names());
}

bool ReadsStorage(std::string_view name) {
  const StoreFactory* factory = Stores().Find(name);
  return factory == nullptr || factory->reads_storage();
}

Status CheckScheme(const StoreRequest& request, std::string_view scheme) {
  if (request.scheme == scheme) return Status();
  return Status(StatusCode::kFailedPrecondition,
                "io: '" + std::string(scheme) + "' reads only objects of " + std::string(scheme) +
                    "://, these are of " + request.scheme + "://; leave io= out");
}

Result<StoreParts> OpenStoreOf(StoreRequest request, std::string_view name) {
  HEADRACE_RETURN_IF_ERROR(CheckStoreName(name));
  if (name != kAnyStore) {
    const StoreFactory& factory = *Stores().Find(name);
    if (factory.reads_storage() && request.scheme != kFileScheme && !factory.Suits(request)) {
      return Status(StatusCode::kFailedPrecondition, "io: '" + std::string(name) +
                                                         "' does not read objects of " +
                                                         request.scheme + "://; leave io= out");
    }
    return OpenWith(factory, request);
  }
  Status last(StatusCode::kFailedPrecondition,
              "no store reads objects of " + request.scheme + "://; there are " + Stores().Names());
  for (const StoreFactory* factory : Stores().rows()) {
    if (!factory->Suits(request)) continue;
    Result<StoreParts> parts = OpenWith(*factory, request);
    if (parts.ok()) return parts;
    last = parts.status();
    request.note.append("; ").append(factory->name()).append(": ").append(last.message());
  }
  return last;
}

}  // namespace headrace
