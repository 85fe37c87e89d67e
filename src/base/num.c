// Half floats and the table hash.
//
// The conversions are plain integer code: they define the result that kernels reach with one instruction. The hash
// multiplies 64x64 to 128 bits and folds (the idea of wyhash): 8 bytes a round, good spread in all bits.
#include "base/base.h"

__extension__ typedef unsigned __int128 u128;

float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 31u;
    uint32_t mantissa = h & 0x3ffu;
    if (exponent == 31) { // infinity, or NaN made quiet
        uint32_t quiet = mantissa ? 0x400000u : 0;
        return f32_from_bits(sign | 0x7f800000u | quiet | (mantissa << 13));
    }
    if (exponent == 0) { // zero and subnormals: mantissa * 2^-24, exact
        float magnitude = (float)mantissa * 0x1p-24f;
        return f32_from_bits(sign | f32_bits(magnitude));
    }
    return f32_from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t f32_to_f16(float f) {
    uint32_t u = f32_bits(f);
    uint32_t sign = (u >> 16) & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((u >> 13) & 0x3ffu));
    if (u >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); // 65520 and up round to infinity
    if (u >= 0x38800000u) {                                  // normal: rebias, round to nearest even
        uint32_t odd = (u >> 13) & 1;
        return (uint16_t)(sign | ((u - 0x38000000u + 0xfffu + odd) >> 13));
    }
    if (u <= 0x33000000u) return (uint16_t)sign; // at most half of the least subnormal
    uint32_t shift = 126 - (u >> 23);            // 14..24
    uint32_t mantissa = (u & 0x7fffffu) | 0x800000u;
    uint32_t kept = mantissa >> shift;
    uint32_t rest = mantissa & ((1u << shift) - 1);
    uint32_t half = 1u << (shift - 1);
    if (rest > half || (rest == half && (kept & 1))) kept++;
    return (uint16_t)(sign | kept);
}

static inline uint64_t mix(uint64_t a, uint64_t b) {
    u128 p = (u128)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

uint64_t hash_bytes(const void *data, size_t len, uint64_t seed) {
    const uint64_t k0 = 0xa0761d6478bd642fu, k1 = 0xe7037ed1a0b428dbu, k2 = 0x8ebc6af09c88c6e3u;
    const uint8_t *p = data;
    uint64_t h = mix(seed ^ k0, (uint64_t)len ^ k1);
    size_t n = len;
    for (; n > 16; n -= 16, p += 16) h = mix(load_u64(p) ^ k1 ^ h, load_u64(p + 8) ^ k2);
    uint64_t a = 0, b = 0; // the last 0..16 bytes; overlapping loads are fine, the length is mixed in
    if (n >= 8) {
        a = load_u64(p);
        b = load_u64(p + n - 8);
    } else if (n >= 4) {
        a = load_u32(p);
        b = load_u32(p + n - 4);
    } else if (n > 0) {
        a = ((uint64_t)p[0] << 16) | ((uint64_t)p[n / 2] << 8) | p[n - 1];
    }
    return mix(mix(a ^ k1 ^ h, b ^ k2), h ^ k0);
}

uint64_t hash_seed(void) {
    uint64_t seed;
    os_random(&seed, sizeof(seed));
    return seed;
}
