// Log lines and progress, on standard error. A line is one write(2), so lines of threads and processes do not mix.
#define _GNU_SOURCE 1
#include "base/base.h"
#include "base/base_int.h"
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define LOG_FORMAT_MAX 2048 // bytes of a message before escaping
#define LOG_LINE_MAX 4096
#define PROGRESS_FIRST_NS 300000000u
#define PROGRESS_REDRAW_NS 100000000u

static _Atomic int level_now = -1; // -1: TERN_LOG not looked at yet

void log_level_set(enum log_level level) { atomic_store(&level_now, (int)level); }

enum log_level log_level_get(void) {
    static const char *const name[] = {"error", "warn", "info", "debug"};
    int level = atomic_load_explicit(&level_now, memory_order_relaxed);
    if (level >= 0) return (enum log_level)level;
    level = LOG_WARN;
    const char *wanted = env_get("TERN_LOG");
    bool known = !wanted;
    for (int i = 0; wanted && i < (int)ARRAY_LEN(name); i++)
        if (strcmp(wanted, name[i]) == 0) level = i, known = true;
    int unset = -1;
    if (atomic_compare_exchange_strong(&level_now, &unset, level) && !known)
        log_put(LOG_WARN, "TERN_LOG=%s is none of error, warn, info, debug: warn is taken", wanted);
    return (enum log_level)atomic_load(&level_now);
}

static void stderr_put(const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, data, len);
        if (n <= 0) return; // nobody left to tell
        data += n;
        len -= (size_t)n;
    }
}

void log_put(enum log_level level, const char *fmt, ...) {
    static const char *const prefix[] = {"tern: error: ", "tern: warning: ", "tern: ", "tern: debug: "};
    if (level > log_level_get()) return;
    char text[LOG_FORMAT_MAX], line[LOG_LINE_MAX];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (n < 0) return;
    bool more = (size_t)n >= sizeof(text);
    size_t len = strlen(prefix[level]);
    memcpy(line, prefix[level], len);
    struct str message = {text, more ? sizeof(text) - 1 : (size_t)n};
    len += escape_into(line + len, sizeof(line) - len - 1, message, more);
    line[len++] = '\n';
    stderr_put(line, len);
}

void progress_begin(struct progress *p, const char *what, uint64_t total, bool is_bytes) {
    uint64_t now = clock_ns();
    *p = (struct progress){.what = what, .total = total, .is_bytes = is_bytes, .start_ns = now, .drawn_ns = now};
}

size_t progress_line(const struct progress *p, uint64_t done, uint64_t now_ns, int width, char *out, size_t cap) {
    char amount[64], done_text[24], total_text[24], speed[40] = "", left[32] = "";
    const double spent_s = (double)(now_ns - p->start_ns) * 1e-9;
    const uint64_t now_done = done - MIN(done, p->n_before), now_total = p->total - MIN(p->total, p->n_before);
    if (p->is_bytes) {
        bytes_format(done, done_text);
        bytes_format(p->total, total_text);
    } else {
        snprintf(done_text, sizeof(done_text), "%llu", (unsigned long long)done);
        snprintf(total_text, sizeof(total_text), "%llu", (unsigned long long)p->total);
    }
    if (p->total > 0) {
        double share = MIN((double)done / (double)p->total, 1.0);
        snprintf(amount, sizeof(amount), "%3d%%  %s of %s", (int)(share * 100), done_text, total_text);
        if ((double)now_done > 0.02 * (double)now_total && share < 1)
            snprintf(left, sizeof(left), "  %.0f s left", spent_s * (double)(now_total - now_done) / (double)now_done);
    } else {
        snprintf(amount, sizeof(amount), "%s", done_text);
    }
    if (p->is_bytes && spent_s > 0.3 && now_done > 0) {
        bytes_format((uint64_t)((double)now_done / spent_s), done_text);
        snprintf(speed, sizeof(speed), "  %s/s", done_text);
    }
    int n = snprintf(out, MIN(cap, (size_t)MAX(width, 1)), "%s %s%s%s", p->what, amount, speed, left);
    size_t len = n < 0 ? 0 : MIN((size_t)n, MIN(cap, (size_t)MAX(width, 1)) - 1);
    return len;
}

void progress_update(struct progress *p, uint64_t done) {
    uint64_t now = clock_ns();
    if (now - p->start_ns < PROGRESS_FIRST_NS) return;
    if (p->drawn && now - p->drawn_ns < PROGRESS_REDRAW_NS) return;
    if (!p->drawn && p->drawn_ns != p->start_ns) return; // found before that there is no terminal
    p->drawn_ns = now;
    if (!tty_is(STDERR_FILENO)) return;
    char text[256] = "\r\x1b[K";
    size_t len = strlen(text);
    len += progress_line(p, done, now, tty_width(STDERR_FILENO), text + len, sizeof(text) - len);
    stderr_put(text, len);
    p->drawn = true;
}

void progress_end(struct progress *p) {
    if (p->drawn) stderr_put("\r\x1b[K", 4);
    p->drawn = false;
}
