#include "engine/rows/rows.h"

#include <optional>
#include <utility>

#include "base/format/errors.h"
#include "engine/decode/stand_in.h"
#include "plan/left_out.h"
#include "store/decoded/coded_catalog.h"

namespace headrace {

void Rows::OnReadFailed(StepWork& work, std::uint32_t slot, Status status) {
  Fail(work, slot, status);
}

void Rows::OnDecoded(DecodeTask& task) {
  StepWork& work = *task.work;
  decoder_.Count(task);
  if (!task.inserted.empty()) fetcher_.FinishInserts(task);
  task.lease.Reset();
  std::size_t next_large = 0;
  std::size_t next_failure = 0;
  for (const std::uint32_t slot : task.slots) {
    if (next_large < task.large.size() && task.large[next_large].first == slot) {
      const std::uint64_t bytes = task.large[next_large++].second;
      if (!loop_.ended) decoder_.AddLarge({&work, slot}, bytes);
    } else if (next_failure < task.failures.size() && task.failures[next_failure].first == slot) {
      const Status& status = task.failures[next_failure++].second;
      if (!fetcher_.ReadFromNext(work, slot)) Fail(work, slot, status);
    } else {
      EndRow(work, slot);
    }
  }
  decoder_.StartLarge();
}

void Rows::OnInserted(RowRef row) { EndRow(*row.step, row.slot); }

// A row is decoded, or is in its tier: done when both are.
void Rows::EndRow(StepWork& work, std::uint32_t slot) {
  if (--work.samples[slot].ends_left > 0) return;
  fetcher_.Release(work, slot);
  work.MarkDone(loop_.now_ns);
}

// No source gives the row's sample: another one stands in for it, or the step fails.
void Rows::Fail(StepWork& work, std::uint32_t slot, const Status& status) {
  SampleWork& row = work.samples[slot];
  const SampleId wanted = work.plan.deliveries[slot].sample;
  const LeftOut* const left_out = loop_.options.left_out.get();
  const std::uint64_t sample_count =
      left_out == nullptr ? loop_.fields.index().sample_count() : left_out->places();
  const bool substitute = loop_.options.on_error == OnError::kSubstitute &&
                          IsErrorOfSample(status.code()) && !loop_.ended && sample_count > 1 &&
                          row.draws < loop_.options.substitutes_max;
  if (!substitute) {
    if (!work.error.has_value() || slot < work.error->first) {
      const bool gives_up = row.draws > 0 && row.draws == loop_.options.substitutes_max;
      const Status last =
          gives_up ? WithoutStandIn(status, wanted, row.draws, sample_count) : WithRemedy(status);
      work.error.emplace(slot, last.WithContext(Describe(work, slot)));
    }
    work.MarkDone(loop_.now_ns);
    return;
  }
  if (row.reason.ok()) row.reason = status.WithContext(Describe(work, slot));
  const auto draw = [&](SampleId one) {
    return DrawStandIn(loop_.options.seed, work.plan.epoch, one, row.draws++, sample_count);
  };
  work.batch->samples[slot] = left_out == nullptr
                                  ? draw(wanted)
                                  : left_out->At(draw(SampleId{left_out->PlacesBefore(wanted)}));
  fetcher_.ReadStandIn(work, slot);
}

// "epoch 0 step 3 sample 42 (n01/x.jpg)"
std::string Rows::Describe(const StepWork& work, std::uint32_t slot) const {
  const SampleId sample = work.batch->samples[slot];
  std::string text =
      fmt::format("epoch {} step {} sample {}", work.plan.epoch, work.plan.step, Raw(sample));
  if (loop_.fields.empty()) return text;
  const Index& index = loop_.fields.index();
  const Result<Extent> extent = index.extent(loop_.fields[0].index_field, sample);
  if (!extent.ok()) return text;
  const Result<ObjectInfo> object = index.object(extent.value().object);
  if (object.ok())
    text.append(" (").append(FileName(index.root(), object.value().name)).append(")");
  return text;
}

}  // namespace headrace
