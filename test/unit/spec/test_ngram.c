// The n-gram drafter against a literal search of the text: longest repeated suffix, what followed it, behind paths of a
// tree, after cuts and after forgetting. Loops (script s20's shape), bounds of time and memory.
#include "base/base.h"
#include "spec/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static uint32_t random_next(uint64_t *x) {
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*x >> 33);
}

static struct ngram *ngram_make(int tokens_max) {
    struct ngram *g = NULL;
    struct tern_err err = {0};
    if (ngram_create(&g, tokens_max, &err) != TERN_OK) fail_msg("%s", err.message);
    return g;
}

static int32_t virtual_at(const int32_t *text, int n, const int32_t *path, int i) {
    return i < n ? text[i] : path[i - n];
}

// Longest suffix of text + path that ends at a position of the text before its last (with no path: before the suffix
// itself ends), by looking at every end.
static int oracle_len(const int32_t *text, int n, const int32_t *path, int n_path) {
    int best = 0;
    for (int end = 0; end < n - 1; end++) {
        int len = 0;
        while (len <= end && virtual_at(text, n, path, n + n_path - 1 - len) == text[end - len]) len++;
        best = MAX(best, len);
    }
    return best;
}

// The proposal follows an occurrence of the longest suffix, and goes on as if it had been appended.
static void proposal_check(const struct ngram *g, const int32_t *text, int n, const int32_t *path, int n_path) {
    int32_t out[6];
    int len = oracle_len(text, n, path, n_path);
    if (n_path == 0) assert_int_equal(ngram_match_len(g), len);
    assert_int_equal(ngram_propose(g, path, n_path, len + 1, out, 6), 0);
    if (len == 0) return;
    assert_int_equal(ngram_propose(g, path, n_path, len, out, 6), 6);
    bool found = false;
    for (int end = len - 1; end < n - 1 && !found; end++) {
        bool same = true;
        for (int i = 0; i < len && same; i++) same = text[end - i] == virtual_at(text, n, path, n + n_path - 1 - i);
        for (int i = 0; i < 6 && same; i++) {
            int at = end + 1 + i;
            int32_t want = at < n + n_path ? virtual_at(text, n, path, at) : out[at - n - n_path];
            same = out[i] == want;
        }
        found = same;
    }
    if (!found) fail_msg("text of %d, path of %d, match of %d: proposal follows no occurrence", n, n_path, len);
}

static void test_random(void **state) {
    (void)state;
    uint64_t seed = 3;
    struct ngram *g = ngram_make(200);
    for (int round = 0; round < 60; round++) {
        int32_t text[200], path[4];
        uint32_t alphabet = 1 + random_next(&seed) % 6;
        ngram_clear(g);
        for (int n = 0; n < 60; n++) {
            int n_path = (int)(random_next(&seed) % 5);
            for (int i = 0; i < n_path; i++) path[i] = (int32_t)(random_next(&seed) % (alphabet + 1));
            proposal_check(g, text, n, path, n_path);
            proposal_check(g, text, n, NULL, 0);
            text[n] = (int32_t)(random_next(&seed) % alphabet);
            ngram_append(g, &text[n], 1);
        }
    }
    ngram_free(g);
}

static void test_cut(void **state) {
    (void)state;
    uint64_t seed = 8;
    struct ngram *g = ngram_make(300);
    int32_t text[300];
    int n = 0;
    for (int round = 0; round < 300; round++) {
        if (random_next(&seed) % 4 == 0) {
            n = (int)(random_next(&seed) % (uint32_t)(n + 1));
            ngram_truncate(g, (size_t)n);
        }
        for (int i = 0; i < 5 && n < 300; i++) {
            text[n] = (int32_t)(random_next(&seed) % 4);
            ngram_append(g, &text[n++], 1);
        }
        assert_int_equal(ngram_len(g), n);
        proposal_check(g, text, n, NULL, 0);
    }
    ngram_truncate(g, 1000); // beyond the end: nothing
    assert_int_equal(ngram_len(g), n);
    ngram_free(g);
}

