// What arithmetic needs of base: small integers, 16-bit floats, unaligned loads, and the abort of a broken
// invariant. The second face of base/: op/op_math.h and the kernels of unit/ include it in place of base.h, since a
// kernel file takes up to a minute to compile and should not be compiled again for a change elsewhere.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

_Noreturn void bug_abort(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
#define TERN_BUG(...) bug_abort(__FILE__, __LINE__, __VA_ARGS__)
#define TERN_ASSERT(cond) ((cond) ? (void)0 : bug_abort(__FILE__, __LINE__, "%s", #cond))

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
