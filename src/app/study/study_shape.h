// Private to app/: drafters without a file, for models without a file.
#pragma once
#include "base/base.h"
#include "model/model.h"

// A DSpark drafter of random weights whose own bytes are about `share` of the target's: as many layers of the target's
// width as that gives (one at least), five feature layers, blocks of nine, a Markov head of rank 64. Embedding and
// output are the target's. Freed with shape_drafter_free; the target outlives it.
struct shape_drafter;
enum tern_status shape_drafter_create(struct shape_drafter **out, const struct model *target, enum format format,
                                      double share, uint64_t seed, struct tern_err *err);
void shape_drafter_free(struct shape_drafter *d); // NULL is fine
const struct model *shape_drafter_model(const struct shape_drafter *d);
uint64_t shape_bytes(const struct model *m);                 // of all its weights, with a file or without
uint64_t shape_drafter_bytes(const struct shape_drafter *d); // of its own weights
