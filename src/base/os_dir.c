// Folders, file facts and advisory locks.
//
// Locks are flock(2) on a file of their own: they belong to the open file, so they hold between threads of one process
// too, and vanish with a killed one. A lock file that was deleted while we waited is no lock: the path is compared with
// what we hold, and we start over.
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096
#define LIST_ENTRIES_MAX 1000000          // entries of one folder
#define LIST_BYTES_MAX ((size_t)64 << 20) // of their names
#define LOCK_WAIT_NS_MIN 1000000u
#define LOCK_WAIT_NS_MAX 20000000u

static void stat_fill(struct os_stat *out, const struct stat *st) {
#ifdef __APPLE__
    struct timespec mtime = st->st_mtimespec;
#else
    struct timespec mtime = st->st_mtim;
#endif
    *out = (struct os_stat){
        .size = (uint64_t)st->st_size,
        .mtime_ns = (int64_t)mtime.tv_sec * 1000000000 + mtime.tv_nsec,
        .inode = (uint64_t)st->st_ino,
        .device = (uint64_t)st->st_dev,
        .is_dir = S_ISDIR(st->st_mode),
        .is_file = S_ISREG(st->st_mode),
    };
}

bool os_stat_get(struct os_stat *out, const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return false;
    stat_fill(out, &st);
    return true;
}

static bool is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

enum tern_status os_mkdirs(const char *path, struct tern_err *err) {
    size_t len = strlen(path);
    if (len == 0) return err_set(err, TERN_INVALID_ARGUMENT, "cannot create a folder: its name is empty");
    if (len >= PATH_BYTES_MAX)
        return err_set(err, TERN_LIMIT, "cannot create a folder: its path is %zu bytes long (at most %d)", len,
                       PATH_BYTES_MAX - 1);
    char part[PATH_BYTES_MAX];
    memcpy(part, path, len + 1);
    for (size_t i = 1; i <= len; i++) {
        if (part[i] != '/' && part[i] != 0) continue;
        part[i] = 0;
        // Existing parents may be unwritable or read-only (EACCES, EROFS), so being there counts, not the error.
        if (mkdir(part, 0700) != 0 && !is_dir(part)) {
            int cause = errno == EEXIST ? ENOTDIR : errno;
            return err_set_errno(err, cause, "cannot create the folder '%s'", part);
        }
        if (i < len) part[i] = '/';
    }
    return TERN_OK;
}

enum tern_status os_remove(const char *path, struct tern_err *err) {
    if (unlink(path) == 0) return TERN_OK;
    return err_set_errno(err, errno, "cannot remove '%s'", path);
}

enum tern_status os_remove_dir(const char *path, struct tern_err *err) {
    if (rmdir(path) == 0) return TERN_OK;
    return err_set_errno(err, errno, "cannot remove the folder '%s'", path);
}

enum tern_status os_link(const char *target, const char *path, struct tern_err *err) {
    char tmp[PATH_BYTES_MAX];
    uint32_t salt;
    os_random(&salt, sizeof(salt));
    int n = snprintf(tmp, sizeof(tmp), "%s.tmp.%d.%08x", path, os_pid(), salt);
    if (n < 0 || n >= (int)sizeof(tmp)) return err_set(err, TERN_LIMIT, "the path '%s' is too long", path);
    if (symlink(target, tmp) != 0) return err_set_errno(err, errno, "cannot make the link '%s'", tmp);
    if (rename(tmp, path) == 0) return TERN_OK;
    const int cause = errno;
    unlink(tmp);
    return err_set_errno(err, cause, "cannot make the link '%s'", path);
}

bool os_link_read(char *out, size_t cap, const char *path) {
    const ssize_t n = cap > 0 ? readlink(path, out, cap) : -1;
    if (n < 0 || (size_t)n >= cap) return false;
    out[n] = 0;
    return true;
}

bool os_real_path(char *out, size_t cap, const char *path) {
    char *real = realpath(path, NULL);
    const size_t len = real ? strlen(real) : 0;
    const bool fits = real && len < cap;
    if (fits) memcpy(out, real, len + 1);
    free(real); // of libc, not of mem.h
    return fits;
}

