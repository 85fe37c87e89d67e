// Telling systemd how the service is (sd_notify's protocol): a datagram to the socket that $NOTIFY_SOCKET names.
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include "net/net.h"
#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool net_notify(const char *state) {
    const char *path = env_get("NOTIFY_SOCKET");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    if (len < 2 || len >= sizeof a.sun_path || (path[0] != '/' && path[0] != '@')) return false;
    memcpy(a.sun_path, path, len);
    if (path[0] == '@') a.sun_path[0] = 0; // Linux: a name without a file
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0) return false;
    ssize_t n;
    do
        n = sendto(fd, state, strlen(state), 0, (struct sockaddr *)&a,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (path[0] == '/')));
    while (n < 0 && errno == EINTR);
    close(fd);
    return n == (ssize_t)strlen(state);
}
