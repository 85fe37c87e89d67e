// The files of a batch: the input, read and checked whole before anything is answered, and the output, which is the
// only record of what was done.
//
// A result is appended with one write and synced before anybody is told of it, so a kill at any point leaves whole
// lines and at most one torn one at the end, which the next run cuts off. There is no file beside it: what is in the
// output is done, the rest is not.
#include "base/base.h"
#include "batch.h"

// Calls fn for each line, without its end; blank lines are passed over. A fault gets file and line.
struct lines {
    const char *path;
    struct str text;
    enum tern_status (*fn)(void *arg, size_t offset, struct str line, struct tern_err *err);
    void *arg;
};
static enum tern_status lines_each(const struct lines *l, struct tern_err *err) {
    uint64_t n = 0;
    for (size_t at = 0; at < l->text.len;) {
        const char *end = memchr(l->text.data + at, '\n', l->text.len - at);
        size_t len = end ? (size_t)(end - l->text.data) - at : l->text.len - at;
        struct str line = str_trim((struct str){l->text.data + at, len});
        n++;
        if (line.len > BATCH_LINE_BYTES_MAX)
            return err_set(err, TERN_LIMIT, "%s:%llu: a line of %zu bytes; %u at most", l->path, (unsigned long long)n,
                           line.len, BATCH_LINE_BYTES_MAX);
        enum tern_status status = line.len ? l->fn(l->arg, (size_t)(line.data - l->text.data), line, err) : TERN_OK;
        if (status != TERN_OK) {
            err_prefix(err, "%s:%llu", l->path, (unsigned long long)n);
            return status;
        }
        at += len + 1;
    }
    return TERN_OK;
}

// --------------------------------------------------------------------------------------------------------------- input

static enum tern_status input_line(void *arg, size_t offset, struct str line, struct tern_err *err) {
    struct batch_input *in = arg;
    struct batch_request r;
    struct batch_entry *e;
    bool was_there;
    TRY(batch_request_read(&r, line, err));
    TRY(batch_table_add(&in->table, r.custom_id, r.digest, &e, &was_there, err));
    in->n_lines++;
    if (!was_there) {
        e->offset = offset;
        e->len = line.len;
    }
    return TERN_OK;
}

enum tern_status batch_input_open(struct batch_input *in, const char *path, struct tern_err *err) {
    *in = (struct batch_input){.map = {.fd = -1}};
    batch_table_init(&in->table);
    if (strcmp(path, "-") == 0)
        return err_set(err, TERN_INVALID_ARGUMENT, "a batch is read from a file, so that it can be gone on with");
    TRY(map_open(&in->map, path, err));
    const struct lines l = {path, {(const char *)in->map.data, in->map.size}, input_line, in};
    TRY(lines_each(&l, err));
    return in->table.n > 0 ? TERN_OK : err_set(err, TERN_BAD_FORMAT, "%s has no request", path);
}

void batch_input_close(struct batch_input *in) {
    batch_table_release(&in->table);
    map_close(&in->map);
}

struct str batch_input_line(const struct batch_input *in, const struct batch_entry *e) {
    return (struct str){(const char *)in->map.data + e->offset, e->len};
}

// -------------------------------------------------------------------------------------------------------------- output

static enum tern_status output_line(void *arg, size_t offset, struct str line, struct tern_err *err) {
    struct batch_output *o = arg;
    struct batch_result r;
    struct batch_entry *e;
    bool was_there;
    (void)offset;
    TRY(batch_result_read(&r, line, err));
    TRY(batch_table_add(&o->table, r.custom_id, r.digest, &e, &was_there, err));
    if (was_there) return err_set(err, TERN_BAD_FORMAT, "a second result for '%.60s'", r.custom_id);
    e->is_done = true;
    o->n_errors += r.status != 200;
    return TERN_OK;
}

// Reads what is there. *torn: the last line has no end; the file was rewritten without it and is to be opened again.
static enum tern_status output_read(struct batch_output *o, bool *torn, struct tern_err *err) {
    struct os_map map;
    *torn = false;
    TRY(map_open(&map, o->path, err));
    size_t len = map.size;
    while (len > 0 && map.data[len - 1] != '\n') len--;
    const struct lines l = {o->path, {(const char *)map.data, len}, output_line, o};
    enum tern_status status = lines_each(&l, err);
    if (status != TERN_OK && (status == TERN_BAD_FORMAT || status == TERN_LIMIT))
        err_prefix(err, "the output is another file, or damaged");
    if (status == TERN_OK && len < map.size) {
        // Without any result it may be anything: nothing of it is thrown away.
        struct str tail = {(const char *)map.data + len, map.size - len};
        if (len == 0 && !str_starts(tail, STR("{")))
            status = err_set(err, TERN_BAD_FORMAT, "%s is no file of results; name another output", o->path);
        else
            status = file_write_atomic(o->path, map.data, len, err);
        *torn = true;
    }
    map_close(&map);
    return status;
}

enum tern_status batch_output_open(struct batch_output *o, const char *path, struct tern_err *err) {
    for (bool torn = true; torn;) {
        *o = (struct batch_output){.path = path, .lock = -1};
        batch_table_init(&o->table);
        struct os_stat st;
        if (os_stat_get(&st, path) && !st.is_file) return err_set(err, TERN_INVALID_ARGUMENT, "%s is no file", path);
        if (os_lock(&o->lock, path, 0, err) != TERN_OK)
            return err_set(err, TERN_AGAIN, "%s cannot be locked: another tern batch writes it, or it is not writable",
                           path);
        enum tern_status status = output_read(o, &torn, err);
        if (status != TERN_OK || torn) batch_output_close(o);
        if (status != TERN_OK) return status;
    }
    return TERN_OK;
}

enum tern_status batch_output_append(struct batch_output *o, struct str lines, struct tern_err *err) {
    struct os_writer w;
    struct tern_err sync_err = {0};
    TRY(writer_resume(&w, o->path, o->path, err));
    enum tern_status status = writer_put(&w, lines.data, lines.len, err);
    enum tern_status synced = writer_keep(&w, &sync_err); // whatever was written stays
    if (status == TERN_OK && synced != TERN_OK) {
        status = synced;
        if (err) *err = sync_err;
    }
    return status;
}

void batch_output_close(struct batch_output *o) {
    batch_table_release(&o->table);
    if (o->lock >= 0) os_unlock(o->lock);
    o->lock = -1;
}