bool os_touch(const char *path) { return utimensat(AT_FDCWD, path, NULL, 0) == 0; }

static int name_order(const void *a, const void *b) {
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

// Copies the names of dir into arena; *names is an array of *n.
static enum tern_status names_read(DIR *dir, const char *path, struct arena *arena, char ***names, size_t *n,
                                   struct tern_err *err) {
    size_t cap = 0, len = 0;
    char **list = NULL;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (!entry && errno != 0) return err_set_errno(err, errno, "cannot read the folder '%s'", path);
        if (!entry) break;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (len == LIST_ENTRIES_MAX)
            return err_set(err, TERN_LIMIT, "the folder '%s' has over %d entries", path, LIST_ENTRIES_MAX);
        if (len == cap) {
            cap = cap ? 2 * cap : 64;
            char **more = arena_calloc(arena, cap, sizeof(*more));
            if (!more) goto no_memory;
            if (len > 0) memcpy(more, list, len * sizeof(*more));
            list = more;
        }
        list[len] = arena_dup(arena, entry->d_name, strlen(entry->d_name));
        if (!list[len]) goto no_memory;
        len++;
    }
    *names = list;
    *n = len;
    return TERN_OK;
no_memory:
    return err_set(err, TERN_NO_MEMORY, "no memory to list the folder '%s' (%zu entries so far)", path, len);
}

enum tern_status os_list(const char *path, bool (*fn)(void *arg, const char *name, const struct os_stat *st), void *arg,
                         struct tern_err *err) {
    DIR *dir = opendir(path);
    if (!dir) return err_set_errno(err, errno, "cannot read the folder '%s'", path);
    struct arena arena;
    arena_init(&arena, LIST_BYTES_MAX);
    char **names = NULL;
    size_t n = 0;
    enum tern_status status;
    TRY_GOTO(names_read(dir, path, &arena, &names, &n, err), done);
    if (n > 1) qsort(names, n, sizeof(*names), name_order);
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        // A link to nowhere is told as what it is; an entry that went away meanwhile is left out.
        if (fstatat(dirfd(dir), names[i], &st, 0) != 0 && fstatat(dirfd(dir), names[i], &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        struct os_stat facts;
        stat_fill(&facts, &st);
        if (!fn(arg, names[i], &facts)) break;
    }
done:
    arena_release(&arena);
    closedir(dir);
    return status;
}

// True when path still names the file that fd has open.
static bool lock_is_current(int fd, const char *path) {
    struct stat held, named;
    return fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev;
}

enum tern_status os_lock(int *out, const char *path, int timeout_ms, struct tern_err *err) {
    uint64_t start = clock_ns(), limit = (uint64_t)MAX(timeout_ms, 0) * 1000000u, wait = LOCK_WAIT_NS_MIN;
    int fd = -1;
    for (;;) {
        if (fd < 0) fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0) return err_set_errno(err, errno, "cannot open the lock '%s'", path);
        int rc = flock(fd, LOCK_EX | LOCK_NB);
        if (rc == 0 && lock_is_current(fd, path)) {
            *out = fd;
            return TERN_OK;
        }
        if (rc != 0 && errno != EWOULDBLOCK && errno != EINTR) {
            int cause = errno;
            close(fd);
            return err_set_errno(err, cause, "cannot lock '%s'", path);
        }
        if (rc == 0 || !lock_is_current(fd, path)) {
            close(fd);
            fd = -1;
        }
        uint64_t waited = clock_ns() - start;
        if (waited >= limit) {
            if (fd >= 0) close(fd);
            return err_set(err, TERN_AGAIN, "another process holds the lock '%s' (waited %d ms)", path, timeout_ms);
        }
        clock_sleep_ns(MIN(wait, limit - waited));
        wait = MIN(2 * wait, LOCK_WAIT_NS_MAX);
    }
}

void os_unlock(int fd) {
    if (fd < 0) return;
    flock(fd, LOCK_UN);
    close(fd);
}
