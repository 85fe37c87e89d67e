// A small DSpark drafter in memory for a tiny model (tiny_model.h): attention layers with norms of q and k, the
// target's embedding and output, a Markov head. Random weights, equal for equal arguments.
#pragma once
#include "base/base.h"
#include "model/model.h"

#define TINY_DRAFTER_RANK 16
#define TINY_DRAFTER_ROWS 5
// Reads the target's layers 0 and n_layers - 1; target outlives it.
struct model *tiny_drafter_create(const struct model *target, int n_layers, enum format format, uint64_t seed);
void tiny_drafter_free(struct model *m); // NULL is fine
