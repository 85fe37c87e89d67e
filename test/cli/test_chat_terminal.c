// tern chat as a person has it: a pseudo-terminal, keys, what is on the screen. What needs the line editor is left out
// where `tern doctor` says that there is none.
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define WAIT_S 60 // slow builds, busy machines
#define SCRIPT "-m test/data/gguf/script-lfm2.gguf"
#define UP "\033[A"

static char folder[256], history[300];
static bool edits; // the program was built with the line editor

struct talk {
    pid_t pid;
    int fd;
    struct buf screen; // all that came
    size_t seen;       // up to here it was waited for
};

static void talk_begin(struct talk *t, const char *arguments) {
    char command[1024];
    snprintf(command, sizeof command, "exec %s chat %s", getenv("TERN"), arguments);
    *t = (struct talk){.fd = posix_openpt(O_RDWR | O_NOCTTY)};
    buf_init(&t->screen, 16u << 20);
    assert_true(t->fd >= 0 && grantpt(t->fd) == 0 && unlockpt(t->fd) == 0);
    const char *name = ptsname(t->fd);
    t->pid = fork();
    assert_true(t->pid >= 0);
    if (t->pid == 0) {
        setsid();
        int tty = open(name, O_RDWR); // becomes the session's terminal
        ioctl(tty, TIOCSCTTY, 0);
        for (int i = 0; i < 3; i++) dup2(tty, i);
        close(tty);
        close(t->fd);
        setenv("TERM", "xterm", 1);
        setenv("XDG_STATE_HOME", folder, 1);
        setenv("HOME", folder, 1); // no ~/.editrc
        unsetenv("TERN_HISTORY");
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
}

static bool more_read(struct talk *t, int ms) {
    struct pollfd p = {.fd = t->fd, .events = POLLIN};
    char bytes[4096];
    if (poll(&p, 1, ms) <= 0) return false;
    ssize_t n = read(t->fd, bytes, sizeof bytes);
    return n > 0 && buf_put(&t->screen, bytes, (size_t)n);
}

// Until the text is on the screen, behind what was waited for before.
static void wait_for(struct talk *t, const char *text) {
    uint64_t until = clock_ns() + WAIT_S * UINT64_C(1000000000);
    for (;;) {
        const char *at = t->screen.data ? strstr(t->screen.data + t->seen, text) : NULL;
        if (at) {
            t->seen = (size_t)(at - t->screen.data) + strlen(text);
            return;
        }
        if (!more_read(t, 1000) && clock_ns() > until)
            fail_msg("no '%s' behind: %s", text, t->screen.data ? t->screen.data + t->seen : "");
    }
}

static void keys(struct talk *t, const char *text) {
    size_t len = strlen(text);
    assert_int_equal(write(t->fd, text, len), len);
}

// Ctrl-D at a prompt that is waited for: the program ends by itself, with code 0.
static void talk_end(struct talk *t) {
    int status = 0;
    wait_for(t, "> ");
    keys(t, "\004");
    while (more_read(t, WAIT_S * 1000)) {
    }
    assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(t->fd);
    buf_release(&t->screen);
}

static int setup(void **state) {
    (void)state;
    char command[600], line[256];
    snprintf(folder, sizeof folder, "%s/tern_chat_XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(folder)) return 1;
    snprintf(history, sizeof history, "%s/tern/chat_history", folder);
    snprintf(command, sizeof command, "TERM=xterm %s doctor", getenv("TERN"));
    FILE *f = popen(command, "r");
    while (f && fgets(line, sizeof line, f))
        if (strstr(line, "line editing of tern chat: libedit")) edits = true;
    return !f || pclose(f) != 0;
}
static int teardown(void **state) {
    (void)state;
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) != 0;
}

static void test_interrupts(void **state) {
    (void)state;
    struct talk t;
    talk_begin(&t, "--ignore-eos -n 100000"); // the built-in model
    wait_for(&t, "> ");
    keys(&t, "Tell me about the moon.\n");
    wait_for(&t, "The moon is a");
    keys(&t, "\003"); // stops the answer
    wait_for(&t, "(stopped)");
    wait_for(&t, "> ");
    keys(&t, "never sent\003"); // drops the line
    wait_for(&t, "(Ctrl-D or /bye ends)");
    wait_for(&t, "> ");
    keys(&t, "/sttas\n"); // it is still there
    wait_for(&t, "did you mean /stats?");
    talk_end(&t);
}

// Ctrl-D during an answer: the answer comes to its end, then the chat does.
static void test_end_during_answer(void **state) {
    (void)state;
    struct talk t;
    int status = 0;
    talk_begin(&t, "--ignore-eos -n 400 --stats"); // the built-in model
    wait_for(&t, "> ");
    keys(&t, "Tell me about the moon.\n");
    wait_for(&t, "The moon is a");
    keys(&t, "\004");
    wait_for(&t, "400 answer tokens");
    while (more_read(&t, WAIT_S * 1000)) {
    }
    assert_int_equal(waitpid(t.pid, &status, 0), t.pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    close(t.fd);
    buf_release(&t.screen);
}

static void test_edits(void **state) {
    (void)state;
    if (!edits) skip();
    struct talk t;
    unlink(history);
    talk_begin(&t, SCRIPT);
    wait_for(&t, "> ");
    keys(&t, "x01\001\033[3~s\n"); // Ctrl-A, Delete: s01
    wait_for(&t, "Hello, world.");
    wait_for(&t, "> ");
    keys(&t, UP "\n");
    wait_for(&t, "Hello, world.");
    wait_for(&t, "> ");
    keys(&t, "/st\t\n");
    wait_for(&t, "(speeds are shown)");
    wait_for(&t, "> ");
    keys(&t, "\033[200~s01\rtwo /bye\r/bye\033[201~"); // a paste with line ends is one message
    keys(&t, "\n");
    wait_for(&t, "Hello, world.");
    wait_for(&t, "answer tokens");
    wait_for(&t, "> ");
    keys(&t, " s15 is not remembered\n");
    wait_for(&t, "answer tokens");
    talk_end(&t);
    struct stat st;
    assert_int_equal(stat(history, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    struct buf text;
    buf_init(&text, 1u << 20);
    assert_int_equal(file_read_all(&text, history, NULL), TERN_OK);
    assert_string_equal(text.data, "\"s01\"\n\"/stats\"\n\"s01\\ntwo /bye\\n/bye\"\n");
    buf_release(&text);
    // The next run finds it, two messages back.
    talk_begin(&t, SCRIPT);
    wait_for(&t, "> ");
    keys(&t, UP UP "\n");
    wait_for(&t, "(speeds are shown)");
    talk_end(&t);
}

static void test_no_history(void **state) {
    (void)state;
    struct talk t;
    unlink(history);
    talk_begin(&t, SCRIPT " --no-history");
    wait_for(&t, "> ");
    keys(&t, "s01\n");
    wait_for(&t, "Hello, world.");
    talk_end(&t);
    assert_int_equal(access(history, F_OK), -1);
}

static void test_commands(void **state) {
    (void)state;
    struct talk t;
    char line[400];
    talk_begin(&t, SCRIPT);
    wait_for(&t, "> ");
    keys(&t, "/undo\n");
    wait_for(&t, "(nothing to take back)");
    keys(&t, "/system be brief\ns01\\\nand so on\n"); // a backslash: the message goes on
    wait_for(&t, "Hello, world.");
    snprintf(line, sizeof line, "/save ~/talk.json\n/save %s/talk.json\n", folder); // ~ is the same folder
    keys(&t, line);
    wait_for(&t, "(saved: ");
    wait_for(&t, "(saved: "); // the same file again
    keys(&t, "/reset\n/system off\n/save\n");
    wait_for(&t, "(saved: ");
    snprintf(line, sizeof line, "/load %s/talk.json\n", folder);
    keys(&t, line);
    wait_for(&t, "(loaded; messages of yours in it: 0)");
    talk_end(&t);
}

static void test_saved(void **state) {
    (void)state;
    struct talk t;
    char line[400], path[300];
    talk_begin(&t, SCRIPT " --system 'be \"brief\"'");
    wait_for(&t, "> ");
    keys(&t, "s01\n");
    wait_for(&t, "Hello, world.");
    snprintf(path, sizeof path, "%s/saved.json", folder);
    snprintf(line, sizeof line, "/save %s\n", path);
    keys(&t, line);
    wait_for(&t, "(saved: ");
    talk_end(&t);
    static const char want[] = "[{\"role\": \"system\", \"content\": \"be \\\"brief\\\"\"}, {\"role\": \"user\", "
                               "\"content\": \"s01\"}, {\"role\": \"assistant\", \"content\": \"Hello, world.\"}]\n";
    struct buf text;
    buf_init(&text, 1u << 20);
    assert_int_equal(file_read_all(&text, path, NULL), TERN_OK);
    assert_string_equal(text.data, want);
    buf_release(&text);
    talk_begin(&t, SCRIPT);
    wait_for(&t, "> ");
    keys(&t, line); // another conversation's file is not written over
    wait_for(&t, "is there already");
    snprintf(line, sizeof line, "/load %s\n/system\n/undo\n/undo\n", path);
    keys(&t, line);
    wait_for(&t, "(loaded; messages of yours in it: 1)");
    wait_for(&t, "be \"brief\"");
    wait_for(&t, "(nothing to take back)"); // one was
    assert_int_equal(file_write_atomic(path, "[{\"role\": \"king\"}]", 18, NULL), TERN_OK);
    snprintf(line, sizeof line, "/load %s\n", path);
    keys(&t, line);
    wait_for(&t, "message without a role");
    talk_end(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_interrupts), cmocka_unit_test(test_end_during_answer),
                                       cmocka_unit_test(test_edits),      cmocka_unit_test(test_no_history),
                                       cmocka_unit_test(test_commands),   cmocka_unit_test(test_saved)};
    return cmocka_run_group_tests_name("chat_terminal", tests, setup, teardown);
}
