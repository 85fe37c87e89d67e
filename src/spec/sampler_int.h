// Private to spec/: the sampler's working memory.
#pragma once
#include "base/base.h"
#include "spec/spec.h"

struct sampler {
    struct sampler_params params;
    struct tern_logit_bias *bias; // own copy, [params.n_bias]
    int n_vocab;                  // logits per row
    int n_used;                   // ids >= n_used are padding: never chosen
    float *logits;                // [n_used] after bias, penalties and mask
    float *scaled;                // [n_used] logits / T; during filtering
    int32_t *kept;                // [n_used] ids that passed the filters, best first
    int n_kept;
    int32_t *window; // ring of the last tokens, [window_cap]
    int window_cap, window_len, window_at;
    uint16_t *in_window; // [n_used] how often an id is in the ring
    int32_t *answer;     // [n_used] how often an id is in the answer
    bool picked;         // logits hold a distribution
    bool have_norm;
    float log_norm; // log-sum-exp of logits, once have_norm
};

// From s->scaled: ids that top-k, top-p and min-p keep, into s->kept / s->n_kept, best first. At least one when any id
// is finite; 0 otherwise.
void sampler_filter(struct sampler *s);
