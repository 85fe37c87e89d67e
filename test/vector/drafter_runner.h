// Runs a drafter beside its target through the model, prog and unit faces: the target's features of a text, injection,
// drafts, and the greedy chain of the Markov head, in the plainest way.
#pragma once
#include "base/base.h"
#include "model/model.h"
#include "prog/prog.h"
#include "unit/unit.h"

struct drafter_options {
    const char *target, *drafter; // paths
    enum prog_class numerics;
    enum op_kv_type kv_type;
    int window, n_ctx, n_threads;
};
struct drafter_program {
    struct prog *prog;
    struct unit_program *program;
};
struct drafter_runner {
    struct model *target, *drafter;
    struct unit *unit;
    struct unit_weights *target_weights, *weights;
    struct weights_info info; // of the drafter's weights
    struct drafter_program features, inject, draft;
    struct state_pool target_pool, pool;
    struct arena arena;
    struct step_builder target_builder, builder;
    struct unit_buffer *features_buffer, *logits_buffer, *hidden_buffer;
    int32_t *target_blocks;
    int32_t *blocks; // of the drafter's sequence; half of the pool's, the rest is for others
    int n_blocks, window;
    uint64_t feature_bytes; // of one row
    float *w1, *w2;         // [n_vocab][rank] each
    float *conf;            // [n_embd + rank]
    float conf_bias;
    const float *logits, *hidden; // of the last draft: [n_proposals][n_vocab], [n_proposals][n_embd]
};
// Fails the test with the message when anything fails.
void drafter_runner_open(struct drafter_runner *r, const struct drafter_options *o);
void drafter_runner_close(struct drafter_runner *r);
// The features of all n positions of a text.
void drafter_features(struct drafter_runner *r, const int32_t *ids, int n);
// Positions [begin, end) into the sequence of table `blocks`, `chunk` rows at a time.
void drafter_inject(struct drafter_runner *r, const int32_t *blocks, int begin, int end, int chunk);
void drafter_draft(struct drafter_runner *r, const int32_t *blocks, int len, int32_t anchor);

#define DRAFTER_PROPOSALS_MAX 16
struct drafter_chain {
    int32_t proposals[DRAFTER_PROPOSALS_MAX];
    double confidence[DRAFTER_PROPOSALS_MAX];
    int n;        // made
    int accepted; // leading proposals equal to want
};
// Greedy, from the last draft. Stops behind the first proposal that differs from want[0 … n_want) when `stop` is set.
void drafter_chain_run(const struct drafter_runner *r, int32_t anchor, const int32_t *want, int n_want, bool stop,
                       struct drafter_chain *out);
