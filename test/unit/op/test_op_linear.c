// Quantising activations, and the linear reference of both classes, against their definitions written out anew.
#include "op_test_util.h"
#include <math.h>

#define N 512

static void test_quantise_row(void **state) {
    (void)state;
    uint64_t rng = 3;
    for (int round = 0; round < 200; round++) {
        float x[N], scale[N / 32];
        int8_t q[N];
        int32_t sum[N / 16];
        rng_fill(&rng, x, N, ldexpf(1, round - 100));
        op_quantise_row(x, N, q, scale, sum);
        for (int g = 0; g < N / 32; g++) {
            float amax = 0;
            for (int i = g * 32; i < g * 32 + 32; i++) amax = fmaxf(amax, fabsf(x[i]));
            assert_same_float(scale[g], amax / 127);
            for (int i = g * 32; i < g * 32 + 32; i++) {
                assert_int_equal(q[i], (int)nearbyintf(x[i] * (127 / amax)));
                assert_true(q[i] >= -127);
            }
        }
        for (int h = 0; h < N / 16; h++) {
            int32_t s = 0;
            for (int i = 0; i < 16; i++) s += q[h * 16 + i];
            assert_int_equal(sum[h], s);
        }
    }
}

static void test_quantise_edges(void **state) {
    (void)state;
    float x[32], scale;
    int8_t q[32], zeros[32] = {0};
    int32_t sum[2];
    // Ties go to even: 127 * (k + 0.5) / 127.
    for (int i = 0; i < 32; i++) x[i] = (float)(i - 16) + 0.5f;
    x[0] = 127;
    op_quantise_row(x, 32, q, &scale, sum);
    assert_true(scale == 1);
    for (int i = 1; i < 32; i++) {
        assert_int_equal(q[i] % 2, 0);
        assert_true(fabsf((float)q[i] - x[i]) == 0.5f);
    }
    // Nothing there, tiny beyond use, and the least that counts.
    static const float tiny[] = {0, 0x1p-149f, 0x1p-121f};
    for (size_t t = 0; t < ARRAY_LEN(tiny); t++) {
        for (int i = 0; i < 32; i++) x[i] = i % 2 ? -tiny[t] : tiny[t];
        op_quantise_row(x, 32, q, &scale, sum);
        assert_same_float(scale, 0);
        assert_memory_equal(q, zeros, 32);
        assert_int_equal(sum[0], 0);
    }
    for (int i = 0; i < 32; i++) x[i] = i % 2 ? -OP_AMAX_MIN : OP_AMAX_MIN;
    op_quantise_row(x, 32, q, &scale, sum);
    assert_true(scale > 0);
    for (int i = 0; i < 32; i++) assert_int_equal(q[i], i % 2 ? -127 : 127);
    // What is no number shows in the scale and nowhere else.
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < ARRAY_LEN(bad); b++) {
        for (int i = 0; i < 32; i++) x[i] = (float)i;
        x[b * 10] = bad[b];
        op_quantise_row(x, 32, q, &scale, sum);
        assert_true(isnan(scale));
        assert_memory_equal(q, zeros, 32);
        op_quantise_row_whole(x, 32, q, &scale);
        assert_true(isnan(scale));
    }
    x[0] = x[10] = x[20] = 3.4028235e38f; // the largest float
    op_quantise_row(x, 32, q, &scale, sum);
    assert_true(isfinite(scale) && q[0] == 127);
}

static void test_quantise_whole(void **state) {
    (void)state;
    uint64_t rng = 5;
    float x[N], scale, amax = 0;
    int8_t q[N];
    rng_fill(&rng, x, N, 3);
    for (int i = 0; i < N; i++) amax = fmaxf(amax, fabsf(x[i]));
    op_quantise_row_whole(x, N, q, &scale);
    assert_same_float(scale, amax / 127);
    for (int i = 0; i < N; i++) assert_int_equal(q[i], (int)nearbyintf(x[i] * (127 / amax)));
}

