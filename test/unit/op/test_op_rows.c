// Norms, rotary positions, and the short convolution: cut anywhere, it gives the same rows and the same state.
#include "op_test_util.h"
#include <math.h>

static void test_rmsnorm(void **state) {
    (void)state;
    uint64_t rng = 29;
    for (int n = 1; n <= 200; n += 7) {
        float x[200], w[200], y[200];
        double sum = 0;
        rng_fill(&rng, x, n, 5);
        rng_fill(&rng, w, n, 2);
        for (int i = 0; i < n; i++) sum += (double)x[i] * x[i];
        op_rmsnorm(x, w, n, 1e-5f, y);
        const float r = 1 / sqrtf(op_sum_squares(x, n) / (float)n + 1e-5f);
        for (int i = 0; i < n; i++) {
            double exact = x[i] / sqrt(sum / n + 1e-5) * w[i];
            assert_true(fabs(y[i] - exact) <= 1e-6 * fabs(exact));
            assert_same_float(y[i], (x[i] * r) * w[i]);
        }
        op_rmsnorm(x, w, n, 1e-5f, x); // in place
        assert_memory_equal(x, y, (size_t)n * sizeof(float));
    }
}

static void test_rope(void **state) {
    (void)state;
    enum { DIM = 64, HALF = DIM / 2 };
    uint64_t rng = 31;
    double freq[HALF];
    float factors[HALF], table[DIM], head[DIM], norm[DIM], w[DIM];
    for (int i = 0; i < HALF; i++) factors[i] = 1 + (float)i;
    op_rope_freqs(10000, DIM, NULL, freq);
    assert_true(freq[0] == 1);
    assert_true(fabs(freq[16] - 0.01) < 1e-15); // 10000^(-32/64)
    double divided[HALF];
    op_rope_freqs(10000, DIM, factors, divided);
    for (int i = 0; i < HALF; i++) assert_true(divided[i] == freq[i] / factors[i]);
    rng_fill(&rng, w, DIM, 2);
    static const int positions[] = {0, 1, 77, 100000};
    for (size_t p = 0; p < ARRAY_LEN(positions); p++) {
        op_rope_table(positions[p], freq, HALF, table);
        for (int style = 0; style < 4; style++) {
            const bool interleaved = style & 1, normed = style & 2;
            rng_fill(&rng, head, DIM, 1);
            memcpy(norm, head, sizeof(norm));
            if (normed) op_rmsnorm(head, w, DIM, 1e-6f, norm);
            op_qk_norm_rope(head, DIM, normed ? w : NULL, 1e-6f, table, interleaved);
            for (int i = 0; i < HALF; i++) {
                const int ia = interleaved ? 2 * i : i, ib = interleaved ? 2 * i + 1 : i + HALF;
                const double angle = positions[p] * pow(10000, -2.0 * i / DIM), a = norm[ia], b = norm[ib];
                assert_true(fabs(head[ia] - (a * cos(angle) - b * sin(angle))) < 1e-6);
                assert_true(fabs(head[ib] - (b * cos(angle) + a * sin(angle))) < 1e-6);
            }
        }
    }
}

static void test_elementwise(void **state) {
    (void)state;
    uint64_t rng = 37;
    float a[33], b[99], y[33];
    rng_fill(&rng, a, 33, 8);
    rng_fill(&rng, b, 99, 8);
    op_swiglu(a, b, 33, y);
    for (int i = 0; i < 33; i++) assert_same_float(y[i], op_silu(a[i]) * b[i]);
    op_add(a, b, 33, y);
    for (int i = 0; i < 33; i++) assert_same_float(y[i], a[i] + b[i]);
    op_conv_gate(b, 33, y);
    for (int i = 0; i < 33; i++) assert_same_float(y[i], b[i] * b[66 + i]);
    op_add(a, a, 33, a); // in place
    assert_same_float(a[1], y[1] * 0 + a[1]);
}

