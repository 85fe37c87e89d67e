// Quantising: rows of activations to int8, and the encoders of the 32-value weight formats.
//
// The encoders do what the formats' reference encoders do, down to which way ties go, so that files written by others
// and by us agree byte for byte (tested against the Python package of the format's authors).
#include "base/base.h"
#include "op/op_int.h"

// Largest magnitude; NaN when any value is NaN or infinite.
static float magnitude_max(const float *x, int n) {
    uint32_t max = 0;
    for (int i = 0; i < n; i++) max = MAX(max, f32_bits(x[i]) & 0x7fffffffu);
    return max < 0x7f800000u ? f32_from_bits(max) : f32_from_bits(0x7fc00000u);
}

// One scale for n values.
static float quantise_group(const float *x, int n, int8_t *q) {
    const float amax = magnitude_max(x, n);
    if (!(amax >= OP_AMAX_MIN)) { // nothing there, or NaN
        memset(q, 0, (size_t)n);
        return amax != amax ? amax : 0;
    }
    const float inverse = 127 / amax;
    for (int i = 0; i < n; i++) q[i] = (int8_t)round_even(x[i] * inverse);
    return amax / 127;
}

void op_quantise_row(const float *x, int n, int8_t *q, float *scale, int32_t *sum) {
    for (int i = 0; i < n; i += OP_GROUP) {
        scale[i / OP_GROUP] = quantise_group(x + i, OP_GROUP, q + i);
        for (int h = 0; h < 2; h++) {
            int32_t s = 0;
            for (int j = 0; j < 16; j++) s += q[i + h * 16 + j];
            sum[i / 16 + h] = s;
        }
    }
}

void op_quantise_row_whole(const float *x, int n, int8_t *q, float *scale) { *scale = quantise_group(x, n, q); }

// ---------------------------------------------------------------------------------------------------- weights

static void range_find(const float *x, int n, float *min, float *max) {
    *min = *max = x[0];
    for (int i = 1; i < n; i++) {
        if (x[i] < *min) *min = x[i];
        if (x[i] > *max) *max = x[i];
    }
}

// (int)v limited to [0, high]; NaN gives 0.
static uint32_t limit_trunc(float v, int high) {
    return !(v > 0) ? 0 : v >= (float)high ? (uint32_t)high : (uint32_t)v;
}

// Integers of a block: (x - low) / d, plus offset, cut; d from the range or from the largest value.
static void integers_make(const float *x, float low, float d, float offset, int high, uint32_t q[32]) {
    const float inverse = d != 0 ? 1 / d : 0;
    for (int i = 0; i < 32; i++) q[i] = limit_trunc((x[i] - low) * inverse + offset, high);
}

static void nibbles_write(const uint32_t q[32], uint8_t *bytes) {
    for (int i = 0; i < 16; i++) bytes[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
}

static void fifth_bits_write(const uint32_t q[32], uint8_t *bytes) {
    for (int i = 0; i < 4; i++) {
        uint32_t bits = 0;
        for (int j = 0; j < 8; j++) bits |= (q[i * 8 + j] >> 4) << j;
        bytes[i] = (uint8_t)bits;
    }
}

void block_encode_q4_0(const float *x, uint8_t *block) {
    const float d = largest_find(x, 32) / -8;
    uint32_t q[32];
    integers_make(x, 0, d, 8.5f, 15, q);
    store_u16(block, f32_to_f16(d));
    nibbles_write(q, block + 2);
}

void block_encode_q4_1(const float *x, uint8_t *block) {
    float min, max;
    range_find(x, 32, &min, &max);
    const float d = (max - min) / 15;
    uint32_t q[32];
    integers_make(x, min, d, 0.5f, 15, q);
    store_u16(block, f32_to_f16(d));
    store_u16(block + 2, f32_to_f16(min));
    nibbles_write(q, block + 4);
}

void block_encode_q5_0(const float *x, uint8_t *block) {
    const float d = largest_find(x, 32) / -16;
    uint32_t q[32];
    integers_make(x, 0, d, 16.5f, 31, q);
    store_u16(block, f32_to_f16(d));
    fifth_bits_write(q, block + 2);
    nibbles_write(q, block + 6);
}

void block_encode_q5_1(const float *x, uint8_t *block) {
    float min, max;
    range_find(x, 32, &min, &max);
    const float d = (max - min) / 31;
    uint32_t q[32];
    integers_make(x, min, d, 0.5f, 31, q);
    store_u16(block, f32_to_f16(d));
    store_u16(block + 2, f32_to_f16(min));
    fifth_bits_write(q, block + 4);
    nibbles_write(q, block + 8);
}

void block_encode_q8_0(const float *x, uint8_t *block) {
    const float largest = largest_find(x, 32);
    const float d = (largest < 0 ? -largest : largest) / 127;
    const float inverse = d != 0 ? 1 / d : 0;
    store_u16(block, f32_to_f16(d));
    for (int i = 0; i < 32; i++) { // ties away from zero
        float v = x[i] * inverse;
        int32_t m = (int32_t)limit_trunc((v < 0 ? -v : v) + 0.5f, 127);
        block[2 + i] = (uint8_t)(int8_t)(v < 0 ? -m : m);
    }
}
