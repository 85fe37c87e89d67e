// Token trees as data, the walk along the target's choices (case D05), verify and commit steps, the successor table.
#include "base/base.h"
#include "spec/spec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

// Case D05: parents and tokens of the tree, the target's choice at each row.
static const int case_parents[] = {-1, 0, 0, 1, 1, 2, 4};
static const int32_t case_tokens[] = {50, 11, 12, 21, 22, 23, 31};
static const struct prog_argmax case_rows[] = {{11, 0}, {22, 0}, {23, 0}, {9, 0}, {31, 0}, {7, 0}, {77, 0}};

static void case_tree(struct token_tree *t) {
    token_tree_init(t, case_tokens[0]);
    for (int i = 1; i < 7; i++) assert_int_equal(token_tree_add(t, case_parents[i], case_tokens[i], -(float)i), i);
}

static void test_walk_given(void **state) {
    (void)state;
    struct token_tree t;
    struct accept_path p;
    struct accept_greedy g = {.rows = case_rows, .end = -1};
    case_tree(&t);
    accept_walk(&t, accept_choose_greedy, &g, &p);
    const int16_t want[] = {0, 1, 4, 6};
    assert_int_equal(p.n, 4);
    assert_memory_equal(p.nodes, want, sizeof want);
    assert_int_equal(p.bonus, 77);
    const int tokens[] = {1, 2, 2, 2, 3, 3, 4, 4}; // with only the first k drafted nodes
    for (int k = 0; k < 8; k++) assert_int_equal(accept_tokens(&p, k), tokens[k]);
}

// What a narrower tree would have given is what walking it gives.
static void test_walk_nested(void **state) {
    (void)state;
    struct accept_greedy g = {.rows = case_rows, .end = -1};
    struct token_tree t;
    struct accept_path p, narrow;
    case_tree(&t);
    accept_walk(&t, accept_choose_greedy, &g, &p);
    for (int n = 7; n >= 1; n--) {
        token_tree_cut(&t, n);
        accept_walk(&t, accept_choose_greedy, &g, &narrow);
        assert_int_equal(narrow.n, accept_tokens(&p, n - 1));
    }
    token_tree_cut(&t, 0);
    assert_int_equal(t.n, 1);
}

// The text's end stops the walk even where the tree goes on; nothing allowed leaves no bonus.
static void test_walk_ends(void **state) {
    (void)state;
    struct token_tree t;
    struct accept_path p;
    struct accept_greedy g = {.rows = case_rows, .end = 22};
    case_tree(&t);
    accept_walk(&t, accept_choose_greedy, &g, &p);
    assert_int_equal(p.n, 2);
    assert_int_equal(p.bonus, 22);
    struct prog_argmax none[7];
    memcpy(none, case_rows, sizeof none);
    none[1].id = -1;
    g = (struct accept_greedy){.rows = none, .end = -1};
    accept_walk(&t, accept_choose_greedy, &g, &p);
    assert_int_equal(p.n, 2);
    assert_int_equal(p.bonus, -1);
}

static const uint32_t *mask_of_node(void *arg, const struct token_tree *t, int node) {
    (void)t;
    const uint32_t *masks = arg;
    return node == 1 ? &masks[1] : &masks[0];
}

// Sampled walks ask the sampler at the row's own position, with the node's mask, and tell it what was chosen.
static void test_walk_sampled(void **state) {
    (void)state;
    enum { VOCAB = 32 };
    struct sampler_params params;
    struct sampler *walk = NULL, *plain = NULL;
    struct tern_err err = {0};
    sampler_params_default(&params);
    params.temperature = 1;
    params.seed = 4;
    params.repeat_penalty = 1.3f;
    assert_int_equal(sampler_create(&walk, &params, VOCAB, VOCAB, &err), TERN_OK);
    assert_int_equal(sampler_create(&plain, &params, VOCAB, VOCAB, &err), TERN_OK);
    const uint32_t masks[] = {0xFFFFFFFFu, 0x00FF00FFu};
    int n_deep = 0;
    for (int round = 0; round < 50; round++) {
        // A tree along what plain sampling chooses, with a wrong sibling first.
        float logits[4][VOCAB];
        int32_t chosen[4];
        struct token_tree t;
        token_tree_init(&t, 0);
        int node = 0, at = 0;
        for (int d = 0; d < 3; d++) {
            at = d == 0 ? 0 : 2 * d; // nodes: 0, then pairs (wrong, right)
            for (int i = 0; i < VOCAB; i++) logits[d][i] = (float)((i * 7 + round * 13 + d * 5) % 11) * 0.3f;
            const uint32_t *mask = mask_of_node((void *)(uintptr_t)masks, &t, at);
            chosen[d] = sampler_pick(plain, logits[d], 100 * round + d, mask).id;
            sampler_accept(plain, chosen[d]);
            token_tree_add(&t, node, (chosen[d] + 1) % VOCAB, 0);
            node = token_tree_add(&t, node, chosen[d], 0);
        }
        float rows[7][VOCAB];
        memset(rows, 0, sizeof rows);
        for (int d = 0; d < 3; d++) memcpy(rows[2 * d], logits[d], sizeof logits[d]);
        rows[6][3] = 50;
        struct accept_sampled a = {.sampler = walk,
                                   .logits = rows[0],
                                   .stride = VOCAB,
                                   .pos = 100 * round,
                                   .end = -1,
                                   .mask = mask_of_node,
                                   .mask_arg = (void *)(uintptr_t)masks};
        struct accept_path p;
        accept_walk(&t, accept_choose_sampled, &a, &p);
        sampler_accept(plain, p.bonus);
        assert_int_equal(p.n, 4);
        for (int d = 0; d < 3; d++) assert_int_equal(t.nodes[p.nodes[d + 1]].token, chosen[d]);
        n_deep++;
    }
    assert_int_equal(n_deep, 50);
    sampler_free(walk);
    sampler_free(plain);
}

