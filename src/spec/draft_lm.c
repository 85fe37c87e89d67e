// A whole smaller language model as drafter (spec.h). What it has seen of a sequence is known by the ids themselves:
// each lane keeps them, and a draft begins where they part from the text. So going back, forking and loading a session
// need no word to it, and a lane that is taken over by another sequence costs that one's prompt once.
//
// Convolution rows cannot be cut. A lane has two slots: one is the state behind the text, the other that of the tokens
// drafted behind it, which start over each time; the K/V of drafted tokens are written again by what really follows.
#include "base/base.h"
#include "spec/spec.h"

struct lane {
    int32_t *ids; // [n_ctx] tokens whose state it holds
    size_t len;
};
struct draft_lm {
    const struct model *model;
    struct plan *plan;
    struct tree_builder *builder;
    struct step_builder step;
    struct arena arena;
    struct lane *lanes;  // [n_lanes]
    int32_t *free_lanes; // stack
    int n_free;
    int32_t *blocks; // [n_blocks] of the lane at work
    float *base;     // [DRAFT_LM_DEPTHS][n_vocab]
    int n_lanes, n_blocks, n_ctx, window, n_used;
    bool has_conv;
    struct draft_lm_stats stats;
};

static int blocks_of(const struct draft_lm_options *o) { return int_div_up(o->n_ctx + DRAFT_LM_DEPTHS, OP_BLOCK); }

static void plan_options_fill(const struct draft_lm_options *o, const struct plan_unit *unit,
                              struct plan_options *out) {
    *out = (struct plan_options){.model = o->model,
                                 .units = unit,
                                 .n_units = 1,
                                 .numerics = o->numerics,
                                 .kv_type = o->kv_type,
                                 .window = o->window,
                                 .n_blocks = blocks_of(o) * o->n_lanes,
                                 .n_slots = o->model->hyper.conv_len > 1 ? 2 * o->n_lanes : 0,
                                 .n_out_max = 1};
}

static uint64_t host_bytes(const struct draft_lm_options *o) {
    return (uint64_t)o->n_lanes * (uint64_t)o->n_ctx * sizeof(int32_t) +
           (uint64_t)o->model->hyper.n_vocab * (DRAFT_LM_DEPTHS * sizeof(float) + sizeof(uint16_t));
}

bool draft_lm_estimate(const struct draft_lm_options *o, uint64_t *bytes) {
    const struct plan_unit unit = {.unit = o->unit};
    struct plan_options po;
    uint64_t work, state;
    plan_options_fill(o, &unit, &po);
    return plan_bytes_estimate("whole", &po, &work, &state) && u64_add(work, state, bytes) &&
           u64_add(*bytes, host_bytes(o), bytes);
}

static enum tern_status parts_create(struct draft_lm *d, const struct draft_lm_options *o, struct tern_err *err) {
    const struct plan_unit unit = {.unit = o->unit, .weights = o->weights};
    struct plan_options po;
    plan_options_fill(o, &unit, &po);
    TRY(plan_open(&d->plan, "whole", &po, err));
    TRY(tree_builder_create(&d->builder, o->model->hyper.n_vocab, false, err));
    TRY(step_builder_init(&d->step, &d->arena, o->window, o->model->hyper.conv_len, 1, err));
    d->lanes = arena_calloc(&d->arena, (size_t)o->n_lanes, sizeof *d->lanes);
    d->free_lanes = arena_calloc(&d->arena, (size_t)o->n_lanes, sizeof *d->free_lanes);
    d->blocks = arena_calloc(&d->arena, (size_t)d->n_blocks, sizeof *d->blocks);
    d->base = mem_calloc((size_t)DRAFT_LM_DEPTHS * (size_t)o->model->hyper.n_vocab, sizeof *d->base);
    if (!d->lanes || !d->free_lanes || !d->blocks || !d->base)
        return err_set(err, TERN_NO_MEMORY, "no memory for a draft model");
    for (int i = o->n_lanes - 1; i >= 0; i--) {
        d->lanes[i].ids = arena_calloc(&d->arena, (size_t)o->n_ctx, sizeof *d->lanes[i].ids);
        if (!d->lanes[i].ids) return err_set(err, TERN_NO_MEMORY, "no memory for a draft model");
        d->free_lanes[d->n_free++] = i;
    }
    return TERN_OK;
}

enum tern_status draft_lm_create(struct draft_lm **out, const struct draft_lm_options *o, struct tern_err *err) {
    struct draft_lm *d = mem_calloc(1, sizeof *d);
    if (!d) return err_set(err, TERN_NO_MEMORY, "no memory for a draft model");
    d->model = o->model;
    d->n_lanes = o->n_lanes;
    d->n_ctx = o->n_ctx;
    d->window = o->window;
    d->n_blocks = blocks_of(o);
    d->n_used = MIN(o->n_used, o->model->hyper.n_vocab_used);
    d->has_conv = o->model->hyper.conv_len > 1;
    arena_init(&d->arena, 0);
    enum tern_status status = parts_create(d, o, err);
    if (status != TERN_OK) {
        draft_lm_free(d);
        return status;
    }
    *out = d;
    return TERN_OK;
}

void draft_lm_free(struct draft_lm *d) {
    if (!d) return;
    tree_builder_free(d->builder);
    plan_close(d->plan);
    mem_free(d->base);
    arena_release(&d->arena);
    mem_free(d);
}

uint64_t draft_lm_bytes(const struct draft_lm *d) {
    return plan_work_bytes(d->plan) + (uint64_t)d->n_lanes * (uint64_t)d->n_ctx * sizeof(int32_t) +
           (uint64_t)d->model->hyper.n_vocab * (DRAFT_LM_DEPTHS * sizeof(float) + sizeof(uint16_t));
}

