// Names of clients are no paths: whatever stands in a model's id, a state's file name or a route, it is refused, and no
// system call of the server names anything outside the folders that were given to it. The calls are seen by ptrace.
#define _GNU_SOURCE 1
#include "server_lib.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef __linux__
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#endif

#define MESSAGES                                                                                                    \
    "\"messages\": [{\"role\": \"user\", \"content\": \"s01 and a text that is long enough to fill a block of the " \
    "cache with what it says\"}]"

static char folder[256], inside[300], outside[300];
static struct served server;

// As they stand in JSON.
static const char *const names[] = {"..",
                                    ".",
                                    "/",
                                    "//",
                                    "../x",
                                    "../outside",
                                    "../../../../etc/passwd",
                                    "/etc/passwd",
                                    "a/../../outside",
                                    "./x",
                                    "a/b",
                                    "x/..",
                                    "..\\\\outside",
                                    "..\\\\..\\\\x",
                                    "C:\\\\x",
                                    "\\\\\\\\host\\\\share",
                                    "%2e%2e%2foutside",
                                    "..%2foutside",
                                    "%2e%2e/outside",
                                    "..%00/x",
                                    "x\\u0000y",
                                    "\\u0000",
                                    "../outside\\u0000.gguf",
                                    "~",
                                    "~root/x",
                                    "~/x",
                                    "file:///etc/passwd",
                                    "http://127.0.0.1/x",
                                    "|cat /etc/passwd",
                                    "$HOME",
                                    "`id`",
                                    "x\\ny",
                                    "x\\r",
                                    " x",
                                    "x ",
                                    "\\u2215etc\\u2215passwd",
                                    "\\uff0e\\uff0e\\uff0foutside",
                                    "\\u202egnp",
                                    "\\ud800",
                                    ".hidden",
                                    "-",
                                    "--",
                                    "con.",
                                    "SCRIPT-LFM2/..",
                                    "proc/self/mem",
                                    "/proc/self/environ",
                                    "/dev/zero",
                                    "/dev/stdin",
                                    "link/x",
                                    "talk1/../../outside"};

static struct answer_http ask(const char *path, const char *fmt, const char *name) {
    struct buf body;
    buf_init(&body, 1 << 20);
    buf_putf(&body, fmt, name);
    buf_putc(&body, 0);
    struct answer_http a = http_post(&server, path, body.data, "");
    buf_release(&body);
    return a;
}

// Refused: 4xx with an error, which tells nothing of the machine's paths.
static void refused(const char *path, const char *fmt, const char *name) {
    struct answer_http a = ask(path, fmt, name);
    if (a.status < 400 || a.status >= 500 || strstr(a.body, folder) || strstr(a.body, "root:"))
        fail_msg("%s, '%.80s': %d %.300s", path, name, a.status, a.body);
    answer_free(&a);
}

static void routes_ask(const char *name) {
    refused("/v1/chat/completions", "{\"model\": \"%s\", \"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
            name);
    refused("/v1/completions", "{\"model\": \"%s\", \"prompt\": \"a\"}", name);
    refused("/v1/embeddings", "{\"model\": \"%s\", \"input\": \"a\"}", name);
    refused("/v1/messages",
            "{\"model\": \"%s\", \"max_tokens\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", name);
    refused("/api/show", "{\"model\": \"%s\"}", name);
    refused("/api/generate", "{\"model\": \"%s\", \"prompt\": \"a\"}", name);
    if (strcmp(name, "-") != 0 && strcmp(name, "--") != 0 && strcmp(name, "con.") != 0)
        refused("/slots/0?action=save", "{\"filename\": \"%s\", " MESSAGES "}", name);
    refused("/slots/0?action=restore", "{\"filename\": \"%s\"}", name);
}

