// How each format stores the integers and scales that the searching encoder found. The layouts are described in
// op_formats_k.c, op_formats_k23.c and op_formats_iq4.c, whose readers the tests hold against these writers.
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

static void pack_q5_k(const struct encode_block *b, uint8_t *out) {
    store_u16(out, f32_to_f16(b->d));
    store_u16(out + 2, f32_to_f16(b->d_min));
    scales_pack(b, out + 4);
    for (int j = 0; j < 32; j++) {
        int fifth = 0;
        for (int g = 0; g < 8; g++) fifth |= b->q[g * 32 + j] >> 4 << g;
        out[16 + j] = (uint8_t)fifth;
    }
    for (int i = 0; i < ENCODE_BLOCK; i += 64)
        for (int j = 0; j < 32; j++) out[48 + i / 2 + j] = (uint8_t)((b->q[i + j] & 15) | (b->q[i + 32 + j] & 15) << 4);
}

// Pairs of bits: byte j of half h holds those of its four quarters.
static void pairs_pack(const uint8_t *v, uint8_t *out) {
    for (int h = 0; h < 2; h++)
        for (int j = 0; j < 32; j++, out++)
            *out = (uint8_t)((v[h * 128 + j] & 3) | (v[h * 128 + 32 + j] & 3) << 2 | (v[h * 128 + 64 + j] & 3) << 4 |
                             (v[h * 128 + 96 + j] & 3) << 6);
}

static void pack_q2_k(const struct encode_block *b, uint8_t *out) {
    uint8_t v[ENCODE_BLOCK];
    for (int i = 0; i < 16; i++) out[i] = (uint8_t)(b->scale[i] | b->min[i] << 4);
    for (int i = 0; i < ENCODE_BLOCK; i++) v[i] = (uint8_t)b->q[i];
    pairs_pack(v, out + 16);
    store_u16(out + 80, f32_to_f16(b->d));
    store_u16(out + 82, f32_to_f16(b->d_min));
}

static void pack_q3_k(const struct encode_block *b, uint8_t *out) {
    uint8_t v[ENCODE_BLOCK];
    memset(out, 0, 110);
    for (int i = 0; i < ENCODE_BLOCK; i++) {
        v[i] = (uint8_t)(b->q[i] + 4);
        out[i % 32] = (uint8_t)(out[i % 32] | v[i] >> 2 << (i / 32));
    }
    pairs_pack(v, out + 32);
    for (int i = 0; i < 16; i++) {
        const int s = b->scale[i] + 32;
        out[96 + i % 8] = (uint8_t)(out[96 + i % 8] | (s & 15) << (i / 8 * 4));
        out[104 + i % 4] = (uint8_t)(out[104 + i % 4] | s >> 4 << (i / 4 * 2));
    }
    store_u16(out + 108, f32_to_f16(b->d));
}

static int value_index(int q) {
    int i = 0;
    while (op_iq4_values[i] < q) i++;
    return i;
}

static void indices_pack(const int8_t *q, uint8_t *out) {
    for (int i = 0; i < 16; i++) out[i] = (uint8_t)(value_index(q[i]) | value_index(q[i + 16]) << 4);
}

static void pack_iq4_nl(const struct encode_block *b, uint8_t *out) {
    store_u16(out, f32_to_f16(b->d));
    indices_pack(b->q, out + 2);
}

static void pack_iq4_xs(const struct encode_block *b, uint8_t *out) {
    int high = 0;
    memset(out, 0, 8);
    for (int g = 0; g < 8; g++) {
        const int s = b->scale[g] + 32;
        out[4 + g / 2] = (uint8_t)(out[4 + g / 2] | (s & 15) << (g % 2 * 4));
        high |= s >> 4 << (g * 2);
        indices_pack(b->q + g * 32, out + 8 + g * 16);
    }
    store_u16(out, f32_to_f16(b->d));
    store_u16(out + 2, (uint16_t)high);
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
    {FORMAT_Q2_K, 16, true, 0, 3, 0, 15, NULL, pack_q2_k},
    {FORMAT_Q3_K, 16, false, -4, 3, -32, 31, NULL, pack_q3_k},
    {FORMAT_Q4_K, 32, true, 0, 15, 0, 63, NULL, pack_q4_k},
    {FORMAT_Q5_K, 32, true, 0, 31, 0, 63, NULL, pack_q5_k},
    {FORMAT_Q6_K, 16, false, -32, 31, -128, 127, NULL, pack_q6_k},
    {FORMAT_IQ4_NL, 32, false, -127, 113, 0, 0, op_iq4_values, pack_iq4_nl},
    {FORMAT_IQ4_XS, 32, false, -127, 113, -32, 31, op_iq4_values, pack_iq4_xs},
};

const struct encode_kind *encode_kind_find(enum format f) {
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (kinds[i].format == f) return &kinds[i];
    return NULL;
}