#define CHANNELS 2
#define TAPS 3
// A sequence's convolution as a step makes it: `carry` holds the last TAPS - 1 rows, oldest first; rows from before
// the start are missing.
static void conv_run(const float (*u)[CHANNELS], int n, const float *taps, float (*carry)[CHANNELS], int *n_seen,
                     float (*v)[CHANNELS]) {
    const float ones[CHANNELS] = {1, 1};
    float padded[16 + TAPS - 1][CHANNELS];
    memcpy(padded, carry, sizeof(float) * CHANNELS * (TAPS - 1));
    memcpy(padded + TAPS - 1, u, sizeof(float) * CHANNELS * (size_t)n);
    for (int i = 0; i < n; i++) {
        const float *rows[TAPS];
        for (int j = 0; j < TAPS; j++) rows[j] = *n_seen + i + j < TAPS - 1 ? NULL : padded[i + j];
        op_short_conv(rows, taps, TAPS, CHANNELS, ones, v[i]);
    }
    memcpy(carry, padded + n, sizeof(float) * CHANNELS * (TAPS - 1));
    *n_seen += n;
}

// Case H12 of the users' reports: prefill whole, in pieces and token by token.
static void test_conv_cuts(void **state) {
    (void)state;
    enum { N = 9 };
    static const float u[N][CHANNELS] = {{0.348f, -0.941f}, {0.907f, 0.018f},   {-0.615f, -0.634f},
                                         {-0.993f, 0.048f}, {1.069f, -0.325f},  {0.421f, 1.876f},
                                         {-1.215f, 0.258f}, {-0.306f, -1.059f}, {-1.026f, -0.015f}};
    static const float taps[CHANNELS * TAPS] = {0.5f, -1, 2, 1, 0, 0.25f};
    static const int cuts[][N + 1] = {{9}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 8}, {2, 7}, {3, 3, 3}, {8, 1}, {4, 5}};
    float first[N][CHANNELS], first_state[TAPS - 1][CHANNELS];
    for (size_t c = 0; c < ARRAY_LEN(cuts); c++) {
        float v[N][CHANNELS], carry[TAPS - 1][CHANNELS] = {{0}};
        int n_seen = 0;
        int at = 0;
        for (int i = 0; cuts[c][i]; i++) {
            conv_run(u + at, cuts[c][i], taps, carry, &n_seen, v + at);
            at += cuts[c][i];
        }
        assert_int_equal(at, N);
        if (c == 0) {
            memcpy(first, v, sizeof(v));
            memcpy(first_state, carry, sizeof(carry));
            assert_true(fabsf(v[8][0] - (0.5f * -1.215f - -0.306f + 2 * -1.026f)) < 1e-6f);
            assert_true(v[0][0] == 2 * 0.348f && v[1][1] == 0.25f * 0.018f);
        }
        assert_memory_equal(v, first, sizeof(v));
        assert_memory_equal(carry, first_state, sizeof(carry));
        assert_memory_equal(carry, u + N - (TAPS - 1), sizeof(carry));
    }
}

// Case D02: after accepting a rows of a block, the state is that of a run that only ever saw those rows.
static void test_conv_accept(void **state) {
    (void)state;
    static const float old[TAPS - 1][CHANNELS] = {{-0.256f, 0.962f}, {-1.181f, 0.738f}};
    static const float u[5][CHANNELS] = {
        {-1.109f, 1.17f}, {0.717f, -1.998f}, {0.272f, -1.102f}, {0.033f, 0.044f}, {-1.988f, -0.233f}};
    static const float expect[][TAPS - 1][CHANNELS] = {{{-0.256f, 0.962f}, {-1.181f, 0.738f}},
                                                       {{-1.181f, 0.738f}, {-1.109f, 1.17f}},
                                                       {{-1.109f, 1.17f}, {0.717f, -1.998f}},
                                                       {{0.717f, -1.998f}, {0.272f, -1.102f}},
                                                       {{0.033f, 0.044f}, {-1.988f, -0.233f}}};
    static const int accepted[] = {0, 1, 2, 3, 5};
    static const float taps[CHANNELS * TAPS] = {0.5f, -1, 2, 1, 0, 0.25f};
    for (size_t a = 0; a < ARRAY_LEN(accepted); a++) {
        float carry[TAPS - 1][CHANNELS], v[5][CHANNELS], whole[5][CHANNELS];
        int n_seen = TAPS - 1;
        memcpy(carry, old, sizeof(old));
        conv_run(u, accepted[a], taps, carry, &n_seen, v);
        assert_memory_equal(carry, expect[a], sizeof(carry));
        memcpy(carry, old, sizeof(old));
        conv_run(u, 5, taps, carry, &n_seen, whole); // rows of the whole block do not see later ones
        assert_memory_equal(v, whole, sizeof(float) * CHANNELS * (size_t)accepted[a]);
    }
}

