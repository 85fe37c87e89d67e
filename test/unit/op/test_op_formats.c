// Weight formats against test/data/op/formats.bin (tools/vectors/make_format_vectors.py), and decompose against
// dequant.
#include "op_test_util.h"
#include <math.h>

#define VALUES_MAX 512
#define ROW_MAX (VALUES_MAX * 4 + 4)

struct vector {
    char name[9];
    uint32_t n, n_bytes, has_input;
    const uint8_t *input, *row, *values;
};

static struct buf file;

static bool vector_next(size_t *pos, struct vector *v) {
    if (*pos == file.len) return false;
    const uint8_t *p = (const uint8_t *)file.data + *pos;
    assert_true(file.len - *pos >= 20);
    memset(v, 0, sizeof(*v));
    memcpy(v->name, p, 8);
    v->n = load_u32(p + 8);
    v->n_bytes = load_u32(p + 12);
    v->has_input = load_u32(p + 16);
    p += 20;
    v->input = p;
    v->row = p + (v->has_input ? v->n * 4 : 0);
    v->values = v->row + v->n_bytes;
    *pos = (size_t)(v->values + v->n * 4 - (const uint8_t *)file.data);
    assert_true(*pos <= file.len && v->n <= VALUES_MAX);
    return true;
}

static int setup(void **state) {
    (void)state;
    buf_init(&file, 1 << 20);
    return file_read_all(&file, TEST_DATA "/op/formats.bin", NULL);
}

static int teardown(void **state) {
    (void)state;
    buf_release(&file);
    return 0;
}

static void test_dequant_vectors(void **state) {
    (void)state;
    struct vector v;
    int seen[FORMAT_COUNT] = {0};
    for (size_t pos = 0; vector_next(&pos, &v);) {
        enum format f;
        assert_true(format_from_name(v.name, &f));
        seen[f]++;
        float out[VALUES_MAX], want[VALUES_MAX];
        memcpy(want, v.values, v.n * 4);
        op_dequant_row(f, v.row, v.n, out);
        for (uint32_t i = 0; i < v.n; i++) {
            if (out[i] != want[i]) fail_msg("%s value %u: %a, wanted %a", v.name, i, (double)out[i], (double)want[i]);
        }
    }
    for (int f = 0; f < FORMAT_COUNT; f++) {
        if (f != FORMAT_F32 && f != FORMAT_I8C && !format_is_mlx((enum format)f) && !seen[f])
            fail_msg("no vector for %s", format_table[f].name);
    }
}

static void test_encode_vectors(void **state) {
    (void)state;
    struct vector v;
    int n_seen = 0;
    for (size_t pos = 0; vector_next(&pos, &v);) {
        if (!v.has_input) continue;
        enum format f;
        assert_true(format_from_name(v.name, &f));
        float x[VALUES_MAX];
        uint8_t row[ROW_MAX];
        memcpy(x, v.input, v.n * 4);
        op_quantise_weights(f, x, v.n, row);
        for (uint32_t i = 0; i < v.n_bytes; i++) {
            if (row[i] != v.row[i]) fail_msg("%s byte %u: %d, wanted %d", v.name, i, row[i], v.row[i]);
        }
        n_seen++;
    }
    assert_int_equal(n_seen, 7);
}

// value = scale * q + min, on random bits; scales of any kind but infinite and NaN.
static void test_decompose_is_dequant(void **state) {
    (void)state;
    uint64_t rng = 7;
    for (int fi = 0; fi < FORMAT_COUNT; fi++) {
        enum format f = (enum format)fi;
        if (format_is_float(f)) continue;
        for (int round = 0; round < 50; round++) {
            uint64_t n_bytes;
            assert_true(format_row_bytes(f, VALUES_MAX, &n_bytes));
            uint8_t row[ROW_MAX];
            float x[VALUES_MAX], out[VALUES_MAX], scale[VALUES_MAX / 16], min[VALUES_MAX / 16];
            int8_t q[VALUES_MAX];
            rng_fill(&rng, x, VALUES_MAX, ldexpf(1, round % 20 - 10));
            op_quantise_weights(f, x, VALUES_MAX, row);
            op_dequant_row(f, row, VALUES_MAX, out);
            op_decompose_row(f, row, VALUES_MAX, q, scale, min);
            struct op_groups groups = op_format_groups(f);
            int group = groups.group ? groups.group : VALUES_MAX;
            assert_true(group == 16 || group == 32 || f == FORMAT_I8C);
            for (int i = 0; i < VALUES_MAX; i++) {
                double exact = (double)scale[i / group] * q[i] + (groups.has_min ? (double)min[i / group] : 0.0);
                // The minimum of MLX's 8 bits is rounded once.
                double slack = format_is_mlx(f) && format_mlx_get(f).bits == 8 ? fabs((double)scale[i / group]) : 0;
                assert_true(fabs(out[i] - (double)(float)exact) <= slack * 0x1p-15);
            }
        }
    }
}

