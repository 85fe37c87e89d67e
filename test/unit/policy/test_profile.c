// Profiles of costs as text: what is written is read back, whatever is wrong is refused by name.
#include "base/base.h"
#include "policy/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static struct profile example(void) {
    struct profile p = {.model = "0123", .drafter = "", .unit = "cpu", .isa = "avx2", .numerics = "int8/kv-f16"};
    p.threads = 2;
    p.made_wall_s = 1796036400;
    p.costs = (struct width_costs){.n_rows = 3,
                                   .n_ctx = 2,
                                   .rows = {1, 9, 17},
                                   .ctx = {0, 512},
                                   .verify = {{455123, 1500321, 2800555}, {470000, 1600000, 2900000}},
                                   .draft = {650001, 660000},
                                   .draft_node = 1234.5f,
                                   .catch_up = 4000,
                                   .host = 0,
                                   .host_plain = 17};
    return p;
}

static void test_round_trip(void **state) {
    (void)state;
    struct profile p = example(), q;
    struct tern_err err = {0};
    struct buf b;
    buf_init(&b, PROFILE_BYTES_MAX);
    assert_true(profile_print(&p, &b));
    if (profile_parse(&q, buf_str(&b), &err) != TERN_OK) fail_msg("%s\n%s", err.message, b.data);
    assert_true(profile_serves(&q, &p));
    assert_true(q.made_wall_s == p.made_wall_s);
    assert_memory_equal(&q.costs, &p.costs, sizeof p.costs);
    buf_release(&b);
    char one[PROFILE_FILE_NAME], two[PROFILE_FILE_NAME];
    profile_file_name(&p, one);
    profile_file_name(&q, two);
    assert_string_equal(one, two);
    q.threads = 1;
    assert_false(profile_serves(&q, &p));
    profile_file_name(&q, two);
    assert_string_not_equal(one, two);
}

#define HEAD "{\"format\": \"tern-profile\", \"version\": 1, \"model\": \"m\", \"threads\": 2, \"curve\": "
#define CURVE "{\"rows\": [1, 4], \"ctx\": [0], \"verify_us\": [[100, 150]], \"draft_us\": [20]}"
static const struct {
    const char *text, *word;
} wrong[] = {
    {"", "byte"},
    {"[]", "a profile"},
    {"{}", "tern-profile"},
    {"{\"format\": \"other\", \"version\": 1}", "tern-profile"},
    {"{\"format\": \"tern-profile\", \"version\": 2, \"curve\": " CURVE "}", "version 2"},
    {"{\"format\": \"tern-profile\", \"version\": 1}", "curve"},
    {"{\"format\": \"tern-profile\", \"version\": 1, \"version\": 1}", "version"},
    {HEAD "3}", "curve"},
    {HEAD "{\"rows\": [1, 4], \"ctx\": [0], \"verify_us\": [[100]], \"draft_us\": [20]}}", "2 widths"},
    {HEAD "{\"rows\": [1, 4], \"ctx\": [0], \"verify_us\": [[100, 150]], \"draft_us\": []}}", "0 draft"},
    {HEAD "{\"rows\": [2, 4], \"ctx\": [0], \"verify_us\": [[100, 150]], \"draft_us\": [20]}}", "first width"},
    {HEAD "{\"rows\": [1, 1], \"ctx\": [0], \"verify_us\": [[100, 150]], \"draft_us\": [20]}}", "ascend"},
    {HEAD "{\"rows\": [1, 4], \"ctx\": [0], \"verify_us\": [[0, 150]], \"draft_us\": [20]}}", "above 0"},
    {HEAD "{\"rows\": [1, 4], \"ctx\": [0], \"verify_us\": [[1e300, 150]], \"draft_us\": [20]}}", "verify_us"},
    {HEAD "{\"rows\": [1, 4], \"ctx\": [0], \"verify_us\": [[100, 150]], \"draft_us\": [-1]}}", "draft_us"},
    {HEAD "{\"rows\": [1, 1.5], \"ctx\": [0]}}", "whole number"},
    {HEAD "{\"rows\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25]}}", "more than 24"},
    {HEAD "{\"ctx\": [0,1,2,3,4,5,6,7,8]}}", "more than 8"},
    {HEAD "{\"verify_us\": [[1],[1],[1],[1],[1],[1],[1],[1],[1]]}}", "at most 8"},
    {HEAD "{\"verify_us\": [[1],[1,2]]}}", "lists of"},
    {HEAD CURVE "} x", "byte"},
    {HEAD CURVE ", \"threads\": 99999999}", "threads"},
    {HEAD CURVE ", \"unit\": \"a name that is far longer than the name of any unit will ever be\"}", "unit"},
};

static void test_refused(void **state) {
    (void)state;
    struct profile p;
    struct tern_err err;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        err = (struct tern_err){0};
        if (profile_parse(&p, str_from(wrong[i].text), &err) == TERN_OK) fail_msg("taken: %s", wrong[i].text);
        if (!strstr(err.message, wrong[i].word))
            fail_msg("%s\nis told as '%s', without '%s'", wrong[i].text, err.message, wrong[i].word);
    }
    assert_int_equal(profile_parse(&p, STR(HEAD CURVE ", \"later\": {\"a\": [1]}}"), &err), TERN_OK);
    assert_int_equal(p.costs.n_rows, 2);
    assert_true(p.costs.verify[0][1] == 150000.0f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests_name("profile", tests, NULL, NULL);
}
