// Stop strings over streamed text. Text is held back while its end may still become a stop string, so that no part of
// one is ever shown; with several stop strings the one that begins first wins, and among those the longest.
#include "base/base.h"
#include "engine_int.h"

#define STOP_BYTES_MAX 1024

enum tern_status stop_matcher_init(struct stop_matcher *m, const char *const *stops, int n, struct tern_err *err) {
    *m = (struct stop_matcher){0};
    buf_init(&m->held, 1u << 20);
    for (int i = 0; i < n; i++) {
        size_t len = stops[i] ? strlen(stops[i]) : 0;
        if (len == 0 || len > STOP_BYTES_MAX) {
            stop_matcher_release(m);
            return err_set(err, TERN_INVALID_ARGUMENT, "stop string %d has %zu bytes; it must have 1 to %d", i + 1, len,
                           STOP_BYTES_MAX);
        }
        char *copy = mem_strdup(stops[i]);
        if (!copy) {
            stop_matcher_release(m);
            return err_set(err, TERN_NO_MEMORY, "no memory for the stop strings");
        }
        m->stops[m->n++] = (struct str){copy, len};
        m->longest = MAX(m->longest, len);
    }
    return TERN_OK;
}

void stop_matcher_release(struct stop_matcher *m) {
    for (int i = 0; i < m->n; i++) mem_free((void *)(uintptr_t)m->stops[i].data);
    m->n = 0;
    buf_release(&m->held);
}

// Length of the longest suffix of text that begins some stop string (and is no whole one).
static size_t suffix_that_begins_stop(const struct stop_matcher *m, struct str text) {
    for (size_t n = MIN(m->longest - 1, text.len); n > 0; n--)
        for (int i = 0; i < m->n; i++)
            if (m->stops[i].len > n && memcmp(m->stops[i].data, text.data + text.len - n, n) == 0) return n;
    return 0;
}

bool stop_matcher_put(struct stop_matcher *m, struct str piece, struct buf *out) {
    if (m->n == 0) {
        buf_put(out, piece.data, piece.len);
        return false;
    }
    if (!buf_put(&m->held, piece.data, piece.len)) {
        out->failed = true;
        return false;
    }
    struct str text = buf_str(&m->held);
    size_t first = (size_t)-1;
    for (int i = 0; i < m->n; i++) first = MIN(first, str_find(text, m->stops[i], 0));
    if (first != (size_t)-1) {
        buf_put(out, text.data, first);
        buf_clear(&m->held);
        return true;
    }
    size_t keep = suffix_that_begins_stop(m, text), give = text.len - keep;
    buf_put(out, text.data, give);
    memmove(m->held.data, m->held.data + give, keep);
    m->held.len = keep;
    m->held.data[keep] = 0;
    return false;
}

void stop_matcher_flush(struct stop_matcher *m, struct buf *out) {
    if (m->held.len) buf_put(out, m->held.data, m->held.len);
    buf_clear(&m->held);
}
