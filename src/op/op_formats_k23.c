// The formats with super-blocks of 256 values in two and three bits, a scale per 16 values: Q2_K and Q3_K.
//
//   Q2_K  16 bytes (low nibble: scale, high nibble: minimum), 64 bytes of bit pairs, d, dmin (half).
//         value = (d * scale) * q - dmin * minimum
//   Q3_K  32 bytes of third bits, 64 bytes of bit pairs, 12 bytes with 16 six-bit scales, d (half).
//         value = (d * (scale - 32)) * (q - 4)
//
// Value i: half h of 128 values, quarter k of it, place j of 32. Its bit pair is pair k of byte 32h + j, its third bit
// is bit 4h + k of byte j.
#include "base/base.h"
#include "op/op_int.h"

#define K_BLOCK 256
#define Q2_K_PAIRS 16
#define Q2_K_D 80
#define Q3_K_PAIRS 32
#define Q3_K_SCALES 96
#define Q3_K_D 108

static int pair_read(const uint8_t *pairs, int i) { return (pairs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2)) & 3; }

static void pair_write(uint8_t *pairs, int i, int v) {
    uint8_t *p = &pairs[i / 128 * 32 + i % 32];
    *p = (uint8_t)(*p | v << (i / 32 % 4 * 2));
}

// Six-bit scale i: its low nibble lies in byte i % 8, its upper pair is pair i / 4 of byte 8 + i % 4.
static int q3_k_scale_read(const uint8_t *packed, int i) {
    return ((packed[i % 8] >> (i / 8 * 4)) & 15) | ((packed[8 + i % 4] >> (i / 4 * 2)) & 3) << 4;
}

static void q3_k_scale_write(uint8_t *packed, int i, int v) {
    packed[i % 8] = (uint8_t)(packed[i % 8] | (v & 15) << (i / 8 * 4));
    packed[8 + i % 4] = (uint8_t)(packed[8 + i % 4] | (v >> 4) << (i / 4 * 2));
}

void block_decompose_q2_k(const uint8_t *block, int8_t *q, float *scale, float *min) {
    const float d = f16_to_f32(load_u16(block + Q2_K_D)), d_min = f16_to_f32(load_u16(block + Q2_K_D + 2));
    for (int i = 0; i < K_BLOCK; i++) q[i] = (int8_t)pair_read(block + Q2_K_PAIRS, i);
    for (int i = 0; i < K_BLOCK / 16; i++) {
        scale[i] = d * (float)(block[i] & 15);
        min[i] = -(d_min * (float)(block[i] >> 4));
    }
}

void block_decompose_q3_k(const uint8_t *block, int8_t *q, float *scale, float *min) {
    (void)min;
    const float d = f16_to_f32(load_u16(block + Q3_K_D));
    for (int i = 0; i < K_BLOCK; i++) {
        q[i] = (int8_t)((pair_read(block + Q3_K_PAIRS, i) | ((block[i % 32] >> (i / 32)) & 1) << 2) - 4);
    }
    for (int i = 0; i < K_BLOCK / 16; i++) scale[i] = d * (float)(q3_k_scale_read(block + Q3_K_SCALES, i) - 32);
}

void block_encode_q2_k(const float *x, uint8_t *block) {
    float scale[16], min[16], scale_max = 0, min_max = 0;
    for (int i = 0; i < 16; i++) {
        float low = 0, high = x[i * 16];
        for (int j = 0; j < 16; j++) {
            low = MIN(low, x[i * 16 + j]);
            high = MAX(high, x[i * 16 + j]);
        }
        scale[i] = (high - low) / 3;
        min[i] = -low;
        scale_max = MAX(scale_max, scale[i]);
        min_max = MAX(min_max, min[i]);
    }
    memset(block, 0, 84);
    store_u16(block + Q2_K_D, f32_to_f16(scale_max / 15));
    store_u16(block + Q2_K_D + 2, f32_to_f16(min_max / 15));
    const float d = f16_to_f32(load_u16(block + Q2_K_D)), d_min = f16_to_f32(load_u16(block + Q2_K_D + 2));
    for (int i = 0; i < 16; i++) {
        const int s = d > 0 ? clamp_round(scale[i] / d, 0, 15) : 0,
                  m = d_min > 0 ? clamp_round(min[i] / d_min, 0, 15) : 0;
        const float step = d * (float)s, offset = d_min * (float)m;
        block[i] = (uint8_t)(s | m << 4);
        for (int j = 0; j < 16 && step > 0; j++) {
            pair_write(block + Q2_K_PAIRS, i * 16 + j, clamp_round((x[i * 16 + j] + offset) / step, 0, 3));
        }
    }
}

void block_encode_q3_k(const float *x, uint8_t *block) {
    float scale[16]; // with their sign: the largest value of a group becomes -4
    for (int i = 0; i < 16; i++) scale[i] = largest_find(x + i * 16, 16) / -4;
    memset(block, 0, 110);
    store_u16(block + Q3_K_D, f32_to_f16(largest_find(scale, 16) / -32));
    const float d = f16_to_f32(load_u16(block + Q3_K_D));
    for (int i = 0; i < 16; i++) {
        const int s = d != 0 ? clamp_round(scale[i] / d, -32, 31) : 0;
        const float step = d * (float)s;
        q3_k_scale_write(block + Q3_K_SCALES, i, s + 32);
        for (int j = 0; j < 16; j++) {
            const int at = i * 16 + j, q = step != 0 ? clamp_round(x[at] / step, -4, 3) + 4 : 4;
            pair_write(block + Q3_K_PAIRS, at, q & 3);
            block[at % 32] = (uint8_t)(block[at % 32] | (q >> 2) << (at / 32));
        }
    }
}
