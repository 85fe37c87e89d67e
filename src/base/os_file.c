// Files: read-only maps, whole reads, and writes that are all or nothing.
//
// A write goes to "<path>.tmp.<pid>.<random>" in the same folder, created exclusively with mode 0600, is synced,
// renamed over the path, and the folder is synced. When only that last sync fails, the new file is in place and whole,
// but the error is told, as a power cut could bring back the old one.
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include "base/base_int.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_PIECE ((size_t)64 << 10)
#define READ_PIECE_MAX ((size_t)1 << 30) // of one call: systems take no more than 2 GiB
#define WRITE_PIECE ((size_t)16 << 20)   // one write call at most; macOS refuses over 2 GiB

static _Atomic uint64_t fault_left; // 0: off
static _Atomic int fault_errno;

void os_fail_at(uint64_t n, int errno_value) {
    atomic_store(&fault_errno, errno_value);
    atomic_store(&fault_left, n);
}

// Counts one write, fsync or rename; true, with errno set, when it shall fail.
static bool fault_hit(void) {
    uint64_t left = atomic_load(&fault_left);
    while (left > 0 && !atomic_compare_exchange_weak(&fault_left, &left, left - 1)) {
    }
    if (left != 1) return false;
    errno = atomic_load(&fault_errno);
    return true;
}

static const char *kind_text(mode_t mode) {
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

enum tern_status map_open(struct os_map *out, const char *path, struct tern_err *err) {
    // O_NONBLOCK: opening a pipe must not wait for its writer before we refuse it.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return err_set_errno(err, errno, "cannot open '%s'", path);
    struct stat st;
    enum tern_status status;
    if (fstat(fd, &st) != 0) {
        status = err_set_errno(err, errno, "cannot look at '%s'", path);
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        status = err_set(err, TERN_INVALID_ARGUMENT, "'%s' is %s, not a file", path, kind_text(st.st_mode));
        goto fail;
    }
    const uint8_t *data = NULL;
    if (st.st_size > 0) {
        data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED) {
            status = err_set_errno(err, errno, "cannot map '%s' (%lld bytes)", path, (long long)st.st_size);
            goto fail;
        }
    }
    *out = (struct os_map){data, (size_t)st.st_size, fd};
    return TERN_OK;
fail:
    close(fd);
    return status;
}

void map_close(struct os_map *m) {
    if (m->data) munmap((void *)(uintptr_t)m->data, m->size);
    if (m->data || m->fd > 0) close(m->fd);
    *m = (struct os_map){.fd = -1};
}

static void map_advise(const struct os_map *m, size_t begin, size_t end, int advice) {
    if (begin >= end) return;
    madvise((void *)(uintptr_t)(m->data + begin), end - begin, advice);
}

// Only pages that lie wholly in the range may go.
void map_drop(const struct os_map *m, size_t offset, size_t len) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), begin;
    if (!m->data || offset >= m->size || !size_align(offset, page, &begin)) return;
    size_t end = len > m->size - offset ? m->size : offset + len;
    if (end < m->size) end = end / page * page;
    map_advise(m, begin, end, MADV_DONTNEED);
}

void map_prefetch(const struct os_map *m, size_t offset, size_t len) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!m->data || offset >= m->size) return;
    size_t end = len > m->size - offset ? m->size : offset + len;
    map_advise(m, offset / page * page, end, MADV_WILLNEED);
}

