// Building draft trees (spec.h). All methods are one loop: every expanded node has a row of scored candidates and a
// cursor into it; the best pending child of all nodes is added, its parent's cursor moves on, and the child is expanded
// in turn. Methods differ in where a node's row comes from: its own (conditioned), or its depth's (factorised, biased,
// chain).
//
// Rows are ordered lazily: a tree of 64 nodes takes few children of most nodes, and picking the next of 128 scores by a
// scan costs less than keeping a heap or sorting. For the same reason the pending children are no heap.
//
// Scores are float, log-softmax over the candidates. They rank drafts; they never decide a token, so the last bit of
// expf and logf may differ between machines.
#include "base/base.h"
#include "spec/spec.h"

#include <math.h>

#define BASE_N 64 // candidates from the base row
#define ROW_N (BASE_N + SUCCESSORS_N)

struct row {
    int n, n_sorted; // candidates; how many of them are in their final order
    int32_t ids[ROW_N];
    float scores[ROW_N]; // log-softmax
};
// What a depth's base row offers every node at that depth.
struct shortlist {
    bool made;
    int n;
    int32_t ids[BASE_N];
    float logits[BASE_N];
    float noise[BASE_N]; // T × Gumbel
};
struct pending {
    int node, row, rank; // next child of node: entry `rank` of the row
    int32_t token;
    float score; // of its path
};
struct tree_builder {
    int n_vocab;
    float *logits;     // [n_vocab] with exact, else NULL
    uint16_t *in_base; // [n_vocab] bit d: in the shortlist of depth d
    const struct tree_source *source;
    int n_fills;
    struct shortlist shortlists[TREE_BLOCK_MAX];
    struct row rows[TREE_NODES_MAX];
    struct pending pending[TREE_NODES_MAX];
    int n_pending;
    struct token_tree chain;
};

enum tern_status tree_builder_create(struct tree_builder **out, int n_vocab, bool exact, struct tern_err *err) {
    if (n_vocab < 1) return err_set(err, TERN_INVALID_ARGUMENT, "tree builder: a vocabulary of %d tokens", n_vocab);
    struct tree_builder *b = mem_calloc(1, sizeof *b);
    if (b) {
        b->n_vocab = n_vocab;
        b->in_base = mem_calloc((size_t)n_vocab, sizeof *b->in_base);
        if (exact) b->logits = mem_alloc((size_t)n_vocab * sizeof *b->logits);
    }
    if (!b || !b->in_base || (exact && !b->logits)) {
        tree_builder_free(b);
        return err_set(err, TERN_NO_MEMORY, "no memory for a tree builder over %d tokens", n_vocab);
    }
    *out = b;
    return TERN_OK;
}

void tree_builder_free(struct tree_builder *b) {
    if (!b) return;
    mem_free(b->logits);
    mem_free(b->in_base);
    mem_free(b);
}

// ------------------------------------------------------------------------------------------------------------ a row

static const float *base_row(const struct tree_source *s, int depth) {
    return s->base + (size_t)depth * (size_t)s->n_vocab;
}

static float noise_at(const struct tree_source *s, int depth, int32_t id) {
    return s->noise.temperature * sampler_gumbel(s->noise.seed, s->noise.pos + depth, id);
}

static const struct shortlist *shortlist_get(struct tree_builder *b, int depth) {
    const struct tree_source *s = b->source;
    struct shortlist *list = &b->shortlists[depth];
    if (list->made) return list;
    list->made = true;
    list->n = topk_select(base_row(s, depth), s->n_used, BASE_N, list->ids, list->logits);
    for (int i = 0; i < list->n; i++) {
        b->in_base[list->ids[i]] |= (uint16_t)(1u << depth);
        if (s->noise.temperature > 0) list->noise[i] = noise_at(s, depth, list->ids[i]);
    }
    return list;
}

static void shortlists_clear(struct tree_builder *b) {
    for (int d = 0; d < TREE_BLOCK_MAX; d++) {
        struct shortlist *list = &b->shortlists[d];
        for (int i = 0; list->made && i < list->n; i++) b->in_base[list->ids[i]] = 0;
        list->made = false;
    }
}

static bool comes_first(const struct row *r, int a, int b) {
    if (r->scores[a] != r->scores[b]) return r->scores[a] > r->scores[b];
    return r->ids[a] < r->ids[b];
}

// Brings the next candidate in order to place n_sorted.
static void row_sort_next(struct row *r) {
    int to = r->n_sorted++, best = to;
    for (int i = to + 1; i < r->n; i++)
        if (comes_first(r, i, best)) best = i;
    float score = r->scores[best];
    int32_t id = r->ids[best];
    r->scores[best] = r->scores[to];
    r->ids[best] = r->ids[to];
    r->scores[to] = score;
    r->ids[to] = id;
}

