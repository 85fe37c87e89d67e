// Private to spec/: the Markov head of a drafter on the host.
#pragma once
#include "spec/spec.h"

struct markov;
enum tern_status markov_create(struct markov **out, const struct model *m, struct tern_err *err);
void markov_free(struct markov *k);
uint64_t markov_bytes(const struct model *m);
void markov_w1(const struct markov *k, int32_t token, float *out); // [rank]
// The next bias calls read these normed rows [n_proposals][n_embd] (NULL for a vanilla head).
void markov_begin(struct markov *k, const float *hidden);
tree_bias_fn markov_bias; // arg: struct markov
