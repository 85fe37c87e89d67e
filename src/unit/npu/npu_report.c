// What tern doctor is told of the npu unit: each runtime with its version and device, or why it cannot be used, and
// each compiled set with what it holds, or what is wrong with it.
#include "unit/npu/coreai_int.h"
#include "unit/npu/npu_unit.h"
#include "unit/npu/pack_choice.h"
#include <stdio.h>

struct rows {
    void (*fn)(void *arg, const char *name, bool usable, const char *note);
    void *arg;
};

static void set_row(void *arg, const char *dir, const struct npu_choice *c, const char *fault) {
    const struct rows *r = arg;
    struct tern_err note;
    if (!c)
        err_set(&note, TERN_OK, "%s", fault);
    else
        err_set(&note, TERN_OK, "%s: of model %.12s for %s, %d bucket%s up to %d, windows up to %d%s%s", dir, c->model,
                c->backend, c->n, c->n == 1 ? "" : "s", c->n > 0 ? c->buckets[c->n - 1].bucket : 0, c->window,
                fault ? "; " : "", fault ? fault : "");
    r->fn(r->arg, "set", !fault, note.message);
}

// The asset that is named, without opening it, which takes seconds.
static enum tern_status asset_named_check(const struct npu_backend_driver *d, struct tern_err *err) {
    const char *asset = env_get("TERN_COREAI_ASSET"), *set = env_get("TERN_NPU_SET");
    struct coreai_asset_info info;
    char path[NPU_PATH_MAX + 16];
    struct os_stat st;
    if (!d->needs_asset || (!asset && !set)) return TERN_OK;
    if (!asset && (size_t)snprintf(path, sizeof path, "%s/" NPU_SET_ASSET, set) >= sizeof path) return TERN_OK;
    if (!asset && !os_stat_get(&st, path)) return TERN_OK; // a set of another back end
    return coreai_asset_check(asset ? asset : path, &info, err);
}

void unit_npu_backends_each(void (*fn)(void *arg, const char *name, bool usable, const char *note), void *arg) {
    struct rows rows = {fn, arg};
    for (int i = 0; npu_backends[i]; i++) {
        const struct npu_backend_driver *d = npu_backends[i];
        struct npu_backend *b = NULL;
        struct npu_backend_options o = {.n_threads = 1};
        struct tern_err err, note;
        enum tern_status status = asset_named_check(d, &err);
        if (status != TERN_OK || d->open(&b, &o, &err) != TERN_OK) {
            fn(arg, d->name, false, err.message);
            continue;
        }
        const struct npu_backend_info *info = &npu_backend_base_of(b)->info;
        err_set(&note, TERN_OK, "%s %s, %s (%s)", d->title, info->version, info->provider, info->library);
        fn(arg, d->name, true, note.message);
        d->close(b);
    }
    npu_sets_each(set_row, &rows);
}
