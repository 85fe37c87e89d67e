// See study_runner.h. Features of every position are kept, each in the row of its position, so a drafter can be asked
// behind any of them; its own context is by position too and is cut by injecting again.
#include "base/base.h"
#include "study_runner.h"

#define RUNNER_WINDOW 256

struct study_runner {
    struct unit *unit;
    struct unit_weights *weights, *drafter_weights;
    struct plan *plan;
    struct plan_draft *plan_draft;
    struct drafter *drafter;
    struct arena arena;
    struct step_builder step, commit;
    const struct step *verify; // of the last verify
    int verify_row;
    int32_t *blocks, *draft_blocks;
    int n_blocks, n_draft_blocks, n_ctx;
    bool has_conv;
    int len, seen; // committed positions; of these, injected
};

static enum tern_status drafter_open(struct study_runner *r, const struct study_options *o, struct tern_err *err) {
    const struct unit_driver *d = unit_driver_of(r->unit);
    struct weights_options wo = {.numerics = o->numerics, .shared = r->weights};
    struct weights_info info;
    r->n_draft_blocks = int_div_up(o->n_ctx + o->drafter->drafter->n_rows, OP_BLOCK);
    TRY(d->weights_import(r->unit, &r->drafter_weights, o->drafter, &wo, &info, err));
    struct plan_draft_options po = {.drafter = o->drafter,
                                    .unit = r->unit,
                                    .weights = r->drafter_weights,
                                    .numerics = o->numerics,
                                    .kv_type = OP_KV_F16,
                                    .window = RUNNER_WINDOW,
                                    .n_blocks = r->n_draft_blocks,
                                    .n_feature_rows = o->n_ctx + TREE_NODES_MAX,
                                    .hidden = drafter_wants_hidden(o->drafter)};
    TRY(plan_draft_open(&r->plan_draft, &po, err));
    return drafter_create(&r->drafter, o->drafter, r->plan_draft, RUNNER_WINDOW, err);
}

static enum tern_status parts_open(struct study_runner *r, const struct study_options *o, struct tern_err *err) {
    struct unit_options uo = {.n_threads = o->n_threads, .pin = true};
    TRY(unit_open(&r->unit, "cpu", &uo, err));
    struct weights_options wo = {.numerics = o->numerics};
    TRY(unit_driver_of(r->unit)->weights_import(r->unit, &r->weights, o->target, &wo, NULL, err));
    struct plan_unit pu = {r->unit, r->weights};
    struct plan_options po = {.model = o->target,
                              .units = &pu,
                              .n_units = 1,
                              .numerics = o->numerics,
                              .kv_type = OP_KV_F16,
                              .window = RUNNER_WINDOW,
                              .n_blocks = r->n_blocks,
                              .n_slots = r->has_conv ? 1 : 0,
                              .n_out_max = TREE_NODES_MAX};
    if (o->drafter) {
        po.feature_layers = o->drafter->drafter->feature_layers;
        po.n_features = o->drafter->drafter->n_features;
    }
    TRY(plan_open(&r->plan, "whole", &po, err));
    if (o->drafter) TRY(drafter_open(r, o, err));
    r->blocks = arena_calloc(&r->arena, (size_t)r->n_blocks, sizeof *r->blocks);
    r->draft_blocks = arena_calloc(&r->arena, (size_t)r->n_draft_blocks + 1, sizeof *r->draft_blocks);
    if (!r->blocks || !r->draft_blocks) return err_set(err, TERN_NO_MEMORY, "no memory for a runner");
    for (int i = 0; i < r->n_blocks; i++) r->blocks[i] = i;
    for (int i = 0; i < r->n_draft_blocks; i++) r->draft_blocks[i] = i;
    int taps = o->target->hyper.conv_len;
    TRY(step_builder_init(&r->step, &r->arena, RUNNER_WINDOW, taps, 1, err));
    return step_builder_init(&r->commit, &r->arena, TREE_NODES_MAX, taps, 1, err);
}

enum tern_status study_runner_create(struct study_runner **out, const struct study_options *o, struct tern_err *err) {
    struct study_runner *r = mem_calloc(1, sizeof *r);
    if (!r) return err_set(err, TERN_NO_MEMORY, "no memory for a runner");
    arena_init(&r->arena, 0);
    r->n_ctx = o->n_ctx;
    r->n_blocks = int_div_up(o->n_ctx + TREE_NODES_MAX, OP_BLOCK);
    r->has_conv = o->target->hyper.conv_len > 0;
    enum tern_status status = parts_open(r, o, err);
    if (status != TERN_OK) {
        study_runner_free(r);
        return status;
    }
    *out = r;
    return TERN_OK;
}