// In the target itself, raw and with its slashes and dots escaped.
static void targets_ask(const char *name) {
    static const char *const before[] = {"/v1/models/", "/web/", "/slots/", "/"};
    char raw[256], escaped[800];
    size_t n = 0;
    if (strpbrk(name, "\\ \n\r|`")) return;
    snprintf(raw, sizeof raw, "%s", name);
    for (const char *p = raw; *p && n + 4 < sizeof escaped; p++)
        n += (size_t)snprintf(escaped + n, sizeof escaped - n, "%%%02X", (unsigned)(uint8_t)*p);
    for (size_t i = 0; i < ARRAY_LEN(before); i++)
        for (int k = 0; k < 2; k++) {
            char path[1200];
            snprintf(path, sizeof path, "%s%s", before[i], k ? escaped : raw);
            struct answer_http a = http_get(&server, path, "");
            bool page = a.status == 200 && strcmp(before[i], "/") == 0; // "/" and "//…": the page at most
            if ((a.status < 400 && !page) || a.status >= 500 || strstr(a.body, "root:"))
                fail_msg("%s: %d %.300s", path, a.status, a.body);
            answer_free(&a);
        }
}

// ------------------------------------------------------------------------------------------------------------ tracing

struct trace {
    atomic_bool stop, ready;
    bool works; // else the system does not let us
    int n_inside, n_outside;
    char first[512]; // of the names outside
};

#if defined(__linux__) && defined(__GLIBC__)
// Which argument of a call is a name; -1: none.
static int name_argument(uint64_t nr) {
    switch (nr) {
    case SYS_openat:
    case SYS_unlinkat:
    case SYS_mkdirat:
    case SYS_linkat:
    case SYS_symlinkat:
    case SYS_renameat2: return 1;
#ifdef SYS_renameat
    case SYS_renameat: return 1;
#endif
    case SYS_execve:
    case SYS_truncate:
#ifdef SYS_open
    case SYS_open:
    case SYS_creat:
    case SYS_unlink:
    case SYS_mkdir:
    case SYS_rmdir:
    case SYS_rename:
    case SYS_link:
    case SYS_symlink:
#endif
        return 0;
    default: return -1;
    }
}

static void name_see(struct trace *t, pid_t tid, uint64_t at) {
    char name[512] = "";
    struct iovec to = {name, sizeof name - 1}, from = {(void *)(uintptr_t)at, sizeof name - 1};
    ssize_t n = process_vm_readv(tid, &to, 1, &from, 1, 0);
    if (n <= 0) { // the page ends before
        from.iov_len = to.iov_len = 4096 - (at & 4095) < 511 ? 4096 - (at & 4095) : 511;
        n = process_vm_readv(tid, &to, 1, &from, 1, 0);
    }
    // What the system tells of the process itself and of the machine's memory is no file of anybody's.
    static const char *const known[] = {"/proc/self/", "/proc/meminfo", "/proc/sys/", "/sys/fs/cgroup",
                                        "/sys/devices/"};
    bool good = strncmp(name, inside, strlen(inside)) == 0 && !strstr(name, "..");
    t->n_inside += good;
    // A folder that was given is made with all above it.
    good = good || (strncmp(name, inside, strlen(name)) == 0 && inside[strlen(name)] == '/');
    for (size_t i = 0; i < ARRAY_LEN(known); i++) good = good || strncmp(name, known[i], strlen(known[i])) == 0;
    good = good || strcmp(name, SCRIPT_MODEL) == 0;
    if (good) return;
    if (t->n_outside++ == 0) snprintf(t->first, sizeof t->first, "%s", name);
}

static bool task_seize(void *arg, const char *name, const struct os_stat *st) {
    struct trace *t = arg;
    (void)st;
    t->works = ptrace(PTRACE_SEIZE, atoi(name), NULL, PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD) == 0 &&
               ptrace(PTRACE_INTERRUPT, atoi(name), NULL, NULL) == 0;
    return t->works;
}

static bool task_let_go(void *arg, const char *name, const struct os_stat *st) {
    (void)arg, (void)st;
    int status;
    pid_t tid = atoi(name);
    ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
    if (waitpid(tid, &status, __WALL) == tid) ptrace(PTRACE_DETACH, tid, NULL, NULL);
    return true;
}

