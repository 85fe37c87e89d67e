// The Markov heads of drafters against their definitions (model.h), written out once more in double: all three kinds,
// down a path of a tree, where the head with memory must follow each node's own parent.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/base.h"
#include "spec/markov_int.h"

#include <math.h>
#include <stdlib.h>

#define VOCAB 50
#define RANK 12
#define EMBD 20
#define DEPTHS 3
#define ERROR_MAX 1e-5

static uint64_t random_state = 7;
static struct tensor tensor_make(int rows, int cols) {
    float *v = malloc(sizeof *v * (size_t)(rows * cols));
    assert_non_null(v);
    for (int i = 0; i < rows * cols; i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        v[i] = (float)(random_state >> 40) / (float)(1 << 24) - 0.5f;
    }
    return (struct tensor){.format = FORMAT_F32,
                           .n_dims = 2,
                           .ne = {cols, rows, 1, 1},
                           .data = (const uint8_t *)v,
                           .n_bytes = sizeof *v * (uint64_t)(rows * cols)};
}
static double at(const struct tensor *t, int row, int col) {
    return (double)((const float *)(const void *)t->data)[row * t->ne[0] + col];
}
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

struct head {
    struct tensor w1, w2, gate, joint, gate_bias, joint_bias;
    struct model_drafter drafter;
    struct model model;
    float hidden[DEPTHS][EMBD];
};

static void head_init(struct head *h, enum markov_kind kind) {
    *h = (struct head){.w1 = tensor_make(VOCAB, RANK), .w2 = tensor_make(VOCAB, RANK)};
    h->gate = tensor_make(RANK, EMBD + RANK);
    h->joint = tensor_make(3 * RANK, 2 * RANK + EMBD);
    h->gate_bias = tensor_make(1, RANK);
    h->joint_bias = tensor_make(1, 3 * RANK);
    struct tensor hidden = tensor_make(DEPTHS, EMBD);
    memcpy(h->hidden, hidden.data, sizeof h->hidden);
    free((void *)(uintptr_t)hidden.data);
    h->drafter = (struct model_drafter){.markov = kind,
                                        .markov_rank = RANK,
                                        .markov_w1 = &h->w1,
                                        .markov_w2 = &h->w2,
                                        .markov_gate = kind == MARKOV_GATED ? &h->gate : NULL,
                                        .markov_joint = kind == MARKOV_RNN ? &h->joint : NULL};
    if (kind == MARKOV_GATED) h->drafter.markov_bias = &h->gate_bias;
    if (kind == MARKOV_RNN) h->drafter.markov_bias = &h->joint_bias;
    h->model = (struct model){.name = "hand-made", .drafter = &h->drafter, .hyper = {.n_embd = EMBD, .n_vocab = VOCAB}};
}

static void head_release(struct head *h) {
    const struct tensor *all[] = {&h->w1, &h->w2, &h->gate, &h->joint, &h->gate_bias, &h->joint_bias};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) free((void *)(uintptr_t)all[i]->data);
}

// e of a node; s: the state behind its parent in, behind it out.
static void want_e(const struct head *h, int32_t token, int depth, double s[RANK], double e[RANK]) {
    double next[RANK];
    for (int i = 0; i < RANK; i++) {
        double w1 = at(&h->w1, token, i), sum[3] = {0};
        if (h->drafter.markov == MARKOV_VANILLA) e[i] = w1;
        if (h->drafter.markov == MARKOV_GATED) {
            double g = at(&h->gate_bias, 0, i);
            for (int k = 0; k < EMBD; k++) g += at(&h->gate, i, k) * (double)h->hidden[depth][k];
            for (int k = 0; k < RANK; k++) g += at(&h->gate, i, EMBD + k) * at(&h->w1, token, k);
            e[i] = sigmoid(g) * w1;
        }
        if (h->drafter.markov != MARKOV_RNN) continue;
        for (int p = 0; p < 3; p++) {
            int row = p * RANK + i;
            sum[p] = at(&h->joint_bias, 0, row);
            for (int k = 0; k < RANK; k++) sum[p] += at(&h->joint, row, k) * s[k];
            for (int k = 0; k < RANK; k++) sum[p] += at(&h->joint, row, RANK + k) * at(&h->w1, token, k);
            for (int k = 0; k < EMBD; k++) sum[p] += at(&h->joint, row, 2 * RANK + k) * (double)h->hidden[depth][k];
        }
        next[i] = sigmoid(sum[0]) * s[i] + (1 - sigmoid(sum[0])) * tanh(sum[1]);
        e[i] = tanh(sum[2]);
    }
    if (h->drafter.markov == MARKOV_RNN) memcpy(s, next, sizeof next);
}

static void kind_check(enum markov_kind kind) {
    struct head h;
    struct markov *k = NULL;
    struct tern_err err = {0};
    struct token_tree t;
    static const int32_t ids[] = {3, 49, 0, 17};
    float out[VOCAB], few[ARRAY_LEN(ids)];
    double states[8][RANK] = {{0}};
    head_init(&h, kind);
    if (markov_create(&k, &h.model, &err) != TERN_OK) fail_msg("%s", err.message);
    token_tree_init(&t, 5);
    int a = token_tree_add(&t, 0, 9, -1), b = token_tree_add(&t, 0, 11, -2);
    token_tree_add(&t, a, 20, -3);
    token_tree_add(&t, b, 20, -4); // the same token behind another parent
    markov_begin(k, &h.hidden[0][0]);
    for (int node = 0; node < t.n; node++) {
        double e[RANK];
        if (node > 0) memcpy(states[node], states[t.nodes[node].parent], sizeof states[0]);
        want_e(&h, t.nodes[node].token, t.nodes[node].depth, states[node], e);
        markov_bias(k, &t, node, NULL, VOCAB, out);
        markov_bias(k, &t, node, ids, ARRAY_LEN(ids), few);
        for (int v = 0; v < VOCAB; v++) {
            double sum = 0;
            for (int i = 0; i < RANK; i++) sum += at(&h.w2, v, i) * e[i];
            if (!(fabs((double)out[v] - sum) <= ERROR_MAX))
                fail_msg("kind %d, node %d, id %d: %g, expected %g", (int)kind, node, v, (double)out[v], sum);
        }
        for (size_t i = 0; i < ARRAY_LEN(ids); i++) assert_true(few[i] == out[ids[i]]);
    }
    if (kind == MARKOV_RNN) { // memory: one token behind two parents has two biases
        float other[VOCAB];
        markov_bias(k, &t, 3, NULL, VOCAB, out);
        markov_bias(k, &t, 4, NULL, VOCAB, other);
        assert_true(memcmp(out, other, sizeof out) != 0);
    }
    markov_free(k);
    head_release(&h);
}

static void test_vanilla(void **state) {
    (void)state;
    kind_check(MARKOV_VANILLA);
}
static void test_gated(void **state) {
    (void)state;
    kind_check(MARKOV_GATED);
}
static void test_rnn(void **state) {
    (void)state;
    kind_check(MARKOV_RNN);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vanilla), cmocka_unit_test(test_gated),
                                       cmocka_unit_test(test_rnn)};
    return cmocka_run_group_tests_name("Markov heads", tests, NULL, NULL);
}
