// The operating system: files, maps, folders, clock, environment, terminal. One implementation per system (os_linux.c,
// os_macos.c over os_posix.c); nothing above base/ includes a system header for these.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"

uint64_t clock_ns(void);    // monotonic
int64_t clock_wall_s(void); // seconds since 1970, UTC
// strftime of local time with the C locale's names; returns bytes written (0: did not fit).
size_t clock_format(char *out, size_t cap, const char *fmt, int64_t wall_s);
void clock_sleep_ns(uint64_t ns);

// A read-only map of a whole file. data is NULL for an empty file. fd stays open for the map's life.
struct os_map {
    const uint8_t *data;
    size_t size;
    int fd;
};
// Refuses folders and anything but regular files, by name.
enum tern_status map_open(struct os_map *out, const char *path, struct tern_err *err);
void map_close(struct os_map *m);
// Advice: the pages of [offset, offset+len) are not needed any more (dropped from this process) / needed soon.
void map_drop(const struct os_map *m, size_t offset, size_t len);
void map_prefetch(const struct os_map *m, size_t offset, size_t len);
// Reads [offset, offset+len) of the file into out, past the map: it makes no page of the map resident. Any thread.
enum tern_status map_read(const struct os_map *m, size_t offset, void *out, size_t len, struct tern_err *err);

enum tern_status file_read_all(struct buf *out, const char *path, struct tern_err *err); // path "-": standard input
// Writes to a temporary file beside path, fsyncs, renames over path, fsyncs the folder: all or nothing.
enum tern_status file_write_atomic(const char *path, const void *data, size_t len, struct tern_err *err);
// The same in pieces, for large files.
struct os_writer {
    int fd;
    char *path;
    char *path_tmp;
    uint64_t n_bytes;
};
enum tern_status writer_open(struct os_writer *w, const char *path, struct tern_err *err);
enum tern_status writer_put(struct os_writer *w, const void *data, size_t len, struct tern_err *err);
enum tern_status writer_commit(struct os_writer *w, struct tern_err *err); // visible under path; closes w
void writer_abort(struct os_writer *w);                                    // nothing remains; fine after commit
// A write that goes on where an earlier one ended: path_part is opened or created, what it holds stays and counts in
// n_bytes. writer_commit makes it path, writer_abort removes it.
enum tern_status writer_resume(struct os_writer *w, const char *path, const char *path_part, struct tern_err *err);
enum tern_status writer_rewind(struct os_writer *w, struct tern_err *err); // to no bytes
enum tern_status writer_keep(struct os_writer *w, struct tern_err *err);   // synced and closed; path_part stays
// Test hook: the n-th write, fsync or rename from now fails with errno_value; 0 switches it off.
void os_fail_at(uint64_t n, int errno_value);

struct os_stat {
    uint64_t size;
    int64_t mtime_ns;
    uint64_t inode;
    uint64_t device;
    bool is_dir;
    bool is_file;
};
bool os_stat_get(struct os_stat *out, const char *path);
enum tern_status os_mkdirs(const char *path, struct tern_err *err);     // with parents, mode 0700
enum tern_status os_remove(const char *path, struct tern_err *err);     // a file; TERN_NOT_FOUND when absent
enum tern_status os_remove_dir(const char *path, struct tern_err *err); // an empty folder
// path becomes a symbolic link to target (as written: relative to its folder), in place of a file or link.
enum tern_status os_link(const char *target, const char *path, struct tern_err *err);
// A link's target as written; false when path is no link or it does not fit.
bool os_link_read(char *out, size_t cap, const char *path);
// The path with every link, "." and ".." resolved; false when it leads nowhere or does not fit.
bool os_real_path(char *out, size_t cap, const char *path);
bool os_touch(const char *path); // mtime = now
// Calls fn for each entry (not "." and ".."), in byte order of names; stops when fn returns false.
enum tern_status os_list(const char *path, bool (*fn)(void *arg, const char *name, const struct os_stat *st), void *arg,
                         struct tern_err *err);
// Advisory lock on path (created): exclusive, waits at most timeout_ms; fd in *out, released by os_unlock.
enum tern_status os_lock(int *out, const char *path, int timeout_ms, struct tern_err *err);
void os_unlock(int fd);
uint64_t os_disk_free(const char *path); // bytes; UINT64_MAX when unknown

const char *env_get(const char *name); // NULL when unset or empty
const char *env_nth(int i);            // "NAME=value" of each variable that is set; NULL after the last
// $XDG_CACHE_HOME/name, else $HOME/.cache/name; XDG_STATE_HOME and .local/state, XDG_CONFIG_HOME and .config. "" when
// neither is set, or there is no room: nothing can be kept there. Into out.
enum os_user_dir { OS_USER_CACHE, OS_USER_STATE, OS_USER_CONFIG };
const char *os_user_dir(enum os_user_dir which, const char *name, char *out, size_t cap);
const char *os_cache_dir(char *out, size_t cap); // "tern" of the cache
// What this machine is, for keys of what was measured on it: the processor ("Apple M4 Pro"), and the system with its
// version ("Linux 6.8", "macOS 26.1"). Never empty.
void os_chip_name(char *out, size_t cap);
void os_system_name(char *out, size_t cap);
bool tty_is(int fd);
int tty_width(int fd);       // columns; 80 when unknown
uint64_t os_ram_total(void); // bytes, limited by the cgroup's memory.max
uint64_t os_ram_available(void);
uint64_t os_rss(void);     // this process's resident bytes now
uint64_t os_rss_max(void); // and at most so far
int os_pid(void);
void os_random(void *out, size_t len); // from the system's generator
// Calls fn (async-signal-safe) at each SIGINT; NULL restores the default.
void os_on_interrupt(void (*fn)(void));
