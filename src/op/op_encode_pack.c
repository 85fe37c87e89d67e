// How each format with super-blocks stores the integers and scales that the encoder found. The layouts are described in
// op_formats_k.c, whose readers the tests hold against these writers.
#include "base/base.h"
#include "op/op_encode.h"

// Eight six-bit scales and minima in 12 bytes (Q4_K, Q5_K).
static void scales_pack(const struct encode_block *b, uint8_t *out) {
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(b->scale[i] | (b->scale[i + 4] >> 4) << 6);
        out[i + 4] = (uint8_t)(b->min[i] | (b->min[i + 4] >> 4) << 6);
        out[i + 8] = (uint8_t)((b->scale[i + 4] & 15) | (b->min[i + 4] & 15) << 4);
    }
}

static void pack_q4_k(const struct encode_block *b, uint8_t *out) {
    store_u16(out, f32_to_f16(b->d));
    store_u16(out + 2, f32_to_f16(b->d_min));
    scales_pack(b, out + 4);
    for (int i = 0; i < ENCODE_BLOCK; i += 64)
        for (int j = 0; j < 32; j++) out[16 + i / 2 + j] = (uint8_t)(b->q[i + j] | b->q[i + 32 + j] << 4);
}

static void pack_q6_k(const struct encode_block *b, uint8_t *out) {
    for (int h = 0; h < 2; h++) { // halves of 128 values, quarters of 32
        for (int j = 0; j < 32; j++) {
            int v[4];
            for (int k = 0; k < 4; k++) v[k] = b->q[h * 128 + k * 32 + j] + 32;
            out[h * 64 + j] = (uint8_t)((v[0] & 15) | (v[2] & 15) << 4);
            out[h * 64 + 32 + j] = (uint8_t)((v[1] & 15) | (v[3] & 15) << 4);
            out[128 + h * 32 + j] = (uint8_t)(v[0] >> 4 | v[1] >> 4 << 2 | v[2] >> 4 << 4 | v[3] >> 4 << 6);
        }
    }
    for (int i = 0; i < 16; i++) out[192 + i] = (uint8_t)(int8_t)b->scale[i];
    store_u16(out + 208, f32_to_f16(b->d));
}

static const struct encode_kind kinds[] = {
    {FORMAT_Q4_K, 32, true, 0, 15, 0, 63, WEIGHT_MEAN_MAGNITUDE, pack_q4_k},
    {FORMAT_Q6_K, 16, false, -32, 31, -128, 127, WEIGHT_SQUARE, pack_q6_k},
};

const struct encode_kind *encode_kind_find(enum format f) {
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (kinds[i].format == f) return &kinds[i];
    return NULL;
}
