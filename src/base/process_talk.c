// Messages to and from a child over a socket pair: a pipe whose reader died would raise SIGPIPE, a socket reports it.
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 // macOS: an option of the socket instead
#endif

static enum tern_status talk_wait(int fd, short events, int timeout_ms, struct tern_err *err) {
    struct pollfd p = {.fd = fd, .events = events};
    int n;
    do n = poll(&p, 1, timeout_ms);
    while (n < 0 && errno == EINTR);
    if (n < 0) return err_set_errno(err, errno, "cannot wait for a child process");
    return n > 0 ? TERN_OK : err_set(err, TERN_IO, "the child process said nothing for %d ms", timeout_ms);
}

enum tern_status talk_write(int fd, const void *data, size_t len, int timeout_ms, struct tern_err *err) {
    const char *at = data;
#ifdef SO_NOSIGPIPE
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
    while (len > 0) {
        TRY(talk_wait(fd, POLLOUT, timeout_ms, err));
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) return err_set(err, TERN_IO, "the child process has ended");
        at += n;
        len -= (size_t)n;
    }
    return TERN_OK;
}

enum tern_status talk_read(int fd, void *out, size_t len, int timeout_ms, struct tern_err *err) {
    char *at = out;
    while (len > 0) {
        TRY(talk_wait(fd, POLLIN, timeout_ms, err));
        ssize_t n = recv(fd, at, len, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return err_set(err, TERN_IO, "the child process has ended");
        at += n;
        len -= (size_t)n;
    }
    return TERN_OK;
}

enum tern_status talk_read_line(int fd, char *out, size_t cap, int timeout_ms, struct tern_err *err) {
    for (size_t len = 0; len < cap; len++) {
        TRY(talk_read(fd, out + len, 1, timeout_ms, err));
        if (out[len] == '\n') {
            out[len] = 0;
            return TERN_OK;
        }
    }
    return err_set(err, TERN_INVALID_ARGUMENT, "a line of the child process is longer than %zu bytes", cap);
}

void talk_close(int fd) {
    if (fd >= 0) close(fd);
}
