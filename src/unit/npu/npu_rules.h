// Rule sets of the evaluator: the arithmetic of an engine, as published or observed. Private to unit/npu.
//
//   fp32          nothing is rounded but in float: what the program means
//   coreai-linux  Apple's Core AI runtime on Linux, bit for bit (observed): values fp16 with subnormals; a convolution
//                 sums exact products in float, channels ascending, and rounds once; a matrix product rounds every
//                 product and every sum to fp16; reductions and functions work in float and round once
//   ane-*         what is published of the Neural Engine of a generation. The order and width of its sums are not
//                 published for real shapes, so each generation is an ensemble of three reducers:
//                   (none)   exact products, a float sum, one rounding
//                   :tile4   tiles of 4 ascending terms, each cut to a 12-bit grid of the larger exponent; tiles
//                            summed in float: the only one found that fits all published reductions of M1
//                   :prod16  every product rounded to fp16, a float sum
// "Consistent with published probes", never "equal to the engine".
#pragma once
#include "base/base.h"

enum npu_mac {
    NPU_MAC_WIDE,   // acc = fma(a, b, acc) in float
    NPU_MAC_HALF,   // acc = f16(acc + f16(a * b))
    NPU_MAC_TILE4,  // see above
    NPU_MAC_PROD16, // acc = acc + f16(a * b) in float
};
struct npu_rules {
    const char *name;
    const char *note;
    bool half; // values are fp16 between operations
    bool ane;  // NaN in: +inf; invalid operations: +0; -0 becomes +0
    enum npu_mac conv, matmul, sum;
    float cliff;     // a partial sum of products at or beyond it is infinite; 0: none. Not with one term
    bool flush;      // subnormal operands and results of sums of products are +0
    bool slice_gain; // a slice of the width with an offset turns values beyond 4,094 infinite
    bool sum_away;   // sums over an axis are stored half away from zero
};
#define NPU_SLICE_MAX 4094.0f
#define NPU_EXP_MAX 11.094f      // ane: exp is infinite from here on
#define NPU_SILU_ZERO -0.001259f // ane: silu(0), from its table

extern const struct npu_rules npu_rules_table[];          // ends with name NULL; the first is the default
const struct npu_rules *npu_rules_find(const char *name); // NULL: no such