// ------------------------------------------------------------------------------------------------------------ steps

static void test_steps(void **state) {
    (void)state;
    struct arena arena;
    struct step_builder verify, commit;
    struct tern_err err = {0};
    const int32_t blocks[] = {3, 4};
    arena_init(&arena, 0);
    assert_int_equal(step_builder_init(&verify, &arena, 16, 3, 2, &err), TERN_OK);
    assert_int_equal(step_builder_init(&commit, &arena, 16, 3, 2, &err), TERN_OK);
    struct token_tree t;
    case_tree(&t);
    step_begin(&verify, NULL, STEP_KEEP_ROWS);
    int other = step_add_seq(&verify, blocks, 2, 5, 0, -1); // another sequence's rows come before the tree's
    step_add_chain_row(&verify, other, 1, true);
    int seq = step_add_seq(&verify, blocks, 2, 20, 1, -1);
    int row = tree_step_add(&verify, seq, &t);
    assert_int_equal(row, 1);
    const struct step *v = step_end(&verify);
    assert_int_equal(v->n_rows, 8);
    assert_int_equal(v->n_out, 8);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(v->rows[row + i].token, case_tokens[i]);
        assert_int_equal(v->rows[row + i].parent, i == 0 ? STEP_NO_PARENT : row + case_parents[i]);
        assert_int_equal(v->rows[row + i].pos, 20 + t.nodes[i].depth);
        assert_int_equal(v->rows[row + i].slot, 20 + i);
    }
    const int16_t *taps = v->taps + (row + 6) * 3; // grandparent, parent, self
    assert_int_equal(taps[0], row + 1);
    assert_int_equal(taps[1], row + 4);
    assert_int_equal(taps[2], row + 6);

    struct accept_path p;
    struct accept_greedy g = {.rows = case_rows, .end = -1};
    accept_walk(&t, accept_choose_greedy, &g, &p);
    step_begin(&commit, NULL, 0);
    int s = step_add_seq(&commit, blocks, 2, 20, 1, 1);
    path_step_add(&commit, s, v, row, &p);
    const struct step *c = step_end(&commit);
    assert_int_equal(c->n_rows, 4);
    const int slots[] = {20, 21, 24, 26};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(c->rows[i].pos, 20 + i);
        assert_int_equal(c->rows[i].slot, slots[i]);
    }
    assert_int_equal(c->seqs[0].row_last, 3);
    assert_memory_equal(c->taps + 9, taps, 3 * sizeof *taps);
    arena_release(&arena);
}

// ------------------------------------------------------------------------------------------------------------ trees

static void test_tree_data(void **state) {
    (void)state;
    struct token_tree t;
    struct tern_err err = {0};
    int32_t path[TREE_NODES_MAX];
    case_tree(&t);
    assert_int_equal(token_tree_add(&t, 0, 12, 0), 2); // found, not doubled
    assert_int_equal(t.n, 7);
    assert_int_equal(t.nodes[2].rank, 1);
    assert_int_equal(token_tree_path(&t, 6, path), 3);
    const int32_t want[] = {11, 22, 31};
    assert_memory_equal(path, want, sizeof want);
    const int32_t chain[] = {11, 22, 99, 98};
    int last = token_tree_add_chain(&t, 0, chain, 4, 8); // room for one of the two new ones
    assert_int_equal(t.n, 8);
    assert_int_equal(last, 7);
    assert_int_equal(t.nodes[7].token, 99);
    assert_int_equal(t.nodes[7].parent, 4);
    assert_int_equal(token_tree_check(&t, 100, &err), TERN_OK);
    while (t.n < TREE_NODES_MAX) token_tree_add(&t, t.n - 1, 1, 0);
    assert_int_equal(token_tree_add(&t, 0, 77, 0), TREE_NO_NODE);
    assert_int_equal(token_tree_check(&t, 100, &err), TERN_OK);
}

