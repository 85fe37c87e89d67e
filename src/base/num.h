// Checked arithmetic and digests (small integers and 16-bit floats: plain.h). Every size that comes from a file, a
// request or a user goes through size_mul/size_add: a formula for a size exists once, and there only.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/plain.h"

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
