// programs.json of a compiled set: read and believed only as far as it can be checked. A bucket that it does not name
// has plain attention; what was measured for another back end is not used.
#include "unit/npu/pack_choice.h"
#include <stdio.h>

#define PATH_LEN_MAX 4096
#define TEXT_MAX ((size_t)16 << 20)
#define MS_MAX 1e9

static enum tern_status text_take(struct json *j, char *out, size_t cap, const char *what, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_STRING, &item, what, err));
    if (item.text.len >= cap || memchr(item.text.data, 0, item.text.len))
        return err_set(err, TERN_BAD_FORMAT, "'%s' is longer than %zu bytes, or holds a zero byte", what, cap - 1);
    memcpy(out, item.text.data, item.text.len);
    out[item.text.len] = 0;
    return TERN_OK;
}

static enum tern_status int_take(struct json *j, int64_t max, int *out, const char *what, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_NUMBER, &item, what, err));
    if (!item.is_int || item.integer < 0 || item.integer > max)
        return err_set(err, TERN_BAD_FORMAT, "'%s' is no whole number from 0 to %lld", what, (long long)max);
    *out = (int)item.integer;
    return TERN_OK;
}

static enum tern_status ms_take(struct json *j, double *out, const char *what, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_NUMBER, &item, what, err));
    if (!(item.number >= 0 && item.number <= MS_MAX))
        return err_set(err, TERN_BAD_FORMAT, "'%s' is no time in milliseconds", what);
    *out = item.number;
    return TERN_OK;
}

static enum tern_status broken(const struct json_item *item, struct tern_err *err, const char *what) {
    if (item->event == JSON_ERROR) return err ? err->code : TERN_BAD_FORMAT;
    return err_set(err, TERN_BAD_FORMAT, "%s", what);
}

static enum tern_status bucket_take(struct json *j, struct npu_choice_bucket *b, struct tern_err *err) {
    struct json_item item;
    while (json_next(j, &item, err) == JSON_KEY) {
        if (str_eqz(item.text, "bucket"))
            TRY(int_take(j, NPU_CTX_MAX, &b->bucket, "bucket", err));
        else if (str_eqz(item.text, "chunks"))
            TRY(int_take(j, NPU_CHUNKS, &b->chunks, "chunks", err));
        else if (str_eqz(item.text, "plain_ms"))
            TRY(ms_take(j, &b->plain_ms, "plain_ms", err));
        else if (str_eqz(item.text, "chunks_ms"))
            TRY(ms_take(j, &b->chunks_ms, "chunks_ms", err));
        else
            TRY(json_skip(j, err));
    }
    if (item.event != JSON_OBJECT_END) return broken(&item, err, "a bucket is no object");
    if (b->bucket < 1 || b->bucket % NPU_BLOCK != 0 || (b->chunks != 1 && b->chunks != NPU_CHUNKS))
        return err_set(err, TERN_BAD_FORMAT, "a bucket of %d columns with %d chunks; 1 or %d are known", b->bucket,
                       b->chunks, NPU_CHUNKS);
    return TERN_OK;
}

static enum tern_status buckets_take(struct json *j, struct npu_choice *c, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_ARRAY, &item, "buckets", err));
    while (json_next(j, &item, err) == JSON_OBJECT) {
        if (c->n == NPU_BUCKETS_MAX) return err_set(err, TERN_LIMIT, "more than %d buckets", NPU_BUCKETS_MAX);
        TRY(bucket_take(j, &c->buckets[c->n], err));
        if (c->n > 0 && c->buckets[c->n].bucket <= c->buckets[c->n - 1].bucket)
            return err_set(err, TERN_BAD_FORMAT, "bucket %d does not follow %d", c->buckets[c->n].bucket,
                           c->buckets[c->n - 1].bucket);
        c->n++;
    }
    return item.event == JSON_ARRAY_END ? TERN_OK : broken(&item, err, "'buckets' holds no objects alone");
}

