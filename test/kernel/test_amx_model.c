// The kernels for tile registers on any machine: their source (linear_amx.inc) compiled a second time, against a model
// of the tile instructions in plain C, and checked like the rows of the kernel list.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/base.h"
#include "unit/cpu/kernel_rows.h"

#define LINEAR_ISA model
#define LINEAR_PREFETCH 1024
#define AMX_ROWS_MIN 2 // all row counts of the check
#define LINEAR_BELOW(name) k_linear_##name##_nx16__scalar
#define LINEAR_INLINE inline
#define UNROLL
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_scalar.h"
#include "../common/tile_model.h"

static inline void vec_w_store(uint8_t *p, vec_w v) { memcpy(p, v.v, 64); }
static inline vec_w vec_w_minus(vec_w v, int n) {
    BYTES v.v[i] = (uint8_t)(v.v[i] - n);
    return v;
}

#define BLOCKS_32(X) X(q4_0, Q4_0) X(q4_1, Q4_1) X(q5_0, Q5_0) X(q5_1, Q5_1) X(q8_0, Q8_0) X(iq4_nl, IQ4_NL)
#define BLOCKS_256(X) X(q4_k, Q4_K) X(q5_k, Q5_K) X(q6_k, Q6_K) X(iq4_xs, IQ4_XS) X(q2_k, Q2_K) X(q3_k, Q3_K)
#define DECLARE(name, pack) void LINEAR_NAME(name, nx16)(const struct cpu_linear_args *a);
BLOCKS_32(DECLARE)
BLOCKS_256(DECLARE)
DECLARE(i8c, I8C)
void LINEAR_NAME(i8c, 16x16)(const struct cpu_linear_args *a);
#include "unit/cpu/linear_amx.inc"

// One kernel serves few and many rows: both ranges are checked.
#define ROWS(name_, pack_)                          \
    {.name = "model_" #name_ "_16x16",              \
     .fn = (kernel_fn)LINEAR_NAME(name_, nx16),     \
     .pack = CPU_PACK_##pack_,                      \
     .rows_class = 1},                              \
        {.name = "model_" #name_ "_nx16",           \
         .fn = (kernel_fn)LINEAR_NAME(name_, nx16), \
         .pack = CPU_PACK_##pack_,                  \
         .rows_class = 2},
static const struct kernel_row rows[] = {BLOCKS_32(ROWS) BLOCKS_256(ROWS) ROWS(i8c, I8C)};

static void check_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        for (uint64_t seed = 1; seed <= 2; seed++) {
            struct kernel_trial t = {.seed = seed};
            struct tern_err err;
            if (kernel_check_linear(&rows[i], &t, &err) != TERN_OK) fail_msg("seed %d: %s", (int)seed, err.message);
            if (tile_model.is_set) fail_msg("%s leaves the tiles in use", rows[i].name);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(check_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
