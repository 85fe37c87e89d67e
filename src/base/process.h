// Child processes, for benches that run other programs beside ours, and the processor time that everybody took.
//
// A child leads a process group of its own, so that all it starts can be killed with it; on Linux the kernel kills it
// when this process dies. Standard input is empty. One thread starts and waits for a child.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct os_child {
    int pid; // of the child and its group; 0: none
    uint64_t start_ns;
};
struct child_options {
    const char *const *argv; // [0]: a path, or a name to look up in $PATH; ends with NULL
    const char *out_path;    // file that gets standard output, at its end; NULL: nobody reads it
    const char *err_path;    // the same for standard error; may be equal to out_path
    const char *dir;         // working folder; NULL: ours
    int *talk; // NULL, or gets a descriptor: what is written to it is the child's standard input, what the
               // child writes to its standard output (out_path is NULL) is read from it; talk_close()
};
struct child_result {
    bool timed_out;   // it was killed after its time
    int code;         // exit code; of a child ended by a signal 128 + its number
    double wall_s;    // from start to end
    double cpu_s;     // processor time, its waited-for children included
    uint64_t rss_max; // bytes resident at most
};
// TERN_NOT_FOUND, TERN_IO: it did not start, with the system's reason.
enum tern_status child_open(struct os_child *out, const struct child_options *o, struct tern_err *err);
// A copy of this process that runs fn, then ends; fn uses no lock and no memory of mem.h.
enum tern_status child_fork(struct os_child *out, void (*fn)(void *arg), void *arg, struct tern_err *err);
// Waits for its end, at most so long; then its group is killed. What it left running is killed in any case.
enum tern_status child_wait(struct os_child *c, int64_t timeout_ms, struct child_result *out, struct tern_err *err);
// Has it ended? Nothing is reaped: child_wait tells how.
bool child_is_over(const struct os_child *c);
// Kills the group without waiting: async-signal-safe, for a hook of os_on_interrupt.
void child_signal_kill(const struct os_child *c);
// Kills and waits; fine when there is none.
void child_close(struct os_child *c);

// Whole messages over the descriptor of child_options.talk. A child that ended, and a wait of more than timeout_ms
// between bytes, are TERN_IO: the caller closes both then. talk_read_line takes bytes up to and without '\n' (a line of
// cap bytes and more: TERN_INVALID_ARGUMENT) and ends them with 0.
enum tern_status talk_write(int fd, const void *data, size_t len, int timeout_ms, struct tern_err *err);
enum tern_status talk_read(int fd, void *out, size_t len, int timeout_ms, struct tern_err *err);
enum tern_status talk_read_line(int fd, char *out, size_t cap, int timeout_ms, struct tern_err *err);
void talk_close(int fd); // -1 is fine

// Processor seconds that all processes have taken so far of the processors that this one may use (macOS: of all), and
// what a hypervisor took from them; false when the system does not say. Resolution about 10 ms.
bool os_cpu_busy(double *seconds);
// The same of this process and of its children that were waited for.
double os_cpu_self(void);
// The file of this program; "" when unknown or longer than cap.
const char *os_exe_path(char *out, size_t cap);
// Appends to a file (created with its folder absent: an error) in one write.
enum tern_status file_append(const char *path, const void *data, size_t len, struct tern_err *err);
