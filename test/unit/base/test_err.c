// Statuses and the error object: formatting, escaping, cutting, prefixes, errno.
#define _GNU_SOURCE 1
#include "base_test.h"
#include "abort_test.h"
#include <errno.h>

static void test_status_text(void **state) {
    (void)state;
    assert_string_equal(tern_status_text(TERN_OK), "ok");
    assert_string_equal(tern_status_text(TERN_NO_SPACE), "no space left on the device");
    assert_string_equal(tern_status_text((enum tern_status)77), "unknown status");
    assert_int_equal(TERN_BAD_FORMAT, -2);
}

static void test_set(void **state) {
    (void)state;
    struct tern_err err;
    memset(&err, 0xaa, sizeof(err));
    assert_int_equal(err_set(&err, TERN_LIMIT, "%d of %s", 7, "x"), TERN_LIMIT);
    assert_int_equal(err.code, TERN_LIMIT);
    assert_int_equal(err.pos, -1);
    assert_string_equal(err.message, "7 of x");
    assert_int_equal(err_set_at(&err, TERN_BAD_FORMAT, 12, "here"), TERN_BAD_FORMAT);
    assert_int_equal(err.pos, 12);
    assert_int_equal(err_set(NULL, TERN_IO, "nobody listens"), TERN_IO);
    assert_int_equal(err_set_at(NULL, TERN_IO, 1, "nobody listens"), TERN_IO);
}

static void test_escaped(void **state) {
    (void)state;
    struct tern_err err;
    err_set(&err, TERN_IO, "a\n\x1b[31m\x7f\xc2\x9b\xff|\xc3\xa4");
    assert_string_equal(err.message, "a\\x0a\\x1b[31m\\x7f\\xc2\\x9b\\xff|\xc3\xa4");
}

// A message of every length around the cut stays terminated, whole characters, and ends in the ellipsis when cut.
static void test_cut(void **state) {
    (void)state;
    char text[4 * TERN_ERR_MESSAGE_MAX];
    for (size_t n = TERN_ERR_MESSAGE_MAX - 8; n < sizeof(text) - 4; n++) {
        size_t len = 0;
        text[len++] = 'x';
        while (len + 3 <= n) {
            memcpy(text + len, "\xe2\x82\xac", 3);
            len += 3;
        }
        while (len < n) text[len++] = 'y';
        text[len] = 0;
        struct tern_err err;
        err_set(&err, TERN_IO, "%s", text);
        struct str m = str_from(err.message);
        assert_true(utf8_valid(m, NULL));
        assert_true(m.len < TERN_ERR_MESSAGE_MAX);
        if (n < TERN_ERR_MESSAGE_MAX) {
            assert_string_equal(err.message, text);
        } else {
            assert_true(str_ends(m, STR("\xe2\x80\xa6")));
            assert_true(m.len >= TERN_ERR_MESSAGE_MAX - 8);
        }
    }
}

static void test_prefix(void **state) {
    (void)state;
    struct tern_err err;
    err_set_at(&err, TERN_BAD_FORMAT, 5, "no header");
    assert_int_equal(err_prefix(&err, "file %s", "m.gguf"), TERN_BAD_FORMAT);
    assert_string_equal(err.message, "file m.gguf: no header");
    assert_int_equal(err.pos, 5);
    assert_int_equal(err_set(&err, TERN_IO, "again: %s", err.message), TERN_IO); // the old message as an argument
    assert_string_equal(err.message, "again: file m.gguf: no header");
    assert_true(err_prefix(NULL, "x") != TERN_OK);
    for (int i = 0; i < 200; i++) err_prefix(&err, "longer %d", i);
    assert_true(strlen(err.message) < TERN_ERR_MESSAGE_MAX);
    assert_true(str_starts(str_from(err.message), STR("longer 199: longer 198: ")));
}

static void test_errno(void **state) {
    (void)state;
    struct tern_err err;
    assert_int_equal(err_set_errno(&err, ENOENT, "cannot open '%s'", "f"), TERN_NOT_FOUND);
    assert_string_equal(err.message, "cannot open 'f': No such file or directory");
    assert_int_equal(err_set_errno(&err, ENOSPC, "x"), TERN_NO_SPACE);
    assert_int_equal(err_set_errno(&err, ENOMEM, "x"), TERN_NO_MEMORY);
    assert_int_equal(err_set_errno(NULL, EIO, "x"), TERN_IO);
    assert_int_equal(err_set_errno(&err, EACCES, "x"), TERN_IO);
}

static void bug(void) { TERN_BUG("seen by a test: %d", 1); }
static void assertion(void) { TERN_ASSERT(hash_seed == NULL); }
static void nothing(void) { TERN_ASSERT(true); }

static void test_bug(void **state) {
    (void)state;
    assert_true(test_aborts(bug));
    assert_true(test_aborts(assertion));
    assert_false(test_aborts(nothing));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_text), cmocka_unit_test(test_set),    cmocka_unit_test(test_escaped),
        cmocka_unit_test(test_cut),         cmocka_unit_test(test_prefix), cmocka_unit_test(test_errno),
        cmocka_unit_test(test_bug),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
