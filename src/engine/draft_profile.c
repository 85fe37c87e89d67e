// Measured costs kept between runs: one profile (policy.h) for each model, drafter, unit and number of threads, in the
// cache folder. A profile that cannot be used is never an error: costs are measured anew, and the log says why.
#include "base/base.h"
#include "engine_int.h"

#include <stdio.h>

#define OPEN_NS 250000000ull  // for measuring at open: a budget, not a wait
#define CALIBRATE_SECONDS 5.0 // where nothing is asked for
#define CALIBRATE_SECONDS_MAX 600.0
#define PROFILE_PATH_MAX 4096

static void text_copy(char *out, size_t cap, const char *text) {
    size_t n = text ? MIN(strlen(text), cap - 1) : 0;
    if (n > 0) memcpy(out, text, n);
    out[n] = 0;
}

static void key_fill(const struct tern_engine *e, struct profile *key) {
    *key = (struct profile){.threads = e->caps.n_threads};
    text_copy(key->model, sizeof key->model, e->model->digest);
    text_copy(key->drafter, sizeof key->drafter, e->draft.model ? e->draft.model->digest : "");
    text_copy(key->unit, sizeof key->unit, e->units_text);
    text_copy(key->isa, sizeof key->isa, e->caps.isa);
    text_copy(key->numerics, sizeof key->numerics, e->numerics_text);
    size_t n = strlen(key->unit);
    if (!e->draft.unit_name[0]) return;
    key->unit[n] = '+'; // "cpu+npu:fp32"; a unit's own name is a word
    text_copy(key->unit + n + 1, sizeof key->unit - n - 1, e->draft.unit_name);
}

// False: no cache folder on this system.
static bool path_make(const struct profile *key, char *out, size_t cap) {
    char folder[PROFILE_PATH_MAX], name[PROFILE_FILE_NAME];
    if (!*os_cache_dir(folder, sizeof folder)) return false;
    profile_file_name(key, name);
    int n = snprintf(out, cap, "%s/profiles/%s", folder, name);
    return n > 0 && (size_t)n < cap;
}

static bool profile_load(const struct tern_engine *e, struct width_costs *out) {
    struct profile key, p;
    struct tern_err err = {0};
    struct os_stat st;
    struct buf text;
    char path[PROFILE_PATH_MAX];
    key_fill(e, &key);
    if (!e->options.pack_cache || !path_make(&key, path, sizeof path) || !os_stat_get(&st, path)) return false;
    buf_init(&text, PROFILE_BYTES_MAX);
    bool fine = file_read_all(&text, path, &err) == TERN_OK && profile_parse(&p, buf_str(&text), &err) == TERN_OK;
    buf_release(&text);
    if (!fine) log_warn("%s is not used: %s", path, err.message);
    if (fine && !profile_serves(&p, &key)) {
        log_warn("%s is not used: it was made for something else", path);
        fine = false;
    }
    if (fine) *out = p.costs;
    return fine;
}

static enum tern_status costs_take(struct tern_engine *e, const struct width_costs *costs, const char *from,
                                   struct tern_err *err) {
    TRY(draft_auto_costs(&e->draft.chooser, costs, err));
    e->draft.costs_from = from;
    return TERN_OK;
}

enum tern_status draft_costs_open(struct tern_engine *e, struct tern_err *err) {
    struct width_costs costs;
    draft_auto_init(&e->draft.chooser, e->draft.model != NULL);
    if (profile_load(e, &costs)) return costs_take(e, &costs, "from a kept profile", err);
    if (!e->draft.model) return TERN_OK;
    TRY(draft_calibrate(e, OPEN_NS, &costs, err));
    return costs_take(e, &costs, "measured at start", err);
}

static enum tern_status profile_keep(const struct profile *p, struct str text, struct tern_err *err) {
    char path[PROFILE_PATH_MAX], folder[PROFILE_PATH_MAX];
    if (!path_make(p, path, sizeof path))
        return err_set(err, TERN_NOT_FOUND, "no cache folder; set XDG_CACHE_HOME or HOME to keep a profile");
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    TRY(os_mkdirs(folder, err));
    return file_write_atomic(path, text.data, text.len, err);
}

enum tern_status tern_engine_calibrate(struct tern_engine *e, double seconds, bool keep, struct tern_str *profile,
                                       struct tern_err *err) {
    struct buf *text = &e->draft.profile_text;
    struct profile p;
    if (!(seconds >= 0 && seconds <= CALIBRATE_SECONDS_MAX))
        return err_set(err, TERN_INVALID_ARGUMENT, "calibration for %g seconds; 0 (%g) to %g are possible", seconds,
                       CALIBRATE_SECONDS, CALIBRATE_SECONDS_MAX);
    if (e->window < 2)
        return err_set(err, TERN_INVALID_ARGUMENT, "a window of one row checks no drafts: nothing to calibrate");
    key_fill(e, &p);
    p.made_wall_s = clock_wall_s();
    mutex_lock(e->mutex);
    uint64_t ns = (uint64_t)((seconds > 0 ? seconds : CALIBRATE_SECONDS) * 1e9);
    enum tern_status status = draft_calibrate(e, ns, &p.costs, err);
    if (status == TERN_OK && e->draft.mode == TERN_DRAFT_AUTO) status = costs_take(e, &p.costs, "calibrated", err);
    buf_clear(text);
    if (status == TERN_OK && !profile_print(&p, text)) status = err_set(err, TERN_NO_MEMORY, "no memory for a profile");
    mutex_unlock(e->mutex);
    TRY(status);
    if (profile) *profile = (struct tern_str){text->data, text->len};
    return keep ? profile_keep(&p, buf_str(text), err) : TERN_OK;
}
