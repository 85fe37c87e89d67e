// Writing to stdout with every fault seen, telling errors on stderr, reading prompts, and Ctrl-C.
#include "base/base.h"
#include "app.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static void out_fault(int errno_value) {
    if (errno_value == EPIPE) _Exit(EXIT_DONE); // the reader has seen enough
    fprintf(stderr, "tern: cannot write the output: %s\n", strerror(errno_value));
    _Exit(EXIT_FAILED);
}

void out_put(struct str s) {
    if (s.len > 0 && fwrite(s.data, 1, s.len, stdout) != s.len) out_fault(errno);
}
void out_puts(const char *z) { out_put(str_from(z)); }

void out_putf(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vfprintf(stdout, fmt, args);
    va_end(args);
    if (n < 0) out_fault(errno);
}

void out_quoted(const char *z) {
    struct buf b;
    buf_init(&b, APP_TEXT_BYTES_MAX);
    if (!json_put_quoted(&b, str_from(z))) out_fault(ENOMEM);
    out_put(buf_str(&b));
    buf_release(&b);
}

void out_flush(void) {
    if (fflush(stdout) != 0) out_fault(errno);
}

int fail_told(const struct command *c, const struct tern_err *err) {
    fprintf(stderr, "tern%s%s: %s\n", c ? " " : "", c ? c->name : "", err->message);
    return EXIT_FAILED;
}

int prompt_read(const struct command *c, const char *text, const char *file, struct buf *out, bool *found) {
    struct tern_err err = {0};
    buf_init(out, APP_TEXT_BYTES_MAX);
    *found = true;
    if (text && file) return usage_error(c, "give the text or a file, not both");
    if (text) {
        if (buf_put(out, text, strlen(text))) return 0;
        err_set(&err, TERN_NO_MEMORY, "no memory for the text");
        return fail_told(c, &err);
    }
    if (!file && tty_is(0)) {
        *found = false;
        return 0;
    }
    if (file_read_all(out, file ? file : "-", &err) != TERN_OK) return fail_told(c, &err);
    return 0;
}

#define PRESSES_HELD 2 // that a program which goes on bears while one answer is being stopped

static struct tern_request *volatile watched;
static volatile sig_atomic_t n_interrupts, held;

static void on_interrupt(void) {
    struct tern_request *r = watched;
    if (n_interrupts++ >= (held ? PRESSES_HELD : r != NULL)) _Exit(EXIT_INTERRUPTED);
    if (r) tern_request_cancel(r);
}

void interrupt_watch(struct tern_request *r) {
    n_interrupts = 0;
    watched = r;
    os_on_interrupt(r || held ? on_interrupt : NULL);
}
void interrupt_hold(bool on) {
    held = on;
    interrupt_watch(NULL);
}
bool interrupt_seen(void) { return n_interrupts > 0; }