// The lowest logit that the sampler's filters keep, as far as the candidates show it.
static float filter_floor(const struct tree_noise *noise, const struct row *by_logit) {
    struct row r = *by_logit;
    float floor = -INFINITY, best = -INFINITY;
    double total = 0, sum = 0;
    for (int i = 0; i < r.n; i++) best = MAX(best, r.scores[i]);
    if (noise->min_p > 0) floor = best + noise->temperature * logf(noise->min_p);
    bool wants_p = noise->top_p > 0 && noise->top_p<1, wants_k = noise->top_k> 0 && noise->top_k < r.n;
    if (!wants_k && !wants_p) return floor;
    int n = wants_k ? noise->top_k : r.n;
    for (r.n_sorted = 0; r.n_sorted < (wants_k ? n : 0);) row_sort_next(&r);
    for (int i = 0; i < n; i++) total += exp((double)((r.scores[i] - best) / noise->temperature));
    for (int i = 0; i < n; i++) {
        if (r.n_sorted <= i) row_sort_next(&r);
        sum += exp((double)((r.scores[i] - best) / noise->temperature));
        if (i == n - 1 || (wants_p && sum >= (double)noise->top_p * total)) return MAX(floor, r.scores[i]);
    }
    return floor;
}

// Adds the noise of the sampler to a row of logits: base[] is the shortlist's, reused for its first n_base entries.
static void row_add_noise(const struct tree_source *s, int depth, struct row *r, const float *base, int n_base) {
    const struct tree_noise *noise = &s->noise;
    bool filtered = noise->top_k > 0 || noise->min_p > 0 || (noise->top_p > 0 && noise->top_p < 1);
    float floor = filtered ? filter_floor(noise, r) : -INFINITY;
    for (int i = 0; i < r->n; i++) {
        float below = r->scores[i] < floor ? floor - r->scores[i] : 0;
        r->scores[i] += (i < n_base ? base[i] : noise_at(s, depth, r->ids[i])) - below;
    }
}

// Leaves out what is no number and turns the rest into log-probabilities; *log_norm where the sum is known already.
static void row_finish(struct row *r, const float *log_norm) {
    float max = -INFINITY, sum = 0;
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        if (!isfinite(r->scores[i])) continue;
        r->ids[n] = r->ids[i];
        r->scores[n] = r->scores[i];
        max = MAX(max, r->scores[n]);
        n++;
    }
    r->n = n;
    r->n_sorted = 0;
    if (!log_norm)
        for (int i = 0; i < n; i++) sum += expf(r->scores[i] - max);
    float norm = log_norm ? *log_norm : max + logf(sum);
    for (int i = 0; i < n; i++) r->scores[i] = MIN(r->scores[i] - norm, 0);
}

static void row_of_shortlist(struct tree_builder *b, const struct token_tree *t, int node, bool biased, struct row *r) {
    const struct tree_source *s = b->source;
    int depth = t->nodes[node].depth, n_succ = 0;
    const struct shortlist *list = shortlist_get(b, depth);
    const float *base = base_row(s, depth);
    memcpy(r->ids, list->ids, (size_t)list->n * sizeof *r->ids);
    memcpy(r->scores, list->logits, (size_t)list->n * sizeof *r->scores);
    r->n = list->n;
    if (biased && s->successors) {
        const int32_t *ids = successors_find(s->successors, t->nodes[node].token, &n_succ);
        if (!ids && b->n_fills < s->fills_max) {
            ids = successors_get(s->successors, t->nodes[node].token, &n_succ);
            b->n_fills++;
        }
        for (int i = 0; i < n_succ; i++) {
            if (ids[i] >= s->n_used || b->in_base[ids[i]] >> depth & 1) continue;
            r->ids[r->n] = ids[i];
            r->scores[r->n++] = base[ids[i]];
        }
    }
    if (biased && s->bias) {
        float bias[ROW_N];
        s->bias(s->bias_arg, t, node, r->ids, r->n, bias);
        for (int i = 0; i < r->n; i++) r->scores[i] += bias[i];
    }
    if (s->noise.temperature > 0) row_add_noise(s, depth, r, list->noise, list->n);
    row_finish(r, NULL);
}

// Candidates are the likeliest of the whole row, and without noise scores are log-softmax over all of it.
static void row_of_all(struct tree_builder *b, const struct token_tree *t, int node, bool biased, struct row *r) {
    const struct tree_source *s = b->source;
    int depth = t->nodes[node].depth;
    const float *base = base_row(s, depth);
    float *x = b->logits;
    if (biased && s->bias) {
        s->bias(s->bias_arg, t, node, NULL, s->n_vocab, x);
        for (int i = 0; i < s->n_used; i++) x[i] += base[i];
    } else {
        memcpy(x, base, (size_t)s->n_used * sizeof *x);
    }
    for (int i = 0; i < s->n_used; i++)
        if (!isfinite(x[i])) x[i] = -INFINITY;
    r->n = topk_select(x, s->n_used, ROW_N, r->ids, r->scores);
    if (s->noise.temperature > 0) {
        row_add_noise(s, depth, r, NULL, 0);
        row_finish(r, NULL);
        return;
    }
    double sum = 0;
    for (int i = 0; r->n > 0 && i < s->n_used; i++) sum += (double)expf(x[i] - r->scores[0]);
    float log_norm = r->n > 0 ? r->scores[0] + (float)log(sum) : 0;
    row_finish(r, &log_norm);
}

