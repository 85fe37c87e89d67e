// Files cut at every byte of their header, changed at random, and opened while memory fails: an error or a model, never
// more. Sanitizer builds see a read outside the bytes, because each input is an exact-size copy.
#include "model_test_util.h"

#define MUTATIONS 1000

static uint64_t next_random(uint64_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x * 0x2545f4914f6cdd1du;
}

static size_t header_of(const struct buf *b) {
    // The first tensor's data begins with the pattern of tiny_build; the header is what comes before its last record.
    struct str name = STR("blk.1.ffn_down.weight");
    size_t at = str_find(buf_str(b), name, 0);
    return at + name.len + 4 + 16 + 4 + 8;
}

static void test_cut(void **state) {
    (void)state;
    struct buf b;
    struct tiny t;
    struct tern_err err;
    buf_init(&b, 1u << 20);
    tiny_init(&t);
    tiny_build(&t, &b);
    size_t header = header_of(&b);
    assert_true(header > 1000 && header < 4096);
    for (size_t n = 0; n < header + 64; n++) {
        struct str cut = {b.data, n};
        if (open_quick("cut", cut, &err)) fail_msg("opened with %zu of %zu bytes", n, b.len);
    }
    for (size_t n = header + 64; n < b.len; n += 509) {
        struct str cut = {b.data, n};
        if (open_quick("cut data", cut, &err)) fail_msg("opened with %zu of %zu bytes", n, b.len);
        if (!strstr(err.message, "bytes are missing")) fail_msg("cut at %zu: %s", n, err.message);
    }
    buf_release(&b);
}

static void test_cut_safetensors(void **state) {
    (void)state;
    struct buf b;
    struct tern_err err;
    buf_init(&b, 1u << 20);
    safetensors_build(
        &b,
        STR("{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":"
            "[0,16]},\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[16,24]}}   "),
        24);
    for (size_t n = 0; n < b.len; n++) {
        struct str cut = {b.data, n};
        if (open_quick("cut", cut, &err)) fail_msg("opened with %zu of %zu bytes", n, b.len);
    }
    expect_open("whole", buf_str(&b));
    buf_release(&b);
}

// One to four changes of the first `header` bytes.
static void mutate(struct buf *b, size_t header, uint64_t *seed) {
    static const uint64_t notable[] = {0, 1, 0x7f, 0x80, 0xff, 0x7fffffff, 0xffffffff, INT64_MAX, UINT64_MAX, 1u << 20};
    for (uint64_t n = 1 + next_random(seed) % 4; n > 0; n--) {
        size_t at = (size_t)(next_random(seed) % header);
        uint64_t v = notable[next_random(seed) % ARRAY_LEN(notable)];
        switch (next_random(seed) % 5) {
        case 0: b->data[at] ^= (char)(1u << next_random(seed) % 8); break;
        case 1: b->data[at] = (char)next_random(seed); break;
        case 2: memcpy(b->data + at, &v, MIN((size_t)4, b->len - at)); break;
        case 3: memcpy(b->data + at, &v, MIN((size_t)8, b->len - at)); break;
        default: {
            size_t len = MIN((size_t)(1 + next_random(seed) % 16), b->len - at);
            memmove(b->data + at, b->data + at + len, b->len - at - len);
            b->len -= len;
        }
        }
    }
}

static void mutations(const struct buf *sound, size_t header) {
    struct buf b;
    struct tern_err err;
    const char *wanted = getenv("TERN_TEST_SEED");
    uint64_t seed = wanted ? strtoull(wanted, NULL, 0) : 0x9e3779b97f4a7c15u;
    int n_open = 0;
    buf_init(&b, 1u << 20);
    for (int i = 0; i < MUTATIONS; i++) {
        buf_clear(&b);
        buf_put(&b, sound->data, sound->len);
        mutate(&b, header, &seed);
        n_open += open_quick("mutation", buf_str(&b), &err);
    }
    assert_true(n_open > 0 && n_open < MUTATIONS); // some changes do no harm
    buf_release(&b);
}

static void test_mutations(void **state) {
    (void)state;
    struct buf b;
    struct tiny t;
    buf_init(&b, 1u << 20);
    tiny_init(&t);
    tiny_build(&t, &b);
    mutations(&b, header_of(&b));
    safetensors_build(
        &b,
        STR("{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":"
            "[0,16]},\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[16,24]}}   "),
        24);
    mutations(&b, b.len - 24);
    buf_release(&b);
}

// The n-th allocation fails, once and from then on: an error, no leak; then the model opens.
static void fail_each(const char *path) {
    for (int persistent = 0; persistent < 2; persistent++) {
        for (uint64_t n = 1;; n++) {
            struct model *m = NULL;
            struct tern_err err = {0};
            struct mem_stats before = mem_stats_get();
            mem_fail_at(n, persistent);
            enum tern_status status = model_open(&m, path, &err);
            uint64_t n_calls = mem_stats_get().n_calls - before.n_calls;
            mem_fail_at(0, false);
            if (status == TERN_OK) model_close(m);
            assert_int_equal(mem_stats_get().n_live, before.n_live);
            if (n > n_calls) { // none failed
                assert_int_equal(status, TERN_OK);
                assert_true(n > 3);
                break;
            }
            if (status != TERN_NO_MEMORY) fail_msg("%s: allocation %d: %d %s", path, (int)n, status, err.message);
        }
    }
}

static void test_no_memory(void **state) {
    (void)state;
    fail_each(TEST_DATA "/gguf/00-sound.gguf");
    fail_each(TEST_DATA "/safetensors/script-hf");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cut), cmocka_unit_test(test_cut_safetensors),
                                       cmocka_unit_test(test_mutations), cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, tmp_end);
}
