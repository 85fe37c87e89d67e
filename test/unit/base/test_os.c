// Files, folders, locks, environment, clock: in a temporary folder of its own.
#define _GNU_SOURCE 1
#include "base_test.h"
#include "base/base_int.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

static bool count_entry(void *arg, const char *name, const struct os_stat *st) {
    (void)name, (void)st;
    return ++*(int *)arg, true;
}
static int entries(const char *path) {
    int n = 0;
    assert_ok(os_list(path, count_entry, &n, &test_err));
    return n;
}

static void test_map(void **state) {
    (void)state;
    struct os_map m;
    struct tern_err err;
    assert_ok(file_write_atomic(at("map"), "0123456789", 10, &test_err));
    assert_ok(map_open(&m, at("map"), &test_err));
    assert_int_equal(m.size, 10);
    assert_memory_equal(m.data, "0123456789", 10);
    map_prefetch(&m, 0, 10);
    map_prefetch(&m, 100, SIZE_MAX);
    map_drop(&m, 0, SIZE_MAX);
    map_drop(&m, SIZE_MAX, 1);
    assert_memory_equal(m.data, "0123456789", 10); // advice changes no byte
    char part[4] = "";
    assert_ok(map_read(&m, 7, part, 3, &test_err));
    assert_string_equal(part, "789");
    assert_int_equal(map_read(&m, 8, part, 3, &err), TERN_IO); // one byte too many
    assert_contains(err.message, "1 bytes are missing");
    map_close(&m);
    assert_ok(file_write_atomic(at("empty"), "", 0, &test_err));
    assert_ok(map_open(&m, at("empty"), &test_err));
    assert_true(m.data == NULL && m.size == 0);
    map_close(&m);
    map_close(&m); // closed twice does nothing
    assert_int_equal(map_open(&m, root, &err), TERN_INVALID_ARGUMENT);
    assert_contains(err.message, "is a folder");
    assert_int_equal(map_open(&m, at("absent"), &err), TERN_NOT_FOUND);
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    assert_int_equal(map_open(&m, at("pipe"), &err), TERN_INVALID_ARGUMENT); // and does not wait
    assert_contains(err.message, "is a pipe");
    assert_int_equal(map_open(&m, "/dev/null", &err), TERN_INVALID_ARGUMENT);
    unlink(at("pipe"));
}

// Dropping pages of a large map gives back memory, and prefetch and reads bring the same bytes again.
static void test_map_drop(void **state) {
    (void)state;
    size_t size = (size_t)32 << 20;
    char *data = mem_map(size);
    assert_non_null(data);
    memset(data, 'x', size);
    assert_ok(file_write_atomic(at("large"), data, size, &test_err));
    mem_unmap(data, size);
    struct os_map m;
    assert_ok(map_open(&m, at("large"), &test_err));
    uint64_t sum = 0;
    for (size_t i = 0; i < size; i += 512) sum += m.data[i];
    uint64_t with = os_rss();
    map_drop(&m, 0, size);
    uint64_t without = os_rss();
    assert_true(with > without + size / 2);
    for (size_t i = 0; i < size; i += 512) sum -= m.data[i];
    assert_int_equal(sum, 0);
    assert_true(os_rss_max() >= with);
    map_close(&m);
    assert_ok(os_remove(at("large"), &test_err));
}

static void test_read(void **state) {
    (void)state;
    struct tern_err err;
    struct buf b;
    assert_ok(file_write_atomic(at("text"), "hello", 5, &test_err));
    buf_init(&b, 4);
    assert_int_equal(file_read_all(&b, at("text"), &err), TERN_LIMIT);
    assert_contains(err.message, "larger than the limit of 4 bytes");
    buf_release(&b);
    buf_init(&b, 5); // exactly full
    assert_ok(file_read_all(&b, at("text"), &test_err));
    assert_string_equal(b.data, "hello");
    buf_release(&b);
    buf_init(&b, 100);
    assert_int_equal(file_read_all(&b, root, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(file_read_all(&b, at("absent"), &err), TERN_NOT_FOUND);
    assert_int_equal(b.len, 0);
    buf_puts(&b, "say ");
    assert_ok(file_read_all(&b, at("text"), &test_err)); // appends
    assert_string_equal(b.data, "say hello");
    buf_release(&b);
    buf_init(&b, 1 << 20);
    mem_fail_at(1, true);
    assert_int_equal(file_read_all(&b, at("text"), &err), TERN_NO_MEMORY);
    mem_fail_at(0, false);
    buf_release(&b);
}

static void test_read_stdin(void **state) {
    (void)state;
    int fds[2], kept = dup(0);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "from a pipe", 11), 11);
    close(fds[1]);
    dup2(fds[0], 0);
    close(fds[0]);
    struct buf b;
    buf_init(&b, 100);
    enum tern_status status = file_read_all(&b, "-", NULL);
    if (kept >= 0) {
        dup2(kept, 0);
        close(kept);
    }
    assert_int_equal(status, TERN_OK);
    assert_string_equal(b.data, "from a pipe");
    buf_release(&b);
}

