// Checked sizes, 16-bit floats (all of them), the table hash, SHA-256.
#include "base_test.h"
#ifdef __x86_64__
#include <immintrin.h>
#endif

static void test_sizes(void **state) {
    (void)state;
    size_t v;
    assert_true(size_mul(1u << 20, 1u << 20, &v) && v == (size_t)1 << 40);
    assert_false(size_mul(SIZE_MAX, 2, &v));
    assert_true(size_add(SIZE_MAX - 1, 1, &v) && v == SIZE_MAX);
    assert_false(size_add(SIZE_MAX, 1, &v));
    assert_true(size_align(65, 64, &v) && v == 128);
    assert_true(size_align(64, 64, &v) && v == 64);
    assert_false(size_align(SIZE_MAX - 3, 64, &v));
    assert_int_equal(int_div_up(7, 3), 3);
    assert_int_equal(int_round_up(7, 4), 8);
}

static bool f32_is_nan_bits(uint32_t u) { return (u & 0x7fffffffu) > 0x7f800000u; }

static void check_widen(uint16_t h, uint32_t expected, const char *by) {
    uint32_t got = f32_bits(f16_to_f32(h));
    if (got != expected) fail_msg("f16 %04x: %08x, %s says %08x", h, got, by, expected);
}
static void check_narrow(uint32_t u, uint16_t expected, const char *by) {
    uint16_t got = f32_to_f16(f32_from_bits(u));
    if (got != expected) fail_msg("f32 %08x: %04x, %s says %04x", u, got, by, expected);
}

// Calls fn for floats that matter: every half, its float neighbours, the midpoints between halves and their neighbours,
// and a stride over all floats.
static void each_f32(void (*fn)(uint32_t u)) {
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint32_t u = f32_bits(f16_to_f32((uint16_t)h));
        uint32_t next = f32_bits(f16_to_f32((uint16_t)(h + 1)));
        float middle = f32_from_bits(u) * 0.5f + f32_from_bits(next) * 0.5f;
        for (uint32_t d = 0; d < 5; d++) {
            fn(u + d - 2);
            fn(f32_bits(middle) + d - 2);
        }
    }
    for (uint64_t u = 0; u <= UINT32_MAX; u += 1021) fn((uint32_t)u);
    for (uint32_t u = 0x477fe000u; u < 0x47801000u; u++) fn(u); // around the overflow
    for (uint32_t u = 0x32fff000u; u < 0x33001000u; u++) fn(u); // around half of the least subnormal
}

// By value: a half is sign * mantissa * 2^exponent, exactly representable as a double.
static void test_f16_values(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        int exponent = (int)(h >> 10) & 31, mantissa = (int)h & 0x3ff;
        if (exponent == 31) continue;
        double v = exponent == 0 ? mantissa : mantissa + 1024;
        for (int e = exponent == 0 ? 1 : exponent; e < 25; e++) v /= 2;
        for (int e = exponent; e > 25; e--) v *= 2;
        if (h & 0x8000) v = -v;
        float f = f16_to_f32((uint16_t)h);
        assert_true((double)f == v);
        assert_int_equal(f32_bits(f) >> 31, h >> 15);
        assert_int_equal(f32_to_f16(f), h);
    }
    assert_int_equal(f32_bits(f16_to_f32(0x7c00)), 0x7f800000);
    assert_int_equal(f32_bits(f16_to_f32(0xfc01)), 0xffc02000); // a signalling NaN becomes quiet
    assert_int_equal(f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(f32_to_f16(f32_from_bits(0xffa00001u)), 0xff00);
}

#ifdef __FLT16_MAX__
static void narrow_compiler(uint32_t u) {
    if (f32_is_nan_bits(u)) return; // the compiler's library may choose its own NaN
    _Float16 half = (_Float16)f32_from_bits(u);
    uint16_t bits;
    memcpy(&bits, &half, 2);
    check_narrow(u, bits, "the compiler");
}
#endif
static void test_f16_compiler(void **state) {
    (void)state;
#ifdef __FLT16_MAX__
    for (uint32_t h = 0; h < 0x10000; h++) {
        if ((h & 0x7fff) > 0x7c00) continue;
        uint16_t bits = (uint16_t)h;
        _Float16 half;
        memcpy(&half, &bits, 2);
        check_widen(bits, f32_bits((float)half), "the compiler");
    }
    each_f32(narrow_compiler);
#else
    skip();
#endif
}

#ifdef __x86_64__
__attribute__((target("f16c"))) static void narrow_machine(uint32_t u) {
    __m128i half = _mm_cvtps_ph(_mm_set_ss(f32_from_bits(u)), _MM_FROUND_TO_NEAREST_INT);
    check_narrow(u, (uint16_t)_mm_extract_epi16(half, 0), "VCVTPS2PH");
}
__attribute__((target("f16c"))) static void widen_machine(uint16_t h) {
    __m128 wide = _mm_cvtph_ps(_mm_cvtsi32_si128(h));
    check_widen(h, (uint32_t)_mm_cvtsi128_si32(_mm_castps_si128(wide)), "VCVTPH2PS");
}
#endif
static void test_f16_machine(void **state) {
    (void)state;
#ifdef __x86_64__
    if (!__builtin_cpu_supports("avx2")) skip(); // every such machine has F16C, whose own name gcc 12 does not know
    for (uint32_t h = 0; h < 0x10000; h++) widen_machine((uint16_t)h);
    each_f32(narrow_machine);
#else
    skip();
#endif
}

