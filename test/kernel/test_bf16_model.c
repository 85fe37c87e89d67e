// The kernels of the bf16 class for tile registers on any machine: their source (linear_bf16_tiles.inc) compiled once
// more, against a model of the tile instructions in plain C, and checked like the rows of the kernel list.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/base.h"
#include "unit/cpu/kernel_rows.h"

#define LINEAR_ISA model
#define LINEAR_INLINE inline
#define UNROLL
#include "unit/cpu/linear_common.h"
#include "../common/tile_model.h"

void k_linear_bf16_pairs_1x16__model(const struct cpu_linear_args *a);
void k_linear_bf16_pairs_16x16__model(const struct cpu_linear_args *a);
void k_linear_bf16_pairs_nx16__model(const struct cpu_linear_args *a);
static inline void row_round(const float *x, int n, uint16_t *out) {
    for (int i = 0; i < n; i++) out[i] = op_bf16_round(x[i]);
}
#include "unit/cpu/linear_bf16_tiles.inc"

static void check_rows(void **state) {
    (void)state;
    static const cpu_linear_fn kernels[] = {k_linear_bf16_pairs_1x16__model, k_linear_bf16_pairs_16x16__model,
                                            k_linear_bf16_pairs_nx16__model};
    for (int i = 0; i < CPU_ROWS_CLASSES; i++) {
        const struct kernel_row row = {.name = "model_bf16",
                                       .fn = (kernel_fn)kernels[i],
                                       .pack = CPU_PACK_BF16_PAIRS,
                                       .rows_class = i,
                                       .flags = KERNEL_BF16_TILES};
        for (uint64_t seed = 1; seed <= 2; seed++) {
            struct kernel_trial t = {.seed = seed};
            struct tern_err err;
            if (kernel_check_linear(&row, &t, &err) != TERN_OK) fail_msg("seed %d: %s", (int)seed, err.message);
            if (tile_model.is_set) fail_msg("rows class %d leaves the tiles in use", i);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(check_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
