// Elementary functions over their whole range, sums, and the choice of the largest.
#include "op_test_util.h"
#include <math.h>

// |got - exact| in units of the last place of exact.
static double ulp_error(float got, double exact) {
    int exponent;
    frexp(exact, &exponent);
    return fabs((double)got - exact) / ldexp(1, exponent - 24);
}

// Every 611th float of the range, both signs. All floats of magnitude 2^-31 and up, measured once: 1.0104 ulp at worst,
// at -0x1.782f42p+2.
static void test_exp_error(void **state) {
    (void)state;
    double worst = 0;
    float worst_x = 0;
    for (int sign = 0; sign < 2; sign++) {
        const float limit = sign ? -OP_EXP_LO : OP_EXP_HI;
        for (uint32_t bits = 0; bits <= f32_bits(limit); bits += 611) {
            float x = f32_from_bits(bits | (uint32_t)sign << 31);
            double error = ulp_error(op_exp(x), exp((double)x));
            if (error > worst) {
                worst = error;
                worst_x = x;
            }
        }
    }
    if (worst > 2) fail_msg("exp(%a) is off by %g ulp", (double)worst_x, worst);
    if (worst < 0.4) fail_msg("a worst error of %g ulp: the measure is broken", worst);
}

static void test_exp_edges(void **state) {
    (void)state;
    assert_same_float(op_exp(0), 1);
    assert_same_float(op_exp(-0.0f), 1);
    assert_same_float(op_exp(1e-30f), 1);
    assert_same_float(op_exp(nextafterf(OP_EXP_LO, -100)), 0);
    assert_same_float(op_exp(-INFINITY), 0);
    assert_same_float(op_exp(INFINITY), INFINITY);
    assert_same_float(op_exp(nextafterf(OP_EXP_HI, 100)), INFINITY);
    assert_true(isnan(op_exp(NAN)));
    assert_true(isfinite(op_exp(OP_EXP_HI)));
    assert_true(fpclassify(op_exp(OP_EXP_LO)) == FP_NORMAL);
}

static void test_exp_rises(void **state) {
    (void)state;
    float last = 0;
    for (float x = -90; x < 90; x += 0x1p-10f) {
        float y = op_exp(x);
        assert_true(y >= last);
        last = y;
    }
}

static void test_silu(void **state) {
    (void)state;
    for (float x = -80; x < 80; x += 0.37f) {
        double s = 1 / (1 + exp(-(double)x));
        assert_true(ulp_error(op_sigmoid(x), s) < 4);
        assert_true(ulp_error(op_silu(x), x * s) < 4);
    }
    assert_same_float(op_silu(0), 0);
    assert_true(op_silu(-100) == 0 && op_silu(100) == 100);
    assert_true(op_sigmoid(-200) == 0 && op_sigmoid(200) == 1);
    assert_true(isnan(op_silu(NAN)));
}

// Lanes of 16, folded 8, 4, 2, 1: written out for one row that any other order would round differently.
static void test_sum_squares(void **state) {
    (void)state;
    uint64_t rng = 23;
    int n_other = 0;
    for (int n = 1; n < 100; n++) {
        float x[100], lane[16] = {0}, plain = 0;
        rng_fill(&rng, x, n, 1);
        for (int j = 0; j < 16; j++) {
            for (int i = j; i < n; i += 16) lane[j] = fmaf(x[i], x[i], lane[j]);
        }
        float a[8], b[4];
        for (int j = 0; j < 8; j++) a[j] = lane[j] + lane[j + 8];
        for (int j = 0; j < 4; j++) b[j] = a[j] + a[j + 4];
        assert_same_float(op_sum_squares(x, n), (b[0] + b[2]) + (b[1] + b[3]));
        for (int i = 0; i < n; i++) plain += x[i] * x[i];
        n_other += plain != op_sum_squares(x, n);
    }
    assert_true(n_other > 10);
}

static void test_argmax(void **state) {
    (void)state;
    float max;
    const float plain[] = {1, 3, 2};
    assert_int_equal(op_argmax(plain, 3, &max), 1);
    assert_true(max == 3);
    const float ties[] = {-1, 5, 5, 5};
    assert_int_equal(op_argmax(ties, 4, &max), 1);
    const float zeros[] = {-0.0f, 0.0f};
    assert_int_equal(op_argmax(zeros, 2, &max), 0);
    const float with_nan[] = {NAN, -2, NAN, -1, NAN};
    assert_int_equal(op_argmax(with_nan, 5, &max), 3);
    assert_true(max == -1);
    const float low[] = {NAN, -INFINITY, -INFINITY};
    assert_int_equal(op_argmax(low, 3, &max), 1);
    assert_true(max == -INFINITY);
    const float all_nan[] = {NAN, -NAN};
    assert_int_equal(op_argmax(all_nan, 2, &max), -1);
    assert_true(isnan(max));
    assert_int_equal(op_argmax(plain, 0, &max), -1);
    const float high[] = {INFINITY, INFINITY};
    assert_int_equal(op_argmax(high, 2, &max), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp_error), cmocka_unit_test(test_exp_edges),   cmocka_unit_test(test_exp_rises),
        cmocka_unit_test(test_silu),      cmocka_unit_test(test_sum_squares), cmocka_unit_test(test_argmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
