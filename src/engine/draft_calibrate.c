// What a round costs on this unit, measured when an engine opens that chooses widths by itself: verify steps of rising
// width, a block of the drafter, the building of a tree. The best of a few runs each, within a budget of time: a large
// model shows fewer points, and the last slope goes on beyond them. Costs are in nanoseconds.
//
// The steps are real ones on free blocks: they keep their rows (no convolution state is written) and what they leave in
// the blocks lies behind every session's length.
#include "base/base.h"
#include "engine_int.h"

#define CALIBRATE_NS 250000000ull // a budget, not a wait
#define CALIBRATE_RUNS 3
#define CALIBRATE_CTX 512 // second context that is measured, where there is room and time
#define CALIBRATE_TREE 16

static const int16_t widths[] = {1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 32, 48, 64};

struct bench {
    struct tern_engine *e;
    int32_t *blocks, *draft_blocks;
    uint64_t start;
};

static bool time_is_left(const struct bench *b, uint64_t wanted_ns) {
    return clock_ns() - b->start + wanted_ns < CALIBRATE_NS;
}

static enum tern_status verify_time(const struct bench *b, int rows, int ctx, float *out, struct tern_err *err) {
    struct tern_engine *e = b->e;
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < CALIBRATE_RUNS && (i == 0 || time_is_left(b, best)); i++) {
        struct step_builder *sb = &e->builder;
        step_begin(sb, plan_pool(e->plan), STEP_KEEP_ROWS);
        int seq = step_add_seq(sb, b->blocks, engine_blocks_per_session(e), ctx, -1, -1);
        for (int r = 0; r < rows; r++) step_add_tree_row(sb, seq, 0, r == 0 ? STEP_NO_PARENT : (r - 1) / 2, true);
        sb->step.ports[PORT_FEATURES] = plan_draft_features(e->draft.plan, 0);
        uint64_t at = clock_ns();
        TRY(plan_run(e->plan, step_end(sb), PROG_OUT_ARGMAX, err));
        best = MIN(best, clock_ns() - at);
    }
    *out = (float)MAX(best, 1);
    return TERN_OK;
}

// A draft, the injection of three rows (what a round accepts), and of one more.
static enum tern_status draft_time(const struct bench *b, int ctx, struct width_costs *c, struct tern_err *err) {
    struct engine_draft *d = &b->e->draft;
    struct token_tree t;
    const struct tree_noise noise = {0};
    uint64_t block = UINT64_MAX, inject = UINT64_MAX, few = UINT64_MAX, tree = UINT64_MAX;
    for (int i = 0; i < CALIBRATE_RUNS && (i < 2 || time_is_left(b, block)); i++) { // the first fills tables
        uint64_t at = clock_ns();
        TRY(drafter_inject(d->drafter, b->draft_blocks, d->n_blocks, ctx, 3, 0, err));
        few = MIN(few, clock_ns() - at);
        at = clock_ns();
        TRY(drafter_inject(d->drafter, b->draft_blocks, d->n_blocks, ctx, CALIBRATE_TREE, 0, err));
        inject = MIN(inject, clock_ns() - at);
        at = clock_ns();
        token_tree_init(&t, 0);
        TRY(drafter_propose(d->drafter, b->draft_blocks, d->n_blocks, ctx, TREE_CONDITIONED, &noise, 2, &t, err));
        block = MIN(block, clock_ns() - at);
        at = clock_ns();
        token_tree_init(&t, 0);
        TRY(drafter_propose(d->drafter, b->draft_blocks, d->n_blocks, ctx, TREE_CONDITIONED, &noise,
                            1 + CALIBRATE_TREE, &t, err));
        tree = MIN(tree, clock_ns() - at);
    }
    c->draft[0] = (float)(block + few);
    c->draft_node = tree > block ? (float)(tree - block) / CALIBRATE_TREE : 0;
    c->catch_up = (float)inject / CALIBRATE_TREE;
    return TERN_OK;
}

static enum tern_status curves_measure(const struct bench *b, struct width_costs *c, struct tern_err *err) {
    struct tern_engine *e = b->e;
    int rows_max = MIN(MIN(e->window, ENGINE_OUT_ROWS_MAX), e->n_ctx - 1);
    *c = (struct width_costs){.n_ctx = 1};
    TRY(verify_time(b, 1, 0, &c->verify[0][0], err)); // warms up
    TRY(draft_time(b, 0, c, err));
    uint64_t first = clock_ns();
    for (size_t i = 0; i < ARRAY_LEN(widths) && widths[i] <= rows_max; i++) {
        if (i > 1 && !time_is_left(b, (uint64_t)(2 * c->verify[0][i - 1]))) break;
        TRY(verify_time(b, widths[i], 0, &c->verify[0][i], err));
        c->rows[c->n_rows++] = widths[i];
    }
    bool has_room = CALIBRATE_CTX + ENGINE_OUT_ROWS_MAX < e->n_ctx;
    if (!has_room || !time_is_left(b, clock_ns() - first)) return TERN_OK;
    for (int i = 0; i < c->n_rows; i++) TRY(verify_time(b, c->rows[i], CALIBRATE_CTX, &c->verify[1][i], err));
    c->draft[1] = c->draft[0];
    c->ctx[1] = CALIBRATE_CTX;
    c->n_ctx = 2;
    return TERN_OK;
}

enum tern_status draft_calibrate(struct tern_engine *e, struct tern_err *err) {
    struct engine_draft *d = &e->draft;
    int n = engine_blocks_per_session(e);
    struct bench b = {.e = e};
    enum tern_status status = engine_progress(e, "measuring the costs of drafts", 0, 1, err);
    if (status != TERN_OK) return status;
    b.blocks = mem_calloc((size_t)n, sizeof *b.blocks);
    b.draft_blocks = mem_calloc((size_t)d->n_blocks, sizeof *b.draft_blocks);
    if (!b.blocks || !b.draft_blocks) {
        status = err_set(err, TERN_NO_MEMORY, "no memory to measure the costs of drafts");
        goto done;
    }
    for (int i = 0; i < n; i++) b.blocks[i] = i;
    for (int i = 0; i < d->n_blocks; i++) b.draft_blocks[i] = i;
    b.start = clock_ns();
    TRY_GOTO(curves_measure(&b, &d->costs, err), done);
    TRY_GOTO(width_costs_check(&d->costs, err), done);
    d->has_costs = true;
done:
    mem_free(b.blocks);
    mem_free(b.draft_blocks);
    return status;
}
