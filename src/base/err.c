// The error object and the abort for broken invariants.
//
// Nothing here allocates: an error about memory must still be told. Messages are formatted into the stack first, since
// an argument may be the old message, and escaped on the way into the object, so that hostile names in files cannot
// drive a terminal.
#include "base/base.h"
#include "base/base_int.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define ERR_FORMAT_MAX (2 * TERN_ERR_MESSAGE_MAX) // bytes formatted before the cut

const char *tern_status_text(enum tern_status status) {
    switch (status) {
#define STATUS_CASE(name, value, text) \
    case TERN_##name: return text;
        TERN_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}

static void err_put(struct tern_err *err, struct str text, bool more) {
    escape_into(err->message, sizeof(err->message), text, more);
}

static enum tern_status err_set_v(struct tern_err *err, enum tern_status code, int64_t pos, const char *fmt,
                                  va_list args) {
    if (!err) return code;
    char text[ERR_FORMAT_MAX];
    int n = vsnprintf(text, sizeof(text), fmt, args);
    if (n < 0) n = 0;
    bool more = (size_t)n >= sizeof(text);
    err_put(err, (struct str){text, more ? sizeof(text) - 1 : (size_t)n}, more);
    err->code = code;
    err->pos = pos;
    return code;
}

enum tern_status err_set(struct tern_err *err, enum tern_status code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    err_set_v(err, code, -1, fmt, args);
    va_end(args);
    return code;
}

enum tern_status err_set_at(struct tern_err *err, enum tern_status code, int64_t pos, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    err_set_v(err, code, pos, fmt, args);
    va_end(args);
    return code;
}

enum tern_status err_prefix(struct tern_err *err, const char *fmt, ...) {
    if (!err) return TERN_INVALID_ARGUMENT;
    char text[ERR_FORMAT_MAX];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof(text) / 2, fmt, args);
    va_end(args);
    size_t len = n < 0 ? 0 : MIN((size_t)n, sizeof(text) / 2 - 1);
    len -= utf8_incomplete_tail((struct str){text, len});
    int tail = snprintf(text + len, sizeof(text) - len, ": %s", err->message);
    if (tail > 0) len += MIN((size_t)tail, sizeof(text) - len - 1);
    err_put(err, (struct str){text, len}, false);
    return err->code;
}

enum tern_status err_set_errno(struct tern_err *err, int errno_value, const char *fmt, ...) {
    enum tern_status code = TERN_IO;
    switch (errno_value) {
    case ENOMEM: code = TERN_NO_MEMORY; break;
    case ENOSPC: code = TERN_NO_SPACE; break;
#ifdef EDQUOT
    case EDQUOT: code = TERN_NO_SPACE; break;
#endif
    case ENOENT: code = TERN_NOT_FOUND; break;
    default: break;
    }
    if (!err) return code;
    char text[ERR_FORMAT_MAX];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof(text) / 2, fmt, args);
    va_end(args);
    if (n < 0) text[0] = 0;
    return err_set(err, code, "%s: %s", text, strerror(errno_value));
}

_Noreturn void bug_abort(const char *file, int line, const char *fmt, ...) {
    char text[ERR_FORMAT_MAX];
    va_list args;
    va_start(args, fmt);
    if (vsnprintf(text, sizeof(text), fmt, args) < 0) text[0] = 0;
    va_end(args);
    fflush(NULL);
    fprintf(stderr,
            "tern: bug at %s:%d: %s\nThis is a fault in tern, or in a program that calls its library "
            "otherwise than tern.h says, not in your input; please report this line.\n",
            file, line, text);
    abort();
}
