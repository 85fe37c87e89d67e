// Checked arithmetic, small integer helpers, and the 16-bit float formats. Every size that comes from a file, a request
// or a user goes through size_mul/size_add: a formula for a size exists once, and there only.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Each returns false on overflow (and leaves *out unspecified).
static inline bool size_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool size_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool u64_mul(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool u64_add(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_add_overflow(a, b, out); }
// Rounds up to a multiple of align (a power of two).
static inline bool size_align(size_t a, size_t align, size_t *out) {
    if (!size_add(a, align - 1, out)) return false;
    *out &= ~(align - 1);
    return true;
}

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
static inline int int_div_up(int a, int b) { return (a + b - 1) / b; }
static inline int int_round_up(int a, int b) { return int_div_up(a, b) * b; }

static inline uint32_t f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static inline float f32_from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

// bfloat16: the upper half of a float; conversion to it rounds to nearest even, NaN stays a quiet NaN.
static inline float bf16_to_f32(uint16_t h) { return f32_from_bits((uint32_t)h << 16); }
static inline uint16_t f32_to_bf16(float f) {
    uint32_t u = f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

// IEEE 754 binary16, subnormals included; conversion to it rounds to nearest even, overflow gives infinity.
// The bits equal those of VCVTPH2PS / VCVTPS2PH and of NEON's fcvt, which kernels use.
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);

// Unaligned little-endian loads (files are little-endian; a big-endian host is not supported).
static inline uint16_t load_u16(const void *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}
static inline uint32_t load_u32(const void *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}
static inline uint64_t load_u64(const void *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

// FNV-1a-like 64-bit mixing hash for tables in memory (not for files, not against attackers who choose keys freely:
// tables seed it with hash_seed()).
uint64_t hash_bytes(const void *data, size_t len, uint64_t seed);
uint64_t hash_seed(void);

// SHA-256 (FIPS 180-4), for identities of files and cache entries.
struct sha256 {
    uint32_t h[8];
    uint64_t n_bytes;
    uint8_t block[64];
};
void sha256_init(struct sha256 *s);
void sha256_update(struct sha256 *s, const void *data, size_t len);
void sha256_final(struct sha256 *s, uint8_t digest[32]);
void sha256_hex(const uint8_t digest[32], char out[65]);

// SHA-1 (FIPS 180-4), only to check what is named by one: the objects of git. It keeps out no attacker.
struct sha1 {
    uint32_t h[5];
    uint64_t n_bytes;
    uint8_t block[64];
};
void sha1_init(struct sha1 *s);
void sha1_update(struct sha1 *s, const void *data, size_t len);
void sha1_hex(struct sha1 *s, char out[41]); // ends it
