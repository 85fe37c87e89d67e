// The tree builders: golden trees of a literal construction (test/data/spec/trees.bin), ties and broken logits against
// an oracle without a frontier, nesting, trees that another drafter began, the sampler's noise, no allocation.
#include "base/base.h"
#include "spec/spec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define VOCAB_MAX 512

static const enum tree_method methods[] = {TREE_CHAIN, TREE_FACTORISED, TREE_BIASED, TREE_CONDITIONED};

struct head { // a vanilla Markov head
    int n_vocab, rank;
    const float *w1, *w2; // [n_vocab][rank]
};

static float head_bias(const struct head *h, int32_t token, int32_t id) {
    float sum = 0;
    for (int k = 0; k < h->rank; k++) sum = sum + h->w1[token * h->rank + k] * h->w2[id * h->rank + k];
    return sum;
}
static void bias_of_head(void *arg, const struct token_tree *t, int node, const int32_t *ids, int n, float *out) {
    for (int i = 0; i < n; i++) out[i] = head_bias(arg, t->nodes[node].token, ids ? ids[i] : i);
}
static bool product_of_head(void *arg, int32_t token, float *out) {
    const struct head *h = arg;
    for (int i = 0; i < h->n_vocab; i++) out[i] = head_bias(h, token, i);
    return true;
}

static struct tree_builder *builder_make(int n_vocab) {
    struct tree_builder *b = NULL;
    struct tern_err err = {0};
    if (tree_builder_create(&b, n_vocab, true, &err) != TERN_OK) fail_msg("%s", err.message);
    return b;
}

static void tree_same(const struct token_tree *a, const struct token_tree *b, int n) {
    for (int i = 0; i < n; i++) {
        const struct tree_node *x = &a->nodes[i], *y = &b->nodes[i];
        if (x->token != y->token || x->parent != y->parent || x->depth != y->depth || x->score != y->score)
            fail_msg("node %d: token %d under %d (%a), expected %d under %d (%a)", i, x->token, x->parent,
                     (double)x->score, y->token, y->parent, (double)y->score);
    }
}

// ------------------------------------------------------------------------------------------------------------ golden

struct reader {
    const uint8_t *at, *end;
};
static const void *bytes_get(struct reader *r, size_t n) {
    assert_true((size_t)(r->end - r->at) >= n);
    r->at += n;
    return r->at - n;
}
static int32_t i32_get(struct reader *r) { return (int32_t)load_u32(bytes_get(r, 4)); }
static float f32_get(struct reader *r) { return f32_from_bits((uint32_t)i32_get(r)); }
static float *floats_get(struct reader *r, int rows, int cols) {
    size_t n = (size_t)rows * (size_t)cols * sizeof(float);
    return mem_dup(bytes_get(r, n), n);
}

static void golden_tree(struct reader *r, struct tree_builder *b, struct tree_source *s, struct successors *succ,
                        int32_t anchor, int at) {
    enum tree_method method = (enum tree_method)i32_get(r);
    s->exact = i32_get(r) != 0;
    s->successors = i32_get(r) != 0 ? succ : NULL;
    int n = i32_get(r);
    struct token_tree t;
    struct tern_err err = {0};
    token_tree_init(&t, anchor);
    mem_freeze(true);
    tree_build(b, method, s, 1 + n, &t);
    mem_freeze(false);
    if (token_tree_check(&t, s->n_vocab, &err) != TERN_OK) fail_msg("%s", err.message);
    assert_int_equal(t.n, 1 + n);
    for (int i = 1; i <= n; i++) {
        int parent = i32_get(r), token = i32_get(r);
        float score = f32_get(r);
        const struct tree_node *node = &t.nodes[i];
        if (node->parent != parent || node->token != token || fabsf(node->score - score) > 1e-4f)
            fail_msg(
                "case %d method %d exact %d successors %d node %d: token %d under %d (%f), expected %d under %d (%f)",
                at, (int)method, s->exact, s->successors != NULL, i, node->token, node->parent, (double)node->score,
                token, parent, (double)score);
    }
}

