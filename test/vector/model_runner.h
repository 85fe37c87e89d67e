// Runs a model through the model, prog and unit faces for the golden tests: one sequence, logits of every row, the
// residual after every layer.
#pragma once
#include "base/base.h"
#include "model/model.h"
#include "prog/prog.h"
#include "unit/unit.h"

struct runner_options {
    const char *path;
    const char *isa; // bound on the instruction set; NULL: the best
    enum prog_class numerics;
    enum op_kv_type kv_type;
    int window, n_ctx, n_threads;
    bool residuals; // keep the residual rows after every layer (at most PROG_FEATURES_MAX of them)
};
struct runner {
    struct model *model;
    struct unit *unit;
    struct unit_caps caps;
    struct unit_weights *weights;
    struct prog *prog;
    struct unit_program *program;
    struct state_pool pool;
    struct arena arena;
    struct step_builder builder;
    struct unit_buffer *logits_buffer, *residuals_buffer;
    int32_t *blocks;
    int n_blocks, window, len; // len: positions of the sequence that were run
    const float *logits;       // of the last step: [n_out][n_vocab]
    const float *residuals;    // of the last step: [rows][n_layers][n_embd]; NULL unless asked for
};
// Fails the test with the message when anything fails.
void runner_open(struct runner *r, const struct runner_options *o);
void runner_close(struct runner *r);
void runner_restart(struct runner *r); // the next step begins a sequence
// Runs up to `window` further rows; the last n_out of them give logits.
void runner_step(struct runner *r, const int32_t *ids, int n, int n_out);
// Of the i-th row that gave logits.
static inline const float *runner_logits(const struct runner *r, int i) {
    return r->logits + (size_t)i * (size_t)r->model->hyper.n_vocab;
}
static inline const float *runner_residual(const struct runner *r, int row, int layer) {
    const struct model_hyper *h = &r->model->hyper;
    return r->residuals + ((size_t)row * (size_t)h->n_layers + (size_t)layer) * (size_t)h->n_embd;
}

// The instruction sets to try on this machine, as bounds for unit_options.isa; NULL-terminated. A bound that changes
// nothing here gives the same caps.isa as the one before it.
extern const char *const runner_isas[];
// The whole file; fails the test when it cannot be read.
void runner_file_read(struct buf *out, const char *path);
