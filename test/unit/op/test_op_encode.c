// The searching encoders: what they store reads back as what they chose, they lose less than rounding, and about as
// little as (or less than) the reference encoders of the formats' authors.
#include "op_test_util.h"
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
    {FORMAT_Q4_K, {1.3986e-3, 2.6599e-3}},
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

// Values that the format holds exactly come back, so packing and reading agree in every bit field.
static void test_exact(void **state) {
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        const enum format f = cases[c].format;
        uint8_t row[1024], again[1024];
        float x[256], y[256], z[256];
        uint64_t s = 9;
        for (int round = 0; round < 50; round++) {
            for (int i = 0; i < 256; i++) x[i] = (float)(uniform(&s) - 0.5);
            op_encode_weights(f, x, 256, row);
            op_dequant_row(f, row, 256, y);
            op_encode_weights(f, y, 256, again); // of what is already on the grid
            op_dequant_row(f, again, 256, z);
            double e = 0, all = 0;
            for (int i = 0; i < 256; i++) {
                e += ((double)y[i] - (double)z[i]) * ((double)y[i] - (double)z[i]);
                all += (double)y[i] * (double)y[i];
            }
            assert_true(e < all * 1e-4);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