int draft_lm_lane_take(struct draft_lm *d) { return d->n_free > 0 ? d->free_lanes[--d->n_free] : -1; }

void draft_lm_lane_give(struct draft_lm *d, int lane) {
    TERN_ASSERT(lane >= 0 && lane < d->n_lanes && d->n_free < d->n_lanes);
    d->lanes[lane].len = 0;
    d->free_lanes[d->n_free++] = lane;
}

int draft_lm_behind(const struct draft_lm *d, int lane, size_t n) {
    size_t len = d->lanes[lane].len;
    return n > len ? (int)(n - len) : 0;
}

struct draft_lm_stats draft_lm_stats_get(const struct draft_lm *d) {
    return d->stats;
}

// Rows ids[0 … n) behind len positions; the last one's logits into row `depth` of base, where wanted.
static enum tern_status rows_run(struct draft_lm *d, size_t len, const int32_t *ids, int n, int slot_in, int slot_out,
                                 int depth, struct tern_err *err) {
    step_begin(&d->step, plan_pool(d->plan), 0);
    int seq = step_add_seq(&d->step, d->blocks, d->n_blocks, (int32_t)len, d->has_conv && len > 0 ? slot_in : -1,
                           d->has_conv ? slot_out : -1);
    for (int i = 0; i < n; i++) step_add_chain_row(&d->step, seq, ids[i], depth >= 0 && i + 1 == n);
    TRY(plan_run(d->plan, step_end(&d->step), depth >= 0 ? (uint32_t)PROG_OUT_LOGITS : 0, err));
    d->stats.n_steps++;
    d->stats.n_rows += (uint64_t)n;
    size_t n_vocab = (size_t)d->model->hyper.n_vocab;
    if (depth >= 0) memcpy(d->base + (size_t)depth * n_vocab, plan_logits(d->plan, 0), n_vocab * sizeof *d->base);
    return TERN_OK;
}

// The lane holds the text and the root behind it, and row 0 of base is what follows.
static enum tern_status catch_up(struct draft_lm *d, int lane, const int32_t *ids, size_t n, int32_t root,
                                 struct tern_err *err) {
    struct lane *l = &d->lanes[lane];
    size_t same = 0;
    while (same < l->len && same < n && l->ids[same] == ids[same]) same++;
    if (same < l->len) l->len = d->has_conv ? 0 : same;
    for (int rows = 0; l->len < n + 1; l->len += (size_t)rows) {
        rows = (int)MIN((size_t)d->window, n + 1 - l->len);
        size_t from_text = MIN((size_t)rows, n - l->len);
        memcpy(l->ids + l->len, ids + l->len, from_text * sizeof *ids);
        if (l->len + (size_t)rows == n + 1) l->ids[n] = root;
        bool last = l->len + (size_t)rows == n + 1;
        enum tern_status status = rows_run(d, l->len, l->ids + l->len, rows, 2 * lane, 2 * lane, last ? 0 : -1, err);
        if (status != TERN_OK) {
            l->len = 0; // its rows are unknown now
            return status;
        }
    }
    return TERN_OK;
}

// The likeliest token of a row of base at that depth, noise included; false: there is none.
static bool token_pick(struct draft_lm *d, int depth, const struct tree_noise *noise, int32_t *token, float *score) {
    struct token_tree t;
    struct tree_source s = {.n_depths = 1,
                            .n_vocab = d->model->hyper.n_vocab,
                            .n_used = d->n_used,
                            .base = d->base + (size_t)depth * (size_t)d->model->hyper.n_vocab,
                            .noise = *noise};
    s.noise.pos += depth;
    token_tree_init(&t, 0);
    tree_build(d->builder, TREE_CHAIN, &s, 2, &t);
    if (t.n < 2) return false;
    *token = t.nodes[1].token;
    *score = t.nodes[1].score;
    return true;
}

enum tern_status draft_lm_propose(struct draft_lm *d, int lane, const int32_t *ids, size_t n, bool branches,
                                  const struct tree_noise *noise, int n_nodes, struct token_tree *t,
                                  struct tern_err *err) {
    int depths = MIN(n_nodes - 1, branches ? DRAFT_LM_TREE_DEPTHS : DRAFT_LM_DEPTHS), at = 0, have = 1;
    depths = (int)MIN((size_t)MAX(depths, 0), (size_t)d->n_ctx - n);
    if (depths < 1) return TERN_OK;
    for (int i = 0; i < d->n_blocks; i++) d->blocks[i] = lane * d->n_blocks + i;
    TRY(catch_up(d, lane, ids, n, t->nodes[0].token, err));
    d->stats.n_drafts++;
    for (int k = 0; k < depths; k++) {
        int32_t token;
        float score;
        if (!token_pick(d, k, noise, &token, &score)) break;
        if (!branches) at = token_tree_add(t, at, token, t->nodes[at].score + score);
        if (k + 1 == depths) break;
        TRY(rows_run(d, n + 1 + (size_t)k, &token, 1, k > 0 ? 2 * lane + 1 : 2 * lane, 2 * lane + 1, k + 1, err));
        have = k + 2;
    }
    if (!branches) return TERN_OK;
    const struct tree_source s = {
        .n_depths = have, .n_vocab = d->model->hyper.n_vocab, .n_used = d->n_used, .base = d->base, .noise = *noise};
    tree_build(d->builder, TREE_FACTORISED, &s, n_nodes, t);
    return TERN_OK;
}
