// The formats with super-blocks of 256 values in four bits and more: Q4_K, Q5_K and Q6_K.
//
//   Q4_K  d, dmin (half), 12 bytes with 8 six-bit scales and 8 six-bit minima, 128 bytes of nibbles: 32 bytes hold 64
//         values, the low nibbles the first 32. value = (d * scale) * q - dmin * minimum
//   Q5_K  the same, with 32 bytes of fifth bits before the nibbles: bit g of byte j is that of value j of group g
//   Q6_K  128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 int8 scales, d (half).
//         value = (d * scale) * (q - 32), a scale per 16 values
#include "base/base.h"
#include "op/op_int.h"

#define K_BLOCK 256

// The six-bit scale and minimum of group i of a Q4_K or Q5_K block: the first four of each lie in the low bits of bytes
// 0..7; of the last four, the low nibbles lie in bytes 8..11 and the upper pairs in the upper bits of bytes 0..7.
static void k_scale_read(const uint8_t *packed, int i, int *scale, int *min) {
    if (i < 4) {
        *scale = packed[i] & 63;
        *min = packed[i + 4] & 63;
    } else {
        *scale = (packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4;
        *min = (packed[i + 4] >> 4) | (packed[i] >> 6) << 4;
    }
}

static void k_scale_write(uint8_t *packed, int i, int scale, int min) {
    if (i < 4) {
        packed[i] = (uint8_t)((packed[i] & 0xc0) | scale);
        packed[i + 4] = (uint8_t)((packed[i + 4] & 0xc0) | min);
    } else {
        packed[i + 4] = (uint8_t)((scale & 15) | (min & 15) << 4);
        packed[i - 4] = (uint8_t)((packed[i - 4] & 63) | (scale >> 4) << 6);
        packed[i] = (uint8_t)((packed[i] & 63) | (min >> 4) << 6);
    }
}

// fifth: the bytes of fifth bits, or NULL.
static void min_block_decompose(const uint8_t *block, const uint8_t *fifth, const uint8_t *nibbles, int8_t *q,
                                float *scale, float *min) {
    const float d = f16_to_f32(load_u16(block)), d_min = f16_to_f32(load_u16(block + 2));
    for (int i = 0; i < 8; i++) {
        int s, m;
        k_scale_read(block + 4, i, &s, &m);
        scale[i] = d * (float)s;
        min[i] = -(d_min * (float)m);
        const uint8_t *bytes = nibbles + i / 2 * 32;
        const int shift = i % 2 * 4;
        for (int j = 0; j < 32; j++) {
            q[i * 32 + j] = (int8_t)(((bytes[j] >> shift) & 15) | (fifth ? ((fifth[j] >> i) & 1) << 4 : 0));
        }
    }
}

void block_decompose_q4_k(const uint8_t *block, int8_t *q, float *scale, float *min) {
    min_block_decompose(block, NULL, block + 16, q, scale, min);
}

void block_decompose_q5_k(const uint8_t *block, int8_t *q, float *scale, float *min) {
    min_block_decompose(block, block + 16, block + 48, q, scale, min);
}

// Value i of a Q6_K block: half h of 128 values, quarter k of it, place j.
void block_decompose_q6_k(const uint8_t *block, int8_t *q, float *scale, float *min) {
    (void)min;
    const uint8_t *low = block, *high = block + 128, *scales = block + 192;
    const float d = f16_to_f32(load_u16(block + 208));
    for (int i = 0; i < K_BLOCK; i++) {
        int h = i / 128, k = i / 32 % 4, j = i % 32;
        int low_bits = (low[h * 64 + k % 2 * 32 + j] >> (k / 2 * 4)) & 15;
        int high_bits = (high[h * 32 + j] >> (k * 2)) & 3;
        q[i] = (int8_t)((low_bits | high_bits << 4) - 32);
    }
    for (int i = 0; i < K_BLOCK / 16; i++) scale[i] = d * (float)(int8_t)scales[i];
}

// q_max: 15 without, 31 with fifth bits.
static void min_block_encode(const float *x, uint8_t *block, uint8_t *fifth, uint8_t *nibbles, int q_max) {
    float scale[8], min[8], scale_max = 0, min_max = 0;
    for (int i = 0; i < 8; i++) {
        float low = 0, high = x[i * 32];
        for (int j = 0; j < 32; j++) {
            low = MIN(low, x[i * 32 + j]);
            high = MAX(high, x[i * 32 + j]);
        }
        scale[i] = (high - low) / (float)q_max;
        min[i] = -low;
        scale_max = MAX(scale_max, scale[i]);
        min_max = MAX(min_max, min[i]);
    }
    store_u16(block, f32_to_f16(scale_max / 63));
    store_u16(block + 2, f32_to_f16(min_max / 63));
    uint8_t *packed = block + 4;
    for (int i = 0; i < 8; i++) {
        k_scale_write(packed, i, scale_max > 0 ? clamp_round(scale[i] * (63 / scale_max), 0, 63) : 0,
                      min_max > 0 ? clamp_round(min[i] * (63 / min_max), 0, 63) : 0);
    }
    const float d = f16_to_f32(load_u16(block)), d_min = f16_to_f32(load_u16(block + 2));
    for (int i = 0; i < 8; i++) {
        int s, m;
        k_scale_read(packed, i, &s, &m);
        const float step = d * (float)s, offset = d_min * (float)m;
        for (int j = 0; j < 32 && step > 0; j++) {
            int q = clamp_round((x[i * 32 + j] + offset) / step, 0, q_max);
            uint8_t *low = &nibbles[i / 2 * 32 + j];
            *low = (uint8_t)(*low | (q & 15) << (i % 2 * 4));
            if (fifth) fifth[j] = (uint8_t)(fifth[j] | (q >> 4) << i);
        }
    }
}

void block_encode_q4_k(const float *x, uint8_t *block) {
    memset(block, 0, 144);
    min_block_encode(x, block, NULL, block + 16, 15);
}

void block_encode_q5_k(const float *x, uint8_t *block) {
    memset(block, 0, 176);
    min_block_encode(x, block, block + 16, block + 48, 31);
}

void block_encode_q6_k(const float *x, uint8_t *block) {
    float scale[16], scale_best = 0; // scales with their sign: the largest value of a group becomes -32
    for (int i = 0; i < 16; i++) scale[i] = largest_find(x + i * 16, 16) / -32;
    scale_best = largest_find(scale, 16);
    memset(block, 0, 210);
    store_u16(block + 208, f32_to_f16(scale_best / -128));
    const float d = f16_to_f32(load_u16(block + 208));
    for (int i = 0; i < 16; i++) {
        int s = d != 0 ? clamp_round(scale[i] / d, -128, 127) : 0;
        block[192 + i] = (uint8_t)(int8_t)s;
        const float step = d * (float)s;
        for (int j = 0; j < 16; j++) {
            int q = step != 0 ? clamp_round(x[i * 16 + j] / step, -32, 31) + 32 : 32;
            int at = i * 16 + j, h = at / 128, k = at / 32 % 4, place = at % 32;
            uint8_t *low = &block[h * 64 + k % 2 * 32 + place], *high = &block[128 + h * 32 + place];
            *low = (uint8_t)(*low | (q & 15) << (k / 2 * 4));
            *high = (uint8_t)(*high | (q >> 4) << (k * 2));
        }
    }
}
