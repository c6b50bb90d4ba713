#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "codec/scratch_memory.h"
#include "engine/batch/stored_fields.h"
#include "engine/memory/scratch_budget.h"
#include "headrace/ids.h"
#include "headrace/order_options.h"
#include "headrace/status.h"

namespace headrace {

// What an entry of a tier holds of a sample: its stored fields, one after the other; but of one
// field, where a table of the plan says so, the decoded form (codec/decoded_form.h).
//
// Thread safety: every method may be called from any thread.
// Ownership: `fields` outlives it.
class EntryForm {
 public:
  // `decoded`: by sample the bytes of the decoded form; 0: stored bytes. Null: all are stored. Then
  // exactly one of `fields` has a decoded form. `scratch`: for making it; null: no limit.
  EntryForm(const StoredFields& fields, SampleTable decoded,
            std::shared_ptr<ScratchBudget> scratch);

  // Whether any sample has a decoded form.
  [[nodiscard]] bool decodes() const { return decoded_ != nullptr; }

  // Bytes that an entry holds of a stored field in decoded form; std::nullopt: it holds the stored
  // bytes.
  [[nodiscard]] std::optional<std::uint64_t> DecodedBytes(SampleId sample,
                                                          std::uint32_t field) const {
    if (decoded_ == nullptr || field != field_ || (*decoded_)[Raw(sample)] == 0) return {};
    return (*decoded_)[Raw(sample)];
  }

  // The memory of a decoded form, which counts in the budget for decodes. Free it on the thread
  // that made it.
  struct Memory {
    ScratchLease lease;
    std::unique_ptr<std::byte, FreesScratch> bytes;
    std::uint64_t size = 0;

    [[nodiscard]] std::span<const std::byte> form() const { return {bytes.get(), size}; }
  };
  // Turns the stored fields of a sample into the parts of its entry; they live as long as the
  // stored bytes and the returned memory. Does not wait for memory.
  //
  // Errors: those of DecodedForm::MakeForm(); ResourceExhausted  others have the memory
  Result<Memory> Make(SampleId sample, std::vector<std::span<const std::byte>>& parts) const;

 private:
  Result<Memory> Decode(std::span<const std::byte> stored, std::uint64_t bytes) const;

  const StoredFields& fields_;
  const SampleTable decoded_;
  const std::shared_ptr<ScratchBudget> scratch_;
  std::uint32_t field_ = 0;  // which the table is of
};

}  // namespace headrace
