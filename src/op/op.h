// The face of op/: what each operation means. Formats of weights, the arithmetic contract, and a scalar reference of
// every operation that all units are judged by.
//
// The contract (doc/architecture.md "Numerics classes"): within a class, a row's result does not depend on the window,
// the row's place in it, threads, other rows, or how rows are split. So the order of every floating-point sum is fixed
// here, and vector kernels take lanes across *outputs*, never across the summed index, except where a lane order is
// part of the definition (OP_LANES). fma means one rounding (C's fmaf); nothing else may be contracted
// (-ffp-contract=off).
//
//   linear, int8 class   per output, groups of G values ascending: acc = fma((float)dot, dw * dx, acc); formats with a
//                        minimum then acc = fma(mn, dx * (float)sum_x, acc). dot and sum_x are exact integers over the
//                        group. G = 16 or 32, the weight format's own scale group; activations carry one scale per 32
//                        values.
//   linear, fp32 class   acc = fma(w, x, acc), k ascending, w the dequantised value, from acc = 0
//   linear, bf16 class   see op_linear_bf16
//   linear, FORMAT_I8C   (either class when activations are int8) one scale per row of weights and one per row of
//                        activations: y = (float)dot * (dw * dx), dot over the whole row in int32
//   sums over a row      OP_LANES partial sums (lane j takes elements i % OP_LANES == j, ascending, by fma), then
//   folded
//                        in halves: lane j += lane j + 8, + 4, + 2, + 1
//   attention            blocks of 32 positions by absolute position; see op_attention_block
// What knows no weight format is in op_math.h, a part of this face that kernels see alone.
// Nothing here allocates. All functions are pure, and bit-exact on every ISA that has IEEE fma, sqrt and division.
#pragma once
#include "base/base.h"
#include "op/op_math.h"

// ---------------------------------------------------------------------------------------------------- weight formats

// Dequantises n values (a multiple of the format's block) of one row; the values that the file means, in float.
void op_dequant_row(enum format f, const uint8_t *row, int64_t n, float *out);

// A quantised row as integers and scales: value[i] = scale[i / group] * q[i] + min[i / group]. q is in [-128, 127].
// Exact: |dot| over a group with activations in [-127, 127] fits a float's 24 bits.
struct op_groups {
    int group; // 16 or 32; for FORMAT_I8C the whole row
    bool has_min;
};
struct op_groups op_format_groups(enum format f); // quantised formats only
void op_decompose_row(enum format f, const uint8_t *row, int64_t n, int8_t *q, float *scale,
                      float *min /* if has_min */);

// Quantises n floats into a row of format f, as the format's usual round-to-nearest encoder does (tests, shapes,
// tools).
void op_quantise_weights(enum format f, const float *x, int64_t n, uint8_t *row);
// The encoder that files are made with: for formats with super-blocks a search for the scales that lose least
// (op_encode.c), else op_quantise_weights. Equal bytes from every compiler and machine.
void op_encode_weights(enum format f, const float *x, int64_t n, uint8_t *row);

// ---------------------------------------------------------------------------------------------------- linear

// y[o] for o in [0, n_out): the int8 class. Weight row o starts at w + o * row_bytes.
void op_linear_int8(enum format f, const uint8_t *w, int n_out, int n_in, const int8_t *q, const float *scale,
                    const int32_t *sum, float *y);
// The bf16 class, FORMAT_BF16: activations rounded to bf16 (nearest even), each product fused with its sum in float,
// subnormal numbers zero everywhere. Processors have two instructions for it, which add in different orders, so the
// class is two classes:
//   pairs  (VDPBF16PS) pairs of k ascending: acc = fma(w[k + 1], x[k + 1], acc), then acc = fma(w[k], x[k], acc)
//   tiles  (AMX's TDPBF16PS) per 32 values: even = fma(w, x, even) over the even k, odd over the odd k, from 0; then
//          acc = acc + (even + odd)
// A missing last value counts as zero.
void op_linear_bf16(enum op_bf16_order order, const uint8_t *w, int n_out, int n_in, const float *x, float *y);
// The fp32 class.
void op_linear_fp32(enum format f, const uint8_t *w, int n_out, int n_in, const float *x, float *y);
