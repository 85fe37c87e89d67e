// What a round costs on this unit, measured: verify steps of rising width, a block of the drafter, the building of a
// tree. Passes over everything, within a budget of time; of each time the lower quartile counts, which other work on
// the machine spoils only when it is there three times in four. A large model shows fewer points in the same time, and
// the last slope goes on beyond them. Costs are in nanoseconds.
//
// The steps are real ones on free blocks: they keep their rows (no convolution state is written) and what they leave in
// the blocks lies behind every session's length.
#include "base/base.h"
#include "engine_int.h"

#define CALIBRATE_CTX 512 // second context that is measured, where there is room and time
#define CALIBRATE_TREE 16
#define CALIBRATE_FEW 3   // positions that a draft catches up with as a rule
#define CALIBRATE_CHAIN 9 // drafted tokens of a whole model
#define CALIBRATE_PASSES 64

// In the order in which they are measured: the first MUST of them whatever they cost, the rest as time allows.
#define CALIBRATE_MUST 3
static const int16_t widths[] = {1, 9, 17, 5, 2, 33, 3, 4, 7, 12, 24, 48, 64};
_Static_assert(ARRAY_LEN(widths) <= WIDTH_ROWS_MAX, "room for every width");

struct samples {
    uint64_t v[CALIBRATE_PASSES];
    int n;
};
static void samples_put(struct samples *s, uint64_t ns) {
    if (s->n < CALIBRATE_PASSES) s->v[s->n++] = ns;
}
static uint64_t samples_low(const struct samples *s) {
    uint64_t v[CALIBRATE_PASSES];
    for (int i = 0; i < s->n; i++) {
        int at = i;
        for (; at > 0 && v[at - 1] > s->v[i]; at--) v[at] = v[at - 1];
        v[at] = s->v[i];
    }
    return s->n > 0 ? v[(s->n - 1) / 4] : 0;
}

struct bench {
    struct tern_engine *e;
    int32_t *blocks, *draft_blocks;
    uint64_t start, budget_ns;
};

static bool time_is_left(const struct bench *b, uint64_t wanted_ns) {
    return clock_ns() - b->start + wanted_ns < b->budget_ns;
}

// One verify step of so many rows, as a tree.
static enum tern_status verify_time(const struct bench *b, int rows, int ctx, struct samples *out,
                                    struct tern_err *err) {
    struct tern_engine *e = b->e;
    struct step_builder *sb = &e->builder;
    step_begin(sb, plan_pool(e->plan), STEP_KEEP_ROWS);
    int conv_in = ctx > 0 && e->n_slots > 0 ? 0 : -1; // any slot
    int seq = step_add_seq(sb, b->blocks, engine_blocks_per_session(e), ctx, conv_in, -1);
    for (int r = 0; r < rows; r++) step_add_tree_row(sb, seq, 0, r == 0 ? STEP_NO_PARENT : (r - 1) / 2, true);
    if (e->draft.plan) sb->step.ports[PORT_FEATURES] = plan_draft_features(e->draft.plan, 0);
    uint64_t at = clock_ns();
    TRY(plan_run(e->plan, step_end(sb), PROG_OUT_ARGMAX, err));
    samples_put(out, clock_ns() - at);
    return TERN_OK;
}

struct draft_times {
    // Three rows injected, CALIBRATE_TREE rows; a block alone, and with a tree. Of a whole model: nothing; a draft of
    // one token that catches up with CALIBRATE_TREE positions, with CALIBRATE_FEW; and one of CALIBRATE_CHAIN tokens.
    struct samples few, many, block, tree;
};

