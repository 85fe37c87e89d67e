// Child processes over fork and exec. What goes wrong in the child before its program runs comes back as an errno
// through a pipe that exec closes, so a missing program is an error of child_open and not an exit code.
//
// Waiting asks every few milliseconds: a wait that can time out without polling needs a signal handler or a descriptor
// for each process, which macOS and older Linux kernels do not both have.
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include "base/base_int.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#define WAIT_STEP_NS 5000000u
#define EXIT_NOT_STARTED 127

static double seconds_of(const struct timeval *t) { return (double)t->tv_sec + (double)t->tv_usec * 1e-6; }

// In the child: everything here is async-signal-safe. Returns only on failure, with errno set.
static void child_become(const struct child_options *o, int talk) {
    int in = talk >= 0 ? talk : open("/dev/null", O_RDONLY);
    int out = talk >= 0 ? talk : open(o->out_path ? o->out_path : "/dev/null", O_WRONLY | O_CREAT | O_APPEND, 0666);
    int err = open(o->err_path ? o->err_path : "/dev/null", O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (in < 0 || out < 0 || err < 0) return;
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) return;
    if (o->dir && chdir(o->dir) != 0) return;
    execvp(o->argv[0], (char *const *)(uintptr_t)o->argv);
}

static void child_group_lead(pid_t parent) {
    setpgid(0, 0);
    signal(SIGINT, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_NOT_STARTED); // it died before the line above
#else
    (void)parent;
#endif
}

static bool pipe_cloexec(int fds[2]) {
    if (pipe(fds) != 0) return false;
    fcntl(fds[0], F_SETFD, FD_CLOEXEC);
    fcntl(fds[1], F_SETFD, FD_CLOEXEC);
    return true;
}

// Both ends of the talk: ours, and the child's, which it loses with exec but for the copies that are 0 and 1.
static bool talk_open(int talk[2]) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, talk) != 0) return false;
    fcntl(talk[0], F_SETFD, FD_CLOEXEC);
    fcntl(talk[1], F_SETFD, FD_CLOEXEC);
    return true;
}

enum tern_status child_open(struct os_child *out, const struct child_options *o, struct tern_err *err) {
    int fds[2], talk[2] = {-1, -1};
    pid_t parent = getpid();
    *out = (struct os_child){.start_ns = clock_ns()};
    if (o->talk) *o->talk = -1;
    if (!pipe_cloexec(fds)) return err_set_errno(err, errno, "cannot start '%s'", o->argv[0]);
    if (o->talk && !talk_open(talk)) {
        int why_talk = errno;
        close(fds[0]);
        close(fds[1]);
        return err_set_errno(err, why_talk, "cannot start '%s'", o->argv[0]);
    }
    pid_t pid = fork();
    if (pid == 0) {
        child_group_lead(parent);
        child_become(o, talk[1]);
        int why = errno;
        if (write(fds[1], &why, sizeof why) != (ssize_t)sizeof why) _exit(EXIT_NOT_STARTED);
        _exit(EXIT_NOT_STARTED);
    }
    int fork_errno = errno, why = 0;
    close(fds[1]);
    talk_close(talk[1]);
    if (pid < 0) {
        close(fds[0]);
        talk_close(talk[0]);
        return err_set_errno(err, fork_errno, "cannot start '%s'", o->argv[0]);
    }
    setpgid(pid, pid); // whoever of the two comes first
    ssize_t n;
    do n = read(fds[0], &why, sizeof why);
    while (n < 0 && errno == EINTR);
    close(fds[0]);
    if (n == (ssize_t)sizeof why) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
        talk_close(talk[0]);
        return err_set_errno(err, why, "cannot start '%s'", o->argv[0]);
    }
    out->pid = (int)pid;
    if (o->talk) *o->talk = talk[0];
    return TERN_OK;
}

enum tern_status child_fork(struct os_child *out, void (*fn)(void *arg), void *arg, struct tern_err *err) {
    pid_t parent = getpid();
    *out = (struct os_child){.start_ns = clock_ns()};
    pid_t pid = fork();
    if (pid < 0) return err_set_errno(err, errno, "cannot start another process");
    if (pid == 0) {
        child_group_lead(parent);
        fn(arg);
        _exit(0);
    }
    setpgid(pid, pid);
    out->pid = (int)pid;
    return TERN_OK;
}

bool child_is_over(const struct os_child *c) {
    siginfo_t info = {0};
    return c->pid <= 0 || waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

void child_signal_kill(const struct os_child *c) {
    if (c->pid > 0) kill(-(pid_t)c->pid, SIGKILL);
}

// Reaps; *ended false: still running (only without `block`).
static bool child_reap(const struct os_child *c, bool block, bool *ended, int *status, struct rusage *usage) {
    pid_t pid;
    do pid = wait4((pid_t)c->pid, status, block ? 0 : WNOHANG, usage);
    while (pid < 0 && errno == EINTR);
    *ended = pid == (pid_t)c->pid;
    return pid >= 0;
}

enum tern_status child_wait(struct os_child *c, int64_t timeout_ms, struct child_result *out, struct tern_err *err) {
    int status = 0;
    bool ended = false;
    struct rusage usage = {0};
    *out = (struct child_result){0};
    if (c->pid <= 0) return err_set(err, TERN_INVALID_ARGUMENT, "no child process to wait for");
    uint64_t end_ns = clock_ns() + (uint64_t)MAX(timeout_ms, 0) * 1000000u;
    while (!ended) {
        if (!child_reap(c, false, &ended, &status, &usage)) goto lost;
        if (ended) break;
        if (clock_ns() >= end_ns) {
            out->timed_out = true;
            child_signal_kill(c);
            if (!child_reap(c, true, &ended, &status, &usage)) goto lost;
            break;
        }
        clock_sleep_ns(WAIT_STEP_NS);
    }
    child_signal_kill(c); // its own children, if it left any
    out->wall_s = (double)(clock_ns() - c->start_ns) * 1e-9;
    out->cpu_s = seconds_of(&usage.ru_utime) + seconds_of(&usage.ru_stime);
#ifdef __APPLE__
    out->rss_max = (uint64_t)usage.ru_maxrss;
#else
    out->rss_max = (uint64_t)usage.ru_maxrss * 1024;
#endif
    out->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    *c = (struct os_child){0};
    return TERN_OK;
lost:
    *c = (struct os_child){0};
    return err_set_errno(err, errno, "cannot wait for a child process");
}

void child_close(struct os_child *c) {
    if (c->pid <= 0) return;
    bool ended;
    int status;
    struct rusage usage;
    child_signal_kill(c);
    child_reap(c, true, &ended, &status, &usage);
    *c = (struct os_child){0};
}

double os_cpu_self(void) {
    struct rusage own, children;
    if (getrusage(RUSAGE_SELF, &own) != 0 || getrusage(RUSAGE_CHILDREN, &children) != 0) return 0;
    return seconds_of(&own.ru_utime) + seconds_of(&own.ru_stime) + seconds_of(&children.ru_utime) +
           seconds_of(&children.ru_stime);
}

enum tern_status file_append(const char *path, const void *data, size_t len, struct tern_err *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) return err_set_errno(err, errno, "cannot open '%s' to append", path);
    ssize_t n;
    do n = write(fd, data, len);
    while (n < 0 && errno == EINTR);
    int why = n < 0 ? errno : n == (ssize_t)len ? 0 : ENOSPC;
    if (close(fd) != 0 && why == 0) why = errno;
    return why ? err_set_errno(err, why, "cannot append to '%s'", path) : TERN_OK;
}
