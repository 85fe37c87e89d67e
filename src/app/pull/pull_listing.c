// The files of a repository: names of models as users type them, and the hub's listing, which is data from outside.
#include "base/base.h"
#include "pull.h"

#include <stdio.h>

static bool part_is_sound(struct str s) { // of "org/repo"
    if (s.len == 0 || s.len > 96 || s.data[0] == '-' || s.data[0] == '.') return false;
    for (size_t i = 0; i < s.len; i++) {
        const char c = s.data[i];
        const bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                        c == '_' || c == '.';
        if (!ok || (i > 0 && c == s.data[i - 1] && (c == '.' || c == '-'))) return false;
    }
    return s.data[s.len - 1] != '.' && s.data[s.len - 1] != '-';
}

bool pull_name_split(struct str name, struct str *id, struct str *tag) {
    static const char *const heads[] = {"https://huggingface.co/", "hf.co/", "huggingface.co/", "hf:"};
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        struct str head = str_from(heads[i]);
        if (!str_starts(name, head)) continue;
        name = (struct str){name.data + head.len, name.len - head.len};
        break;
    }
    const size_t slash = str_find(name, STR("/"), 0);
    if (slash == (size_t)-1) return false;
    const size_t colon = str_find(name, STR(":"), slash);
    const size_t end = colon == (size_t)-1 ? name.len : colon;
    *id = (struct str){name.data, end};
    *tag = colon == (size_t)-1 ? STR("") : (struct str){name.data + colon + 1, name.len - colon - 1};
    if (colon != (size_t)-1 && (tag->len == 0 || !pull_file_name_is_sound(*tag))) return false;
    return part_is_sound((struct str){name.data, slash}) &&
           part_is_sound((struct str){name.data + slash + 1, end - slash - 1});
}

bool pull_file_name_is_sound(struct str name) {
    size_t begin = 0;
    if (name.len == 0 || name.len > PULL_NAME_MAX || !utf8_valid(name, NULL)) return false;
    for (size_t i = 0; i <= name.len; i++) {
        const unsigned char c = i < name.len ? (unsigned char)name.data[i] : '/';
        if (c < ' ' || c == 127 || c == '\\' || c == ':') return false;
        if (c != '/') continue;
        const size_t len = i - begin;
        if (len == 0 || len > 200 ||
            (name.data[begin] == '.' && (len == 1 || (len == 2 && name.data[begin + 1] == '.'))))
            return false;
        begin = i + 1;
    }
    return true;
}

static bool oid_take(char out[PULL_OID_MAX + 1], struct str text, size_t n_digits) {
    if (text.len != n_digits) return false;
    for (size_t i = 0; i < text.len; i++)
        if (!((text.data[i] >= '0' && text.data[i] <= '9') || (text.data[i] >= 'a' && text.data[i] <= 'f')))
            return false;
    memcpy(out, text.data, text.len);
    out[text.len] = 0;
    return true;
}

static enum tern_status next(struct json *j, struct json_item *item, struct tern_err *err) {
    return json_next(j, item, err) == JSON_ERROR ? err->code : TERN_OK;
}

static enum tern_status size_take(struct json *j, uint64_t *out, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_NUMBER, &item, "size", err));
    if (!item.is_int || item.integer < 0 || item.integer > (int64_t)1 << 50)
        return err_set(err, TERN_BAD_FORMAT, "the size of a file is no number of bytes");
    *out = (uint64_t)item.integer;
    return TERN_OK;
}

// "lfs": {"sha256": "…", "size": N, …}
static enum tern_status lfs_read(struct json *j, struct pull_file *f, struct tern_err *err) {
    struct json_item item;
    TRY(next(j, &item, err));
    if (item.event == JSON_NULL) return TERN_OK;
    if (item.event != JSON_OBJECT) return err_set(err, TERN_BAD_FORMAT, "lfs is no object");
    for (;;) {
        TRY(next(j, &item, err));
        if (item.event == JSON_OBJECT_END) return TERN_OK;
        if (str_eqz(item.text, "sha256") || str_eqz(item.text, "oid")) {
            TRY(json_expect(j, JSON_STRING, &item, "lfs.sha256", err));
            if (!oid_take(f->oid, item.text, 64))
                return err_set(err, TERN_BAD_FORMAT, "lfs.sha256 is no SHA-256 of 64 small hexadecimal digits");
        } else if (str_eqz(item.text, "size")) {
            TRY(size_take(j, &f->n_bytes, err));
        } else {
            TRY(json_skip(j, err));
        }
    }
}

