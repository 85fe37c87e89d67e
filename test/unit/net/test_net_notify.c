// What systemd is told reaches its socket, one datagram for each state; without a socket nothing is sent.
#define _GNU_SOURCE 1
#include "base/base.h"
#include "net/net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static void test_states(void **state) {
    (void)state;
    char folder[] = "/tmp/tern-notify-XXXXXX", text[64];
    assert_non_null(mkdtemp(folder));
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/socket", folder);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
    unsetenv("NOTIFY_SOCKET");
    assert_false(net_notify("READY=1"));
    setenv("NOTIFY_SOCKET", a.sun_path, 1);
    assert_true(net_notify("READY=1"));
    assert_true(net_notify("STOPPING=1"));
    assert_int_equal(recv(fd, text, sizeof text, MSG_DONTWAIT), 7);
    assert_memory_equal(text, "READY=1", 7);
    assert_int_equal(recv(fd, text, sizeof text, MSG_DONTWAIT), 10);
    assert_memory_equal(text, "STOPPING=1", 10);
    assert_int_equal(recv(fd, text, sizeof text, MSG_DONTWAIT), -1);
    close(fd);
    unlink(a.sun_path);
    assert_false(net_notify("READY=1")); // nobody listens
    char long_path[200] = "/";
    memset(long_path + 1, 'x', sizeof long_path - 2);
    setenv("NOTIFY_SOCKET", long_path, 1);
    assert_false(net_notify("READY=1"));
    setenv("NOTIFY_SOCKET", "relative", 1);
    assert_false(net_notify("READY=1"));
    unsetenv("NOTIFY_SOCKET");
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_states)};
    return cmocka_run_group_tests_name("net_notify", tests, NULL, NULL);
}