static enum tern_status keys_take(struct json *j, struct npu_choice *c, int *version, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_OBJECT, &item, "a set", err));
    while (json_next(j, &item, err) == JSON_KEY) {
        if (str_eqz(item.text, "version"))
            TRY(int_take(j, INT32_MAX, version, "version", err));
        else if (str_eqz(item.text, "key"))
            TRY(text_take(j, c->key, sizeof c->key, "key", err));
        else if (str_eqz(item.text, "model"))
            TRY(text_take(j, c->model, sizeof c->model, "model", err));
        else if (str_eqz(item.text, "backend"))
            TRY(text_take(j, c->backend, sizeof c->backend, "backend", err));
        else if (str_eqz(item.text, "whole")) {
            struct json_item value;
            TRY(json_expect(j, JSON_BOOL, &value, "whole", err));
            c->whole = value.boolean;
        } else if (str_eqz(item.text, "fault"))
            TRY(text_take(j, c->fault, sizeof c->fault, "fault", err));
        else if (str_eqz(item.text, "window"))
            TRY(int_take(j, NPU_WINDOW_MAX, &c->window, "window", err));
        else if (str_eqz(item.text, "buckets"))
            TRY(buckets_take(j, c, err));
        else
            TRY(json_skip(j, err)); // for people
    }
    if (item.event == JSON_OBJECT_END) json_next(j, &item, err);
    return item.event == JSON_END ? TERN_OK : broken(&item, err, "it does not end where it should");
}

enum tern_status npu_choice_parse(struct npu_choice *c, struct str text, const char *name, struct tern_err *err) {
    struct json *j = NULL;
    struct json_options options = {.size_max = TEXT_MAX, .dup_check = true};
    int version = 0;
    *c = (struct npu_choice){0};
    enum tern_status status = json_create(&j, text, &options, err);
    if (status == TERN_OK) status = keys_take(j, c, &version, err);
    json_free(j);
    if (status == TERN_OK && version != NPU_SET_VERSION)
        status = err_set(err, TERN_MISMATCH, "a set of version %d; this tern reads %d: compile it again", version,
                         NPU_SET_VERSION);
    if (status == TERN_OK && (!c->model[0] || !c->backend[0]))
        status = err_set(err, TERN_BAD_FORMAT, "it does not say of which model and back end it is");
    if (status != TERN_OK) err_prefix(err, "%s", name);
    return status;
}

const char *npu_set_dir(const struct model *m, const char *backend, char *out, size_t cap) {
    char dir[PATH_LEN_MAX], label[64];
    size_t n = 0;
    for (; backend[n] && n + 1 < sizeof label; n++)
        label[n] = backend[n] == ':' || backend[n] == '/' ? '-' : backend[n];
    label[n] = 0;
    os_cache_dir(dir, sizeof dir);
    out[0] = 0;
    if (dir[0] && (size_t)snprintf(out, cap, "%s/npu/%.16s-%s", dir, m->digest, label) >= cap) out[0] = 0;
    return out;
}

enum tern_status npu_choice_load(struct npu_choice *c, const struct model *m, const char *backend, const char *named,
                                 struct tern_err *err) {
    char dir[PATH_LEN_MAX], path[PATH_LEN_MAX + 32];
    struct os_stat st;
    struct buf text;
    *c = (struct npu_choice){0};
    if (named && !named[0]) named = NULL;
    if (named && strlen(named) >= sizeof dir)
        return err_set(err, TERN_INVALID_ARGUMENT, "the set '%s' is too long for a path", named);
    if (named)
        snprintf(dir, sizeof dir, "%s", named);
    else if (!npu_set_dir(m, backend, dir, sizeof dir)[0])
        return TERN_OK;
    snprintf(path, sizeof path, "%s/" NPU_SET_PROGRAMS, dir);
    if (!named && !os_stat_get(&st, path)) return TERN_OK;
    buf_init(&text, TEXT_MAX);
    enum tern_status status = file_read_all(&text, path, err);
    if (status == TERN_OK) status = npu_choice_parse(c, buf_str(&text), path, err);
    if (status == TERN_OK && strcmp(c->model, m->digest) != 0)
        status = err_set(err, TERN_MISMATCH, "%s: made of another model (%.12s…) than %s (%.12s…)", path, c->model,
                         m->name, m->digest);
    buf_release(&text);
    if (status == TERN_OK && strcmp(c->backend, backend) != 0) c->n = c->window = 0; // its times are of another one
    if (status != TERN_OK) *c = (struct npu_choice){0};
    return status;
}