static void test_golden(void **state) {
    (void)state;
    struct buf file;
    struct tern_err err = {0};
    buf_init(&file, 1 << 20);
    if (file_read_all(&file, TEST_DATA "/spec/trees.bin", &err) != TERN_OK) fail_msg("%s", err.message);
    struct reader r = {(const uint8_t *)file.data, (const uint8_t *)file.data + file.len};
    assert_memory_equal(bytes_get(&r, 4), "TREE", 4);
    int n_cases = i32_get(&r);
    assert_true(n_cases >= 5);
    for (int i = 0; i < n_cases; i++) {
        int vocab = i32_get(&r), used = i32_get(&r), depths = i32_get(&r), rank = i32_get(&r), anchor = i32_get(&r);
        struct tree_source s = {.n_depths = depths, .n_vocab = vocab, .n_used = used, .fills_max = TREE_NODES_MAX};
        s.noise.temperature = f32_get(&r);
        s.noise.min_p = f32_get(&r);
        s.noise.top_p = f32_get(&r);
        s.noise.top_k = i32_get(&r);
        s.noise.seed = (uint64_t)(uint32_t)i32_get(&r);
        s.noise.pos = i32_get(&r);
        float *base = floats_get(&r, depths, vocab), *w1 = floats_get(&r, vocab, rank);
        float *w2 = floats_get(&r, vocab, rank);
        struct head head = {vocab, rank, w1, w2};
        struct successors *succ = NULL;
        assert_int_equal(successors_create(&succ, vocab, used, 1 << 20, product_of_head, &head, &err), TERN_OK);
        s.base = base;
        s.bias = bias_of_head;
        s.bias_arg = &head;
        struct tree_builder *b = builder_make(vocab);
        int n_trees = i32_get(&r);
        assert_true(n_trees >= 8);
        for (int t = 0; t < n_trees; t++) golden_tree(&r, b, &s, succ, anchor, i);
        tree_builder_free(b);
        successors_free(succ);
        mem_free(base);
        mem_free(w1);
        mem_free(w2);
    }
    assert_true(r.at == r.end);
    buf_release(&file);
}

// ------------------------------------------------------------------------------------------------------------ oracle

struct small { // everything in the shortlist
    int n_vocab, n_depths;
    float base[TREE_BLOCK_MAX * 64], bias[64 * 64];
};
static void bias_of_small(void *arg, const struct token_tree *t, int node, const int32_t *ids, int n, float *out) {
    const struct small *c = arg;
    for (int i = 0; i < n; i++) out[i] = c->bias[t->nodes[node].token * c->n_vocab + (ids ? ids[i] : i)];
}

static uint32_t random_next(uint64_t *x) {
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*x >> 33);
}

// Few different values, so that most candidates tie; broken: some are no numbers.
static void small_make(struct small *c, uint64_t *seed, bool broken) {
    c->n_vocab = 2 + (int)(random_next(seed) % 40);
    c->n_depths = 1 + (int)(random_next(seed) % 9);
    for (int i = 0; i < c->n_depths * c->n_vocab; i++) c->base[i] = (float)(random_next(seed) % 4);
    for (int i = 0; i < c->n_vocab * c->n_vocab; i++) c->bias[i] = (float)(random_next(seed) % 3);
    for (int i = 0; broken && i < 60; i++) {
        float bad = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
        uint32_t at = random_next(seed);
        if (i % 2) {
            c->base[at % (uint32_t)(c->n_depths * c->n_vocab)] = bad;
        } else {
            c->bias[at % (uint32_t)(c->n_vocab * c->n_vocab)] = bad;
        }
    }
}

static struct tree_source small_source(struct small *c) {
    return (struct tree_source){.n_depths = c->n_depths,
                                .n_vocab = c->n_vocab,
                                .n_used = c->n_vocab,
                                .base = c->base,
                                .bias = bias_of_small,
                                .bias_arg = c};
}

// log-softmax of a child list in the builder's order of summation: base value, then id.
static void small_row(const struct small *c, int depth, int32_t token, float *lp) {
    int order[64], n = 0;
    float x[64], max = -INFINITY, sum = 0;
    for (int v = 0; v < c->n_vocab; v++) {
        lp[v] = NAN;
        float u = c->base[depth * c->n_vocab + v];
        x[v] = u + c->bias[token * c->n_vocab + v];
        if (isnan(u) || !isfinite(x[v])) continue;
        int at = n++;
        for (; at > 0 && c->base[depth * c->n_vocab + order[at - 1]] < u; at--) order[at] = order[at - 1];
        order[at] = v;
        max = MAX(max, x[v]);
    }
    for (int i = 0; i < n; i++) sum += expf(x[order[i]] - max);
    for (int i = 0; i < n; i++) lp[order[i]] = MIN(x[order[i]] - (max + logf(sum)), 0);
}

