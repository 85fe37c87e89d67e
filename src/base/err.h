// Status codes, the error object and the two kinds of failure.
//
// A function that can fail returns `enum tern_status` (0 is ok) and takes a last, nullable `struct tern_err *err`.
// Whoever detects a failure writes the object with err_set(), once, complete enough to show to a user: what failed,
// where (file, tensor, key, byte), expected, found, what to do. Callers pass it on, or wrap it with err_prefix().
// A broken invariant of ours is no status: TERN_BUG() (plain.h) aborts, in release builds too.
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/plain.h"
#include "tern.h"

// Writes code and message (escaped of control bytes, cut to fit at a UTF-8 border) unless err is NULL; returns code.
enum tern_status err_set(struct tern_err *err, enum tern_status code, const char *fmt, ...) PRINTF_LIKE(3, 4);
// As err_set, with the byte position in the input at which the fault was seen.
enum tern_status err_set_at(struct tern_err *err, enum tern_status code, int64_t pos, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
// Puts "prefix: " in front of the message, for a caller that knows more of the where. Returns err's code; without an
// err it cannot know it (TERN_INVALID_ARGUMENT), so callers with a status at hand return that.
enum tern_status err_prefix(struct tern_err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
// Message for a failed system call: "what: strerror(errno)"; maps ENOMEM, ENOSPC, ENOENT to their statuses, else IO.
enum tern_status err_set_errno(struct tern_err *err, int errno_value, const char *fmt, ...) PRINTF_LIKE(3, 4);

// Returns from the calling function when expr is not TERN_OK.
#define TRY(expr)                                       \
    do {                                                \
        enum tern_status try_status_ = (expr);          \
        if (try_status_ != TERN_OK) return try_status_; \
    } while (0)
// The same for functions with one unwinding point: sets `status` and jumps.
#define TRY_GOTO(expr, label)              \
    do {                                   \
        status = (expr);                   \
        if (status != TERN_OK) goto label; \
    } while (0)
