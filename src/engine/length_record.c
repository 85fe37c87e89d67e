// Records how long prompts and answers are, for `tern compile --npu --buckets auto`: counts in memory, added to the
// model's file in the state folder when the engine closes. Nothing of a text is kept. Off where packed weights may not
// be kept either, and with TERN_LENGTHS=0. What cannot be written is lost with a warning: it never stops an answer.
#include "engine/engine_int.h"

#include <stdio.h>

#define LENGTHS_PATH_MAX 4096
#define LENGTHS_LOCK_MS 1000

static bool is_on(const struct tern_engine *e) {
    const char *text = env_get("TERN_LENGTHS");
    return e->options.pack_cache && !e->options.shape && e->lengths_mutex && !(text && strcmp(text, "0") == 0);
}

void length_record(struct tern_engine *e, const struct tern_usage *usage) {
    if (!is_on(e)) return;
    mutex_lock(e->lengths_mutex);
    lengths_add(&e->lengths, usage->n_prompt, usage->n_answer);
    mutex_unlock(e->lengths_mutex);
}

static enum tern_status merged_write(const char *path, struct lengths *l, struct tern_err *err) {
    struct buf text;
    struct lengths before;
    struct os_stat st;
    enum tern_status status = TERN_OK;
    buf_init(&text, LENGTHS_BYTES_MAX);
    if (os_stat_get(&st, path)) {
        status = file_read_all(&text, path, err);
        if (status == TERN_OK) status = lengths_parse(&before, buf_str(&text), err);
        if (status == TERN_OK) lengths_merge(l, &before);
        buf_clear(&text);
    }
    if (status == TERN_OK && !lengths_print(l, &text)) status = err_set(err, TERN_NO_MEMORY, "no memory");
    if (status == TERN_OK) status = file_write_atomic(path, text.data, text.len, err);
    buf_release(&text);
    return status;
}

void length_record_close(struct tern_engine *e) {
    char path[LENGTHS_PATH_MAX], other[LENGTHS_PATH_MAX + 8];
    struct tern_err err;
    int lock = -1;
    if (e->model && is_on(e) && lengths_requests(&e->lengths) > 0 &&
        lengths_path(e->model->digest, path, sizeof path)) {
        snprintf(other, sizeof other, "%.*s", (int)(strrchr(path, '/') - path), path);
        enum tern_status status = os_mkdirs(other, &err);
        snprintf(other, sizeof other, "%s.lock", path);
        if (status == TERN_OK) status = os_lock(&lock, other, LENGTHS_LOCK_MS, &err);
        if (status == TERN_OK) {
            status = merged_write(path, &e->lengths, &err);
            os_unlock(lock);
        }
        if (status != TERN_OK)
            log_warn("lengths of requests are not recorded (TERN_LENGTHS=0 stops that): %s", err.message);
    }
    if (e->lengths_mutex) mutex_free(e->lengths_mutex);
    e->lengths_mutex = NULL;
}
