// The int8 linear kernels for AVX-512 VNNI: a quad line is one register, a product with four activation bytes of every
// output one instruction, whose operand is broadcast from memory.
#include "base/plain.h"

#define LINEAR_ISA avx512vnni
#define LINEAR_ROWS 16 // 8 registers of weights, 16 accumulators, the rest for scales and sums in flight
#define LINEAR_TURNS 8 // 512 rows of Q4_0 (linear_bench, Sapphire Rapids): 411 GOP/s with 1, 419 with 4, 451 with 8
#define LINEAR_QUADS 1
#define LINEAR_PREFETCH 4096 // one row of Q4_0: 11.9 GB/s with 512, 13.2 with 1024, 14.5 with 2048, 15.0 with 4096
// Few rows of n_in 1,024 and 2,048 (2 threads of a Xeon, Sapphire Rapids, that read 33.3 GB/s, 2026-11), one tile and
// several at once: one row Q4_0 28.7 and 30.4 GB/s, Q6_K 26.7 and 29.2; four rows Q4_0 28.7; eight rows Q8_0 23.3 and
// 27.7, Q4_0 23.5 and 26.1.
#define LINEAR_FEW_ROWS 8
#define LINEAR_FEW_TILES(rows) ((rows) <= 4 ? 4 : 2)
#define LINEAR_HINT 2         // into the second-level cache: eight and sixteen rows gain 1 to 3 % over the first level
#define LINEAR_SIGNED_BYTES 0 // vec_dot takes 8-bit weights as they are packed
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_avx512.h"

// acc + the products of n quads. In assembly, since gcc 12 loads the broadcast into a register of its own, and the
// processor then runs out of registers for rows in flight: 340 instead of 530 GOP/s at 64 rows of Q4_0 (Sapphire
// Rapids, peak 745).
static LINEAR_INLINE vec_i vec_dot(vec_i acc, const vec_w *w, int n, const int8_t *x, int bits) {
    (void)bits;
    UNROLL
    for (int q = 0; q < n; q++) {
        __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w[q]), "m"(*(const int8_t(*)[4])(x + 4 * q)));
    }
    return acc;
}

#include "unit/cpu/linear_int8.inc"
