// Counts of lengths: what steps they tell, and their text.
#include "../base/base_test.h"
#include "policy/policy.h"

static void test_steps(void **state) {
    (void)state;
    struct lengths l = {{0}, {0}}, more = {{0}, {0}};
    uint64_t steps[LENGTHS_BINS];
    lengths_add(&l, 10, 20);        // ends in the first bin
    lengths_add(&l, 40, 60);        // in the fourth
    lengths_add(&more, 1, 1 << 30); // beyond the last
    lengths_merge(&l, &more);
    assert_int_equal(lengths_requests(&l), 3);
    lengths_steps(&l, steps);
    assert_int_equal(steps[0], 3);
    assert_int_equal(steps[1], 2);
    assert_int_equal(steps[3], 2);
    assert_int_equal(steps[4], 1);
    assert_int_equal(steps[LENGTHS_BINS - 1], 1);
}

static void test_text(void **state) {
    (void)state;
    struct lengths l = {{0}, {0}}, back;
    struct buf text;
    for (int i = 0; i < 3000; i++) lengths_add(&l, (i * 37) % 16000, i % 900);
    buf_init(&text, LENGTHS_BYTES_MAX);
    assert_true(lengths_print(&l, &text));
    assert_ok(lengths_parse(&back, buf_str(&text), &test_err));
    assert_memory_equal(&l, &back, sizeof l);
    buf_release(&text);
    static const struct {
        const char *text;
        enum tern_status status;
    } cases[] = {
        {"{\"format\":\"tern-lengths\",\"version\":1,\"prompts\":[],\"totals\":[[511,3]],\"later\":{}}", TERN_OK},
        {"{\"format\":\"tern-lengths\",\"version\":2}", TERN_UNSUPPORTED},
        {"{\"format\":\"tern-profile\",\"version\":1}", TERN_BAD_FORMAT},
        {"{\"format\":\"tern-lengths\",\"version\":1,\"totals\":[[512,3]]}", TERN_BAD_FORMAT},
        {"{\"format\":\"tern-lengths\",\"version\":1,\"totals\":[[1,-3]]}", TERN_BAD_FORMAT},
        {"{\"format\":\"tern-lengths\",\"version\":1,\"totals\":[[1,3,4]]}", TERN_BAD_FORMAT},
        {"{\"format\":\"tern-lengths\",\"version\":1,\"totals\":[7]}", TERN_BAD_FORMAT},
        {"{\"format\":\"tern-lengths\",\"version\":1,\"totals\":[[1,3]", TERN_BAD_FORMAT},
        {"", TERN_BAD_FORMAT},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        enum tern_status status = lengths_parse(&back, str_from(cases[i].text), &test_err);
        if (status != cases[i].status) fail_msg("case %zu: status %d", i, (int)status);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
