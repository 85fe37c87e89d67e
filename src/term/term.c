// The terminal's lines: chooses the editor, keeps the history, and reads plainly where there is no editor.
//
// SIGINT is ours while a line is read: it ends the line. Outside of that the program's own handler holds (an answer is
// stopped by it). The editor takes Ctrl-C as a key.
#define _GNU_SOURCE 1 // sigaction
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include "term/term_int.h"

#include <errno.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <unistd.h>

volatile sig_atomic_t term_interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    term_interrupted = 1;
}

static void editor_take(void *arg, struct str line) { term_editor_remember(arg, line); }

enum tern_status term_open(struct term **out, const struct term_options *o, struct tern_err *history_fault,
                           struct tern_err *err) {
    struct term *t = mem_calloc(1, sizeof *t);
    *out = t;
    if (!t) return err_set(err, TERN_NO_MEMORY, "no memory for the line editor");
    t->options = *o;
    *history_fault = (struct tern_err){0};
    struct tern_err none = {0};
    enum tern_status status = term_editor_open(&t->editor, o->words, &none);
    if (status == TERN_UNSUPPORTED) return TERN_OK; // term_editor_note() says why
    if (status == TERN_OK && o->history_path) {
        size_t size = strlen(o->history_path) + 1;
        t->history_path = mem_alloc(size);
        if (!t->history_path) status = err_set(&none, TERN_NO_MEMORY, "no memory for the line editor");
        if (t->history_path) memcpy(t->history_path, o->history_path, size);
    }
    if (status == TERN_OK && t->history_path) {
        status = history_load(t->history_path, editor_take, t->editor, history_fault);
        if (status == TERN_OK) return TERN_OK;
        mem_free(t->history_path); // what cannot be read is not written either
        t->history_path = NULL;
        return TERN_OK;
    }
    if (status == TERN_OK) return TERN_OK;
    if (err) *err = none;
    term_close(t);
    *out = NULL;
    return status;
}

void term_close(struct term *t) {
    if (!t) return;
    term_editor_close(t->editor);
    mem_free(t->history_path);
    mem_free(t->last_data);
    mem_free(t);
}

bool term_edits(const struct term *t) { return t->editor != NULL; }

// SIGINT is let in only while waiting, so one that comes just before is not lost to a read that goes on.
enum term_event term_read_plain(struct term *t, const char *prompt, struct buf *out) {
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    fputs(prompt, stderr);
    enum term_event event = TERM_END;
    for (;;) {
        const char *end = memchr(t->typed, '\n', t->n_typed);
        size_t n = end ? (size_t)(end - t->typed) : t->n_typed, used = end ? n + 1 : n;
        buf_put(out, t->typed, n);
        memmove(t->typed, t->typed + used, t->n_typed - used);
        t->n_typed -= used;
        if (end) event = TERM_LINE;
        if (end) break;
        fd_set set;
        FD_ZERO(&set);
        FD_SET(0, &set);
        ssize_t got = pselect(1, &set, NULL, NULL, NULL, &before);
        if (got > 0) got = read(0, t->typed, sizeof t->typed);
        if (term_interrupted) event = TERM_INTERRUPTED;
        if (term_interrupted || got == 0 || (got < 0 && errno != EINTR)) break;
        t->n_typed = got > 0 ? (size_t)got : 0;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return event;
}

// Ctrl-D that was typed while nobody read: the terminal keeps it as an end of input without bytes. The editor would set
// the terminal to single keys and see nothing of it.
static bool end_is_waiting(void) {
    fd_set set;
    struct timeval none = {0};
    int n_bytes = 0;
    FD_ZERO(&set);
    FD_SET(0, &set);
    return select(1, &set, NULL, NULL, &none) == 1 && ioctl(0, FIONREAD, &n_bytes) == 0 && n_bytes == 0;
}

enum term_event term_read(struct term *t, const char *prompt, struct buf *out) {
    size_t before = out->len;
    if (t->editor && end_is_waiting()) {
        fputs("\n", stderr);
        return TERM_END;
    }
    struct sigaction ours = {0}, theirs;
    ours.sa_handler = on_interrupt;
    sigemptyset(&ours.sa_mask);
    term_interrupted = 0;
    sigaction(SIGINT, &ours, &theirs);
    enum term_event event = t->editor ? term_editor_read(t->editor, prompt, out) : term_read_plain(t, prompt, out);
    sigaction(SIGINT, &theirs, NULL);
    if (event == TERM_LINE) return event;
    out->len = before;
    if (out->data) out->data[before] = 0;
    fputs("\n", stderr);
    return event;
}

void term_remember(struct term *t, struct str message, struct tern_err *history_fault) {
    *history_fault = (struct tern_err){0};
    if (!t->editor || message.len == 0 || message.data[0] == ' ' || str_eq(message, t->last)) return;
    term_editor_remember(t->editor, message);
    mem_free(t->last_data);
    t->last_data = mem_alloc(message.len);
    if (t->last_data) memcpy(t->last_data, message.data, message.len);
    t->last = (struct str){t->last_data, t->last_data ? message.len : 0};
    if (!t->history_path || history_add(t->history_path, message, history_fault) == TERN_OK) return;
    mem_free(t->history_path); // told once
    t->history_path = NULL;
}