static void encode_error_check(enum format f, float max_error) {
    uint64_t rng = 11;
    for (int round = 0; round < 50; round++) {
        float x[VALUES_MAX], out[VALUES_MAX];
        uint8_t row[ROW_MAX];
        rng_fill(&rng, x, VALUES_MAX, 1);
        op_quantise_weights(f, x, VALUES_MAX, row);
        op_dequant_row(f, row, VALUES_MAX, out);
        for (int i = 0; i < VALUES_MAX; i++) {
            if (fabsf(out[i] - x[i]) > max_error)
                fail_msg("%s: %g became %g", format_table[f].name, (double)x[i], (double)out[i]);
        }
    }
}

// The encoders' error: at most half a step of the format's grid on [-1, 1], plus what its coarser scales lose.
static void test_encode_error(void **state) {
    (void)state;
    static const struct {
        enum format f;
        float max_error;
    } bounds[] = {
        {FORMAT_F32, 0},           {FORMAT_F16, 0x1p-11f},      {FORMAT_BF16, 0x1p-8f},    {FORMAT_Q4_0, 1.0f / 7.9f},
        {FORMAT_Q4_1, 1.02f / 15}, {FORMAT_Q5_0, 1.0f / 15.9f}, {FORMAT_Q5_1, 1.03f / 31}, {FORMAT_Q8_0, 0.62f / 127},
        {FORMAT_Q4_K, 0.1f},       {FORMAT_Q6_K, 0.04f},        {FORMAT_I8C, 0.51f / 127}, {FORMAT_Q5_K, 0.06f},
        {FORMAT_IQ4_NL, 0.13f},    {FORMAT_IQ4_XS, 0.15f},      {FORMAT_Q2_K, 0.5f},       {FORMAT_Q3_K, 0.3f}};
    enum { N_MLX = FORMAT_MLX6_128_F32 - FORMAT_MLX4_32_F16 + 1 };
    assert_int_equal(ARRAY_LEN(bounds) + N_MLX, FORMAT_COUNT);
    for (int i = 0; i < N_MLX; i++) { // steps of 2 / 15 or so; to meet zero, the far end may be cut by one
        const enum format f = (enum format)(FORMAT_MLX4_32_F16 + i);
        encode_error_check(f, 1.1f * 2 / (float)((1 << format_mlx_get(f).bits) - 1) + 0.01f);
    }
    for (size_t b = 0; b < ARRAY_LEN(bounds); b++) encode_error_check(bounds[b].f, bounds[b].max_error);
}

static void test_encode_zeros(void **state) {
    (void)state;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        float x[VALUES_MAX] = {0}, out[VALUES_MAX];
        uint8_t row[ROW_MAX];
        memset(row, 0xa5, sizeof(row));
        op_quantise_weights((enum format)f, x, VALUES_MAX, row);
        op_dequant_row((enum format)f, row, VALUES_MAX, out);
        for (int i = 0; i < VALUES_MAX; i++) assert_true(out[i] == 0);
    }
}

// Blocks stand alone: the row's values are its blocks' values in order.
static void test_block_order(void **state) {
    (void)state;
    uint64_t rng = 13;
    for (int fi = 0; fi < FORMAT_COUNT; fi++) {
        enum format f = (enum format)fi;
        if (f == FORMAT_I8C) continue;
        float x[VALUES_MAX], whole[VALUES_MAX], part[VALUES_MAX];
        uint8_t row[ROW_MAX];
        rng_fill(&rng, x, VALUES_MAX, 1);
        op_quantise_weights(f, x, VALUES_MAX, row);
        op_dequant_row(f, row, VALUES_MAX, whole);
        const int n_block = format_table[f].n_block;
        for (int i = 0; i < VALUES_MAX; i += n_block) {
            op_dequant_row(f, row + (i / n_block) * format_table[f].n_bytes, n_block, part);
            assert_memory_equal(part, whole + i, (size_t)n_block * 4);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dequant_vectors),      cmocka_unit_test(test_encode_vectors),
        cmocka_unit_test(test_decompose_is_dequant), cmocka_unit_test(test_encode_error),
        cmocka_unit_test(test_encode_zeros),         cmocka_unit_test(test_block_order),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
