#include "store/store_table.h"

#include <utility>

#include "store/retry_store.h"

namespace headrace {
namespace {

constexpr int kReadTries = 3;

Result<StoreParts> OpenWith(const StoreFactory& factory, const StoreRequest& request) {
  HEADRACE_ASSIGN_OR_RETURN(StoreParts parts, factory.Open(request));
  const bool retries = parts.retries_itself || factory.needs().retries_itself;
  if (factory.reads_storage() && !retries) {
    parts.store = std::make_unique<RetryStore>(std::move(parts.store), kReadTries);
  }
  return parts;
}

}  // namespace

Registry<StoreFactory>& Stores() {
  static Registry<StoreFactory> stores(
      "io", {&UringStoreFactory(), &ThreadStoreFactory(), &DecodedStoreFactory(),
             &RowGroupStoreFactory(), &ObjectStoreFactory(), &SyntheticStoreFactory()});
  return stores;
}

std::string_view SchemeOf(std::string_view root) {
  const std::size_t end = root.starts_with('/') ? root.npos : root.find("://");
  return end == root.npos ? kFileScheme : root.substr(0, end);
}

Status CheckStore(std::string_view name, std::string_view scheme) {
  if (name == kAnyStore) return Status();
  const StoreFactory* factory = Stores().Find(name);
  if (factory == nullptr) {
    return Status(StatusCode::kInvalidArgument, "io: got '" + std::string(name) +
                                                    "', must be one of '" + std::string(kAnyStore) +
                                                    "', " + Stores().Names());
  }
  const StoreRequest request{.scheme = std::string(scheme)};
  if (!factory->reads_storage() || scheme == kFileScheme || factory->Suits(request)) {
    return Status();
  }
  return Status(StatusCode::kInvalidArgument, "io: '" + std::string(name) +
                                                  "' does not read objects of " +
                                                  std::string(scheme) + "://; leave io= out");
}

const StoreFactory* FindStore(std::string_view name, const StoreRequest& request) {
  if (name != kAnyStore) return Stores().Find(name);
  for (const StoreFactory* factory : Stores().rows()) {
    if (factory->Suits(request)) return factory;
  }
  return nullptr;
}

StoreNeeds NeedsOf(std::string_view name, std::string_view scheme) {
  const StoreFactory* factory = FindStore(name, {.scheme = std::string(scheme)});
  return factory == nullptr ? StoreNeeds() : factory->needs();
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
  HEADRACE_RETURN_IF_ERROR(CheckStore(name, request.scheme));
  if (name != kAnyStore) return OpenWith(*Stores().Find(name), request);
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
