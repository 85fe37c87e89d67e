// Private to unit/cpu: what kernels are called with, and the table of them. Kernel files see this, op_math.h and
// plain.h of other folders, and nothing that changes more often.
#pragma once
#include "base/plain.h"
#include "op/op_math.h"

#define CPU_TILE 16  // outputs per tile
#define CPU_ALIGN 64 // bytes; tiles, rows of activations and scratch start on it

// Packed layouts (drawn in pack_layout.h): the bits of a format rearranged, no more bytes per value than the file has
// (but for 6-bit scales, which become bytes: up to 3.6 %, and float scales of MLX groups beyond 32).
// Every quantised format has its own, so that one row is read at the file's size; I8C, F32, F16 and BF16 likewise.
enum cpu_pack {
    CPU_PACK_Q4_0,
    CPU_PACK_Q4_1,
    CPU_PACK_Q5_0,
    CPU_PACK_Q5_1,
    CPU_PACK_Q8_0,
    CPU_PACK_Q4_K,
    CPU_PACK_Q6_K,
    CPU_PACK_I8C,
    CPU_PACK_F32,
    CPU_PACK_F16,
    CPU_PACK_BF16,
    CPU_PACK_Q5_K,
    CPU_PACK_IQ4_NL,
    CPU_PACK_IQ4_XS,
    CPU_PACK_Q2_K,
    CPU_PACK_Q3_K,
    CPU_PACK_MLX4_32, // the MLX packs: bits, group; scales in 16 bits of either kind (struct cpu_matrix says which)
    CPU_PACK_MLX4_64,
    CPU_PACK_MLX4_128,
    CPU_PACK_MLX8_32,
    CPU_PACK_MLX8_64,
    CPU_PACK_MLX8_128,
    CPU_PACK_MLX4_F32, // scales in float, for any group
    CPU_PACK_MLX8_F32,
    CPU_PACK_BF16_PAIRS, // class bf16
    CPU_PACK_MLX2_32,    // further bits of MLX, for each the three groups and float scales
    CPU_PACK_MLX2_64,
    CPU_PACK_MLX2_128,
    CPU_PACK_MLX2_F32,
    CPU_PACK_MLX3_32,
    CPU_PACK_MLX3_64,
    CPU_PACK_MLX3_128,
    CPU_PACK_MLX3_F32,
    CPU_PACK_MLX5_32,
    CPU_PACK_MLX5_64,
    CPU_PACK_MLX5_128,
    CPU_PACK_MLX5_F32,
    CPU_PACK_MLX6_32,
    CPU_PACK_MLX6_64,
    CPU_PACK_MLX6_128,
    CPU_PACK_MLX6_F32,
    CPU_PACK_COUNT
};

struct cpu_matrix {
    enum cpu_pack pack;
    bool bf16_scales; // MLX packs with 16-bit scales; else they are half floats
    int n_out, n_in;
    int n_tiles; // ceil(n_out / CPU_TILE)
    size_t tile_bytes;
    const uint8_t *data; // [n_tiles * tile_bytes], CPU_ALIGN-aligned
};

// One call: n_rows rows of activations times tiles [tile_begin, tile_end).
// int8 packs read q/scale/sum (op_quantise_row of each row, or the whole-row form for I8C); float packs read x.
struct cpu_linear_args {
    const struct cpu_matrix *m;
    int tile_begin, tile_end;
    int n_rows;
    const int8_t *q; // [n_rows][q_stride], q_stride = n_in rounded up to 64; zeros behind n_in
    size_t q_stride;
    const float *scale;  // [n_rows][scale_stride]
    size_t scale_stride; // floats; >= n_in / 32 (1 for I8C)
    const int32_t *sum;  // [n_rows][2 * scale_stride], per 16 values; I8C: the first is the row's
    const float *x;      // [n_rows][x_stride]
    size_t x_stride;     // floats
    float *y; // y[r * y_stride + (o - tile_begin * CPU_TILE)] for o < tile_end * CPU_TILE: whole tiles are written
    size_t y_stride; // floats; room for whole tiles
};
typedef void (*cpu_linear_fn)(const struct cpu_linear_args *a);

// Row kernels: each has the meaning of the op.h function of the same name. qk_norm_rope multiplies by a factor besides,
// last of all.
typedef void (*cpu_quantise_fn)(const float *x, int n, int8_t *q, float *scale, int32_t *sum);
typedef void (*cpu_quantise_whole_fn)(const float *x, int n, int8_t *q, float *scale, int32_t *sum /* [1], of q */);
typedef void (*cpu_rmsnorm_fn)(const float *x, const float *w, int n, float eps, float *y);
typedef void (*cpu_qk_norm_rope_fn)(float *head, int head_dim, const float *w, float eps, const float *table,
                                    bool interleaved, float factor);
typedef void (*cpu_swiglu_fn)(const float *gate, const float *up, int n, float *y);
typedef void (*cpu_add_fn)(const float *a, const float *b, int n, float *y);
typedef void (*cpu_axpy_fn)(float a, const float *x, int n, float *y);
typedef void (*cpu_conv_gate_fn)(const float *bcx, int n, float *u_out);
typedef void (*cpu_short_conv_fn)(const float *const *u, const float *taps_by_tap, int len, int n, const float *c,
                                  float *y);
// Up to CPU_ATTN_QUERIES query heads that share one K/V head, over one block, of which query i sees the first n_pos[i]
// positions (1 … 32, never fewer than query i - 1). parts[i] gets query i's partial, or, when join is set, is combined
// with it. The block at k_next and v_next is fetched into the cache meanwhile.
#define CPU_ATTN_QUERIES 64
typedef void (*cpu_attention_block_fn)(const float *const *q, int n_q, const uint8_t *k_half, const uint8_t *v_half,
                                       const uint8_t *k_next, const uint8_t *v_next, const int *n_pos, int head_dim,
                                       bool join, struct op_attn_part *const *parts);
// a[i] := a[i] combined with b[i], for i < n.
typedef void (*cpu_attention_combine_fn)(struct op_attn_part *const *a, const struct op_attn_part *const *b, int n,
                                         int head_dim);
typedef void (*cpu_attention_finish_fn)(const struct op_attn_part *a, int head_dim, float *y);
typedef void (*cpu_kv_write_fn)(uint8_t *k_half, uint8_t *v_half, int pos_in_block, const float *k, const float *v,
                                int head_dim);
typedef int32_t (*cpu_argmax_fn)(const float *x, int n, float *max);

#define CPU_ROWS_CLASSES 3 // 1 row; 2 … CPU_ROWS_FEW; more
#define CPU_ROWS_FEW 16
struct cpu_kernels {
    cpu_linear_fn linear[CPU_PACK_COUNT][CPU_ROWS_CLASSES];
    cpu_quantise_fn quantise_row;
    cpu_quantise_whole_fn quantise_row_whole;
    cpu_rmsnorm_fn rmsnorm;
    cpu_qk_norm_rope_fn qk_norm_rope;
    cpu_swiglu_fn swiglu;
    cpu_swiglu_fn geglu;
    cpu_add_fn add;
    cpu_axpy_fn axpy;
    cpu_conv_gate_fn conv_gate;
    cpu_short_conv_fn short_conv;              // taps transposed by the pack: [len][n]
    cpu_attention_block_fn attention_block[3]; // by op_kv_type
    cpu_attention_combine_fn attention_combine;
    cpu_attention_finish_fn attention_finish;
    cpu_kv_write_fn kv_write[3];
    cpu_argmax_fn argmax;
};
