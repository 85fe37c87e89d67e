// Prompts with reference outputs, as test/data/pico/golden.json and test/data/smollm2/greedy.json hold them.
#pragma once
#include "base/base.h"

#define GOLDEN_PROMPTS_MAX 16
#define GOLDEN_IDS_MAX 512
#define GOLDEN_GREEDY_MAX 64
#define GOLDEN_LOGITS_MAX 320
#define GOLDEN_LAYERS_MAX 16
#define GOLDEN_FIRST 8

struct golden_residual {
    double sum, sum_abs, sum_sq, first[GOLDEN_FIRST];
};
struct golden_prompt {
    char name[32];
    struct buf text; // control markers written out
    int32_t ids[GOLDEN_IDS_MAX];
    int n_ids;
    int32_t greedy[GOLDEN_GREEDY_MAX]; // the end token does not stop them
    double gaps[GOLDEN_GREEDY_MAX];    // first minus second logit where each was chosen
    int n_greedy;
    int32_t logit_ids[GOLDEN_LOGITS_MAX]; // at the last prompt position: the 64 largest, then 256 sampled ones
    double logits[GOLDEN_LOGITS_MAX], logsumexp;
    int n_logits;
    struct golden_residual residuals[GOLDEN_LAYERS_MAX]; // after each layer, at the last prompt position
    int n_residuals;
};
struct golden {
    struct golden_prompt prompts[GOLDEN_PROMPTS_MAX];
    int n_prompts;
};
// Fails the test when the file is missing or not of that form.
struct golden *golden_read(const char *path);
void golden_free(struct golden *g);
