// API keys: which ones are known, and that the time of a refusal tells nothing of how much of a key was right. The same
// measurement finds a comparison that stops at the first wrong byte, so it would find one here.
#include "base/base.h"
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>
#include "app/serve/serve.h"

enum { LEN = SERVE_KEY_BYTES_MAX, SAMPLES = 12000 };

static char right[LEN + 1];
static struct serve server;

static int setup(void **state) {
    (void)state;
    memset(right, 'k', LEN);
    server.o.api_keys = (struct opt_texts){.items = {"first-key", right}, .n = 2};
    return serve_keys_load(&server, NULL) != TERN_OK;
}
static int teardown(void **state) {
    (void)state;
    mem_free(server.keys);
    return 0;
}

static void test_known(void **state) {
    (void)state;
    const char *a = serve_key_tenant(&server, STR("first-key")), *b = serve_key_tenant(&server, str_from(right));
    assert_non_null(a);
    assert_non_null(b);
    assert_string_not_equal(a, b);
    assert_null(serve_key_tenant(&server, STR("first-ke")));
    assert_null(serve_key_tenant(&server, STR("first-keyx")));
    assert_null(serve_key_tenant(&server, STR("")));
}

static bool by_hash(const char *key) { return serve_key_tenant(&server, (struct str){key, LEN}) != NULL; }
static bool byte_by_byte(const char *key) {
    for (int round = 0; round < 4; round++) // as slow as a server's other work would make it
        for (const volatile char *p = key, *q = right; p < key + LEN; p++, q++)
            if (*p != *q) {
                if (round == 3) return false;
                break;
            }
    return true;
}

struct sample {
    double ns;
    int prefix; // bytes that are right
};
static int sample_order(const void *a, const void *b) {
    const struct sample *x = a, *y = b;
    return x->ns < y->ns ? -1 : x->ns > y->ns;
}

// Correlation of the times' ranks with the length of the right prefix.
static double correlation(bool (*known)(const char *key)) {
    static struct sample samples[SAMPLES];
    static char key[LEN];
    uint64_t seed = 7;
    for (int i = 0; i < SAMPLES; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const int prefix = (int)((seed >> 33) % LEN);
        memset(key, 'k', (size_t)prefix);
        memset(key + prefix, 'x', (size_t)(LEN - prefix));
        const uint64_t start = clock_ns();
        assert_false(known(key));
        samples[i] = (struct sample){(double)(clock_ns() - start), prefix};
    }
    qsort(samples, SAMPLES, sizeof samples[0], sample_order);
    double rank_mean = (SAMPLES - 1) / 2.0, prefix_mean = 0, both = 0, ranks = 0, prefixes = 0;
    for (int i = 0; i < SAMPLES; i++) prefix_mean += samples[i].prefix / (double)SAMPLES;
    for (int i = 0; i < SAMPLES;) { // equal times share their mean rank
        int end = i + 1;
        while (end < SAMPLES && samples[end].ns <= samples[i].ns) end++;
        const double rank = (i + end - 1) / 2.0 - rank_mean;
        for (; i < end; i++) {
            const double prefix = samples[i].prefix - prefix_mean;
            both += rank * prefix;
            ranks += rank * rank;
            prefixes += prefix * prefix;
        }
    }
    return ranks > 0 ? both / sqrt(ranks * prefixes) : 0;
}

static void test_time_tells_nothing(void **state) {
    (void)state;
    const double naive = correlation(byte_by_byte), ours = correlation(by_hash);
    if (naive < 0.3) fail_msg("the measurement sees nothing: %.3f", naive);
    if (fabs(ours) > 0.06) fail_msg("times follow the right prefix: %.3f", ours); // chance: 0.009 each way
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known), cmocka_unit_test(test_time_tells_nothing)};
    return cmocka_run_group_tests_name("API keys", tests, setup, teardown);
}