static void row_fill(struct tree_builder *b, const struct token_tree *t, int node, bool biased, struct row *r) {
    if (b->source->exact) {
        row_of_all(b, t, node, biased, r);
    } else {
        row_of_shortlist(b, t, node, biased, r);
    }
}

// ------------------------------------------------------------------------------------------------------------ growing

// Rows 0 … of the greedy chain below the root: each depth's candidates behind the chain's token.
static void chain_rows(struct tree_builder *b, int32_t root) {
    struct token_tree *chain = &b->chain;
    token_tree_init(chain, root);
    for (int d = 0; d < b->source->n_depths; d++) {
        struct row *r = &b->rows[d];
        r->n = 0;
        if (chain->n <= d) continue; // the row above had no candidate
        row_fill(b, chain, d, true, r);
        if (r->n == 0) continue;
        row_sort_next(r);
        token_tree_add(chain, d, r->ids[0], chain->nodes[d].score + r->scores[0]);
    }
}

// Sets a pending child to entry `rank` of its row; false when the row ends before.
static bool pending_set(struct tree_builder *b, const struct token_tree *t, struct pending *p, int rank) {
    struct row *r = &b->rows[p->row];
    if (rank >= r->n) return false;
    if (rank >= r->n_sorted) row_sort_next(r);
    p->rank = rank;
    p->token = r->ids[rank];
    p->score = t->nodes[p->node].score + r->scores[rank];
    return true;
}

static void node_expand(struct tree_builder *b, enum tree_method method, const struct token_tree *t, int node) {
    int depth = t->nodes[node].depth;
    if (depth >= b->source->n_depths) return;
    struct pending *p = &b->pending[b->n_pending];
    *p = (struct pending){.node = node, .row = method == TREE_CONDITIONED ? b->n_pending : depth};
    if (method == TREE_CONDITIONED) row_fill(b, t, node, true, &b->rows[p->row]);
    if (pending_set(b, t, p, 0)) b->n_pending++;
}

static bool pending_first(const struct token_tree *t, const struct pending *a, const struct pending *b) {
    if (a->score != b->score) return a->score > b->score;
    int depth_a = t->nodes[a->node].depth, depth_b = t->nodes[b->node].depth;
    if (depth_a != depth_b) return depth_a < depth_b;
    if (a->token != b->token) return a->token < b->token;
    return a->node < b->node;
}

static void grow(struct tree_builder *b, enum tree_method method, int n, struct token_tree *t) {
    node_expand(b, method, t, 0);
    while (t->n < n && b->n_pending > 0) {
        int best = 0;
        for (int i = 1; i < b->n_pending; i++)
            if (pending_first(t, &b->pending[i], &b->pending[best])) best = i;
        struct pending p = b->pending[best];
        if (!(p.score > -INFINITY)) return;
        int node = token_tree_add(t, p.node, p.token, p.score);
        t->nodes[node].score = p.score; // a node of another drafter gets its place and score
        t->nodes[node].rank = (int16_t)p.rank;
        // An entry that ends keeps its place (its row may be its own), with a score that never wins.
        if (!pending_set(b, t, &b->pending[best], p.rank + 1)) b->pending[best].score = -INFINITY;
        if (t->n < n) node_expand(b, method, t, node);
    }
}

static void source_check(const struct tree_builder *b, const struct tree_source *s, const struct token_tree *t) {
    if (s->n_depths < 1 || s->n_depths > TREE_BLOCK_MAX || s->n_used < 1 || s->n_used > s->n_vocab ||
        s->n_vocab > b->n_vocab || (s->exact && !b->logits))
        TERN_BUG("tree: %d depths of %d logits, %d used, exact %d do not fit a builder for %d tokens", s->n_depths,
                 s->n_vocab, s->n_used, s->exact, b->n_vocab);
    if (t->n < 1) TERN_BUG("tree: no root");
}

void tree_build(struct tree_builder *b, enum tree_method method, const struct tree_source *s, int n,
                struct token_tree *t) {
    source_check(b, s, t);
    b->source = s;
    b->n_fills = 0;
    b->n_pending = 0;
    n = MIN(n, TREE_NODES_MAX);
    if (method == TREE_FACTORISED) {
        struct token_tree *chain = &b->chain; // any nodes of the right depths: nothing looks at their tokens
        token_tree_init(chain, t->nodes[0].token);
        for (int d = 0; d < s->n_depths; d++) {
            row_fill(b, chain, d, false, &b->rows[d]);
            token_tree_add(chain, d, 0, 0);
        }
    } else if (method != TREE_CONDITIONED) {
        chain_rows(b, t->nodes[0].token);
    }
    if (method == TREE_CHAIN) {
        for (int d = 1, at = 0; d < b->chain.n && t->n < n; d++)
            at = token_tree_add(t, at, b->chain.nodes[d].token, b->chain.nodes[d].score);
    } else {
        grow(b, method, n, t);
    }
    if (!s->exact) shortlists_clear(b);
    b->source = NULL;
}
