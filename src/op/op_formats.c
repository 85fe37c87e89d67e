// What the bytes of a weight row mean: integers and scales, or floats.
//
// Each quantised format has one function that takes a block apart; dequantising is scale * q (+ min) over its result.
// That gives exactly the values of the formats' definitions (d * q, d * q + m), because scale * q never needs more than
// 24 bits in any of these formats, so the order of the products does not matter.
#include "base/base.h"
#include "op/op_int.h"

static float half_at(const uint8_t *p) { return f16_to_f32(load_u16(p)); }

// Nibbles of 16 bytes: values 0..15 are the low ones, 16..31 the high ones.
static void nibbles_read(const uint8_t *bytes, int offset, int8_t *q) {
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)((bytes[i] & 15) + offset);
        q[i + 16] = (int8_t)((bytes[i] >> 4) + offset);
    }
}

// The fifth bits, one per value in order.
static void fifth_bits_add(const uint8_t *bytes, int8_t *q) {
    uint32_t bits = load_u32(bytes);
    for (int i = 0; i < 32; i++) q[i] = (int8_t)(q[i] + (int)((bits >> i) & 1) * 16);
}

static void block_decompose_q4_0(const uint8_t *block, int8_t *q, float *scale, float *min) {
    (void)min;
    scale[0] = half_at(block);
    nibbles_read(block + 2, -8, q);
}

static void block_decompose_q4_1(const uint8_t *block, int8_t *q, float *scale, float *min) {
    scale[0] = half_at(block);
    min[0] = half_at(block + 2);
    nibbles_read(block + 4, 0, q);
}

static void block_decompose_q5_0(const uint8_t *block, int8_t *q, float *scale, float *min) {
    (void)min;
    scale[0] = half_at(block);
    nibbles_read(block + 6, -16, q);
    fifth_bits_add(block + 2, q);
}

static void block_decompose_q5_1(const uint8_t *block, int8_t *q, float *scale, float *min) {
    scale[0] = half_at(block);
    min[0] = half_at(block + 2);
    nibbles_read(block + 8, 0, q);
    fifth_bits_add(block + 4, q);
}

static void block_decompose_q8_0(const uint8_t *block, int8_t *q, float *scale, float *min) {
    (void)min;
    scale[0] = half_at(block);
    memcpy(q, block + 2, 32);
}

static const struct {
    struct op_groups groups;
    block_decompose_fn decompose;
    block_encode_fn encode;
} block_formats[FORMAT_COUNT] = {
    [FORMAT_Q4_0] = {{32, false}, block_decompose_q4_0, block_encode_q4_0},
    [FORMAT_Q4_1] = {{32, true}, block_decompose_q4_1, block_encode_q4_1},
    [FORMAT_Q5_0] = {{32, false}, block_decompose_q5_0, block_encode_q5_0},
    [FORMAT_Q5_1] = {{32, true}, block_decompose_q5_1, block_encode_q5_1},
    [FORMAT_Q8_0] = {{32, false}, block_decompose_q8_0, block_encode_q8_0},
    [FORMAT_Q4_K] = {{32, true}, block_decompose_q4_k, block_encode_q4_k},
    [FORMAT_Q6_K] = {{16, false}, block_decompose_q6_k, block_encode_q6_k},
    [FORMAT_I8C] = {{0, false}, NULL, NULL}, // its group is the row, its scale stands behind the row
    [FORMAT_Q5_K] = {{32, true}, block_decompose_q5_k, block_encode_q5_k},
    [FORMAT_IQ4_NL] = {{32, false}, block_decompose_iq4_nl, block_encode_iq4_nl},
    [FORMAT_IQ4_XS] = {{32, false}, block_decompose_iq4_xs, block_encode_iq4_xs},
    [FORMAT_Q2_K] = {{16, true}, block_decompose_q2_k, block_encode_q2_k},
    [FORMAT_Q3_K] = {{16, false}, block_decompose_q3_k, block_encode_q3_k},
};

