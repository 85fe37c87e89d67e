// The formats of MLX checkpoints (github.com/ml-explore/mlx, mx.quantize): value = scale * code + bias, a scale and a
// bias per 32, 64 or 128 values, codes of two to six or eight bits in ascending order from the low end.
//
// Dequantised, a value is one fused multiply-add. As integers a group of 64 or 128 is two or four of 32 with the same
// scale, since activations have a scale per 32 values. Codes of eight bits are taken around 128, so that they fit a
// signed byte: q = code - 128, and the minimum, bias + 128 * scale, is rounded once to a float.
#include "base/base.h"
#include <math.h>
#include "op/op_int.h"

#define MLX_SCALE_MIN 1e-7f // the encoder of MLX knows no finer one

static float float_at(enum format type, const uint8_t *p) {
    if (type == FORMAT_F32) return f32_from_bits(load_u32(p));
    return type == FORMAT_F16 ? f16_to_f32(load_u16(p)) : bf16_to_f32(load_u16(p));
}

// Stores v in the type and returns what it became.
static float float_put(enum format type, uint8_t *p, float v) {
    if (type == FORMAT_F32) {
        memcpy(p, &v, sizeof(v));
    } else {
        store_u16(p, type == FORMAT_F16 ? f32_to_f16(v) : f32_to_bf16(v));
    }
    return float_at(type, p);
}

// A code lies in one byte or in two.
static int code_at(const uint8_t *codes, int i, int bits) {
    const int at = i * bits, low = at % 8;
    int v = codes[at / 8] >> low;
    if (low + bits > 8) v |= codes[at / 8 + 1] << (8 - low);
    return v & ((1 << bits) - 1);
}
static void code_put(uint8_t *codes, int i, int bits, int code) {
    const int at = i * bits, low = at % 8;
    codes[at / 8] = (uint8_t)(codes[at / 8] | code << low);
    if (low + bits > 8) codes[at / 8 + 1] = (uint8_t)(codes[at / 8 + 1] | code >> (8 - low));
}

void mlx_decompose(enum format f, const uint8_t *row, int64_t n, int8_t *q, float *scale, float *min) {
    const struct format_mlx m = format_mlx_get(f);
    const int centre = m.bits == 8 ? 128 : 0;
    for (int64_t i = 0; i < n; i += m.group, row += format_table[f].n_bytes) {
        const float s = float_at(m.scales, row), b = float_at(m.scales, row + m.scale_bytes);
        const uint8_t *codes = row + 2 * m.scale_bytes;
        for (int j = 0; j < m.group; j++) q[i + j] = (int8_t)(code_at(codes, j, m.bits) - centre);
        for (int j = 0; j < m.group; j += OP_GROUP) {
            scale[(i + j) / OP_GROUP] = s;
            min[(i + j) / OP_GROUP] = centre ? fmaf(s, (float)centre, b) : b;
        }
    }
}

void mlx_dequant(enum format f, const uint8_t *row, int64_t n, float *out) {
    const struct format_mlx m = format_mlx_get(f);
    for (int64_t i = 0; i < n; i += m.group, row += format_table[f].n_bytes) {
        const float s = float_at(m.scales, row), b = float_at(m.scales, row + m.scale_bytes);
        const uint8_t *codes = row + 2 * m.scale_bytes;
        for (int j = 0; j < m.group; j++) out[i + j] = fmaf(s, (float)code_at(codes, j, m.bits), b);
    }
}

// As MLX does it: the end of the range that lies farther from zero is met exactly, and so is zero.
void mlx_block_encode(enum format f, const float *x, uint8_t *block) {
    const struct format_mlx m = format_mlx_get(f);
    const int code_max = (1 << m.bits) - 1;
    float low = x[0], high = x[0];
    for (int i = 1; i < m.group; i++) {
        low = MIN(low, x[i]);
        high = MAX(high, x[i]);
    }
    const bool from_low = -low > high;
    const float edge = from_low ? low : high;
    float scale = MAX((high - low) / (float)code_max, MLX_SCALE_MIN);
    if (!from_low) scale = -scale;
    const float steps = round_even(edge / scale);
    if (steps != 0) scale = edge / steps;
    scale = float_put(m.scales, block, scale);
    const float bias = float_put(m.scales, block + m.scale_bytes, steps != 0 ? edge : 0);
    uint8_t *codes = block + 2 * m.scale_bytes;
    memset(codes, 0, (size_t)(m.group * m.bits / 8));
    for (int i = 0; i < m.group; i++) {
        const int code = scale != 0 ? clamp_round((x[i] - bias) / scale, 0, code_max) : 0;
        code_put(codes, i, m.bits, code);
    }
}
