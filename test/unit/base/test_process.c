// Child processes: output, exit codes, time limits, groups; processor time; appending to a file.
#define _GNU_SOURCE 1
#include "base_test.h"
#include <signal.h>
#include <unistd.h>

static char root[256];

static const char *at(const char *name) {
    static char path[4][512];
    static int i;
    i = (i + 1) % 4;
    snprintf(path[i], sizeof(path[i]), "%s/%s", root, name);
    return path[i];
}

static void check_content(const char *path, const char *expected) {
    struct buf b;
    buf_init(&b, 1 << 20);
    assert_ok(file_read_all(&b, path, &test_err));
    assert_string_equal(b.data ? b.data : "", expected);
    buf_release(&b);
}

static struct child_result run(const char *script, int64_t timeout_ms) {
    const char *const argv[] = {"sh", "-c", script, NULL};
    struct child_options o = {.argv = argv, .out_path = at("out"), .err_path = at("err"), .dir = root};
    struct child_result r;
    struct os_child c;
    assert_ok(child_open(&c, &o, &test_err));
    assert_ok(child_wait(&c, timeout_ms, &r, &test_err));
    assert_int_equal(c.pid, 0);
    return r;
}

static void test_output_and_code(void **state) {
    (void)state;
    struct child_result r = run("echo one; echo two >&2; cat; exit 7", 20000);
    assert_false(r.timed_out);
    assert_int_equal(r.code, 7);
    assert_true(r.rss_max > 0 && r.wall_s > 0);
    run("echo three; pwd >here", 20000); // appends
    check_content(at("out"), "one\nthree\n");
    check_content(at("err"), "two\n");
    struct os_stat st;
    assert_true(os_stat_get(&st, at("here"))); // it ran in its folder
    r = run("kill -9 $$", 20000);
    assert_int_equal(r.code, 128 + SIGKILL);
}

static void test_does_not_start(void **state) {
    (void)state;
    const char *const argv[] = {"/nowhere/to/be-found", NULL};
    struct child_options o = {.argv = argv};
    struct os_child c;
    struct tern_err err;
    assert_int_equal(child_open(&c, &o, &err), TERN_NOT_FOUND);
    assert_contains(err.message, "cannot start '/nowhere/to/be-found'");
    const char *const folder[] = {root, NULL};
    o.argv = folder;
    assert_true(child_open(&c, &o, &err) != TERN_OK);
    child_close(&c); // nothing there
    struct child_result r;
    assert_int_equal(child_wait(&c, 1, &r, &err), TERN_INVALID_ARGUMENT);
}

// The whole group ends, not only its leader.
static void test_time_limit(void **state) {
    (void)state;
    struct child_result r = run("sleep 60 & echo $! >pid; sleep 60", 700);
    assert_true(r.timed_out);
    assert_int_equal(r.code, 128 + SIGKILL);
    assert_true(r.wall_s < 30);
    struct buf b;
    int64_t pid = 0;
    buf_init(&b, 64);
    assert_ok(file_read_all(&b, at("pid"), &test_err));
    assert_true(str_to_i64(str_trim(buf_str(&b)), &pid));
    buf_release(&b);
    bool gone = false; // init reaps it
    for (int i = 0; i < 200 && !gone; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        struct buf stat;
        buf_init(&stat, 4096);
        gone = kill((pid_t)pid, 0) != 0;
        if (!gone && file_read_all(&stat, path, NULL) == TERN_OK) gone = strstr(stat.data, ") Z") != NULL;
        buf_release(&stat);
        if (!gone) clock_sleep_ns(10000000);
    }
    assert_true(gone);
}

static void spin(void *arg) {
    volatile uint64_t *n = arg;
    for (;;) *n += 1;
}