// Conditioned trees without a frontier: every child of every node is looked at for every node that is added.
static void small_oracle(const struct small *c, int32_t root, struct token_tree *t) {
    static float lp[TREE_NODES_MAX][64];
    token_tree_init(t, root);
    small_row(c, 0, root, lp[0]);
    while (t->n < TREE_NODES_MAX) {
        int parent = -1, token = -1;
        float best = 0;
        for (int i = 0; i < t->n; i++)
            for (int v = 0; v < c->n_vocab && t->nodes[i].depth < c->n_depths; v++) {
                if (isnan(lp[i][v]) || token_tree_child(t, i, v) != TREE_NO_NODE) continue;
                float score = t->nodes[i].score + lp[i][v];
                int d = t->nodes[i].depth, d_best = parent >= 0 ? t->nodes[parent].depth : 0;
                if (parent < 0 || score > best ||
                    (score == best && (d < d_best || (d == d_best && (v < token || (v == token && i < parent)))))) {
                    parent = i;
                    token = v;
                    best = score;
                }
            }
        if (parent < 0) break;
        int node = token_tree_add(t, parent, token, best);
        if (t->nodes[node].depth < c->n_depths) small_row(c, t->nodes[node].depth, token, lp[node]);
    }
}

static void test_ties_and_broken_logits(void **state) {
    (void)state;
    static struct small c;
    struct tree_builder *b = builder_make(64);
    uint64_t seed = 11;
    int n_full = 0;
    for (int round = 0; round < 300; round++) {
        small_make(&c, &seed, round % 2 == 1);
        struct tree_source s = small_source(&c);
        struct token_tree t, want;
        token_tree_init(&t, 1);
        tree_build(b, TREE_CONDITIONED, &s, TREE_NODES_MAX, &t);
        small_oracle(&c, 1, &want);
        assert_int_equal(t.n, want.n);
        tree_same(&t, &want, t.n);
        n_full += t.n == TREE_NODES_MAX;
    }
    assert_true(n_full > 150);
    tree_builder_free(b);
}

static void test_nothing_to_draft(void **state) {
    (void)state;
    static struct small c = {.n_vocab = 10, .n_depths = 3};
    struct tree_builder *b = builder_make(64);
    for (int i = 0; i < 30; i++) c.base[i] = i % 2 ? NAN : -INFINITY;
    struct tree_source s = small_source(&c);
    for (size_t m = 0; m < ARRAY_LEN(methods); m++) {
        struct token_tree t;
        token_tree_init(&t, 0);
        tree_build(b, methods[m], &s, TREE_NODES_MAX, &t);
        assert_int_equal(t.n, 1);
    }
    tree_builder_free(b);
}

// The tree of k nodes is the first k of the tree of 64, for every method, exact and not, with noise and without.
static void test_nested(void **state) {
    (void)state;
    static struct small c;
    struct tree_builder *b = builder_make(64);
    uint64_t seed = 5;
    for (int round = 0; round < 40; round++) {
        small_make(&c, &seed, round % 3 == 2);
        struct tree_source s = small_source(&c);
        s.exact = round % 2 == 1;
        s.noise.temperature = round % 4 == 0 ? 0.8f : 0;
        for (size_t m = 0; m < ARRAY_LEN(methods); m++) {
            struct token_tree all;
            token_tree_init(&all, 0);
            tree_build(b, methods[m], &s, TREE_NODES_MAX, &all);
            for (int n = 1; n <= all.n; n += 1 + n / 4) {
                struct token_tree t;
                token_tree_init(&t, 0);
                tree_build(b, methods[m], &s, n, &t);
                assert_int_equal(t.n, n);
                tree_same(&t, &all, n);
            }
        }
    }
    tree_builder_free(b);
}

