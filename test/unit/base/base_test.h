// Shared by the tests of base/: cmocka with its headers, a seeded generator, and running a function that must abort.
#pragma once
#include "base/base.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

// xorshift64*; the seed is printed, and TERN_TEST_SEED sets it to repeat a failure.
struct test_rng {
    uint64_t state;
};
static inline void test_rng_init(struct test_rng *r, const char *name) {
    const char *wanted = getenv("TERN_TEST_SEED");
    uint64_t seed = wanted ? strtoull(wanted, NULL, 0) : hash_seed();
    printf("%s: repeat with TERN_TEST_SEED=%llu\n", name, (unsigned long long)seed);
    r->state = seed | 1;
}
static inline uint64_t test_rng_next(struct test_rng *r) {
    r->state ^= r->state >> 12;
    r->state ^= r->state << 25;
    r->state ^= r->state >> 27;
    return r->state * 0x2545f4914f6cdd1du;
}
static inline size_t test_rng_below(struct test_rng *r, size_t n) { return (size_t)((test_rng_next(r) >> 11) % n); }

// For calls under assert_ok, which shows its message.
static struct tern_err test_err __attribute__((unused));
#define assert_ok(expr)                                                     \
    do {                                                                    \
        if ((expr) != TERN_OK) fail_msg("%s: %s", #expr, test_err.message); \
    } while (0)
#define assert_contains(text, part)                                                          \
    do {                                                                                     \
        if (!strstr((text), (part))) fail_msg("'%s' does not contain '%s'", (text), (part)); \
    } while (0)
