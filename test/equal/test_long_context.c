// A context of 131,072 positions: rows at its end have the same bits one by one and 64 at a time, scalar and in
// vectors, on one thread and on three (which cuts attention along the context), with stretched rotations and with a
// window. The state before them is not computed but drawn: the last rows see all of it.
#include "base/base.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include "../common/tiny_model.h"
#include "../common/unit_bench.h"

#define CTX 131072
#define ROWS 65

static struct tiny_shape long_shape(bool windowed) {
    struct tiny_shape s = windowed ? tiny_gemma_shape(FORMAT_F32, 41) : tiny_llama_shape(FORMAT_F32, 40);
    s.n_layers = windowed ? 3 : 1;
    s.attn_mask = windowed ? 7 : 1;
    s.n_embd = 32;
    s.n_head = 2;
    s.n_head_kv = 1;
    s.head_dim = 16;
    s.n_ff = 32;
    s.n_vocab = 50;
    s.window = windowed ? 1000 : 0;
    return s;
}

static void state_draw(struct unit_bench *g, int len) {
    const struct state_layout *l = &g->pool.layout;
    uint8_t *kv = g->d->buffer_host(g->pool.kv);
    uint64_t rng = 4242;
    float k[64], v[64];
    for (int pos = 0; pos < len; pos++)
        for (int a = 0; a < l->n_attn; a++) {
            int32_t block = g->seqs[0].blocks[pos / OP_BLOCK];
            for (int d = 0; d < l->head_dim; d++) {
                k[d] = 2 * tiny_random_float(&rng);
                v[d] = tiny_random_float(&rng);
            }
            op_kv_write(l->kv_type, kv + state_k_offset(l, block, a, 0), kv + state_v_offset(l, block, a, 0),
                        pos % OP_BLOCK, k, v, l->head_dim);
        }
    g->seqs[0].len = len;
}

// Logits of ROWS tokens at the end of the context, `chunk` at a time.
static bool rows_run(const struct model *m, const char *isa, int n_threads, int chunk, float *logits) {
    struct unit_bench g;
    struct unit_bench_options o = {.model = m,
                                   .isa = isa,
                                   .n_threads = n_threads,
                                   .numerics = PROG_CLASS_FP32,
                                   .kv_type = OP_KV_F16,
                                   .window = chunk,
                                   .n_ctx = CTX};
    if (!unit_bench_open(&g, &o)) return false;
    int32_t tokens[ROWS];
    uint64_t rng = 7;
    for (int i = 0; i < ROWS; i++) tokens[i] = (int32_t)(tiny_random(&rng) % (uint64_t)m->hyper.n_vocab);
    state_draw(&g, CTX - ROWS);
    for (int i = 0; i < ROWS; i += chunk) {
        int n = MIN(chunk, ROWS - i);
        bench_chain(&g, &g.seqs[0], tokens + i, n, logits + (size_t)i * (size_t)m->hyper.n_vocab);
    }
    unit_bench_close(&g);
    return true;
}

static void check(bool windowed, bool stretched) {
    static const struct { int isa, n_threads, chunk; } runs[] = {{0, 1, 64}, {1, 3, 1}, {2, 3, 64}, {3, 2, 7}};
    struct tiny_shape s = long_shape(windowed);
    struct model *m = tiny_model_create(&s);
    size_t n = ROWS * (size_t)m->hyper.n_vocab;
    float *want = mem_calloc(n, sizeof(float)), *have = mem_calloc(n, sizeof(float)), factors[8];
    for (int i = 0; i < 8; i++) factors[i] = i < 4 ? 1 : 8;
    if (stretched) m->hyper.rope_factors = factors;
    assert_true(rows_run(m, "scalar", 2, 1, want));
    for (size_t i = 0; i < n; i++) assert_true(want[i] == want[i] && want[i] < 1e6f && want[i] > -1e6f);
    assert_memory_not_equal(want, want + m->hyper.n_vocab, (size_t)m->hyper.n_vocab * sizeof(float));
    for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
        if (!bench_isas[runs[i].isa]) break;
        if (!rows_run(m, bench_isas[runs[i].isa], runs[i].n_threads, runs[i].chunk, have)) continue;
        if (memcmp(have, want, n * sizeof(float)) != 0)
            fail_msg("%s, %d threads, %d rows at a time: other logits", bench_isas[runs[i].isa], runs[i].n_threads,
                     runs[i].chunk);
    }
    mem_free(want);
    mem_free(have);
    tiny_model_free(m);
}

static void test_full(void **state) {
    (void)state;
    check(false, false);
}
static void test_stretched(void **state) {
    (void)state;
    check(false, true);
}
static void test_windowed(void **state) {
    (void)state;
    check(true, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_stretched),
        cmocka_unit_test(test_windowed),
    };
    return cmocka_run_group_tests_name("131,072 positions", tests, NULL, NULL);
}