static void test_tree_refused(void **state) {
    (void)state;
    struct token_tree good, t;
    struct tern_err err = {0};
    case_tree(&good);
    assert_int_equal(token_tree_check(&good, 51, &err), TERN_OK);
    assert_int_equal(token_tree_check(&good, 50, &err), TERN_INVALID_ARGUMENT);
#define REFUSED(change) \
    t = good;           \
    change;             \
    assert_int_equal(token_tree_check(&t, 100, &err), TERN_INVALID_ARGUMENT)
    REFUSED(t.n = 0);
    REFUSED(t.n = 65);
    REFUSED(t.nodes[3].parent = 3);
    REFUSED(t.nodes[3].parent = -1);
    REFUSED(t.nodes[0].parent = 0);
    REFUSED(t.nodes[3].depth = 1);
    REFUSED(t.nodes[2].token = 11);
    REFUSED(t.nodes[2].token = -1);
    REFUSED(t.nodes[2].score = NAN);
}

// ------------------------------------------------------------------------------------------------------------ table

struct products {
    int n_calls;
    bool broken;
};
// The n-th likeliest successor of token t is (t + 1) * (n + 1) mod 997.
static bool product_make(void *arg, int32_t token, float *out) {
    struct products *p = arg;
    p->n_calls++;
    for (int i = 0; i < 1000; i++) out[i] = -1e9f;
    for (int n = 0; n < 90; n++) out[(token + 1) * (n + 1) % 997] = -(float)n;
    return !p->broken;
}

static void row_check(struct successors *s, int32_t token) {
    int n = 0;
    const int32_t *ids = successors_get(s, token, &n);
    assert_non_null(ids);
    assert_int_equal(n, SUCCESSORS_N);
    for (int i = 0; i < n; i++) assert_int_equal(ids[i], (token + 1) * (i + 1) % 997);
}

static void test_successors(void **state) {
    (void)state;
    struct products p = {0};
    struct successors *s = NULL;
    struct tern_err err = {0};
    int n = 0;
    assert_int_equal(successors_create(&s, 1000, 997, 10 * 256, product_make, &p, &err), TERN_OK);
    assert_null(successors_find(s, 4, &n));
    for (int i = 0; i < 10; i++) row_check(s, i);
    for (int i = 0; i < 10; i++) row_check(s, i); // kept
    assert_int_equal(p.n_calls, 10);
    for (int i = 0; i < 5; i++) {
        row_check(s, 100 + i); // makes room; rows in use stay
        row_check(s, 7);
    }
    assert_non_null(successors_find(s, 7, &n));
    struct successors_stats st = successors_stats_get(s);
    assert_int_equal(st.n_rows, 10);
    assert_int_equal(st.n_rows_max, 10);
    assert_int_equal(st.n_fills, p.n_calls);
    assert_int_equal(st.n_evictions, p.n_calls - 10);
    assert_true(st.bytes < 20000);
    assert_null(successors_get(s, -1, &n));
    assert_null(successors_get(s, 1000, &n));
    p.broken = true;
    assert_null(successors_get(s, 500, &n));
    assert_int_equal(n, 0);
    p.broken = false;
    row_check(s, 500);
    for (int i = 0; i < 500; i++) row_check(s, i * 37 % 900);
    successors_free(s);
    assert_int_equal(successors_create(&s, 10, 11, 0, product_make, &p, &err), TERN_INVALID_ARGUMENT);
    for (uint64_t i = 1; i <= 7; i++) {
        mem_fail_at(i, false);
        assert_int_equal(successors_create(&s, 10, 10, 0, product_make, &p, &err), TERN_NO_MEMORY);
        mem_fail_at(0, false);
    }
    successors_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walk_given),   cmocka_unit_test(test_walk_nested), cmocka_unit_test(test_walk_ends),
        cmocka_unit_test(test_walk_sampled), cmocka_unit_test(test_steps),       cmocka_unit_test(test_tree_data),
        cmocka_unit_test(test_tree_refused), cmocka_unit_test(test_successors),
    };
    return cmocka_run_group_tests_name("accept", tests, NULL, NULL);
}
