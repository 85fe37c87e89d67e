// The formats whose nibbles choose one of sixteen uneven values: IQ4_NL and IQ4_XS.
//
//   IQ4_NL  blocks of 32: d (half), 16 bytes of nibbles, the low ones values 0..15. value = d * values[nibble]
//   IQ4_XS  super-blocks of 256: d (half), 2 bytes with the upper pairs of 8 six-bit scales, 4 bytes with their low
//           nibbles, 8 times 16 bytes of nibbles. value = (d * (scale - 32)) * values[nibble], a scale per 32 values
#include "base/base.h"
#include "op/op_int.h"

const int8_t op_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void nibbles_look_up(const uint8_t *bytes, int8_t *q) {
    for (int i = 0; i < 16; i++) {
        q[i] = op_iq4_values[bytes[i] & 15];
        q[i + 16] = op_iq4_values[bytes[i] >> 4];
    }
}

// Nearest of the sixteen to each x / step; the lower of two equally near. Zeros where step is zero.
static void nibbles_choose(const float *x, float step, uint8_t *bytes) {
    memset(bytes, 0, 16);
    for (int i = 0; i < 32 && step != 0; i++) {
        const float v = x[i] / step;
        int at = 0;
        while (at < 15 && v > 0.5f * (float)(op_iq4_values[at] + op_iq4_values[at + 1])) at++;
        bytes[i % 16] = (uint8_t)(bytes[i % 16] | at << (i / 16 * 4));
    }
}

void block_decompose_iq4_nl(const uint8_t *block, int8_t *q, float *scale, float *min) {
    (void)min;
    scale[0] = f16_to_f32(load_u16(block));
    nibbles_look_up(block + 2, q);
}

void block_decompose_iq4_xs(const uint8_t *block, int8_t *q, float *scale, float *min) {
    (void)min;
    const float d = f16_to_f32(load_u16(block));
    const int high = load_u16(block + 2);
    for (int g = 0; g < 8; g++) {
        const int s = ((block[4 + g / 2] >> (g % 2 * 4)) & 15) | ((high >> (g * 2)) & 3) << 4;
        scale[g] = d * (float)(s - 32);
        nibbles_look_up(block + 8 + g * 16, q + g * 32);
    }
}

void block_encode_iq4_nl(const float *x, uint8_t *block) {
    store_u16(block, f32_to_f16(largest_find(x, 32) / -127));
    nibbles_choose(x, f16_to_f32(load_u16(block)), block + 2);
}

void block_encode_iq4_xs(const float *x, uint8_t *block) {
    float scale[8]; // with their sign: the largest value of a group becomes -127
    for (int g = 0; g < 8; g++) scale[g] = largest_find(x + g * 32, 32) / -127;
    memset(block, 0, 8);
    store_u16(block, f32_to_f16(largest_find(scale, 8) / -32));
    const float d = f16_to_f32(load_u16(block));
    uint32_t high = 0;
    for (int g = 0; g < 8; g++) {
        const int s = d != 0 ? clamp_round(scale[g] / d, -32, 31) : 0;
        block[4 + g / 2] = (uint8_t)(block[4 + g / 2] | ((s + 32) & 15) << (g % 2 * 4));
        high |= (uint32_t)((s + 32) >> 4) << (g * 2);
        nibbles_choose(x + g * 32, d * (float)s, block + 8 + g * 16);
    }
    store_u16(block + 2, (uint16_t)high);
}