void study_runner_free(struct study_runner *r) {
    if (!r) return;
    drafter_free(r->drafter);
    plan_draft_close(r->plan_draft);
    plan_close(r->plan);
    if (r->drafter_weights) unit_driver_of(r->unit)->weights_free(r->unit, r->drafter_weights);
    if (r->weights) unit_driver_of(r->unit)->weights_free(r->unit, r->weights);
    unit_close(r->unit);
    arena_release(&r->arena);
    mem_free(r);
}

void study_runner_clear(struct study_runner *r) { r->len = r->seen = 0; }
int study_runner_len(const struct study_runner *r) { return r->len; }
uint64_t study_runner_drafter_bytes(const struct study_runner *r) {
    return r->plan_draft ? plan_draft_bytes(r->plan_draft) : 0;
}

static int seq_add(struct study_runner *r, struct step_builder *b, bool keeps) {
    int slot = r->has_conv ? 0 : -1;
    return step_add_seq(b, r->blocks, r->n_blocks, r->len, r->len > 0 ? slot : -1, keeps ? slot : -1);
}

static enum tern_status room_check(const struct study_runner *r, int n, struct tern_err *err) {
    if (r->len + n <= r->n_ctx) return TERN_OK;
    return err_set(err, TERN_LIMIT, "%d tokens behind %d do not fit a context of %d", n, r->len, r->n_ctx);
}

enum tern_status study_runner_feed(struct study_runner *r, const int32_t *ids, int n, int32_t *next,
                                   struct tern_err *err) {
    TRY(room_check(r, n, err));
    for (int at = 0, rows = 0; at < n; at += rows) {
        rows = MIN(n - at, RUNNER_WINDOW);
        step_begin(&r->step, plan_pool(r->plan), 0);
        int seq = seq_add(r, &r->step, true);
        bool last = at + rows == n;
        for (int i = 0; i < rows; i++) step_add_chain_row(&r->step, seq, ids[at + i], last && i + 1 == rows);
        if (r->plan_draft) r->step.step.ports[PORT_FEATURES] = plan_draft_features(r->plan_draft, r->len);
        TRY(plan_run(r->plan, step_end(&r->step), last ? (uint32_t)PROG_OUT_ARGMAX : 0, err));
        r->len += rows;
    }
    *next = plan_argmax(r->plan)[0].id;
    return TERN_OK;
}

enum tern_status study_runner_propose(struct study_runner *r, enum tree_method method, int context, int n,
                                      struct token_tree *t, struct tern_err *err) {
    const struct tree_noise noise = {0};
    r->seen = MIN(r->seen, context);
    if (context > r->seen)
        TRY(drafter_inject(r->drafter, r->draft_blocks, r->n_draft_blocks, r->seen, context - r->seen, r->seen, err));
    r->seen = context;
    return drafter_propose(r->drafter, r->draft_blocks, r->n_draft_blocks, context, method, &noise, n, t, err);
}

enum tern_status study_runner_verify(struct study_runner *r, const struct token_tree *t,
                                     const struct prog_argmax **rows, struct tern_err *err) {
    step_begin(&r->step, plan_pool(r->plan), STEP_KEEP_ROWS);
    int seq = seq_add(r, &r->step, false);
    r->verify_row = tree_step_add(&r->step, seq, t);
    if (r->plan_draft) r->step.step.ports[PORT_FEATURES] = plan_draft_features(r->plan_draft, r->len);
    r->verify = step_end(&r->step);
    TRY(plan_run(r->plan, r->verify, PROG_OUT_ARGMAX, err));
    *rows = plan_argmax(r->plan);
    return TERN_OK;
}

enum tern_status study_runner_commit(struct study_runner *r, const struct accept_path *path, struct tern_err *err) {
    TRY(room_check(r, path->n, err));
    step_begin(&r->commit, plan_pool(r->plan), 0);
    int seq = seq_add(r, &r->commit, true);
    path_step_add(&r->commit, seq, r->verify, r->verify_row, path);
    TRY(plan_commit(r->plan, step_end(&r->commit), err));
    for (int i = 0; i < path->n && r->plan_draft; i++)
        TRY(plan_draft_features_copy(r->plan_draft, r->len + i, r->len + path->nodes[i], 1, err));
    r->len += path->n;
    return TERN_OK;
}