// A whole model drafts behind texts that part from the last one at once, so every draft reads all of its text.
static enum tern_status draft_lm_time(const struct bench *b, struct draft_times *t, struct tern_err *err) {
    const struct tree_noise noise = {0};
    struct {
        int n, nodes;
        struct samples *out;
    } const kinds[] = {
        {CALIBRATE_TREE, 1, &t->many}, {CALIBRATE_FEW, 1, &t->block}, {CALIBRATE_FEW, CALIBRATE_CHAIN, &t->tree}};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        int32_t ids[CALIBRATE_TREE];
        struct token_tree tree;
        for (int k = 0; k < kinds[i].n; k++) ids[k] = (int32_t)(1 + i + (size_t)t->many.n % 2 * ARRAY_LEN(kinds));
        uint64_t at = clock_ns();
        token_tree_init(&tree, 0);
        TRY(draft_lm_propose(b->e->draft.lm, 0, ids, (size_t)kinds[i].n, false, &noise, 1 + kinds[i].nodes, &tree,
                             err));
        samples_put(kinds[i].out, clock_ns() - at);
    }
    return TERN_OK;
}

static enum tern_status draft_time(const struct bench *b, struct draft_times *t, struct tern_err *err) {
    struct engine_draft *d = &b->e->draft;
    struct token_tree tree;
    const struct tree_noise noise = {0};
    if (d->lm) return draft_lm_time(b, t, err);
    uint64_t at = clock_ns();
    TRY(drafter_inject(d->drafter, b->draft_blocks, d->n_blocks, 0, 3, 0, err));
    samples_put(&t->few, clock_ns() - at);
    at = clock_ns();
    TRY(drafter_inject(d->drafter, b->draft_blocks, d->n_blocks, 0, CALIBRATE_TREE, 0, err));
    samples_put(&t->many, clock_ns() - at);
    for (int n = 1; n <= CALIBRATE_TREE; n += CALIBRATE_TREE - 1) {
        struct samples *out = n == 1 ? &t->block : &t->tree;
        at = clock_ns();
        token_tree_init(&tree, 0);
        TRY(drafter_propose(d->drafter, b->draft_blocks, d->n_blocks, 0, TREE_CONDITIONED, &noise, 1 + n, &tree, err));
        samples_put(out, clock_ns() - at);
    }
    return TERN_OK;
}

// One pass over the widths; *n: how many of them have a time.
static enum tern_status widths_pass(const struct bench *b, int ctx, int n_max, struct samples *times, int *n,
                                    struct tern_err *err) {
    for (int i = 0; i < n_max; i++) {
        bool known = times[i].n > 0;
        if (known) *n = MAX(*n, i + 1);
        uint64_t guess = known ? times[i].v[0] : i > 0 ? times[i - 1].v[0] * 2 : 0;
        if (!(i < CALIBRATE_MUST && !known) && !time_is_left(b, guess)) continue;
        if (!known && i > *n) continue; // no gaps
        TRY(verify_time(b, widths[i], ctx, &times[i], err));
        *n = MAX(*n, i + 1);
    }
    return TERN_OK;
}

// Times err upwards, costs rise with the rows, and rows together cost no more than one by one: no width costs more
// than a wider one was seen to, or than the same rows in several narrower steps.
static void curve_set(struct width_costs *c, int x, const struct samples *times, int n) {
    c->n_rows = n;
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && c->rows[at - 1] > widths[i]; at--) {
            c->rows[at] = c->rows[at - 1];
            c->verify[x][at] = c->verify[x][at - 1];
        }
        c->rows[at] = widths[i];
        c->verify[x][at] = (float)MAX(samples_low(&times[i]), 1);
    }
    for (int i = 1; i < n; i++)
        for (int j = 0; j < i; j++) {
            float in_pieces = c->verify[x][j] * (float)int_div_up(c->rows[i], c->rows[j]);
            c->verify[x][i] = MIN(c->verify[x][i], in_pieces);
        }
    for (int i = n - 2; i >= 0; i--) c->verify[x][i] = MIN(c->verify[x][i], c->verify[x][i + 1]);
}

struct measured {
    struct samples near[ARRAY_LEN(widths)], far[ARRAY_LEN(widths)]; // at context 0 and CALIBRATE_CTX
    struct draft_times draft;
};

