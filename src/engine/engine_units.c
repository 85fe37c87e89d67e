// The units of an engine: opened by name, one, or two for a plan of two, and what they say about the model: the window
// that pays, and the longest context that their programs hold. A context that was asked for and does not fit is refused
// here, before a token is made; one that nobody asked for is as long as the units hold.
#include "base/base.h"
#include "engine_int.h"

static const char *unit_name(const char *name) { return name ? name : "cpu"; }

static enum tern_status names_keep(struct tern_engine *e, struct tern_err *err) {
    const struct tern_engine_options *o = &e->options;
    struct buf b;
    buf_init(&b, sizeof e->units_text - 1);
    if (o->then_unit)
        buf_putf(&b, "%s(%s, %s)", o->plan, unit_name(o->unit), o->then_unit);
    else
        buf_puts(&b, unit_name(o->unit));
    bool fits = !b.failed;
    if (fits) memcpy(e->units_text, b.data, b.len);
    buf_release(&b);
    if (fits) return TERN_OK;
    return err_set(err, TERN_LIMIT, "names of units are too long: '%s'; %zu characters are possible", o->unit,
                   sizeof e->units_text - 1);
}

enum tern_status engine_units_open(struct tern_engine *e, struct tern_err *err) {
    const struct tern_engine_options *o = &e->options;
    const char *plan = o->plan ? o->plan : "whole";
    int n = plan_kind_units(plan);
    struct unit_options uo = {.n_threads = o->n_threads, .pin = true};
    if (n == 0) return err_set(err, TERN_NOT_FOUND, "there is no plan '%s'; there are whole, handoff and extend", plan);
    if ((n == 2) != (o->then_unit != NULL))
        return err_set(err, TERN_INVALID_ARGUMENT, "the plan %s has %d unit%s: %s", plan, n, n == 1 ? "" : "s",
                       n == 2 ? "a second one is needed (--then)" : "a second one is given");
    TRY(names_keep(e, err));
    TRY(unit_open(&e->unit, unit_name(o->unit), &uo, err));
    unit_driver_of(e->unit)->caps(e->unit, &e->caps);
    TRY(unit_advise(e->unit, e->model, o->pack_cache && !o->shape, &e->advice, err));
    if (n == 1) return TERN_OK;
    TRY(unit_open(&e->then_unit, o->then_unit, &uo, err));
    unit_driver_of(e->then_unit)->caps(e->then_unit, &e->then_caps);
    return unit_advise(e->then_unit, e->model, o->pack_cache && !o->shape, &e->then_advice, err);
}

int engine_window_default(const struct tern_engine *e) {
    int window = MIN(ENGINE_WINDOW_DEFAULT, e->caps.window_max);
    if (e->advice.window > 0) window = MIN(window, e->advice.window);
    if (!e->then_unit) return window;
    window = MIN(window, e->then_caps.window_max);
    return e->then_advice.window > 0 ? MIN(window, e->then_advice.window) : window;
}

enum tern_status engine_ctx_bound(struct tern_engine *e, const char *unit, const struct unit_advice *a,
                                  struct tern_err *err) {
    if (a->ctx_max == 0 || e->n_ctx <= a->ctx_max) return TERN_OK;
    if (e->options.n_ctx > 0)
        return err_set(err, TERN_LIMIT,
                       "a context of %d positions is asked for, and unit %s holds %d (%s); ask for fewer, or go on "
                       "elsewhere: --plan extend --then cpu",
                       e->n_ctx, unit, a->ctx_max, a->note);
    log_info("a context of %d positions, not %d: unit %s holds no more (%s)", a->ctx_max, e->n_ctx, unit, a->note);
    e->n_ctx = a->ctx_max;
    return TERN_OK;
}

// extend: what the first unit does not hold, the second does.
enum tern_status engine_units_bound(struct tern_engine *e, struct tern_err *err) {
    bool extends = e->options.plan && strcmp(e->options.plan, "extend") == 0;
    if (!extends) TRY(engine_ctx_bound(e, unit_name(e->options.unit), &e->advice, err));
    return e->then_unit ? engine_ctx_bound(e, e->options.then_unit, &e->then_advice, err) : TERN_OK;
}

void engine_units_close(struct tern_engine *e) {
    if (e->then_weights) unit_driver_of(e->then_unit)->weights_free(e->then_unit, e->then_weights);
    if (e->weights) unit_driver_of(e->unit)->weights_free(e->unit, e->weights);
    unit_close(e->then_unit);
    unit_close(e->unit);
}