static enum tern_status file_read(struct json *j, struct pull_repo *r, struct tern_err *err) {
    struct pull_file f = {.n_bytes = UINT64_MAX};
    char blob[PULL_OID_MAX + 1] = "";
    struct json_item item;
    for (;;) {
        TRY(next(j, &item, err));
        if (item.event == JSON_OBJECT_END) break;
        if (str_eqz(item.text, "rfilename")) {
            TRY(json_expect(j, JSON_STRING, &item, "rfilename", err));
            if (!pull_file_name_is_sound(item.text))
                return err_set(err, TERN_BAD_FORMAT, "the name of a file, '%.*s', could lead out of its folder",
                               (int)MIN(item.text.len, (size_t)200), item.text.data);
            f.name = arena_dup(&r->arena, item.text.data, item.text.len);
            if (!f.name) return err_set(err, TERN_NO_MEMORY, "no memory for a listing");
        } else if (str_eqz(item.text, "blobId")) {
            TRY(json_expect(j, JSON_STRING, &item, "blobId", err));
            if (!oid_take(blob, item.text, 40))
                return err_set(err, TERN_BAD_FORMAT, "blobId is no SHA-1 of 40 small hexadecimal digits");
        } else if (str_eqz(item.text, "size")) {
            TRY(size_take(j, &f.n_bytes, err));
        } else if (str_eqz(item.text, "lfs")) {
            TRY(lfs_read(j, &f, err));
        } else {
            TRY(json_skip(j, err));
        }
    }
    if (!f.name) return err_set(err, TERN_BAD_FORMAT, "a file without rfilename");
    if (!f.oid[0]) memcpy(f.oid, blob, sizeof blob);
    if (!f.oid[0] || f.n_bytes == UINT64_MAX)
        return err_set(err, TERN_UNSUPPORTED,
                       "'%s' is listed without its size and digest (this server does not know ?blobs=true)", f.name);
    if (r->n == PULL_FILES_MAX) return err_set(err, TERN_LIMIT, "the repository has over %d files", PULL_FILES_MAX);
    r->files[r->n++] = f;
    return TERN_OK;
}

static enum tern_status listing_read(struct json *j, struct pull_repo *r, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_OBJECT, &item, "the listing", err));
    for (;;) {
        TRY(next(j, &item, err));
        if (item.event == JSON_OBJECT_END) break;
        if (str_eqz(item.text, "sha")) {
            TRY(json_expect(j, JSON_STRING, &item, "sha", err));
            if (!oid_take(r->commit, item.text, 40))
                return err_set(err, TERN_BAD_FORMAT, "sha is no commit of 40 small hexadecimal digits");
        } else if (str_eqz(item.text, "siblings")) {
            TRY(json_expect(j, JSON_ARRAY, &item, "siblings", err));
            for (;;) {
                TRY(next(j, &item, err));
                if (item.event == JSON_ARRAY_END) break;
                if (item.event != JSON_OBJECT) return err_set(err, TERN_BAD_FORMAT, "an item of siblings is no object");
                TRY(file_read(j, r, err));
            }
        } else {
            TRY(json_skip(j, err));
        }
    }
    TRY(next(j, &item, err));
    if (!r->commit[0]) return err_set(err, TERN_BAD_FORMAT, "no commit (sha)");
    return TERN_OK;
}

enum tern_status pull_listing_parse(struct pull_repo *r, struct str json, struct tern_err *err) {
    const struct json_options strict = {.size_max = PULL_LISTING_BYTES_MAX, .dup_check = true};
    struct tern_err own;
    struct json *j;
    if (!err) err = &own;
    const char *id = r->id;
    *r = (struct pull_repo){.id = id};
    arena_init(&r->arena, 32u << 20);
    r->files = arena_calloc(&r->arena, PULL_FILES_MAX, sizeof *r->files);
    if (!r->files) return err_set(err, TERN_NO_MEMORY, "no memory for a listing");
    TRY(json_create(&j, json, &strict, err));
    enum tern_status status = listing_read(j, r, err);
    json_free(j);
    return status;
}

void pull_repo_release(struct pull_repo *r) { arena_release(&r->arena); }

static bool listing_data(void *arg, int status, struct str piece) {
    return status != 200 || buf_put(arg, piece.data, piece.len);
}

enum tern_status pull_listing_get(struct pull_repo *r, const struct pull_hub *h, const char *revision,
                                  struct tern_err *err) {
    struct buf url, text;
    struct pull_answer a = {0};
    enum tern_status status = TERN_OK;
    buf_init(&url, HTTP_URL_MAX);
    buf_init(&text, PULL_LISTING_BYTES_MAX);
    buf_putf(&url, "%s/api/models/%s/revision/", h->endpoint, r->id);
    for (const char *c = revision; *c; c++) { // a branch's '/' is no border here
        if (*c == '/')
            buf_puts(&url, "%2F");
        else
            pull_url_put(&url, (struct str){c, 1});
    }
    buf_puts(&url, "?blobs=true");
    if (url.failed) status = err_set(err, TERN_LIMIT, "the revision's name is too long");
    for (int n = 1; status == TERN_OK; n++) {
        const struct pull_get g = {
            .url = url.data, .n_bytes_max = PULL_LISTING_BYTES_MAX, .on_data = listing_data, .arg = &text};
        buf_clear(&text);
        status = pull_hub_get(h, &g, &a, err);
        if (pull_hub_again(h, n, status, &a, err)) {
            status = TERN_OK;
            continue;
        }
        if (status == TERN_OK && a.status != 200) status = pull_answer_fault(h, &a, r->id, err);
        break;
    }
    if (status == TERN_OK) {
        status = pull_listing_parse(r, buf_str(&text), err);
        if (status != TERN_OK) err_prefix(err, "%s: the listing of %s", h->endpoint, r->id);
    }
    buf_release(&url);
    buf_release(&text);
    return status;
}