struct op_groups op_format_groups(enum format f) {
    if (format_is_float(f)) TERN_BUG("%s is no quantised format", format_table[f].name);
    if (format_is_mlx(f)) return (struct op_groups){OP_GROUP, true};
    return block_formats[f].groups;
}

void op_decompose_row(enum format f, const uint8_t *row, int64_t n, int8_t *q, float *scale, float *min) {
    if (f == FORMAT_I8C) {
        memcpy(q, row, (size_t)n);
        memcpy(scale, row + n, sizeof(float));
        return;
    }
    struct op_groups groups = op_format_groups(f);
    const int n_block = format_table[f].n_block;
    if (n % n_block != 0) TERN_BUG("a row of %lld values is no whole number of blocks", (long long)n);
    if (format_is_mlx(f)) {
        mlx_decompose(f, row, n, q, scale, min);
        return;
    }
    for (int64_t i = 0; i < n; i += n_block) {
        int64_t group = i / groups.group;
        block_formats[f].decompose(row, q + i, scale + group, groups.has_min ? min + group : NULL);
        row += format_table[f].n_bytes;
    }
}

static void dequant_blocks(enum format f, const uint8_t *row, int64_t n, float *out) {
    struct op_groups groups = op_format_groups(f);
    int8_t q[OP_PIECE];
    float scale[OP_PIECE_GROUPS], min[OP_PIECE_GROUPS];
    for (int64_t i = 0; i < n; i += OP_PIECE) {
        int len = (int)MIN(n - i, (int64_t)OP_PIECE);
        op_decompose_row(f, row, len, q, scale, min);
        for (int j = 0; j < len; j++) {
            int g = j / groups.group;
            float v = scale[g] * (float)q[j];
            out[i + j] = groups.has_min ? v + min[g] : v;
        }
        row += (size_t)(len / format_table[f].n_block) * (size_t)format_table[f].n_bytes;
    }
}

void op_dequant_row(enum format f, const uint8_t *row, int64_t n, float *out) {
    switch (f) {
    case FORMAT_F32: memcpy(out, row, (size_t)n * sizeof(float)); return;
    case FORMAT_F16:
        for (int64_t i = 0; i < n; i++) out[i] = half_at(row + 2 * i);
        return;
    case FORMAT_BF16:
        for (int64_t i = 0; i < n; i++) out[i] = bf16_to_f32(load_u16(row + 2 * i));
        return;
    case FORMAT_I8C: {
        float scale;
        memcpy(&scale, row + n, sizeof(float));
        for (int64_t i = 0; i < n; i++) out[i] = scale * (float)(int8_t)row[i];
        return;
    }
    default: break;
    }
    if (format_is_mlx(f)) {
        mlx_dequant(f, row, n, out);
    } else {
        dequant_blocks(f, row, n, out);
    }
}

void op_quantise_weights(enum format f, const float *x, int64_t n, uint8_t *row) {
    switch (f) {
    case FORMAT_F32: memcpy(row, x, (size_t)n * sizeof(float)); return;
    case FORMAT_F16:
        for (int64_t i = 0; i < n; i++) store_u16(row + 2 * i, f32_to_f16(x[i]));
        return;
    case FORMAT_BF16:
        for (int64_t i = 0; i < n; i++) store_u16(row + 2 * i, f32_to_bf16(x[i]));
        return;
    case FORMAT_I8C: {
        float scale;
        op_quantise_row_whole(x, (int)n, (int8_t *)row, &scale);
        memcpy(row + n, &scale, sizeof(float));
        return;
    }
    default: break;
    }
    const int n_block = format_table[f].n_block;
    if (n % n_block != 0) TERN_BUG("a row of %lld values is no whole number of blocks", (long long)n);
    for (int64_t i = 0; i < n; i += n_block) {
        if (format_is_mlx(f)) {
            mlx_block_encode(f, x + i, row);
        } else {
            block_formats[f].encode(x + i, row);
        }
        row += format_table[f].n_bytes;
    }
}