// The product with a missing row is made, as with zeros: an infinite tap shows.
static void test_conv_missing_row(void **state) {
    (void)state;
    const float zeros[1] = {0}, one[1] = {1}, taps[2] = {INFINITY, 1};
    const float *missing[2] = {NULL, one}, *given[2] = {zeros, one};
    float a, b;
    op_short_conv(missing, taps, 2, 1, one, &a);
    op_short_conv(given, taps, 2, 1, one, &b);
    assert_true(isnan(a) && isnan(b));
}

// Against doubles, near and far; the sign of zero and what is not a number.
static void test_gelu(void **state) {
    (void)state;
    uint64_t rng = 91;
    float gate[200], up[200], y[200];
    rng_fill(&rng, gate, 200, 4);
    rng_fill(&rng, up, 200, 2);
    op_geglu(gate, up, 200, y);
    for (int i = 0; i < 200; i++) {
        const double x = gate[i], t = tanh(0.79788456080286536 * (x + 0.044715 * x * x * x));
        assert_true(fabs(y[i] - 0.5 * x * (1 + t) * up[i]) <= 4e-7 * (fabs(x * up[i]) + 1e-3));
        assert_same_float(y[i], op_gelu(gate[i]) * up[i]);
    }
    assert_true(op_gelu(0) == 0 && op_gelu(60) == 60 && op_gelu(-60) == 0 && op_gelu(3e38f) == 3e38f);
    assert_true(isnan(op_gelu(NAN)) && op_gelu(INFINITY) == INFINITY);
}

static void check_route(const struct op_router *r, const float *logits, const float *bias, const int32_t *want) {
    float score[8], weights[8];
    int32_t ids[8];
    op_route(r, logits, bias, score, ids, weights);
    assert_memory_equal(ids, want, (size_t)r->k * sizeof(*ids));
    double sum = 0, total = 0;
    for (int i = 0; i < r->n; i++) total += exp(logits[i]);
    for (int j = 0; j < r->k; j++) {
        double x = logits[ids[j]];
        sum += r->sigmoid ? 1 / (1 + exp(-x)) : exp(x) / total;
    }
    for (int j = 0; j < r->k; j++) {
        double x = logits[ids[j]], s = r->sigmoid ? 1 / (1 + exp(-x)) : exp(x) / total;
        if (r->normalise) s /= sum + r->eps;
        assert_true(fabs(weights[j] - s * r->scale) < 1e-6);
    }
}

static void test_route(void **state) {
    (void)state;
    const float logits[6] = {0.5f, -1, 2, 0.5f, 2, -3}, bias[6] = {0, 0, -1, 0.25f, 0, 5}, equal[6] = {0};
    struct op_router r = {.n = 6, .k = 3, .sigmoid = true, .normalise = true, .eps = 1e-6f, .scale = 1.5f};
    check_route(&r, logits, NULL, (const int32_t[]){0, 2, 4}); // of the equal 0 and 3 the lower one
    check_route(&r, logits, bias, (const int32_t[]){3, 4, 5}); // chosen with the bias, weighed without
    check_route(&r, equal, NULL, (const int32_t[]){0, 1, 2});
    r.sigmoid = false;
    check_route(&r, logits, NULL, (const int32_t[]){0, 2, 4});
    r.normalise = false;
    r.k = 1;
    check_route(&r, logits, NULL, (const int32_t[]){2});
    r.k = 6;
    check_route(&r, logits, bias, (const int32_t[]){0, 1, 2, 3, 4, 5});
    // NaN is the last choice, and there is always a choice.
    float bad[4] = {NAN, 1, NAN, 0}, score[4], weights[3];
    int32_t ids[3];
    r = (struct op_router){.n = 4, .k = 3, .sigmoid = true, .scale = 1};
    op_route(&r, bad, NULL, score, ids, weights);
    assert_memory_equal(ids, ((const int32_t[]){0, 1, 3}), sizeof(ids));
    assert_true(isnan(weights[0]) && !isnan(weights[1]));
    float x[5] = {1, 2, 3, 4, 5}, y[5] = {1, 1, 1, 1, 1};
    op_axpy(0.5f, x, 5, y);
    for (int i = 0; i < 5; i++) assert_true(y[i] == 1 + 0.5f * x[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmsnorm),   cmocka_unit_test(test_rope),        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_conv_cuts), cmocka_unit_test(test_conv_accept), cmocka_unit_test(test_conv_missing_row),
        cmocka_unit_test(test_gelu),      cmocka_unit_test(test_route),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
