#include "engine/decode/sample_decoder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/coding/coding.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "codec/decoded_form.h"
#include "engine/batch/row_rooms.h"
#include "engine/decode/field_decoding.h"

namespace headrace {
namespace {

// The error of a sample of 0 bytes. Files that could not be read when they were indexed (a broken
// link, a pipe) have that size, too.
Status NoBytes(const BatchField& field) {
  return DataLoss(
      "field {}: the sample had 0 bytes when the dataset was indexed: its file was empty, or "
      "could "
      "not be read; if it has been written since, index the dataset again (headrace index); "
      "otherwise leave it out with skip=, or give on_error=\"substitute\"",
      field.name);
}

}  // namespace

Status SampleDecoder::Decode(const StoredSample& sample, const Batch& batch, std::size_t slot,
                             GatheredBytes& scratch, ScratchLimit& limit,
                             std::uint64_t& copied_bytes) const {
  const SampleId id = sample.key.sample;
  if (sample.entry != nullptr && sample.entry->tier()->in_memory() && verifier_.verifies()) {
    HEADRACE_RETURN_IF_ERROR(sample.entry->tier()->Check(*sample.entry).status());
  }
  const StoredPiece* piece = sample.pieces;
  const std::span<const BatchField> schema = fields_.schema();
  for (std::size_t position = 0; position < schema.size(); ++position) {
    const BatchField& field = schema[position];
    const std::span<std::byte> row = batch.row(schema, position, slot);
    if (field.is_inline()) {
      HEADRACE_ASSIGN_OR_RETURN(const std::span<const std::byte> value,
                                fields_.index().inline_value(field.index_field, id));
      HEADRACE_CHECK(value.size() == row.size());
      if (!value.empty()) std::memcpy(row.data(), value.data(), value.size());
      copied_bytes += value.size();
      continue;
    }
    const StoredPiece& at = *piece++;
    std::span<const std::byte> stored;
    if (at.read != nullptr) {
      stored = at.read->data.subspan(at.offset, at.size);
      if (!at.read->checked)
        HEADRACE_RETURN_IF_ERROR(verifier_.Check(field.index_field, id, stored));
    }
    if (at.size == 0 && !field.may_be_empty) return NoBytes(field);
    // It was read into its row: that is the memory of a client.
    if (at.read != nullptr && (!at.read->room.empty() || stored.data() == row.data())) continue;
    HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t content,
                              ContentBytes(fields_.index(), field, id, at.size));
    if (row.size() != field.codec->RowBytes(content)) {
      return DataLoss(
          "field {}: the index contradicts itself: {} {} make a row of {} bytes, the "
          "batch has room for {}; index the dataset again (headrace index)",
          field.name, content, content == at.size ? "stored bytes" : "decoded bytes",
          field.codec->RowBytes(content), row.size());
    }
    if (field.codec->keeps_bytes() && !field.is_compressed()) copied_bytes += row.size();
    if (at.read == nullptr) {
      if (IsCopy(field) && at.size == row.size()) {
        CopyOut(sample, at, row);
        continue;
      }
      StoredPiece there = at;
      if (at.form_bytes != 0) there.size = at.form_bytes;
      HEADRACE_ASSIGN_OR_RETURN(stored, Gather(sample, there, scratch, limit));
    }
    const bool gathered = !scratch.empty() && stored.data() == scratch.data();
    // Only its own pieces: what a sample may take does not depend on the one before it.
    if (gathered) {
      copied_bytes += stored.size();
    } else {
      scratch = GatheredBytes();
    }
    // The memory that pieces were gathered in counts, too.
    ScratchLimit rest = limit;
    rest.bytes_max -= std::min<std::uint64_t>(limit.bytes_max, scratch.size());
    const std::span<const std::byte> form = at.form_bytes != 0 ? stored : sample.form;
    const DecodedForm* const decodes = form.empty() ? nullptr : field.codec->decoded_form();
    const Status status = decodes != nullptr
                              ? decodes->DecodeForm(form, sample.key, row, rest)
                              : DecodeField(field, {stored, content}, sample.key, row, rest);
    limit.bytes_needed = rest.bytes_needed + scratch.size();
    if (!status.ok()) return WithPlace(status, field, id).WithContext("field " + field.name);
  }
  return Status();
}

// An error of compressed bytes says where they lie, and what to do: nobody can look at them there
// with the usual tools.
Status SampleDecoder::WithPlace(const Status& status, const BatchField& field, SampleId id) const {
  if (!field.is_compressed() || status.code() != StatusCode::kDataLoss) return status;
  const Result<Extent> extent = fields_.index().extent(field.index_field, id);
  if (!extent.ok()) return status;
  const Result<ObjectInfo> object = fields_.index().object(extent.value().object);
  if (!object.ok()) return status;
  const ByteRange range = extent.value().range;
  return DataLoss(
      "{} bytes [{}, {}) of {}: {}; copy or write the file again, or give "
      "on_error=\"substitute\"",
      CodingName(field.coding), range.offset, range.end(), object.value().name, status.message());
}

// The bytes of a piece in cells or in a tier: in place, or gathered within `limit`. They were
// verified when they were stored there.
Result<std::span<const std::byte>> SampleDecoder::Gather(const StoredSample& sample,
                                                         const StoredPiece& piece,
                                                         GatheredBytes& scratch,
                                                         ScratchLimit& limit) const {
  const auto view = sample.entry != nullptr
                        ? sample.entry->tier()->View(*sample.entry, piece.offset, piece.size)
                        : residents_->View(sample.cells, piece.offset, piece.size);
  if (view.has_value()) return *view;
  if (scratch.size() != piece.size) {
    limit.bytes_needed = piece.size;
    if (piece.size > limit.bytes_max) {
      return ResourceExhausted(
          "copying the sample's cells together takes {} of memory, may take {}",
          FormatBytes(piece.size), FormatBytes(limit.bytes_max));
    }
    scratch = GatheredBytes();
    scratch.resize(piece.size);
  }
  const std::span<std::byte> bytes = std::span(scratch).first(piece.size);
  CopyOut(sample, piece, bytes);
  return std::span<const std::byte>(bytes);
}

void SampleDecoder::CopyOut(const StoredSample& sample, const StoredPiece& piece,
                            std::span<std::byte> to) const {
  if (sample.entry != nullptr) {
    sample.entry->tier()->CopyOut(*sample.entry, piece.offset, to);
  } else {
    residents_->CopyOut(sample.cells, piece.offset, to);
  }
}

}  // namespace headrace