enum tern_status map_read(const struct os_map *m, size_t offset, void *out, size_t len, struct tern_err *err) {
    char *to = out;
    while (len > 0) {
        ssize_t n = pread(m->fd, to, MIN(len, READ_PIECE_MAX), (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set_errno(err, errno, "cannot read the file");
        if (n == 0) return err_set(err, TERN_IO, "the file ends at byte %zu, %zu bytes are missing", offset, len);
        to += n;
        offset += (size_t)n;
        len -= (size_t)n;
    }
    return TERN_OK;
}

bool os_read_small(const char *path, char *out, size_t cap) {
    out[0] = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t len = 0;
    ssize_t n = 1;
    while (len + 1 < cap && n > 0) {
        n = read(fd, out + len, cap - 1 - len);
        if (n > 0) len += (size_t)n;
        if (n < 0 && errno == EINTR) n = 1;
    }
    close(fd);
    out[len] = 0;
    return n >= 0;
}

static enum tern_status read_fd(struct buf *out, int fd, const char *name, struct tern_err *err) {
    for (;;) {
        // At the maximum one more byte is tried, outside the buffer, to tell "full" from "too large".
        size_t room = out->cap_max - MIN(out->cap_max, out->len);
        char extra;
        size_t want = MIN(READ_PIECE, room);
        if (room > 0 && !buf_reserve(out, want))
            return err_set(err, TERN_NO_MEMORY, "no memory to read %s (%zu bytes so far)", name, out->len);
        if (room > 0) want = MIN(out->cap - 1 - out->len, room);
        ssize_t n = read(fd, room > 0 ? out->data + out->len : &extra, room > 0 ? want : 1);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set_errno(err, errno, "cannot read %s", name);
        if (n == 0) return TERN_OK;
        if (room == 0) return err_set(err, TERN_LIMIT, "%s is larger than the limit of %zu bytes", name, out->cap_max);
        out->len += (size_t)n;
        out->data[out->len] = 0;
    }
}

enum tern_status file_read_all(struct buf *out, const char *path, struct tern_err *err) {
    if (strcmp(path, "-") == 0) return read_fd(out, STDIN_FILENO, "standard input", err);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set_errno(err, errno, "cannot open '%s'", path);
    struct stat st;
    enum tern_status status = TERN_OK;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        status = err_set(err, TERN_INVALID_ARGUMENT, "'%s' is a folder, not a file", path);
    } else {
        char name[512];
        snprintf(name, sizeof(name), "'%s'", path);
        // One step straight to the size of an ordinary file; what grows meanwhile is read all the same.
        if (S_ISREG(st.st_mode) && st.st_size > 0 && (uint64_t)st.st_size <= out->cap_max - MIN(out->cap_max, out->len))
            buf_reserve(out, (size_t)st.st_size);
        status = read_fd(out, fd, name, err);
    }
    close(fd);
    return status;
}

enum tern_status writer_open(struct os_writer *w, const char *path, struct tern_err *err) {
    *w = (struct os_writer){.fd = -1};
    enum tern_status status = TERN_OK;
    struct buf tmp;
    buf_init(&tmp, 8192);
    uint32_t salt;
    os_random(&salt, sizeof(salt));
    buf_putf(&tmp, "%s.tmp.%d.%08x", path, os_pid(), salt);
    w->path = mem_strdup(path);
    w->path_tmp = tmp.failed ? NULL : mem_strdup(tmp.data);
    buf_release(&tmp);
    if (!w->path || !w->path_tmp) {
        status = err_set(err, TERN_NO_MEMORY, "no memory to write '%s'", path);
        goto fail;
    }
    w->fd = open(w->path_tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (w->fd < 0) {
        status = err_set_errno(err, errno, "cannot create '%s'", w->path);
        goto fail;
    }
    return TERN_OK;
fail:
    mem_free(w->path);
    mem_free(w->path_tmp);
    *w = (struct os_writer){.fd = -1};
    return status;
}

enum tern_status writer_resume(struct os_writer *w, const char *path, const char *path_part, struct tern_err *err) {
    struct stat st;
    *w = (struct os_writer){.fd = -1, .path = mem_strdup(path), .path_tmp = mem_strdup(path_part)};
    if (!w->path || !w->path_tmp) {
        err_set(err, TERN_NO_MEMORY, "no memory to write '%s'", path);
        goto fail;
    }
    w->fd = open(path_part, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (w->fd < 0 || fstat(w->fd, &st) != 0) {
        err_set_errno(err, errno, "cannot write '%s'", path_part);
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        err_set(err, TERN_INVALID_ARGUMENT, "'%s' is %s, not a file", path_part, kind_text(st.st_mode));
        goto fail;
    }
    w->n_bytes = (uint64_t)st.st_size;
    return TERN_OK;
fail:
    if (w->fd >= 0) close(w->fd);
    mem_free(w->path);
    mem_free(w->path_tmp);
    *w = (struct os_writer){.fd = -1};
    return err ? err->code : TERN_IO;
}

enum tern_status writer_rewind(struct os_writer *w, struct tern_err *err) {
    if (ftruncate(w->fd, 0) != 0) return err_set_errno(err, errno, "cannot empty '%s'", w->path_tmp);
    w->n_bytes = 0;
    return TERN_OK;
}

enum tern_status writer_put(struct os_writer *w, const void *data, size_t len, struct tern_err *err) {
    const char *p = data;
    while (len > 0) {
        ssize_t n = fault_hit() ? -1 : write(w->fd, p, MIN(len, WRITE_PIECE));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set_errno(err, errno, "cannot write '%s' at byte %" PRIu64, w->path_tmp, w->n_bytes);
        p += n;
        len -= (size_t)n;
        w->n_bytes += (uint64_t)n;
    }
    return TERN_OK;
}

static int sync_fd(int fd) {
    if (fault_hit()) return -1;
#ifdef __APPLE__
    if (fcntl(fd, F_FULLFSYNC) == 0) return 0;
#endif
    return fsync(fd);
}

// Folders of some file systems cannot be synced (EINVAL); that is not the caller's trouble.
static int sync_folder_of(char *path) {
    char *slash = strrchr(path, '/');
    char kept = 0;
    if (slash) {
        kept = slash[1];
        slash[1] = 0;
    }
    int fd = open(slash ? path : ".", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    if (slash) slash[1] = kept;
    if (fd < 0) return errno == EACCES ? 0 : -1; // a folder that may be written but not read
    int rc = sync_fd(fd);
    if (rc != 0 && errno == EINVAL) rc = 0;
    int errno_before = errno;
    close(fd);
    errno = errno_before;
    return rc;
}

enum tern_status writer_keep(struct os_writer *w, struct tern_err *err) {
    enum tern_status status = TERN_OK;
    if (!w->path_tmp) return TERN_OK;
    if (sync_fd(w->fd) != 0) status = err_set_errno(err, errno, "cannot sync '%s'", w->path_tmp);
    w->path_tmp[0] = 0; // it stays
    writer_abort(w);
    return status;
}

enum tern_status writer_commit(struct os_writer *w, struct tern_err *err) {
    enum tern_status status = TERN_OK;
    TERN_ASSERT(w->path_tmp);
    if (sync_fd(w->fd) != 0) {
        status = err_set_errno(err, errno, "cannot sync '%s'", w->path_tmp);
    } else if (fault_hit() || rename(w->path_tmp, w->path) != 0) {
        status = err_set_errno(err, errno, "cannot rename '%s' to '%s'", w->path_tmp, w->path);
    } else {
        w->path_tmp[0] = 0; // nothing to remove any more
        if (sync_folder_of(w->path) != 0) status = err_set_errno(err, errno, "cannot sync the folder of '%s'", w->path);
    }
    writer_abort(w);
    return status;
}

void writer_abort(struct os_writer *w) {
    if (!w->path_tmp) return;
    close(w->fd);
    if (w->path_tmp[0]) unlink(w->path_tmp);
    mem_free(w->path);
    mem_free(w->path_tmp);
    *w = (struct os_writer){.fd = -1};
}

enum tern_status file_write_atomic(const char *path, const void *data, size_t len, struct tern_err *err) {
    struct os_writer w;
    TRY(writer_open(&w, path, err));
    enum tern_status status = writer_put(&w, data, len, err);
    if (status == TERN_OK) return writer_commit(&w, err);
    writer_abort(&w);
    return status;
}
