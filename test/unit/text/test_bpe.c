// Merging: against the plain definition on random rules, and in n log n steps.
#include "tokenizer_fixture.h"

// The definition: find the pair of the lowest rank, the leftmost of equals; merge it; again.
static size_t merge_plainly(const struct bpe *b, int32_t *ids, size_t n) {
    for (;;) {
        uint32_t best = BPE_RANK_NONE;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            uint32_t rank = bpe_rank(b, ids[i], ids[i + 1]);
            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == BPE_RANK_NONE) return n;
        ids[at] = b->result[best];
        n--;
        memmove(ids + at + 1, ids + at + 2, (n - at - 1) * sizeof *ids);
    }
}

// Random rules over a few letters: new symbols are made of older ones; the ranks are shuffled, so that a merge may
// make a pair of a lower rank than its own.
static int rules_make(struct bpe *b, uint64_t *x, int n_letters, int n_rules, bool shuffled) {
    uint32_t order[200];
    for (int i = 0; i < n_rules; i++) order[i] = (uint32_t)i;
    for (int i = n_rules - 1; i > 0 && shuffled; i--) {
        int j = (int)(random_next(x) % (uint64_t)(i + 1));
        uint32_t old = order[i];
        order[i] = order[j];
        order[j] = old;
    }
    assert_int_equal(bpe_init(b, n_rules, NULL), TERN_OK);
    int n_symbols = n_letters;
    for (int i = 0; i < n_rules; i++) {
        uint32_t old;
        int32_t left = (int32_t)(random_next(x) % (uint64_t)n_symbols);
        int32_t right = (int32_t)(random_next(x) % (uint64_t)n_symbols);
        if (bpe_add(b, left, right, n_symbols, order[i], &old)) n_symbols++;
    }
    return n_symbols;
}

static void test_same_as_plain(void **state) {
    (void)state;
    uint64_t x = 0x9e3779b97f4a7c15u;
    struct bpe_work w = {0};
    for (int round = 0; round < 400; round++) {
        struct bpe b;
        int n_letters = 1 + (int)(random_next(&x) % 4);
        rules_make(&b, &x, n_letters, 1 + (int)(random_next(&x) % 100), round % 2);
        for (int piece = 0; piece < 6; piece++) {
            static int32_t expected[600];
            size_t n = 1 + random_next(&x) % (piece < 3 ? 60 : 600);
            int32_t *ids = bpe_work_reserve(&w, n);
            assert_non_null(ids);
            for (size_t i = 0; i < n; i++) {
                ids[i] = expected[i] = piece % 3 ? (int32_t)(random_next(&x) % (uint64_t)n_letters) : 0;
            }
            size_t n_expected = merge_plainly(&b, expected, n);
            assert_int_equal(bpe_merge(&b, &w, n), (int64_t)n_expected);
            assert_memory_equal(w.ids, expected, n_expected * sizeof *expected);
        }
        bpe_release(&b);
    }
    bpe_work_release(&w);
}

static void test_rules(void **state) {
    (void)state;
    struct bpe b;
    uint32_t old = 99;
    assert_int_equal(bpe_init(&b, 2, NULL), TERN_OK);
    assert_int_equal(bpe_rank(&b, 0, 0), BPE_RANK_NONE);
    assert_true(bpe_add(&b, TOKENIZER_VOCAB_MAX - 1, TOKENIZER_VOCAB_MAX - 1, 5, 1, &old));
    assert_true(bpe_add(&b, 0, 0, 6, 0, &old));
    assert_false(bpe_add(&b, TOKENIZER_VOCAB_MAX - 1, TOKENIZER_VOCAB_MAX - 1, 7, 0, &old));
    assert_int_equal(old, 1);
    assert_int_equal(bpe_rank(&b, TOKENIZER_VOCAB_MAX - 1, TOKENIZER_VOCAB_MAX - 1), 1);
    assert_int_equal(bpe_rank(&b, 0, 0), 0);
    bpe_release(&b);
    struct tern_err err;
    assert_int_equal(bpe_init(&b, (int)BPE_MERGES_MAX + 1, &err), TERN_LIMIT);
}

static void test_queue_sorts(void **state) {
    (void)state;
    uint64_t x = 7;
    struct bpe_queue q = {0};
    static uint64_t waiting[5000];
    int n = 0;
    for (int step = 0; step < 20000; step++) {
        bool push = n < 5000 && (n == 0 || random_next(&x) % 5 < 3);
        if (push) {
            uint64_t key = (random_next(&x) % 40) << 32 | (step / 7 + random_next(&x) % 20);
            assert_true(bpe_queue_push(&q, key));
            waiting[n++] = key;
            continue;
        }
        int least = 0;
        for (int i = 1; i < n; i++) {
            if (waiting[i] < waiting[least]) least = i;
        }
        assert_true(bpe_queue_pop(&q) == waiting[least]);
        waiting[least] = waiting[--n];
    }
    while (n-- > 0) assert_true(bpe_queue_pop(&q) != QUEUE_NONE);
    assert_true(bpe_queue_pop(&q) == QUEUE_NONE);
    bpe_queue_release(&q);
}

static uint64_t steps_of(const struct tokenizer *t, struct str unit, size_t n) {
    char *text = malloc(n + unit.len);
    struct id_list ids = {0};
    uint64_t steps = 0;
    struct encode_options o = {.parse_special = true};
    assert_non_null(text);
    for (size_t i = 0; i < n; i += unit.len) memcpy(text + i, unit.data, unit.len);
    assert_int_equal(tokenizer_encode_counted(t, &ids, (struct str){text, n}, &o, &steps, NULL), TERN_OK);
    id_list_release(&ids);
    free(text);
    return steps;
}

// Counted, not timed: a text twice as long takes at most 2.2 times the steps, and few steps per byte.
static void test_linear(void **state) {
    (void)state;
    struct tokenizer *t = pico_tokenizer();
    const struct str units[] = {STR("a"),          STR(" "),    STR("_"),   STR("7"),           STR("\xcc\x81"),
                                STR("\n"),         STR("\r\n"), STR("x  "), STR("the quick "),  STR("\xff"),
                                STR("abcdefghij"), STR("'"),    STR("\t"),  STR("<|im_start|"), STR("<|")};
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        size_t n = (128u << 10) / units[i].len * units[i].len;
        uint64_t once = steps_of(t, units[i], n), twice = steps_of(t, units[i], 2 * n);
        if (twice * 10 > once * 22)
            fail_msg("unit %zu: %llu steps, then %llu", i, (unsigned long long)once, (unsigned long long)twice);
        assert_true(once < 40 * n);
    }
    tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_plain),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_queue_sorts),
        cmocka_unit_test(test_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
