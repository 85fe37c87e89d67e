// Private to app/: a model on a unit, below the engine, so that a bench can run steps of any shape: rows that are not
// kept, sequences of several lengths in one step, both cache types over the same weights.
#pragma once
#include "base/base.h"
#include "model/model.h"
#include "plan/plan.h"
#include "app/app.h"

struct lab {
    struct model *model;
    struct unit *unit;
    struct unit_caps caps;
    struct unit_weights *weights;
    struct unit *then_unit; // of a plan of two, NULL: none
    struct unit_weights *then_weights;
    struct weights_info info;
    int first_ctx_max; // positions that the first unit holds; 0: any
    enum prog_class numerics;
    int window;
    const char *plan;   // kind that runs open; NULL: whole
    char class_name[8]; // "int8"
};
// Takes the model, units, plan, threads, window, numerics and pack cache of the options.
enum tern_status lab_open(struct lab *out, const struct tern_engine_options *o, struct tern_err *err);
// The same; change is called with the opened model before the unit takes its weights. Nothing is kept in the pack cache
// then: it goes by the file.
enum tern_status lab_open_changed(struct lab *out, const struct tern_engine_options *o,
                                  enum tern_status (*change)(void *arg, struct model *m, struct tern_err *err),
                                  void *arg, struct tern_err *err);
void lab_close(struct lab *l); // fine when not open
// Operations and bytes of one step of n_rows rows, all with argmax, behind ctx positions: the floors of its time.
enum tern_status lab_cost(const struct lab *l, enum op_kv_type kv, int n_rows, int ctx, struct prog_cost *out,
                          struct tern_err *err);

// Sequences of one cache type. Lengths can be set back freely: what lies behind is written again, and a convolution's
// state is whatever the last step left, which no time depends on.
struct lab_run {
    const struct lab *lab;
    struct plan *plan;
    struct arena arena;
    struct step_builder b;
    int n_seqs, n_blocks, n_ctx; // blocks and positions of one sequence
    int32_t *blocks;             // [n_seqs][n_blocks]
    int32_t *len, *next;         // [n_seqs]: positions held, token chosen last
    uint64_t random;
};
enum tern_status lab_run_open(struct lab_run *out, const struct lab *l, enum op_kv_type kv, int n_ctx, int n_seqs,
                              int n_out_max, struct tern_err *err);
void lab_run_close(struct lab_run *r);
int32_t lab_token(struct lab_run *r); // a random id
// Appends n random tokens to a sequence, in steps as large as the window; the last one's argmax becomes its next.
enum tern_status lab_prefill(struct lab_run *r, int seq, int n, struct tern_err *err);
// One token for each of the first n sequences in one step.
enum tern_status lab_decode(struct lab_run *r, int n, struct tern_err *err);
// Checks n tokens behind a sequence, all rows with argmax (copied to out [n]), and keeps nothing.
enum tern_status lab_verify(struct lab_run *r, int seq, const int32_t *ids, int n, struct prog_argmax *out,
                            struct tern_err *err);
