// The units of this build and how they are found by name.
#include "base/base.h"
#include "unit/unit.h"

const struct unit_driver *const unit_drivers[] = {
    &unit_cpu_driver,
    &unit_npu_driver,
    &unit_null_driver,
    NULL,
};

static const struct unit_driver *driver_find(struct str name) {
    for (int i = 0; unit_drivers[i]; i++)
        if (str_eqz(name, unit_drivers[i]->name)) return unit_drivers[i];
    return NULL;
}

static enum tern_status not_found(const char *name, struct tern_err *err) {
    struct buf names;
    buf_init(&names, 256);
    for (int i = 0; unit_drivers[i]; i++) buf_putf(&names, "%s%s", i > 0 ? ", " : "", unit_drivers[i]->name);
    enum tern_status status = err_set(err, TERN_NOT_FOUND, "unit '%s' is not in this build, which has: %s", name,
                                      names.failed ? "" : names.data);
    buf_release(&names);
    return status;
}

enum tern_status unit_open(struct unit **out, const char *name, const struct unit_options *o, struct tern_err *err) {
    struct str full = str_from(name);
    size_t colon = str_find(full, STR(":"), 0);
    const struct unit_driver *d = driver_find((struct str){full.data, MIN(colon, full.len)});
    const char *reason = "";
    struct unit_options with = o ? *o : (struct unit_options){0};
    if (colon < full.len) with.variant = name + colon + 1;
    if (!d) return not_found(name, err);
    if (!d->probe(&reason)) return err_set(err, TERN_UNSUPPORTED, "unit %s cannot be used here: %s", name, reason);
    if (with.variant && d != &unit_npu_driver)
        return err_set(err, TERN_INVALID_ARGUMENT, "unit %s has no variants, found '%s'", d->name, with.variant);
    return d->open(out, &with, err);
}

enum tern_status unit_advise(const struct unit *u, const struct model *m, bool pack_cache, struct unit_advice *out,
                             struct tern_err *err) {
    *out = (struct unit_advice){0};
    const struct unit_driver *d = unit_driver_of(u);
    return d->advise ? d->advise(u, m, pack_cache, out, err) : TERN_OK;
}

void unit_close(struct unit *u) {
    if (u) unit_driver_of(u)->close(u);
}
