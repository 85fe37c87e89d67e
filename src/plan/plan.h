// The face of plan/: how a request's steps are placed on units. A plan owns the programs it runs (compiled on its units
// from shared weights), runs one step at a time, and never knows what tokens mean. It speaks to units through unit.h
// only.
//
// `whole` puts every step on one unit; `handoff` prompts on one and answers on another; `extend` contexts beyond what
// one unit holds on another. Further kinds are rows of the same list.
#pragma once
#include "base/base.h"
#include "prog/prog.h"
#include "unit/unit.h"

struct plan;

struct plan_unit { // one unit with the model on it
    struct unit *unit;
    struct unit_weights *weights;
};
struct plan_options {
    const struct model *model;
    const struct plan_unit *units;
    int n_units;
    int first_ctx_max; // extend: positions that units[0] holds before a step (unit_advice); 0: any
    enum prog_class numerics;
    enum op_kv_type kv_type;
    int window;    // rows of the largest step
    int n_blocks;  // KV blocks of the pool
    int n_slots;   // conv slots of the pool
    int n_out_max; // head rows in one step; logits memory is n_out_max * n_vocab floats
    // Layers whose residuals every run gives to the step's PORT_FEATURES (a drafter's feature layers); n_features 0:
    // none, and the port is not looked at.
    const int *feature_layers;
    int n_features;
};
struct plan_kind {
    const char *name; // "whole"
    int n_units;
    // Can these units run it? reason: why not.
    bool (*fits)(const struct plan_options *o, const char **reason);
    enum tern_status (*open)(struct plan **out, const struct plan_options *o, struct tern_err *err);
    // Adds an upper bound of programs and outputs before anything is compiled; false on overflow. Of what fits.
    bool (*estimate)(const struct plan_options *o, uint64_t *work);
};
extern const struct plan_kind *const plan_kinds[]; // NULL-terminated
// Units of a kind, by its name; 0: there is no such kind.
int plan_kind_units(const char *kind);
enum tern_status plan_open(struct plan **out, const char *kind, const struct plan_options *o, struct tern_err *err);
void plan_close(struct plan *p); // NULL is fine

// The pools that steps of this plan work on.
const struct state_pool *plan_pool(const struct plan *p);
// Runs one step and waits. want: PROG_OUT_LOGITS or PROG_OUT_ARGMAX (0: fill only; the step then has n_out 0).
// The results are read with plan_logits / plan_argmax: borrowed until the next plan_run.
enum tern_status plan_run(struct plan *p, const struct step *s, uint32_t want, struct tern_err *err);
const float *plan_logits(const struct plan *p, int out_index); // [n_vocab]
const struct prog_argmax *plan_argmax(const struct plan *p);   // [n_out]
// After a step with STEP_KEEP_ROWS: takes the accepted path over (rows as in PROG_COMMIT).
enum tern_status plan_commit(struct plan *p, const struct step *s, struct tern_err *err);
// State work on the pool, by block and slot number.
enum tern_status plan_block_copy(struct plan *p, int32_t dst, int32_t src, struct tern_err *err);
enum tern_status plan_slot_copy(struct plan *p, int32_t dst, int32_t src, struct tern_err *err);
enum tern_status plan_slot_clear(struct plan *p, int32_t slot, struct tern_err *err);
enum tern_status plan_block_read(struct plan *p, int32_t block, void *out, struct tern_err *err); // block_bytes
enum tern_status plan_block_write(struct plan *p, int32_t block, const void *in, struct tern_err *err);
enum tern_status plan_slot_read(struct plan *p, int32_t slot, void *out, struct tern_err *err); // slot_bytes
enum tern_status plan_slot_write(struct plan *p, int32_t slot, const void *in, struct tern_err *err);
// What a slot would hold behind a row of the last step, which had STEP_SHOW_ROWS or STEP_KEEP_ROWS and was not followed
// by a commit. rows [conv_len - 1]: the row itself and those before it in its chain, oldest first, all of that step.
enum tern_status plan_rows_read(struct plan *p, const int *rows, void *out, struct tern_err *err); // slot_bytes
const char *plan_name(const struct plan *p);                                                       // "whole(cpu)"
uint64_t plan_work_bytes(const struct plan *p); // programs' work memory, outputs and pools
// Upper bound of plan_work_bytes (work + state) before anything large is allocated; weights of the units may be NULL
// still. False on overflow. What plan_open would refuse estimates 0: plan_open says why.
bool plan_bytes_estimate(const char *kind, const struct plan_options *o, uint64_t *work, uint64_t *state);
bool plan_explain(const struct plan *p, struct buf *out); // which program on which unit, why

