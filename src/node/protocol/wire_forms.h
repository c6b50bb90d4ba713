#pragma once

// How what ranks and their node process tell each other lies in a message: options, statistics,
// rows, schemas. See wire_codec.h.

#include "engine/batch/batch.h"
#include "loader/config/loader_options.h"
#include "node/protocol/wire_codec.h"
#include "observe/loader_stats.h"
#include "plan/quality/labels.h"

namespace headrace {

void Fields(WirePut& codec, const LoaderOptions& options);
void Fields(WireTake& codec, LoaderOptions& options);

void Fields(WirePut& codec, const PreprocessModel::Row& row);
void Fields(WireTake& codec, PreprocessModel::Row& row);

void Fields(WirePut& codec, const LoaderStats& stats);
void Fields(WireTake& codec, LoaderStats& stats);

void Fields(WirePut& codec, const NamedTierStats& stats);
void Fields(WireTake& codec, NamedTierStats& stats);

void Fields(WirePut& codec, const PlannedRow& row);
void Fields(WireTake& codec, PlannedRow& row);

void Fields(WirePut& codec, const Substitution& substitution);
void Fields(WireTake& codec, Substitution& substitution);

// Without the codec, which is the node's: who reads one has fields that look inline.
void Fields(WirePut& codec, const BatchField& field);
void Fields(WireTake& codec, BatchField& field);

void Fields(WirePut& codec, const OrderParameters& parameters);
void Fields(WireTake& codec, OrderParameters& parameters);

void Fields(WirePut& codec, const ExpectedInflation& inflation);
void Fields(WireTake& codec, ExpectedInflation& inflation);

}  // namespace headrace