// Whatever call fails, the old file or the new one is there, whole, and no third file.
static void test_write_atomic(void **state) {
    (void)state;
    assert_ok(os_mkdirs(at("atomic"), &test_err));
    const char *path = at("atomic/file");
    char kept[512];
    snprintf(kept, sizeof(kept), "%s", path);
    struct mem_stats before = mem_stats_get();
    for (uint64_t n = 1;; n++) {
        assert_ok(file_write_atomic(kept, "old", 3, &test_err));
        struct tern_err err = {0};
        os_fail_at(n, n % 2 ? ENOSPC : EIO);
        enum tern_status status = file_write_atomic(kept, "newer", 5, &err);
        os_fail_at(0, 0);
        assert_int_equal(entries(at("atomic")), 1);
        if (status == TERN_OK) {
            assert_true(n > 3); // write, fsync and rename at least were hit
            check_content(kept, "newer");
            break;
        }
        assert_int_equal(status, n % 2 ? TERN_NO_SPACE : TERN_IO);
        assert_true(strlen(err.message) > 0);
        check_content(kept, n <= 3 ? "old" : "newer"); // the fourth is the folder's sync, after the rename
    }
    struct stat st;
    assert_int_equal(stat(kept, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    struct tern_err err;
    assert_int_equal(file_write_atomic(at("no/such/folder"), "x", 1, &err), TERN_NOT_FOUND);
    for (uint64_t n = 1; n <= 3; n++) {
        mem_fail_at(n, false);
        assert_int_equal(file_write_atomic(kept, "lost", 4, &err), TERN_NO_MEMORY);
        mem_fail_at(0, false);
        check_content(kept, "newer");
    }
    assert_int_equal(mem_stats_get().n_live, before.n_live);
}

static void test_writer(void **state) {
    (void)state;
    struct os_writer w;
    assert_ok(os_mkdirs(at("writer"), &test_err));
    assert_ok(writer_open(&w, at("writer/f"), &test_err));
    assert_ok(writer_put(&w, "ab", 2, &test_err));
    assert_ok(writer_put(&w, "cd", 2, &test_err));
    assert_int_equal(w.n_bytes, 4);
    struct os_stat st;
    assert_false(os_stat_get(&st, at("writer/f"))); // not yet
    assert_ok(writer_commit(&w, &test_err));
    writer_abort(&w); // fine after commit
    check_content(at("writer/f"), "abcd");
    assert_ok(writer_open(&w, at("writer/f"), &test_err));
    assert_ok(writer_put(&w, "zz", 2, &test_err));
    writer_abort(&w);
    check_content(at("writer/f"), "abcd");
    assert_int_equal(entries(at("writer")), 1);
}

static void test_writer_resume(void **state) {
    (void)state;
    struct os_writer w;
    struct tern_err err;
    assert_ok(os_mkdirs(at("resume"), &test_err));
    char path[512], part[512];
    snprintf(path, sizeof path, "%s", at("resume/f"));
    snprintf(part, sizeof part, "%s", at("resume/f.incomplete"));
    assert_ok(writer_resume(&w, path, part, &test_err));
    assert_ok(writer_put(&w, "abc", 3, &test_err));
    assert_ok(writer_keep(&w, &test_err));
    assert_ok(writer_keep(&w, &test_err)); // fine when closed
    assert_ok(writer_resume(&w, path, part, &test_err));
    assert_int_equal(w.n_bytes, 3);
    os_fail_at(1, ENOSPC);
    assert_int_equal(writer_put(&w, "d", 1, &err), TERN_NO_SPACE);
    assert_ok(writer_put(&w, "d", 1, &test_err));
    assert_ok(writer_keep(&w, &test_err));
    assert_int_equal(entries(at("resume")), 1);
    assert_ok(writer_resume(&w, path, part, &test_err));
    assert_ok(writer_commit(&w, &test_err));
    check_content(path, "abcd");
    assert_int_equal(entries(at("resume")), 1);
    assert_ok(writer_resume(&w, path, part, &test_err));
    assert_ok(writer_put(&w, "xyz", 3, &test_err));
    assert_ok(writer_rewind(&w, &test_err));
    assert_int_equal(w.n_bytes, 0);
    assert_ok(writer_put(&w, "new", 3, &test_err));
    assert_ok(writer_commit(&w, &test_err));
    check_content(path, "new");
    assert_ok(writer_resume(&w, path, part, &test_err));
    writer_abort(&w);
    assert_int_equal(entries(at("resume")), 1);
    assert_int_equal(symlink("f", part), 0); // a link in its place is not followed
    assert_true(writer_resume(&w, path, part, &err) != TERN_OK);
    check_content(path, "new");
}

static void test_links(void **state) {
    (void)state;
    struct tern_err err;
    char target[16];
    assert_ok(os_mkdirs(at("links/sub"), &test_err));
    assert_ok(file_write_atomic(at("links/a"), "A", 1, &test_err));
    assert_ok(os_link("../a", at("links/sub/l"), &test_err));
    check_content(at("links/sub/l"), "A");
    assert_ok(os_link("../b", at("links/sub/l"), &test_err)); // in its place
    assert_true(os_link_read(target, sizeof target, at("links/sub/l")));
    assert_string_equal(target, "../b");
    assert_false(os_link_read(target, 4, at("links/sub/l")));
    assert_false(os_link_read(target, sizeof target, at("links/a")));
    assert_int_equal(entries(at("links/sub")), 1);
    assert_true(os_link("x", at("links/none/l"), &err) != TERN_OK);
    assert_true(os_remove_dir(at("links/sub"), &err) != TERN_OK);
    assert_ok(os_remove(at("links/sub/l"), &test_err));
    assert_ok(os_remove_dir(at("links/sub"), &test_err));
    assert_int_equal(os_remove_dir(at("links/sub"), &err), TERN_NOT_FOUND);
}

struct listing {
    char text[256];
    int stop_after;
};
static bool note_entry(void *arg, const char *name, const struct os_stat *st) {
    struct listing *l = arg;
    size_t len = strlen(l->text);
    snprintf(l->text + len, sizeof(l->text) - len, "%s:%s%d ", name,
             st->is_dir    ? "d"
             : st->is_file ? "f"
                           : "?",
             st->is_file ? (int)st->size : 0);
    return --l->stop_after != 0;
}

static void test_folders(void **state) {
    (void)state;
    struct tern_err err;
    assert_ok(os_mkdirs(at("list/a/b/"), &test_err));
    assert_ok(os_mkdirs(at("list/a/b"), &test_err)); // there already
    struct stat st;
    assert_int_equal(stat(at("list/a/b"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_ok(file_write_atomic(at("list/z"), "123", 3, &test_err));
    assert_ok(file_write_atomic(at("list/B"), "1", 1, &test_err));
    assert_int_equal(symlink("nowhere", at("list/link")), 0);
    struct listing l = {"", -1};
    assert_ok(os_list(at("list"), note_entry, &l, &test_err));
    assert_string_equal(l.text, "B:f1 a:d0 link:?0 z:f3 "); // byte order
    l = (struct listing){"", 2};
    assert_ok(os_list(at("list"), note_entry, &l, &test_err));
    assert_string_equal(l.text, "B:f1 a:d0 ");
    assert_int_equal(os_list(at("absent"), note_entry, &l, &err), TERN_NOT_FOUND);
    assert_int_equal(os_mkdirs(at("list/z/deeper"), &err), TERN_IO);
    assert_int_equal(os_mkdirs("", &err), TERN_INVALID_ARGUMENT);
    char *long_path = mem_calloc(1, 10001);
    memset(long_path, 'x', 10000);
    assert_int_equal(os_mkdirs(long_path, &err), TERN_LIMIT);
    mem_free(long_path);
    assert_ok(os_remove(at("list/z"), &test_err));
    assert_int_equal(os_remove(at("list/z"), &err), TERN_NOT_FOUND);
    struct mem_stats before = mem_stats_get();
    for (uint64_t n = 1; n < 4; n++) {
        mem_fail_at(n, true);
        enum tern_status status = os_list(at("list"), note_entry, &l, &err);
        mem_fail_at(0, false);
        assert_int_equal(status, n == 1 ? TERN_NO_MEMORY : TERN_OK); // one chunk holds it all
        l = (struct listing){"", -1};
    }
    assert_int_equal(mem_stats_get().n_live, before.n_live);
}

static void test_stat(void **state) {
    (void)state;
    struct os_stat a, b;
    assert_ok(file_write_atomic(at("s"), "123", 3, &test_err));
    assert_true(os_stat_get(&a, at("s")) && a.is_file && !a.is_dir && a.size == 3);
    clock_sleep_ns(20000000);
    assert_true(os_touch(at("s")));
    assert_true(os_stat_get(&b, at("s")));
    assert_true(b.mtime_ns > a.mtime_ns && b.inode == a.inode && b.device == a.device);
    assert_false(os_touch(at("absent")));
    assert_false(os_stat_get(&a, at("absent")));
    assert_true(os_stat_get(&a, root) && a.is_dir);
    assert_true(os_disk_free(root) > 0 && os_disk_free(root) != UINT64_MAX);
    assert_true(os_disk_free(at("absent")) == UINT64_MAX);
}

struct lock_waiter {
    char path[512];
    int fd;
    enum tern_status status;
};
static void lock_wait(void *arg) {
    struct lock_waiter *w = arg;
    w->status = os_lock(&w->fd, w->path, 5000, NULL);
}

static void test_lock(void **state) {
    (void)state;
    int a = -1, b = -1;
    struct tern_err err;
    assert_ok(os_lock(&a, at("lock"), 0, &test_err));
    uint64_t start = clock_ns();
    assert_int_equal(os_lock(&b, at("lock"), 60, &err), TERN_AGAIN);
    uint64_t waited = clock_ns() - start;
    assert_in_range(waited, 60000000u, 3000000000u);
    assert_contains(err.message, "holds the lock");
    assert_int_equal(b, -1);
    os_unlock(a);
    assert_ok(os_lock(&b, at("lock"), 0, &test_err));
    os_unlock(b);
    assert_int_equal(os_lock(&b, at("no/folder/lock"), 0, &err), TERN_NOT_FOUND);

    // Another process that dies keeps nothing.
    pid_t pid = fork();
    if (pid == 0) _exit(os_lock(&a, at("lock"), 0, NULL) == TERN_OK ? 7 : 1);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_ok(os_lock(&a, at("lock"), 0, &test_err));

    // The lock file is deleted while somebody waits: the waiter must end up with the lock that the path names.
    struct lock_waiter w = {.fd = -1};
    snprintf(w.path, sizeof(w.path), "%s", at("lock"));
    struct os_thread *t;
    assert_ok(os_thread_create(&t, lock_wait, &w, &test_err));
    clock_sleep_ns(30000000);
    assert_int_equal(unlink(w.path), 0);
    os_unlock(a);
    os_thread_join(t);
    assert_int_equal(w.status, TERN_OK);
    assert_int_equal(os_lock(&b, w.path, 0, &err), TERN_AGAIN);
    os_unlock(w.fd);
}

static void check_cache(const char *xdg, const char *home, const char *expected) {
    char out[64];
    xdg ? setenv("XDG_CACHE_HOME", xdg, 1) : unsetenv("XDG_CACHE_HOME");
    home ? setenv("HOME", home, 1) : unsetenv("HOME");
    assert_string_equal(os_cache_dir(out, sizeof(out)), expected);
}

static void test_environment(void **state) {
    (void)state;
    check_cache("/x/cache", "/home/u", "/x/cache/tern");
    check_cache("/x/cache/", "/home/u", "/x/cache/tern");
    check_cache("", "/home/u", "/home/u/.cache/tern");
    check_cache(NULL, "/home/u/", "/home/u/.cache/tern");
    check_cache("relative", "/home/u", "/home/u/.cache/tern");
    check_cache(NULL, NULL, "");
    check_cache(NULL, "", "");
    check_cache(NULL, "relative", "");
    check_cache(NULL, "/", "/.cache/tern");
    check_cache("/0123456789/0123456789/0123456789/0123456789/0123456789/01234567", NULL, ""); // does not fit
    char out[64];
    setenv("HOME", "/home/u", 1);
    setenv("XDG_STATE_HOME", "/x/state", 1);
    unsetenv("XDG_CONFIG_HOME");
    assert_string_equal(os_user_dir(OS_USER_STATE, "tern/a", out, sizeof out), "/x/state/tern/a");
    assert_string_equal(os_user_dir(OS_USER_CONFIG, "tern/b", out, sizeof out), "/home/u/.config/tern/b");
    setenv("XDG_STATE_HOME", "not/absolute", 1);
    assert_string_equal(os_user_dir(OS_USER_STATE, "tern/a", out, sizeof out), "/home/u/.local/state/tern/a");
    setenv("TERN_TEST_EMPTY", "", 1);
    assert_null(env_get("TERN_TEST_EMPTY"));
    assert_null(env_get("TERN_TEST_UNSET"));
    bool found = false;
    for (int i = 0; env_nth(i); i++) found = found || strcmp(env_nth(i), "TERN_TEST_EMPTY=") == 0;
    assert_true(found);
    setenv("TERN_TEST_SET", "v", 1);
    assert_string_equal(env_get("TERN_TEST_SET"), "v");
}

static void test_clock(void **state) {
    (void)state;
    uint64_t a = clock_ns();
    clock_sleep_ns(5000000);
    uint64_t b = clock_ns();
    assert_in_range(b - a, 5000000u, 5000000000u);
    assert_true(clock_wall_s() > 1700000000);
    setenv("TZ", "UTC", 1);
    char out[64];
    assert_int_equal(clock_format(out, sizeof(out), "%d %B %Y %H:%M", 86400 * 365), 21);
    assert_string_equal(out, "01 January 1971 00:00");
    assert_int_equal(clock_format(out, 4, "%d %B %Y", 0), 0);
    assert_string_equal(out, "");
}

static void test_machine(void **state) {
    (void)state;
    uint64_t total = os_ram_total(), available = os_ram_available(), rss = os_rss();
    assert_true(total > (64u << 20) && available > 0 && available <= total);
    assert_true(rss > 100000 && rss < total && os_rss_max() >= rss / 2);
    assert_int_equal(os_pid(), getpid());
    assert_true(tty_width(-1) == 80 && !tty_is(-1));
    uint8_t a[600] = {0}, b[600] = {0};
    os_random(a, sizeof(a));
    os_random(b, sizeof(b));
    assert_memory_not_equal(a, b, sizeof(a));
    assert_memory_not_equal(a + 300, a, 300);
    os_random(a, 0);
}

static _Atomic int n_interrupts;
static void on_interrupt(void) { atomic_fetch_add(&n_interrupts, 1); }

static void test_interrupt(void **state) {
    (void)state;
    os_on_interrupt(on_interrupt);
    raise(SIGINT);
    raise(SIGINT);
    assert_int_equal(n_interrupts, 2);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        os_on_interrupt(NULL);
        raise(SIGINT);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    os_on_interrupt(NULL);
}

static int setup(void **state) {
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof(root), "%s/tern-test-os-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    char command[300];
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map),         cmocka_unit_test(test_map_drop),      cmocka_unit_test(test_read),
        cmocka_unit_test(test_read_stdin),  cmocka_unit_test(test_write_atomic),  cmocka_unit_test(test_writer),
        cmocka_unit_test(test_folders),     cmocka_unit_test(test_stat),          cmocka_unit_test(test_lock),
        cmocka_unit_test(test_environment), cmocka_unit_test(test_clock),         cmocka_unit_test(test_machine),
        cmocka_unit_test(test_interrupt),   cmocka_unit_test(test_writer_resume), cmocka_unit_test(test_links),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