static void draft_costs_set(struct width_costs *c, const struct draft_times *t, bool by_lm) {
    uint64_t block = samples_low(&t->block), tree = samples_low(&t->tree), many = samples_low(&t->many);
    if (by_lm) {
        c->draft_node = tree > block ? (float)(tree - block) / (CALIBRATE_CHAIN - 1) : 0;
        c->draft[0] = c->draft[1] = MAX((float)block - c->draft_node, 0); // the first token needs no step of its own
        c->catch_up = many > block ? (float)(many - block) / (CALIBRATE_TREE - CALIBRATE_FEW) : 0;
        return;
    }
    c->draft[0] = c->draft[1] = (float)(block + samples_low(&t->few));
    c->draft_node = tree > block ? (float)MIN(tree - block, block) / (CALIBRATE_TREE - 1) : 0;
    c->catch_up = (float)many / CALIBRATE_TREE;
}

static enum tern_status curves_measure(const struct bench *b, struct measured *m, struct width_costs *c,
                                       struct tern_err *err) {
    struct tern_engine *e = b->e;
    struct draft_times *t = &m->draft;
    int rows_max = MIN(MIN(e->window, ENGINE_OUT_ROWS_MAX), e->n_ctx - 1), n_max = 0, n = 0, n_far = 0;
    bool has_far = CALIBRATE_CTX + ENGINE_OUT_ROWS_MAX < e->n_ctx;
    while (n_max < (int)ARRAY_LEN(widths) && widths[n_max] <= rows_max) n_max++;
    *c = (struct width_costs){.n_ctx = 1};
    if (e->draft.model) TRY(draft_time(b, t, err)); // warms up: the successor table of its tokens is filled
    m->draft = (struct draft_times){.few = {.n = 0}};
    TRY(verify_time(b, 1, 0, &m->near[0], err));
    m->near[0].n = 0;
    for (int pass = 0; pass < CALIBRATE_PASSES && (pass == 0 || time_is_left(b, m->near[0].v[0])); pass++) {
        if (e->draft.model) TRY(draft_time(b, t, err));
        TRY(widths_pass(b, 0, n_max, m->near, &n, err));
        if (has_far) TRY(widths_pass(b, CALIBRATE_CTX, MIN(n, CALIBRATE_MUST), m->far, &n_far, err));
    }
    curve_set(c, 0, m->near, n);
    draft_costs_set(c, t, e->draft.lm != NULL);
    if (!has_far || n_far < MIN(n, CALIBRATE_MUST)) return TERN_OK;
    // Context adds the same for every row: from the width that shows it best to all.
    double more = (double)samples_low(&m->far[n_far - 1]) - (double)samples_low(&m->near[n_far - 1]);
    double per_row = MAX(more, 0) / widths[n_far - 1];
    for (int i = 0; i < c->n_rows; i++) c->verify[1][i] = c->verify[0][i] + (float)(per_row * c->rows[i]);
    c->ctx[1] = CALIBRATE_CTX;
    c->n_ctx = 2;
    return TERN_OK;
}

enum tern_status draft_calibrate(struct tern_engine *e, uint64_t budget_ns, struct width_costs *out,
                                 struct tern_err *err) {
    struct engine_draft *d = &e->draft;
    int n = engine_blocks_per_session(e);
    struct bench b = {.e = e, .budget_ns = budget_ns};
    struct measured *m = NULL;
    enum tern_status status = engine_progress(e, "measuring the costs of drafts", 0, 1, err);
    if (status != TERN_OK) return status;
    b.blocks = mem_calloc((size_t)n, sizeof *b.blocks);
    b.draft_blocks = mem_calloc((size_t)d->n_blocks + 1, sizeof *b.draft_blocks);
    m = mem_calloc(1, sizeof *m);
    if (!b.blocks || !b.draft_blocks || !m) {
        status = err_set(err, TERN_NO_MEMORY, "no memory to measure the costs of drafts");
        goto done;
    }
    for (int i = 0; i < n; i++) b.blocks[i] = i;
    for (int i = 0; i < d->n_blocks; i++) b.draft_blocks[i] = i;
    b.start = clock_ns();
    TRY_GOTO(curves_measure(&b, m, out, err), done);
    TRY_GOTO(width_costs_check(out, err), done);
done:
    mem_free(b.blocks);
    mem_free(b.draft_blocks);
    mem_free(m);
    return status;
}