static void test_bf16(void **state) {
    (void)state;
    assert_int_equal(f32_to_bf16(1.0f), 0x3f80);
    assert_int_equal(f32_to_bf16(f32_from_bits(0x3f808000u)), 0x3f80); // tie to even
    assert_int_equal(f32_to_bf16(f32_from_bits(0x3f818000u)), 0x3f82);
    assert_int_equal(f32_to_bf16(f32_from_bits(0x3f808001u)), 0x3f81);
    assert_int_equal(f32_to_bf16(f32_from_bits(0x7f7fffffu)), 0x7f80);
    assert_int_equal(f32_to_bf16(f32_from_bits(0x7f800001u)), 0x7fc0);
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint32_t u = f32_bits(bf16_to_f32((uint16_t)h));
        if (!f32_is_nan_bits(u)) assert_int_equal(f32_to_bf16(f32_from_bits(u)), h);
    }
}

// No value is fixed, but equal input gives equal output, and each bit of key, length and seed moves about half of it.
static void test_hash(void **state) {
    (void)state;
    uint8_t key[67];
    for (size_t i = 0; i < sizeof(key); i++) key[i] = (uint8_t)(i * 7);
    for (size_t len = 0; len <= sizeof(key); len++) {
        uint64_t base = hash_bytes(key, len, 1);
        assert_true(base == hash_bytes(key, len, 1));
        assert_true(base != hash_bytes(key, len, 2));
        if (len > 0) assert_true(base != hash_bytes(key, len - 1, 1));
        for (size_t bit = 0; bit < 8 * len; bit++) {
            key[bit / 8] ^= (uint8_t)(1u << bit % 8);
            int changed = __builtin_popcountll(base ^ hash_bytes(key, len, 1));
            key[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_in_range(changed, 10, 54);
        }
    }
    assert_true(hash_seed() != hash_seed());
}

static void sha_check(const char *expected, const void *data, size_t len, size_t piece) {
    struct sha256 s;
    uint8_t digest[32];
    char hex[65];
    sha256_init(&s);
    for (size_t at = 0; at < len; at += piece) sha256_update(&s, (const char *)data + at, MIN(piece, len - at));
    sha256_final(&s, digest);
    sha256_hex(digest, hex);
    assert_string_equal(hex, expected);
}

// The examples of FIPS 180-4 (NIST's "SHA256.pdf"), whole and in odd pieces.
static void test_sha256(void **state) {
    (void)state;
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    const char *four =
        "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsm"
        "nopqrstnopqrstu";
    for (size_t piece = 1; piece < 130; piece += 3) {
        sha_check("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "", 0, piece);
        sha_check("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "abc", 3, piece);
        sha_check("248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1", two, 56, piece);
        sha_check("cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1", four, 112, piece);
    }
    char *million = mem_alloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    sha_check("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0", million, 1000000, 1000000);
    sha_check("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0", million, 1000000, 997);
    mem_free(million);
}

static void sha1_check(const char *expected, const void *data, size_t len, size_t piece) {
    struct sha1 s;
    char hex[41];
    sha1_init(&s);
    for (size_t at = 0; at < len; at += piece) sha1_update(&s, (const char *)data + at, MIN(piece, len - at));
    sha1_hex(&s, hex);
    assert_string_equal(hex, expected);
}

// The examples of FIPS 180-4 (NIST's "SHA1.pdf"), and git's name of a file that holds "hello\n".
static void test_sha1(void **state) {
    (void)state;
    static const char git[] = "blob 6\0hello\n";
    for (size_t piece = 1; piece < 130; piece += 3) {
        sha1_check("da39a3ee5e6b4b0d3255bfef95601890afd80709", "", 0, piece);
        sha1_check("a9993e364706816aba3e25717850c26c9cd0d89d", "abc", 3, piece);
        sha1_check("84983e441c3bd26ebaae4aa1f95129e5e54670f1",
                   "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, piece);
        sha1_check("ce013625030ba8dba906f756967f9e9ca394464a", git, sizeof git - 1, piece);
    }
    char *million = mem_alloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    sha1_check("34aa973cd4c4daa4f61eeb2bdbad27316534016f", million, 1000000, 997);
    mem_free(million);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),       cmocka_unit_test(test_f16_values), cmocka_unit_test(test_f16_compiler),
        cmocka_unit_test(test_f16_machine), cmocka_unit_test(test_bf16),       cmocka_unit_test(test_hash),
        cmocka_unit_test(test_sha256),      cmocka_unit_test(test_sha1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