// A full drafter knows the newer half and counts on.
static void test_forget(void **state) {
    (void)state;
    uint64_t seed = 5;
    struct ngram *g = ngram_make(64);
    int32_t text[1000];
    int from = 0;
    mem_freeze(true);
    for (int n = 0; n < 1000; n++) {
        if (n - from == 64) from = n - 32;
        text[n] = (int32_t)(random_next(&seed) % 3);
        ngram_append(g, &text[n], 1);
        assert_int_equal(ngram_len(g), n + 1);
        proposal_check(g, text + from, n + 1 - from, NULL, 0);
    }
    ngram_truncate(g, 990);
    proposal_check(g, text + from, 990 - from, NULL, 0);
    ngram_truncate(g, 10); // forgotten
    mem_freeze(false);
    assert_int_equal(ngram_len(g), 10);
    assert_int_equal(ngram_match_len(g), 0);
    ngram_append(g, text, 20);
    proposal_check(g, text, 20, NULL, 0);
    assert_int_equal(ngram_len(g), 30);
    ngram_free(g);
}

// A text that loops is proposed for as long as one likes.
static void test_loop(void **state) {
    (void)state;
    struct ngram *g = ngram_make(100);
    int32_t out[16];
    for (int i = 0; i < 12; i++) ngram_append(g, &(int32_t){665 + i % 8}, 1);
    assert_int_equal(ngram_match_len(g), 4);
    assert_int_equal(ngram_propose(g, NULL, 0, 3, out, 16), 16);
    for (int i = 0; i < 16; i++) assert_int_equal(out[i], 665 + (12 + i) % 8);
    assert_int_equal(ngram_propose(g, NULL, 0, 5, out, 16), 0);
    ngram_free(g);
}

static void test_extend(void **state) {
    (void)state;
    struct ngram *g = ngram_make(100);
    struct token_tree t;
    struct tern_err err = {0};
    const int32_t text[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 2, 3, 30, 31, 32, 40, 1};
    ngram_append(g, text, ARRAY_LEN(text));
    token_tree_init(&t, 1); // the text's newest token, which is in the text already
    int a = token_tree_add(&t, 0, 2, -1), b = token_tree_add(&t, 0, 20, -2);
    int c = token_tree_add(&t, a, 3, -1.5f), d = token_tree_add(&t, b, 2, -1.2f), e = token_tree_add(&t, b, 99, -9);
    assert_int_equal(ngram_extend(g, &t, 2, 3, 10), 4);
    assert_int_equal(t.n, 10);
    // d, the better score, goes on first: 20 2 → 3 30 31. Then c: 1 2 3 → 4, and the tree is full. e matches nothing.
    const int32_t want[] = {3, 30, 31, 4};
    for (int i = 0; i < 4; i++) assert_int_equal(t.nodes[6 + i].token, want[i]);
    assert_int_equal(t.nodes[6].parent, d);
    assert_int_equal(t.nodes[9].parent, c);
    assert_int_equal(token_tree_check(&t, 100, &err), TERN_OK);
    (void)e;
    ngram_free(g);
}

// Texts that are hard for automata stay within the sizes allotted (the sanitizer watches) and within time.
static void test_bounds(void **state) {
    (void)state;
    enum { N = 30000 };
    struct ngram *g = ngram_make(N);
    static int32_t text[N];
    uint64_t seed = 1;
    for (int kind = 0; kind < 5; kind++) {
        for (int i = 0; i < N; i++) {
            switch (kind) {
            case 0: text[i] = 7; break;                                     // one class a token
            case 1: text[i] = i < N / 2 ? 1 : 2; break;                     // a^n b^n
            case 2: text[i] = i % 2 == 0 || i + 1 == N ? 1 : 2; break;      // most states
            case 3: text[i] = (int32_t)(random_next(&seed) % 20000); break; // wide root
            default: text[i] = __builtin_popcount((unsigned)i) % 2; break;  // Thue-Morse
            }
        }
        ngram_clear(g);
        uint64_t begin = clock_ns();
        ngram_append(g, text, N);
        assert_int_equal(ngram_len(g), N);
        assert_true(clock_ns() - begin < 2000000000u); // 1 to 2 ms alone; a quadratic automaton takes minutes
    }
    ngram_free(g);
}

static void test_bad_input(void **state) {
    (void)state;
    struct ngram *g = NULL;
    struct tern_err err = {0};
    assert_int_equal(ngram_create(&g, 1, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(ngram_create(&g, NGRAM_TOKENS_MAX + 1, &err), TERN_INVALID_ARGUMENT);
    for (uint64_t i = 1; i <= 5; i++) {
        mem_fail_at(i, false);
        assert_int_equal(ngram_create(&g, 100, &err), TERN_NO_MEMORY);
        mem_fail_at(0, false);
    }
    ngram_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),    cmocka_unit_test(test_cut),    cmocka_unit_test(test_forget),
        cmocka_unit_test(test_loop),      cmocka_unit_test(test_extend), cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_bad_input),
    };
    return cmocka_run_group_tests_name("ngram", tests, NULL, NULL);
}
