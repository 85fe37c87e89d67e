// Sixteen groups of a row to int8 at once in AVX-512. Alone, a group is bound by shuffles: its largest magnitude and
// its two sums are found by halving a register eleven times, on the one port that shuffles. Sixteen share these steps,
// two registers' halves at a time, and their divisions take one instruction each.
#pragma once
#include <immintrin.h>
#include "base/plain.h"
#include "op/op_math.h"

#define QUANTISE_AT_ONCE (16 * OP_GROUP)

// Lane g: the largest of v[g].
static inline __m512i lanes_largest(const __m512i v[16]) {
    __m512i t[8], u[4], p[2];
    for (int i = 0; i < 8; i++)
        t[i] = _mm512_max_epi32(_mm512_shuffle_i64x2(v[i], v[i + 8], 0x44), _mm512_shuffle_i64x2(v[i], v[i + 8], 0xee));
    for (int i = 0; i < 4; i++)
        u[i] = _mm512_max_epi32(_mm512_shuffle_i64x2(t[i], t[i + 4], 0x88), _mm512_shuffle_i64x2(t[i], t[i + 4], 0xdd));
    for (int i = 0; i < 2; i++)
        p[i] = _mm512_max_epi32(_mm512_unpacklo_epi32(u[i], u[i + 2]), _mm512_unpackhi_epi32(u[i], u[i + 2]));
    const __m512i all = _mm512_max_epi32(_mm512_unpacklo_epi64(p[0], p[1]), _mm512_unpackhi_epi64(p[0], p[1]));
    const __m512i place = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
    return _mm512_permutexvar_epi32(place, all);
}

// 64 bytes' eight sums of eight, each in a 64-bit lane, 8 * 128 too large.
static inline __m512i bytes_sum(__m512i q) {
    return _mm512_sad_epu8(_mm512_xor_si512(q, _mm512_set1_epi8((char)0x80)), _mm512_setzero_si512());
}
static inline __m512i lanes_even(__m512i a, __m512i b) { // of each 128 bits: a0 a2 b0 b2
    return _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0x88));
}
static inline __m512i lanes_odd(__m512i a, __m512i b) {
    return _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0xdd));
}

// QUANTISE_AT_ONCE values; false, and nothing written, when a group is zero or not finite.
static inline bool quantise_at_once(const float *x, int8_t *q, float *scale, int32_t *sum) {
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
    __m512i v[16], bytes[8];
    for (int g = 0; g < 16; g++)
        v[g] = _mm512_max_epi32(_mm512_and_si512(_mm512_loadu_si512(x + g * OP_GROUP), no_sign),
                                _mm512_and_si512(_mm512_loadu_si512(x + g * OP_GROUP + 16), no_sign));
    const __m512i top = lanes_largest(v);
    const __m512 amax = _mm512_castsi512_ps(top);
    if (_mm512_cmpge_epi32_mask(top, _mm512_set1_epi32(0x7f800000)) != 0 ||
        _mm512_cmp_ps_mask(amax, _mm512_set1_ps(OP_AMAX_MIN), _CMP_LT_OQ) != 0)
        return false;
    float inverse[16];
    _mm512_storeu_ps(inverse, _mm512_div_ps(_mm512_set1_ps(127), amax));
    _mm512_storeu_ps(scale, _mm512_div_ps(amax, _mm512_set1_ps(127)));
    for (int i = 0; i < 8; i++) {
        __m512i w[4];
        for (int j = 0; j < 4; j++)
            w[j] = _mm512_cvtps_epi32(
                _mm512_mul_ps(_mm512_loadu_ps(x + i * 64 + j * 16), _mm512_set1_ps(inverse[2 * i + j / 2])));
        // Packing goes by 128 bits: word 4 l + j holds values 4 l … of vector j.
        const __m512i packed = _mm512_packs_epi16(_mm512_packs_epi32(w[0], w[1]), _mm512_packs_epi32(w[2], w[3]));
        const __m512i place = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        bytes[i] = _mm512_permutexvar_epi32(place, packed);
        _mm512_storeu_si512(q + i * 64, bytes[i]);
    }
    for (int i = 0; i < 8; i += 4) {
        const __m512i a = lanes_even(bytes_sum(bytes[i]), bytes_sum(bytes[i + 1]));
        const __m512i b = lanes_even(bytes_sum(bytes[i + 2]), bytes_sum(bytes[i + 3]));
        const __m512i s = _mm512_add_epi32(lanes_even(a, b), lanes_odd(a, b)); // lane 4 l + k: sum l of vector k
        const __m512i place = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        _mm512_storeu_si512(sum + i * 4,
                            _mm512_sub_epi32(_mm512_permutexvar_epi32(place, s), _mm512_set1_epi32(16 * 128)));
    }
    return true;
}
