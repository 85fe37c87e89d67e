// The file of earlier messages: what is put in comes out, whatever a message holds; nobody else reads it; it stays
// small; lines that somebody spoilt are passed over, and a file that is not to be written says so.
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "term/term_int.h"

static char folder[256], path[300];

static int setup(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "%s/tern_history_XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/state/history", folder); // its folder is not there yet
    return 0;
}
static int teardown(void **state) {
    (void)state;
    char state_folder[300];
    snprintf(state_folder, sizeof state_folder, "%s/state", folder);
    unlink(path);
    rmdir(state_folder);
    return rmdir(folder);
}

struct seen {
    int n;
    char first[64], last[64];
};
static void see(void *arg, struct str line) {
    struct seen *s = arg;
    char *to = s->n++ == 0 ? s->first : s->last;
    snprintf(to, sizeof s->last, "%.*s", (int)line.len, line.data);
}
static struct seen load(void) {
    struct seen s = {0};
    struct tern_err err = {0};
    if (history_load(path, see, &s, &err) != TERN_OK) fail_msg("%s", err.message);
    return s;
}
static void add(const char *text) {
    struct tern_err err = {0};
    if (history_add(path, str_from(text), &err) != TERN_OK) fail_msg("%s", err.message);
}
static int mode_of(void) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (int)(st.st_mode & 0777);
}

static void test_round(void **state) {
    (void)state;
    assert_int_equal(load().n, 0);
    add("one\ntwo \"three\" \\ \t");
    add("gr\xc3\xbc\xc3\x9f");
    struct seen s = load();
    assert_int_equal(s.n, 2);
    assert_string_equal(s.first, "one\ntwo \"three\" \\ \t");
    assert_string_equal(s.last, "gr\xc3\xbc\xc3\x9f");
    assert_int_equal(mode_of(), 0600);
    assert_int_equal(chmod(path, 0644), 0);
    add("more");
    assert_int_equal(mode_of(), 0600);
}

static void test_spoilt(void **state) {
    (void)state;
    static const char text[] = "\"good\"\nno JSON\n\n[\"a\"]\n\"half\n\"\"\n\"last\"";
    assert_int_equal(file_write_atomic(path, text, sizeof text - 1, NULL), TERN_OK);
    struct seen s = load();
    assert_int_equal(s.n, 2);
    assert_string_equal(s.first, "good");
    assert_string_equal(s.last, "last");
}

static void test_bounded(void **state) {
    (void)state;
    struct buf text;
    buf_init(&text, 1u << 20);
    for (int i = 0; i < 2 * TERM_HISTORY_MAX; i++) buf_putf(&text, "\"m%d\"\n", i);
    assert_int_equal(file_write_atomic(path, text.data, text.len, NULL), TERN_OK);
    struct seen s = load();
    assert_int_equal(s.n, TERM_HISTORY_MAX);
    char want[16];
    snprintf(want, sizeof want, "m%d", TERM_HISTORY_MAX);
    assert_string_equal(s.first, want);
    struct os_stat before, after;
    assert_true(os_stat_get(&before, path));
    assert_int_equal(before.size, text.len); // not yet worth writing anew
    add("the last");
    assert_string_equal(load().last, "the last");
    assert_true(os_stat_get(&after, path));
    assert_true(after.size < before.size * 2 / 3);
    assert_int_equal(load().n, TERM_HISTORY_MAX);
    assert_int_equal(mode_of(), 0600);
    buf_release(&text);
}

static void test_refused(void **state) {
    (void)state;
    struct tern_err err = {0};
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/null", path), 0); // somebody else's idea of where it goes
    assert_int_not_equal(history_add(path, STR("x"), &err), TERN_OK);
    assert_non_null(strstr(err.message, "history"));
    assert_non_null(strstr(err.message, path));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round), cmocka_unit_test(test_spoilt),
                                       cmocka_unit_test(test_bounded), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests_name("term_history", tests, setup, teardown);
}