// The contract, once more and from the dequantised side: integers by decompose, one group after another.
static float int8_expected(enum format f, const uint8_t *row, const int8_t *q, const float *scale) {
    struct op_groups groups = op_format_groups(f);
    int8_t w[N];
    float dw[N / 16], mn[N / 16], acc = 0;
    op_decompose_row(f, row, N, w, dw, mn);
    if (f == FORMAT_I8C) {
        int64_t dot = 0;
        for (int i = 0; i < N; i++) dot += w[i] * q[i];
        return (float)dot * (dw[0] * scale[0]);
    }
    for (int g = 0; g < N / groups.group; g++) {
        int dot = 0, sum = 0;
        for (int i = 0; i < groups.group; i++) {
            dot += w[g * groups.group + i] * q[g * groups.group + i];
            sum += q[g * groups.group + i];
        }
        const float dx = scale[g * groups.group / 32];
        acc = fmaf((float)dot, dw[g] * dx, acc);
        if (groups.has_min) acc = fmaf(mn[g], dx * (float)sum, acc);
    }
    return acc;
}

static void test_linear_int8(void **state) {
    (void)state;
    enum { OUT = 5 };
    uint64_t rng = 17;
    for (int fi = 0; fi < FORMAT_COUNT; fi++) {
        enum format f = (enum format)fi;
        if (format_is_float(f)) continue;
        uint64_t row_bytes;
        assert_true(format_row_bytes(f, N, &row_bytes));
        uint8_t *w = mem_alloc((size_t)row_bytes * OUT);
        float x[N], scale[N / 32], y[OUT];
        int8_t q[N];
        int32_t sum[N / 16];
        for (int o = 0; o < OUT; o++) {
            rng_fill(&rng, x, N, 0.1f);
            op_quantise_weights(f, x, N, w + (size_t)o * row_bytes);
        }
        rng_fill(&rng, x, N, 2);
        op_quantise_row(x, N, q, scale, sum);
        if (f == FORMAT_I8C) op_quantise_row_whole(x, N, q, scale);
        op_linear_int8(f, w, OUT, N, q, scale, sum, y);
        for (int o = 0; o < OUT; o++) {
            assert_same_float(y[o], int8_expected(f, w + (size_t)o * row_bytes, q, scale));
            float dense[N];
            double exact = 0, size = 0; // near the product of the dequantised values, too
            op_dequant_row(f, w + (size_t)o * row_bytes, N, dense);
            for (int i = 0; i < N; i++) {
                exact += (double)dense[i] * x[i];
                size += fabs((double)dense[i] * x[i]);
            }
            assert_true(fabs(exact - y[o]) < 0.01 * size);
        }
        mem_free(w);
    }
}

static void test_linear_fp32(void **state) {
    (void)state;
    enum { OUT = 3 };
    uint64_t rng = 19;
    for (int fi = 0; fi < FORMAT_COUNT; fi++) {
        enum format f = (enum format)fi;
        uint64_t row_bytes;
        assert_true(format_row_bytes(f, N, &row_bytes));
        uint8_t *w = mem_alloc((size_t)row_bytes * OUT);
        float x[N], y[OUT];
        for (int o = 0; o < OUT; o++) {
            rng_fill(&rng, x, N, 0.1f);
            op_quantise_weights(f, x, N, w + (size_t)o * row_bytes);
        }
        rng_fill(&rng, x, N, 2);
        op_linear_fp32(f, w, OUT, N, x, y);
        for (int o = 0; o < OUT; o++) {
            float dense[N], acc = 0;
            op_dequant_row(f, w + (size_t)o * row_bytes, N, dense);
            for (int i = 0; i < N; i++) acc = fmaf(dense[i], x[i], acc);
            assert_same_float(y[o], acc);
        }
        mem_free(w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantise_row),   cmocka_unit_test(test_quantise_edges),
        cmocka_unit_test(test_quantise_whole), cmocka_unit_test(test_linear_int8),
        cmocka_unit_test(test_linear_fp32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
