// The units of this build and how they are found by name.
#include "base/base.h"
#include "unit/unit.h"

const struct unit_driver *const unit_drivers[] = {
    &unit_cpu_driver,
    &unit_null_driver,
    NULL,
};

static const struct unit_driver *driver_find(const char *name) {
    for (int i = 0; unit_drivers[i]; i++)
        if (str_eqz(str_from(name), unit_drivers[i]->name)) return unit_drivers[i];
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
    const struct unit_driver *d = driver_find(name);
    const char *reason = "";
    if (!d) return not_found(name, err);
    if (!d->probe(&reason)) return err_set(err, TERN_UNSUPPORTED, "unit %s cannot be used here: %s", name, reason);
    return d->open(out, o, err);
}

void unit_close(struct unit *u) {
    if (u) unit_driver_of(u)->close(u);
}
