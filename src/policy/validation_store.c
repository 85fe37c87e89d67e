// The file of validations, and what this machine's key is.
//
// One small file for all models, written whole under a lock: rows are made by hand, seldom, and read once for each
// engine that is opened on a unit that needs one.
#include "base/base.h"
#include "policy/policy.h"

#include <stdio.h>

#define PATH_MAX_HERE 4096
#define LOCK_MS 10000
#define RUNTIME_MAX 150 // of a runtime's name and version in a key
#define SCALES_BYTES_MAX (1u << 20)

static void text_copy(char *out, size_t cap, struct str text) {
    size_t n = MIN(text.len, cap - 1);
    if (n > 0) memcpy(out, text.data, n);
    out[n] = 0;
}

static enum tern_status file_digest(const char *path, char out[PROFILE_DIGEST], struct tern_err *err) {
    struct buf b;
    struct sha256 h;
    uint8_t digest[32];
    buf_init(&b, SCALES_BYTES_MAX);
    enum tern_status status = file_read_all(&b, path, err);
    sha256_init(&h);
    if (b.len > 0) sha256_update(&h, b.data, b.len);
    sha256_final(&h, digest);
    sha256_hex(digest, out);
    buf_release(&b);
    return status;
}

enum tern_status validation_key_make(struct validation_key *out, const char *model_digest, const char *unit_name,
                                     const struct unit_caps *caps, const char *numerics, const char *version,
                                     struct tern_err *err) {
    struct str name = str_from(unit_name);
    size_t at = str_find(name, STR("@"), 0);
    const char *scales = at != SIZE_MAX ? unit_name + at + 1 : env_get("TERN_NPU_SCALES");
    *out = (struct validation_key){.model = ""};
    text_copy(out->model, sizeof out->model, str_from(model_digest));
    text_copy(out->unit, sizeof out->unit, (struct str){name.data, MIN(name.len, at)});
    text_copy(out->numerics, sizeof out->numerics, str_from(numerics));
    os_chip_name(out->chip, sizeof out->chip);
    os_system_name(out->system, sizeof out->system);
    // What tern computes itself changes with tern, a runtime with its own version; programs with what makes them.
    int n = caps->deterministic ? (int)strcspn(version, " ") : (int)MIN(strlen(caps->detail), RUNTIME_MAX);
    (void)snprintf(out->runtime, sizeof out->runtime, "%s%.*s%s%s", caps->deterministic ? "tern " : "", n,
                   caps->deterministic ? version : caps->detail, caps->arithmetic ? ", programs " : "",
                   caps->arithmetic ? caps->arithmetic : "");
    if (scales && strcmp(caps->name, "npu") == 0) return file_digest(scales, out->scales, err);
    return TERN_OK;
}

bool validation_here(const struct validation_key *key) {
    struct validation_key here;
    os_chip_name(here.chip, sizeof here.chip);
    os_system_name(here.system, sizeof here.system);
    return strcmp(here.chip, key->chip) == 0 && strcmp(here.system, key->system) == 0;
}

bool validation_path(char *out, size_t cap) {
    char folder[PATH_MAX_HERE];
    if (!*os_cache_dir(folder, sizeof folder)) return false;
    int n = snprintf(out, cap, "%s/validations.json", folder);
    return n > 0 && (size_t)n < cap;
}

enum tern_status validations_load(struct validations *out, struct tern_err *err) {
    char path[PATH_MAX_HERE];
    struct os_stat st;
    struct buf text;
    *out = (struct validations){0};
    if (!validation_path(path, sizeof path) || !os_stat_get(&st, path)) return TERN_OK;
    buf_init(&text, VALIDATIONS_BYTES_MAX);
    enum tern_status status = file_read_all(&text, path, err);
    if (status == TERN_OK) {
        status = validations_parse(out, buf_str(&text), err);
        if (status != TERN_OK) err_prefix(err, "%s cannot be read (tern validate begins it anew)", path);
    }
    buf_release(&text);
    if (status != TERN_OK) validations_release(out);
    return status;
}

// A file that cannot be read stays beside the new one.
static enum tern_status broken_put_aside(const char *path, const struct tern_err *fault, struct tern_err *err) {
    char aside[PATH_MAX_HERE + 16];
    struct buf text;
    (void)snprintf(aside, sizeof aside, "%s.broken", path);
    buf_init(&text, (size_t)1 << 30);
    enum tern_status status = file_read_all(&text, path, err);
    if (status == TERN_OK) status = file_write_atomic(aside, text.data, text.len, err);
    buf_release(&text);
    if (status == TERN_OK) log_warn("%s; it was put aside as %s, and rows begin anew", fault->message, aside);
    return status;
}

static enum tern_status rows_keep(const char *path, const struct validation *row, struct tern_err *err) {
    struct validations v;
    struct tern_err fault = {0};
    struct buf text;
    if (validations_load(&v, &fault) != TERN_OK) TRY(broken_put_aside(path, &fault, err));
    buf_init(&text, VALIDATIONS_BYTES_MAX);
    bool fits = validations_put(&v, row) && validations_print(&v, &text);
    enum tern_status status = fits ? file_write_atomic(path, text.data, text.len, err)
                                   : err_set(err, TERN_NO_MEMORY, "no memory for validations");
    buf_release(&text);
    validations_release(&v);
    return status;
}

enum tern_status validation_keep(const struct validation *row, struct tern_err *err) {
    char path[PATH_MAX_HERE], lock[PATH_MAX_HERE + 8];
    int fd;
    if (!validation_path(path, sizeof path))
        return err_set(err, TERN_NOT_FOUND, "no cache folder; set XDG_CACHE_HOME or HOME to keep a validation");
    (void)snprintf(lock, sizeof lock, "%.*s", (int)(strrchr(path, '/') - path), path);
    TRY(os_mkdirs(lock, err));
    (void)snprintf(lock, sizeof lock, "%s.lock", path);
    TRY(os_lock(&fd, lock, LOCK_MS, err));
    enum tern_status status = rows_keep(path, row, err);
    os_unlock(fd);
    return status;
}

enum tern_status validation_require(const struct validation_key *key, bool is_encoder, struct tern_err *err) {
    struct validations v;
    struct buf text;
    const char *lets = env_get("TERN_UNVALIDATED");
    if (strcmp(key->unit, "cpu") == 0 || strcmp(key->unit, "null") == 0) return TERN_OK;
    if (lets && strcmp(lets, "1") == 0) return TERN_OK;
    TRY(validations_load(&v, err));
    const struct validation *row = validations_find(&v, key);
    enum tern_status status = TERN_OK;
    buf_init(&text, 4096);
    validation_key_text(key, &text);
    const char *what = text.failed ? key->unit : text.data;
    int n_class = (int)strcspn(key->numerics, "/-");
    const char *kv = strstr(key->numerics, "kv-");
    bool other_kv = kv && strcmp(kv, "kv-f16") != 0;
    if (!row)
        status = err_set(err, TERN_UNSUPPORTED,
                         "this model has not been validated on %s; run `tern %s %s/%.*s%s%s` with the same model "
                         "and scales, which measures how far it lies from the reference and keeps the result",
                         what, is_encoder ? "route --cases FILE --agree" : "validate", key->unit, n_class,
                         key->numerics, other_kv ? ",kv=" : "", other_kv ? kv + 3 : "");
    else if (!row->adopted)
        status = err_set(err, TERN_UNSUPPORTED,
                         "this model was validated on %s and rejected: %s; calibrate it, choose another class, or "
                         "validate again",
                         what, row->missed);
    buf_release(&text);
    validations_release(&v);
    return status;
}
