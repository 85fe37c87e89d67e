// SIGTERM and SIGINT as something to wait for: the handler counts and writes to a pipe.
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include "net/net.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t n_signals;
static int signal_pipe[2] = {-1, -1};

static void on_signal(int signo) {
    (void)signo;
    int kept = errno;
    n_signals++;
    ssize_t n = write(signal_pipe[1], "", 1); // a full pipe wakes as well
    (void)n;
    errno = kept;
}

void net_terminate_watch(void) {
    if (signal_pipe[0] >= 0 || pipe(signal_pipe) != 0) return;
    for (int i = 0; i < 2; i++) {
        fcntl(signal_pipe[i], F_SETFL, O_NONBLOCK);
        fcntl(signal_pipe[i], F_SETFD, FD_CLOEXEC);
    }
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

int net_terminate_wait(int seen, double timeout_s) {
    uint64_t until = clock_ns() + (uint64_t)(timeout_s * 1e9);
    while (n_signals <= seen) {
        uint64_t now = clock_ns();
        if (now >= until) break;
        struct pollfd p = {.fd = signal_pipe[0], .events = POLLIN};
        if (poll(&p, 1, (int)MIN((until - now) / 1000000u + 1, (uint64_t)60000)) > 0) {
            char sink[64];
            while (read(signal_pipe[0], sink, sizeof sink) == (ssize_t)sizeof sink) {
            }
        }
    }
    return n_signals;
}