// What is there stays first; the rest is the tree without it, in the same order.
static void test_seeded(void **state) {
    (void)state;
    static struct small c;
    struct tree_builder *b = builder_make(64);
    uint64_t seed = 9;
    int n_checked = 0;
    for (int round = 0; round < 60; round++) {
        small_make(&c, &seed, false);
        for (int i = 0; i < c.n_depths * c.n_vocab; i++) c.base[i] += (float)random_next(&seed) * 0x1p-31f;
        struct tree_source s = small_source(&c);
        struct token_tree plain, seeded;
        int32_t chain[5];
        for (int i = 0; i < 5; i++) chain[i] = (int32_t)(random_next(&seed) % (uint32_t)c.n_vocab);
        token_tree_init(&plain, 0);
        token_tree_init(&seeded, 0);
        tree_build(b, TREE_CONDITIONED, &s, 40, &plain);
        if (plain.n < 40) continue;
        n_checked++;
        token_tree_add_chain(&seeded, 0, chain, 5, TREE_NODES_MAX);
        assert_int_equal(seeded.n, 6);
        tree_build(b, TREE_CONDITIONED, &s, 40, &seeded);
        assert_int_equal(seeded.n, plain.n);
        struct tern_err err = {0};
        assert_int_equal(token_tree_check(&seeded, c.n_vocab, &err), TERN_OK);
        for (int i = 0; i < 5; i++) assert_int_equal(seeded.nodes[i + 1].token, chain[i]);
        int at = 1; // node of the plain tree
        for (int i = 6; i < seeded.n; i++, at++) {
            int32_t path[TREE_NODES_MAX], want[TREE_NODES_MAX];
            int n = token_tree_path(&seeded, i, path), n_want = 0, match = 0;
            do { // nodes of the chain are passed over
                n_want = token_tree_path(&plain, at, want);
                for (match = 0; match < n_want && match < 5 && want[match] == chain[match];) match++;
            } while (match == n_want && ++at < plain.n);
            assert_int_equal(n, n_want);
            assert_memory_equal(path, want, (size_t)n * sizeof *path);
        }
    }
    assert_true(n_checked > 30);
    tree_builder_free(b);
}

// ------------------------------------------------------------------------------------------------------------ noise

// A target whose logits are the drafter's plus an error, sampled by the contract's rule: trees ranked with its noise
// must be accepted far more often than trees ranked without.
static void accepted_count(int use_noise, float min_p, int *n_accepted) {
    enum { VOCAB = 256, ROUNDS = 400 };
    static float base[VOCAB], target[VOCAB];
    struct tree_builder *b = builder_make(VOCAB);
    struct sampler_params p;
    struct sampler *sampler = NULL;
    struct tern_err err = {0};
    uint64_t seed = 21;
    sampler_params_default(&p);
    p.temperature = 1;
    p.min_p = min_p;
    p.seed = 77;
    assert_int_equal(sampler_create(&sampler, &p, VOCAB, VOCAB, &err), TERN_OK);
    *n_accepted = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < VOCAB; i++) {
            base[i] = (float)(random_next(&seed) % 1000) * 0.006f;
            target[i] = base[i] + (float)(random_next(&seed) % 1000) * 0.0005f;
        }
        struct tree_source s = {.n_depths = 1, .n_vocab = VOCAB, .n_used = VOCAB, .base = base};
        s.noise = (struct tree_noise){.temperature = use_noise ? 1 : 0, .seed = 77, .pos = round, .min_p = min_p};
        struct token_tree t;
        token_tree_init(&t, 0);
        tree_build(b, TREE_CONDITIONED, &s, 4, &t);
        int32_t id = sampler_pick(sampler, target, round, NULL).id;
        *n_accepted += token_tree_child(&t, 0, id) != TREE_NO_NODE;
    }
    sampler_free(sampler);
    tree_builder_free(b);
}

static void test_noise(void **state) {
    (void)state;
    int with, without, filtered, unfiltered;
    accepted_count(1, 0, &with);
    accepted_count(0, 0, &without);
    accepted_count(1, 0.2f, &filtered);
    accepted_count(0, 0.2f, &unfiltered);
    // Measured: 313 and 24 of 400 (the rest: tokens outside the shortlist of 64 of 256); filtered 387 and 32.
    assert_in_range(with, 250, 400);
    assert_in_range(without, 1, with / 3);
    assert_in_range(filtered, 380, 400);
    assert_in_range(unfiltered, 1, filtered / 3);
}

static void test_bad_input(void **state) {
    (void)state;
    struct tree_builder *b = NULL;
    struct tern_err err = {0};
    assert_int_equal(tree_builder_create(&b, 0, false, &err), TERN_INVALID_ARGUMENT);
    for (uint64_t n = 1; n <= 3; n++) {
        mem_fail_at(n, false);
        assert_int_equal(tree_builder_create(&b, 100, true, &err), TERN_NO_MEMORY);
        mem_fail_at(0, false);
    }
    tree_builder_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),    cmocka_unit_test(test_ties_and_broken_logits),
        cmocka_unit_test(test_nested),    cmocka_unit_test(test_nothing_to_draft),
        cmocka_unit_test(test_seeded),    cmocka_unit_test(test_noise),
        cmocka_unit_test(test_bad_input),
    };
    return cmocka_run_group_tests_name("tree_build", tests, NULL, NULL);
}
