// Logging to stderr: one line per call, control characters escaped, prompts never logged. Progress bars for a terminal.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
void log_level_set(enum log_level level); // default LOG_WARN; TERN_LOG=error|warn|info|debug at start
enum log_level log_level_get(void);
void log_put(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);
#define log_error(...) log_put(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_put(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_put(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_put(LOG_DEBUG, __VA_ARGS__)

// A progress report on work that may take over two seconds. Nothing is drawn before 300 ms, nor unless stderr is a
// terminal (then one redrawn line); progress_end clears it.
struct progress {
    const char *what; // "packing", "prefill"
    uint64_t total;   // items or bytes; 0: unknown
    bool is_bytes;
    uint64_t n_before; // of total, done before this run: counts for the share, not for the speed
    uint64_t start_ns;
    uint64_t drawn_ns;
    bool drawn;
};
void progress_begin(struct progress *p, const char *what, uint64_t total, bool is_bytes);
void progress_update(struct progress *p, uint64_t done);
void progress_end(struct progress *p);
