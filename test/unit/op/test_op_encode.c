// The searching encoders: what they store reads back as what they chose, they lose less than rounding, and about as
// little as (or less than) the reference encoders of the formats' authors.
#include "op_test_util.h"
#include "op/op_encode.h"
#include <math.h>

#define N 8192 // values of one input
#define ROW_MAX (N * 4)

// Two kinds of rows as models have them, from a generator that any language repeats: bell-shaped, and with long tails.
static double uniform(uint64_t *s) {
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (double)(*s >> 11) * 0x1p-53;
}

static void input_make(int kind, float *x) {
    uint64_t s = (uint64_t)kind + 1;
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int k = 0; k < 12; k++) sum += uniform(&s);
        double v = (sum - 6) * 0.02;
        if (kind == 1) v *= 1 + 4 * uniform(&s) * uniform(&s) * uniform(&s);
        x[i] = (float)v;
    }
}

static double rmse(const float *x, const float *y) {
    double e = 0;
    for (int i = 0; i < N; i++) e += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sqrt(e / N);
}

// What the reference encoder of ggml (quantize_row_*_ref of libggml-base 0.25.3) gives for the inputs above.
static const struct {
    enum format format;
    double reference[2];
} cases[] = {
    {FORMAT_Q4_K, {1.3986e-3, 2.6599e-3}},   {FORMAT_Q2_K, {5.8080e-3, 1.0741e-2}},
    {FORMAT_Q3_K, {2.9793e-3, 5.6148e-3}},   {FORMAT_Q5_K, {7.1652e-4, 1.3459e-3}},
    {FORMAT_IQ4_NL, {1.5567e-3, 2.8518e-3}}, {FORMAT_IQ4_XS, {1.5130e-3, 2.8234e-3}},
    {FORMAT_Q6_K, {3.5240e-4, 6.7321e-4}},
};

static void test_error(void **state) {
    (void)state;
    static float x[N], y[N];
    static uint8_t row[ROW_MAX];
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        for (int kind = 0; kind < 2; kind++) {
            input_make(kind, x);
            op_quantise_weights(cases[c].format, x, N, row);
            op_dequant_row(cases[c].format, row, N, y);
            const double rounded = rmse(x, y);
            op_encode_weights(cases[c].format, x, N, row);
            op_dequant_row(cases[c].format, row, N, y);
            const double searched = rmse(x, y), reference = cases[c].reference[kind];
            print_message("%s kind %d: rounding %.4e, search %.4e, reference %.4e\n",
                          format_table[cases[c].format].name, kind, rounded, searched, reference);
            assert_true(searched < rounded);
            assert_true(searched < 1.01 * reference);
        }
    }
}

// One weight of 30 times the rest's size, as some models hang on: it keeps its value to what its format's steps allow,
// and its neighbours pay for it.
static void test_outlier(void **state) {
    (void)state;
    static const struct {
        enum format format;
        double loss_max; // of the outlier, relative; even weights: Q2_K 0.006, Q3_K 0.002, Q4_K 0.011
    } bars[] = {{FORMAT_Q2_K, 0.001},   {FORMAT_Q3_K, 0.001},   {FORMAT_Q4_K, 0.001},
                {FORMAT_IQ4_NL, 0.001}, {FORMAT_IQ4_XS, 0.001}, {FORMAT_Q6_K, 0.001}};
    static float x[N], y[N];
    static uint8_t row[ROW_MAX];
    for (size_t c = 0; c < ARRAY_LEN(bars); c++) {
        double loss = 0;
        input_make(0, x);
        for (int i = 128; i < N; i += 1024) x[i] = i / 1024 % 2 ? 0.6f : -0.6f;
        op_encode_weights(bars[c].format, x, N, row);
        op_dequant_row(bars[c].format, row, N, y);
        for (int i = 128; i < N; i += 1024) loss += fabs((double)y[i] / (double)x[i] - 1) / (N / 1024);
        print_message("%s: the outliers are %.4f off\n", format_table[bars[c].format].name, loss);
        assert_true(loss < bars[c].loss_max);
    }
}

// Whatever goes in, a block comes out whose values are finite where the input is.
static void test_extremes(void **state) {
    (void)state;
    static const float fills[] = {0, 1, -1, 1e-30f, -1e-30f, 1e-8f, 65504, -65504, 1e30f, INFINITY, NAN};
    float x[256], y[256];
    uint8_t row[1024];
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        for (size_t k = 0; k < ARRAY_LEN(fills); k++) {
            for (int alone = 0; alone < 2; alone++) {
                for (int i = 0; i < 256; i++) x[i] = alone && i != 77 ? 0 : fills[k];
                op_encode_weights(cases[c].format, x, 256, row);
                op_dequant_row(cases[c].format, row, 256, y);
                if (!(fabsf(fills[k]) <= 65504)) continue;
                for (int i = 0; i < 256; i++) {
                    if (!(fabsf(y[i] - x[i]) <= fabsf(fills[k]) * 0.02f + 1e-7f))
                        fail_msg("%s, fill %g, value %d: %g", format_table[cases[c].format].name, (double)fills[k], i,
                                 (double)y[i]);
                }
            }
        }
    }
}

// Whatever integers and scales are packed, the format's reader finds them.
static void test_pack(void **state) {
    (void)state;
    uint64_t s = 9;
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        const struct encode_kind *k = encode_kind_find(cases[c].format);
        const int n_block = format_table[cases[c].format].n_block, n_groups = n_block / k->group;
        for (int round = 0; round < 100; round++) {
            struct encode_block b = {.d = 0.25f, .d_min = k->has_min ? 0.5f : 0};
            const int span = k->scale_max - k->scale_min + 1;
            for (int g = 0; g < n_groups; g++) {
                b.scale[g] = n_groups == 1 ? 1 : k->scale_min + (int)(uniform(&s) * span);
                b.min[g] = k->has_min ? (int)(uniform(&s) * (k->scale_max + 1)) : 0;
            }
            for (int i = 0; i < n_block; i++) {
                const int q = (int)k->q_min + (int)(uniform(&s) * (double)(k->q_max - k->q_min + 1));
                b.q[i] = k->values ? k->values[(int)(uniform(&s) * 16)] : (int8_t)q;
            }
            uint8_t row[1024];
            int8_t q[256];
            float scale[16], min[16];
            memset(row, 0xa5, sizeof row);
            k->pack(&b, row);
            op_decompose_row(k->format, row, n_block, q, scale, min);
            assert_memory_equal(q, b.q, (size_t)n_block);
            for (int g = 0; g < n_groups; g++) {
                assert_true(scale[g] == b.d * (float)b.scale[g]);
                if (k->has_min) assert_true(min[g] == -(b.d_min * (float)b.min[g]));
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_outlier),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
