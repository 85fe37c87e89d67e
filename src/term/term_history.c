// The file of earlier messages: a JSON string a line, so that a message may have line ends; mode 0600, since what
// people ask is nobody else's business. Lines are appended in one write each, so two chats at once both keep theirs.
#define _GNU_SOURCE 1 // O_NOFOLLOW
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include "term/term_int.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define HISTORY_BYTES_MAX (64u << 20)

static enum tern_status history_fault(const char *path, struct tern_err *err) {
    return err_set_errno(err, errno, "%s: cannot write the history (--no-history does without it)", path);
}

// A line of the file; one that is no JSON string is passed over: somebody edited it.
static bool line_decode(struct str line, struct buf *out) {
    struct json *j;
    struct json_item item;
    struct tern_err ignored = {0};
    buf_clear(out);
    if (json_create(&j, line, NULL, &ignored) != TERN_OK) return false;
    bool good = json_next(j, &item, &ignored) == JSON_STRING && buf_put(out, item.text.data, item.text.len) &&
                json_next(j, &item, &ignored) == JSON_END;
    json_free(j);
    return good && out->len > 0;
}

// The place behind which the last n lines are, and how many lines there are.
static size_t tail_find(struct str text, size_t n, size_t *n_lines) {
    size_t start = text.len, count = 0;
    for (size_t i = text.len; i-- > 0;) {
        if (text.data[i] != '\n' || i + 1 == text.len) continue;
        if (++count == n) start = i + 1;
    }
    *n_lines = count + (text.len > 0);
    return *n_lines <= n ? 0 : start;
}

enum tern_status history_load(const char *path, void (*fn)(void *arg, struct str line), void *arg,
                              struct tern_err *err) {
    struct os_stat st;
    if (!os_stat_get(&st, path)) return TERN_OK; // the first time
    struct buf text, line;
    buf_init(&text, HISTORY_BYTES_MAX);
    buf_init(&line, TERM_LINE_BYTES_MAX);
    enum tern_status status = file_read_all(&text, path, err);
    size_t n_lines = 0;
    size_t start = status == TERN_OK ? tail_find(buf_str(&text), TERM_HISTORY_MAX, &n_lines) : 0;
    struct str rest = {text.data ? text.data + start : NULL, text.len - start};
    if (status == TERN_OK && n_lines > (size_t)2 * TERM_HISTORY_MAX)
        status = file_write_atomic(path, rest.data, rest.len, err);
    while (status == TERN_OK && rest.len > 0) {
        size_t end = str_find(rest, STR("\n"), 0);
        if (end == (size_t)-1) end = rest.len;
        if (line_decode((struct str){rest.data, end}, &line)) fn(arg, buf_str(&line));
        end = MIN(end + 1, rest.len);
        rest = (struct str){rest.data + end, rest.len - end};
    }
    buf_release(&line);
    buf_release(&text);
    return status;
}

static enum tern_status folder_make(const char *path, struct tern_err *err) {
    struct buf dir;
    buf_init(&dir, 1u << 16);
    const char *slash = strrchr(path, '/');
    enum tern_status status = TERN_OK;
    if (slash && slash > path) {
        buf_put(&dir, path, (size_t)(slash - path));
        status = dir.failed ? err_set(err, TERN_NO_MEMORY, "no memory for the history") : os_mkdirs(dir.data, err);
    }
    buf_release(&dir);
    return status;
}

enum tern_status history_add(const char *path, struct str line, struct tern_err *err) {
    struct buf text;
    buf_init(&text, 6 * (size_t)TERM_LINE_BYTES_MAX); // \u00XX for each byte at most
    if (!json_put_quoted(&text, line) || !buf_putc(&text, '\n')) {
        buf_release(&text);
        return err_set(err, TERN_NO_MEMORY, "no memory for the history");
    }
    enum tern_status status = folder_make(path, err);
    int fd = -1;
    if (status == TERN_OK) {
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        // A file that was there may be readable for others.
        if (fd < 0 || fchmod(fd, S_IRUSR | S_IWUSR) != 0) status = history_fault(path, err);
    }
    if (status == TERN_OK && write(fd, text.data, text.len) != (ssize_t)text.len) status = history_fault(path, err);
    if (fd >= 0) close(fd);
    buf_release(&text);
    return status;
}