static void test_fork_and_busy(void **state) {
    (void)state;
    static uint64_t n;
    struct os_child c;
    struct child_result r;
    double before = os_cpu_self(), all_before = 0, all_after = 0;
    bool has_busy = os_cpu_busy(&all_before);
    assert_ok(child_fork(&c, spin, &n, &test_err));
    assert_ok(child_wait(&c, 400, &r, &test_err));
    assert_true(r.timed_out && r.cpu_s > 0.02);
    assert_int_equal(n, 0); // its memory is its own
    assert_true(os_cpu_self() - before >= r.cpu_s * 0.9);
    if (has_busy) {
        assert_true(os_cpu_busy(&all_after));
        assert_true(all_after - all_before > r.cpu_s * 0.5 - 0.02);
    }
    assert_ok(child_fork(&c, spin, &n, &test_err));
    child_signal_kill(&c);
    child_close(&c);
    child_close(&c); // closed twice does nothing
}

static void test_append(void **state) {
    (void)state;
    struct tern_err err;
    assert_ok(file_append(at("lines"), "one\n", 4, &test_err));
    assert_ok(file_append(at("lines"), "two\n", 4, &test_err));
    check_content(at("lines"), "one\ntwo\n");
    assert_int_equal(file_append(at("no/such/folder"), "x", 1, &err), TERN_NOT_FOUND);
    assert_contains(err.message, "no/such/folder");
}

static void test_exe_path(void **state) {
    (void)state;
    char path[4096], small[3];
    assert_contains(os_exe_path(path, sizeof path), "test_process");
    assert_string_equal(os_exe_path(small, sizeof small), "");
}

static void test_talk(void **state) {
    (void)state;
    const char *const argv[] = {"sh", "-c", "read a; echo got $a; head -c 100000 /dev/zero; cat; exit 3", NULL};
    int fd = -1;
    struct child_options o = {.argv = argv, .err_path = at("err"), .talk = &fd};
    struct os_child c;
    struct child_result r;
    struct tern_err err;
    char line[64], byte = 'x';
    static char zeros[100000];
    memset(zeros, 1, sizeof zeros);
    assert_ok(child_open(&c, &o, &test_err));
    assert_ok(talk_write(fd, "a word\n", 7, 20000, &test_err));
    assert_ok(talk_read_line(fd, line, sizeof line, 20000, &test_err));
    assert_string_equal(line, "got a word");
    assert_ok(talk_read(fd, zeros, sizeof zeros, 20000, &test_err));
    for (size_t i = 0; i < sizeof zeros; i++) assert_int_equal(zeros[i], 0);
    assert_int_equal(talk_read(fd, &byte, 1, 50, &err), TERN_IO); // cat waits for us
    assert_contains(err.message, "said nothing for 50 ms");
    assert_ok(talk_write(fd, "12345\n", 6, 20000, &test_err));
    assert_int_equal(talk_read_line(fd, line, 3, 20000, &err), TERN_INVALID_ARGUMENT);
    child_signal_kill(&c);
    assert_ok(child_wait(&c, 20000, &r, &test_err));
    assert_int_equal(r.code, 128 + SIGKILL);
    enum tern_status status = TERN_OK;
    for (int i = 0; i < 5000 && status == TERN_OK; i++) { // its own child may be dying still
        status = talk_write(fd, "x", 1, 20000, &err);
        clock_sleep_ns(1000000);
    }
    assert_int_equal(status, TERN_IO); // and no SIGPIPE
    assert_contains(err.message, "has ended");
    talk_close(fd);
    const char *const absent[] = {"/nowhere/to/be-found", NULL};
    o.argv = absent;
    assert_int_equal(child_open(&c, &o, &err), TERN_NOT_FOUND);
    assert_int_equal(fd, -1);
}

int main(void) {
    snprintf(root, sizeof(root), "/tmp/tern-process-XXXXXX");
    if (!mkdtemp(root)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output_and_code),
        cmocka_unit_test(test_does_not_start),
        cmocka_unit_test(test_time_limit),
        cmocka_unit_test(test_fork_and_busy),
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_exe_path),
        cmocka_unit_test(test_talk),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    const char *const names[] = {"out", "err", "here", "pid", "lines"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) os_remove(at(names[i]), NULL);
    rmdir(root);
    return rc;
}