struct sets {
    void (*fn)(void *arg, const char *dir, const struct npu_choice *c, const char *fault);
    void *arg;
    const char *root;
};

static enum tern_status choice_read(struct npu_choice *c, const char *dir, struct tern_err *err) {
    char path[PATH_LEN_MAX];
    struct buf text;
    if ((size_t)snprintf(path, sizeof path, "%s/" NPU_SET_PROGRAMS, dir) >= sizeof path)
        return err_set(err, TERN_INVALID_ARGUMENT, "the set '%s' is too long for a path", dir);
    buf_init(&text, TEXT_MAX);
    enum tern_status status = file_read_all(&text, path, err);
    if (status == TERN_OK) status = npu_choice_parse(c, buf_str(&text), path, err);
    buf_release(&text);
    return status;
}

enum tern_status npu_choice_check(const char *dir, struct tern_err *err) {
    struct npu_choice c;
    enum tern_status status = choice_read(&c, dir, err);
    if (status != TERN_OK)
        err_prefix(err, "TERN_NPU_SET names no set that can be used (`tern compile --npu -o DIR` makes one)");
    return status;
}

static void set_tell(const struct sets *s, const char *dir) {
    struct npu_choice c;
    struct tern_err err;
    if (choice_read(&c, dir, &err) != TERN_OK)
        s->fn(s->arg, dir, NULL, err.message);
    else
        s->fn(s->arg, dir, &c, c.whole ? NULL : c.fault[0] ? c.fault : "not all of its programs compiled");
}

static bool set_found(void *arg, const char *name, const struct os_stat *st) {
    const struct sets *s = arg;
    char dir[PATH_LEN_MAX];
    (void)st;
    if ((size_t)snprintf(dir, sizeof dir, "%s/%s", s->root, name) < sizeof dir) set_tell(s, dir);
    return true;
}

void npu_sets_each(void (*fn)(void *arg, const char *dir, const struct npu_choice *c, const char *fault), void *arg) {
    char cache[PATH_LEN_MAX - 8], root[PATH_LEN_MAX];
    const char *named = env_get("TERN_NPU_SET");
    struct sets s = {fn, arg, root};
    if (named && strlen(named) < PATH_LEN_MAX) set_tell(&s, named);
    os_cache_dir(cache, sizeof cache);
    if (!cache[0]) return;
    snprintf(root, sizeof root, "%s/npu", cache);
    os_list(root, set_found, &s, NULL);
}

int npu_choice_chunks(const struct npu_choice *c, int bucket, int window) {
    const char *forced = env_get("TERN_NPU_CHUNKS");
    int chunks = 1;
    for (int i = 0; c && i < c->n; i++)
        if (c->buckets[i].bucket == bucket) chunks = c->buckets[i].chunks;
    if (forced) chunks = strcmp(forced, "8") == 0 ? NPU_CHUNKS : 1;
    return (bucket + window) / NPU_BLOCK >= NPU_CHUNKS ? chunks : 1; // a chunk has one block at least
}

void npu_choice_text(const struct npu_choice *c, char *out, size_t cap) {
    int plain = 0, chunked = 0;
    for (int i = 0; i < c->n; i++) {
        if (c->buckets[i].chunks == 1) plain = c->buckets[i].bucket;
        if (c->buckets[i].chunks > 1 && chunked == 0) chunked = c->buckets[i].bucket;
    }
    if (chunked == 0)
        snprintf(out, cap, "plain attention in all buckets");
    else if (plain < chunked)
        snprintf(out, cap, "%s%d chunks of attention from %d columns on", plain ? "plain, " : "", NPU_CHUNKS, chunked);
    else
        snprintf(out, cap, "%d chunks of attention in some buckets between %d and %d", NPU_CHUNKS, chunked, plain);
}
