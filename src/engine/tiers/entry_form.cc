#include "engine/tiers/entry_form.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "codec/codec.h"
#include "codec/decoded_form.h"

namespace headrace {
namespace {

Status NoMemory(std::uint64_t bytes) {
  return ResourceExhausted("decoding a sample for a tier: {} of memory are not free",
                           FormatBytes(bytes));
}

}  // namespace

EntryForm::EntryForm(const StoredFields& fields, SampleTable decoded,
                     std::shared_ptr<ScratchBudget> scratch)
    : fields_(fields), decoded_(std::move(decoded)), scratch_(std::move(scratch)) {
  if (decoded_ == nullptr) return;
  HEADRACE_CHECK(decoded_->size() == fields.index().sample_count());
  while (field_ < fields.size() && fields[field_].codec->decoded_form() == nullptr) ++field_;
  HEADRACE_CHECK(field_ < fields.size());
}

Result<EntryForm::Memory> EntryForm::Make(SampleId sample,
                                          std::vector<std::span<const std::byte>>& parts) const {
  const std::optional<std::uint64_t> bytes = DecodedBytes(sample, field_);
  if (!bytes.has_value()) return Memory();
  HEADRACE_ASSIGN_OR_RETURN(Memory memory, Decode(parts[field_], *bytes));
  parts[field_] = memory.form();
  return memory;
}

// Takes the memory of the form, and, once the header says how much the decode needs, that, too.
Result<EntryForm::Memory> EntryForm::Decode(std::span<const std::byte> stored,
                                            std::uint64_t bytes) const {
  const DecodedForm& form = *fields_[field_].codec->decoded_form();
  ScratchLimit limit;
  if (scratch_ != nullptr) limit = scratch_->small();
  std::uint64_t taken = bytes;
  for (bool again = false;; again = true) {
    Memory memory;
    if (scratch_ != nullptr) {
      std::optional<ScratchLease> lease = scratch_->Acquire(taken);
      if (!lease.has_value()) return NoMemory(taken);
      memory.lease = *std::move(lease);
    }
    memory.bytes.reset(static_cast<std::byte*>(AllocateScratch(bytes)));
    if (memory.bytes == nullptr) return NoMemory(bytes);
    const Status status = form.MakeForm(stored, {memory.bytes.get(), bytes}, limit);
    memory.size = bytes;
    if (status.ok()) return memory;
    if (again || limit.bytes_needed <= limit.bytes_max) return status;
    limit.bytes_max = limit.bytes_needed;
    taken = bytes + limit.bytes_needed;
  }
}

}  // namespace headrace
