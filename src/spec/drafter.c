// A draft model at work: injection of the target's features in windows, a block of base logits, and the tree of them.
#include "base/base.h"
#include "spec/markov_int.h"

// Rows of the successor table computed in one draft: each is a product over the vocabulary.
#define FILLS_MAX 8

struct drafter {
    const struct model *model;
    struct plan_draft *plan;
    struct markov *markov; // NULL: the model has no Markov head
    struct successors *successors;
    struct tree_builder *builder;
    struct step_builder step;
    struct arena arena;
    float *e; // [rank]
    int window;
    uint64_t n_drafts, n_rows;
};

bool drafter_wants_hidden(const struct model *m) {
    return m->drafter->markov == MARKOV_GATED || m->drafter->markov == MARKOV_RNN;
}

uint64_t drafter_bytes(const struct model *m) {
    uint64_t tables = m->drafter->markov == MARKOV_NONE ? 0 : markov_bytes(m) + SUCCESSORS_BYTES_DEFAULT;
    return tables + 32 * (uint64_t)m->hyper.n_vocab;
}

static bool successors_product(void *arg, int32_t token, float *out) {
    struct drafter *d = arg;
    markov_w1(d->markov, token, d->e);
    return plan_draft_markov(d->plan, d->e, out, NULL) == TERN_OK;
}

static enum tern_status parts_create(struct drafter *d, struct tern_err *err) {
    const struct model_drafter *md = d->model->drafter;
    const struct model_hyper *h = &d->model->hyper;
    if (md->n_proposals > TREE_BLOCK_MAX)
        return err_set(err, TERN_UNSUPPORTED, "drafter %s proposes %d tokens in a block; at most %d are supported",
                       d->model->name, md->n_proposals, TREE_BLOCK_MAX);
    TRY(step_builder_init(&d->step, &d->arena, MAX(d->window, md->n_rows), 0, 1, err));
    TRY(tree_builder_create(&d->builder, h->n_vocab, false, err));
    if (md->markov == MARKOV_NONE) return TERN_OK;
    d->e = arena_calloc(&d->arena, (size_t)md->markov_rank, sizeof *d->e);
    if (!d->e) return err_set(err, TERN_NO_MEMORY, "no memory for a drafter");
    TRY(markov_create(&d->markov, d->model, err));
    return successors_create(&d->successors, h->n_vocab, MIN(h->n_vocab_used, md->target->hyper.n_vocab_used),
                             SUCCESSORS_BYTES_DEFAULT, successors_product, d, err);
}

enum tern_status drafter_create(struct drafter **out, const struct model *m, struct plan_draft *plan, int window,
                                struct tern_err *err) {
    struct drafter *d = mem_calloc(1, sizeof *d);
    if (!d) return err_set(err, TERN_NO_MEMORY, "no memory for a drafter");
    d->model = m;
    d->plan = plan;
    d->window = window;
    arena_init(&d->arena, 0);
    enum tern_status status = parts_create(d, err);
    if (status != TERN_OK) {
        drafter_free(d);
        return status;
    }
    *out = d;
    return TERN_OK;
}

void drafter_free(struct drafter *d) {
    if (!d) return;
    successors_free(d->successors);
    markov_free(d->markov);
    tree_builder_free(d->builder);
    arena_release(&d->arena);
    mem_free(d);
}

int drafter_depths(const struct drafter *d) { return d->model->drafter->n_proposals; }
int drafter_rows(const struct drafter *d) { return d->model->drafter->n_rows; }

enum tern_status drafter_inject(struct drafter *d, const int32_t *blocks, int n_blocks, int len, int n, int feature_row,
                                struct tern_err *err) {
    for (int at = 0, rows = 0; at < n; at += rows) {
        rows = MIN(n - at, d->window);
        step_begin(&d->step, plan_draft_pool(d->plan), 0);
        int seq = step_add_seq(&d->step, blocks, n_blocks, len + at, -1, -1);
        for (int i = 0; i < rows; i++) step_add_chain_row(&d->step, seq, 0, false);
        TRY(plan_draft_inject(d->plan, step_end(&d->step), feature_row + at, err));
        d->n_rows += (uint64_t)rows;
    }
    return TERN_OK;
}

// The whole block always runs, as it was trained; the output, much of a small drafter's cost, of n_depths rows of it.
static enum tern_status block_run(struct drafter *d, const int32_t *blocks, int n_blocks, int len, int32_t anchor,
                                  int n_depths, struct tern_err *err) {
    const struct model_drafter *md = d->model->drafter;
    step_begin(&d->step, plan_draft_pool(d->plan), STEP_FULL);
    int seq = step_add_seq(&d->step, blocks, n_blocks, len, -1, -1);
    for (int i = 0; i < md->n_rows; i++)
        step_add_full_row(&d->step, seq, i > 0 ? md->mask_id : anchor, false,
                          i >= md->first_row && i < md->first_row + n_depths);
    d->n_drafts++;
    return plan_draft_run(d->plan, step_end(&d->step), err);
}

enum tern_status drafter_propose(struct drafter *d, const int32_t *blocks, int n_blocks, int len,
                                 enum tree_method method, const struct tree_noise *noise, int n, struct token_tree *t,
                                 struct tern_err *err) {
    const struct model_drafter *md = d->model->drafter;
    int n_depths = MIN(md->n_proposals, n - 1); // no tree of n nodes is deeper
    if (n_depths < 1) return TERN_OK;
    TRY(block_run(d, blocks, n_blocks, len, t->nodes[0].token, n_depths, err));
    if (d->markov) markov_begin(d->markov, plan_draft_hidden(d->plan));
    const struct tree_source source = {.n_depths = n_depths,
                                       .n_vocab = d->model->hyper.n_vocab,
                                       .n_used = MIN(d->model->hyper.n_vocab_used, md->target->hyper.n_vocab_used),
                                       .base = plan_draft_logits(d->plan),
                                       .bias = d->markov ? markov_bias : NULL,
                                       .bias_arg = d->markov,
                                       .successors = d->successors,
                                       .fills_max = FILLS_MAX,
                                       .noise = *noise};
    tree_build(d->builder, method, &source, n, t);
    return TERN_OK;
}

struct drafter_stats drafter_stats_get(const struct drafter *d) {
    struct drafter_stats s = {.n_drafts = d->n_drafts, .n_rows_injected = d->n_rows};
    if (d->successors) s.successors = successors_stats_get(d->successors);
    return s;
}