// ------------------------------------------------------------------------------------------------------------ drafter
//
// A drafter beside a plan: its programs, its own pool of KV blocks, and rows of the target's features. The features lie
// in the memory of the target's unit: a run of the plan writes them there (PORT_FEATURES). An injection reads them from
// there when the drafter has the same unit; else its rows are read to the host and written to the drafter's unit first.

struct plan_draft;
struct plan_draft_options {
    const struct model *drafter; // model.h, struct model_drafter
    struct unit *unit;
    struct unit *target_unit; // of the target's plan; NULL: the same
    struct unit_weights *weights;
    enum prog_class numerics;
    enum op_kv_type kv_type;
    int window;         // rows of the largest injection
    int n_blocks;       // KV blocks of the pool
    int n_feature_rows; // rows of features kept for those who draft
    bool hidden;        // drafts give the normed rows too (Markov heads that read them)
};
enum tern_status plan_draft_open(struct plan_draft **out, const struct plan_draft_options *o, struct tern_err *err);
void plan_draft_close(struct plan_draft *p); // NULL is fine
bool plan_draft_bytes_estimate(const struct plan_draft_options *o,
                               uint64_t *bytes); // pool, features, outputs, programs
const struct state_pool *plan_draft_pool(const struct plan_draft *p);
// Where feature row `row` lies: for ports[PORT_FEATURES] of a step of the target.
struct step_port plan_draft_features(const struct plan_draft *p, int row);
enum tern_status plan_draft_features_copy(struct plan_draft *p, int dst_row, int src_row, int n, struct tern_err *err);
uint64_t plan_draft_feature_row_bytes(const struct plan_draft *p);
enum tern_status plan_draft_features_read(struct plan_draft *p, int row, int n, void *out, struct tern_err *err);
enum tern_status plan_draft_features_write(struct plan_draft *p, int row, int n, const void *in, struct tern_err *err);
// Feature rows from feature_row on into the drafter's context, at the step's positions.
enum tern_status plan_draft_inject(struct plan_draft *p, const struct step *s, int feature_row, struct tern_err *err);
// One block [anchor, mask, …]; results are borrowed until the next run: [n_proposals] rows.
enum tern_status plan_draft_run(struct plan_draft *p, const struct step *s, struct tern_err *err);
const float *plan_draft_logits(const struct plan_draft *p); // [n_proposals][n_vocab]
const float *plan_draft_hidden(const struct plan_draft *p); // [n_proposals][n_embd]; NULL without
// out [n_vocab] = markov_w2 · e [markov_rank].
enum tern_status plan_draft_markov(struct plan_draft *p, const float *e, float *out, struct tern_err *err);
enum tern_status plan_draft_block_copy(struct plan_draft *p, int32_t dst, int32_t src, struct tern_err *err);
enum tern_status plan_draft_block_read(struct plan_draft *p, int32_t block, void *out, struct tern_err *err);
enum tern_status plan_draft_block_write(struct plan_draft *p, int32_t block, const void *in, struct tern_err *err);
uint64_t plan_draft_bytes(const struct plan_draft *p); // programs, pool, features, outputs
bool plan_draft_explain(const struct plan_draft *p, struct buf *out);
