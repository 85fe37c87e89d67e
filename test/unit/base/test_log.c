// Log lines as they reach standard error, levels, and the text of the progress line.
#define _GNU_SOURCE 1
#include "base_test.h"
#include "base/base_int.h"
#include <unistd.h>

// Runs fn with standard error into a pipe and returns what it wrote.
static const char *captured(void (*fn)(void)) {
    static char out[8192];
    int fds[2], kept = dup(2);
    if (pipe(fds) != 0) return "no pipe";
    dup2(fds[1], 2);
    fn();
    dup2(kept, 2);
    close(kept);
    close(fds[1]);
    ssize_t n = read(fds[0], out, sizeof(out) - 1);
    close(fds[0]);
    out[n > 0 ? n : 0] = 0;
    return out;
}

static void put_all(void) {
    log_error("one\n%s", "\x1b[2J");
    log_warn("two %d", 2);
    log_info("three");
    log_debug("four");
}

static void test_levels(void **state) {
    (void)state;
    setenv("TERN_LOG", "info", 1);
    assert_string_equal(captured(put_all), "tern: error: one\\x0a\\x1b[2J\ntern: warning: two 2\ntern: three\n");
    assert_int_equal(log_level_get(), LOG_INFO);
    log_level_set(LOG_ERROR);
    assert_string_equal(captured(put_all), "tern: error: one\\x0a\\x1b[2J\n");
    log_level_set(LOG_DEBUG);
    assert_contains(captured(put_all), "tern: debug: four\n");
}

static void put_long(void) { log_error("%05000d", 1); }
static void test_long(void **state) {
    (void)state;
    const char *line = captured(put_long);
    assert_true(strlen(line) < 4096);
    assert_true(str_ends(str_from(line), STR("0\xe2\x80\xa6\n")));
}

static void draw(void) {
    struct progress p;
    progress_begin(&p, "packing", 100, false);
    progress_update(&p, 10);
    p.start_ns -= 400000000u; // as if begun 400 ms ago
    p.drawn_ns -= 400000000u;
    progress_update(&p, 50);
    progress_end(&p);
}
static void test_progress_no_terminal(void **state) {
    (void)state;
    assert_string_equal(captured(draw), "");
}

static void test_progress_line(void **state) {
    (void)state;
    char out[200];
    struct progress p = {.what = "prefill", .total = 200, .start_ns = 1000};
    progress_line(&p, 50, 1000 + 2000000000u, 100, out, sizeof(out));
    assert_string_equal(out, "prefill  25%  50 of 200  6 s left");
    progress_line(&p, 200, 1000 + 2000000000u, 100, out, sizeof(out));
    assert_string_equal(out, "prefill 100%  200 of 200");
    p = (struct progress){.what = "pulling", .total = 4u << 20, .is_bytes = true, .n_before = 2u << 20};
    progress_line(&p, 3u << 20, 2000000000u, 100, out, sizeof(out));
    assert_string_equal(out, "pulling  75%  3.0 MiB of 4.0 MiB  512.0 KiB/s  2 s left");
    p = (struct progress){.what = "packing", .total = 3u << 20, .is_bytes = true};
    progress_line(&p, 1, 1000, 100, out, sizeof(out));
    assert_string_equal(out, "packing   0%  1 B of 3.0 MiB");
    p.total = 0;
    progress_line(&p, 2048, 1000, 100, out, sizeof(out));
    assert_string_equal(out, "packing 2.0 KiB");
    assert_int_equal(progress_line(&p, 2048, 1000, 8, out, sizeof(out)), 7);
    assert_string_equal(out, "packing");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_progress_no_terminal),
        cmocka_unit_test(test_progress_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