static void trace_main(void *arg) {
    struct trace *t = arg;
    char tasks[64];
    snprintf(tasks, sizeof tasks, "/proc/%d/task", (int)server.child.pid);
    if (os_list(tasks, task_seize, t, NULL) != TERN_OK) t->works = false;
    atomic_store(&t->ready, true);
    while (t->works && !atomic_load(&t->stop)) {
        int status;
        pid_t tid = waitpid(-1, &status, __WALL | __WNOTHREAD);
        if (tid <= 0) break;
        if (!WIFSTOPPED(status)) continue;
        int signo = WSTOPSIG(status);
        if (signo == (SIGTRAP | 0x80)) {
            struct __ptrace_syscall_info info;
            if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof info, &info) > 0 && info.op == PTRACE_SYSCALL_INFO_ENTRY &&
                name_argument(info.entry.nr) >= 0)
                name_see(t, tid, info.entry.args[name_argument(info.entry.nr)]);
        }
        bool ours = signo == (SIGTRAP | 0x80) || (unsigned)status >> 16 != 0;
        ptrace(PTRACE_SYSCALL, tid, NULL, (void *)(uintptr_t)(ours ? 0 : signo));
    }
    if (t->works) os_list(tasks, task_let_go, NULL, NULL);
}
#else
static void trace_main(void *arg) { atomic_store(&((struct trace *)arg)->ready, true); }
#endif

// --------------------------------------------------------------------------------------------------------------- test

static int setup(void **state) {
    (void)state;
    char prefix[340], states[340], path[360];
    snprintf(folder, sizeof folder, "%s/tern_paths_XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(inside, sizeof inside, "%s/inside", folder);
    snprintf(outside, sizeof outside, "%s/outside", folder);
    snprintf(states, sizeof states, "%s/states", inside);
    snprintf(prefix, sizeof prefix, "%s/prefix", inside);
    assert_int_equal(file_append(outside, "keep me", 7, NULL), TERN_OK);
    assert_int_equal(os_mkdirs(states, NULL), TERN_OK);
    snprintf(path, sizeof path, "%s/link", states);
    assert_int_equal(symlink(folder, path), 0);
    server_start(&server, (const char *const[]){"-m", SCRIPT_MODEL, "--state-dir", states, "--prefix-dir", prefix,
                                                "--ctx", "1024", "--log", "none", NULL});
    return 0;
}
static int teardown(void **state) {
    char command[400];
    (void)state;
    assert_int_equal(server_stop(&server), 0);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void names_are_no_paths(void **state) {
    (void)state;
    static struct trace t;
    struct os_thread *thread = NULL;
    const bool traced = !getenv("TERN_TEST_SHORT"); // a sanitizer's own tracer would be in the way
    if (traced) {
        assert_int_equal(os_thread_create(&thread, trace_main, &t, NULL), TERN_OK);
        while (!atomic_load(&t.ready)) clock_sleep_ns(1000000);
    }
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        routes_ask(names[i]);
        targets_ask(names[i]);
    }
    static char longest[70000];
    memset(longest, 'x', sizeof longest - 1);
    routes_ask(longest);
    longest[300] = 0;
    routes_ask(longest);
    // And a name that is one, which is seen.
    struct answer_http a = ask("/v1/chat/completions", "{\"max_tokens\": 40, \"ignore_eos\": true, %s}", MESSAGES);
    assert_int_equal(a.status, 200);
    answer_free(&a);
    a = ask("/slots/0?action=save", "{\"filename\": \"%s\", " MESSAGES "}", "mine");
    if (a.status != 200) fail_msg("%d %s", a.status, a.body);
    answer_free(&a);
    if (traced) {
        atomic_store(&t.stop, true);
        a = http_get(&server, "/health", ""); // which wakes the other thread
        answer_free(&a);
        os_thread_join(thread);
        print_message("%zu names: %d calls name something inside, %d something outside%s\n", ARRAY_LEN(names) + 2,
                      t.n_inside, t.n_outside, t.works ? "" : " (this system lets nobody look)");
        if (t.n_outside > 0) fail_msg("the server went outside: %s", t.first);
        if (t.works) assert_true(t.n_inside > 0);
    }
    struct buf b;
    buf_init(&b, 100);
    assert_int_equal(file_read_all(&b, outside, NULL), TERN_OK);
    assert_true(str_eqz(buf_str(&b), "keep me"));
    buf_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_are_no_paths)};
    return cmocka_run_group_tests_name("paths", tests, setup, teardown);
}
