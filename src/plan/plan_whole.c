// The plan `whole`: every step on one unit.
#include "base/base.h"
#include "plan/plan_lane.h"

struct plan_whole {
    struct plan base;
    struct plan_lane lane;
};

static void whole_close(struct plan *p) {
    struct plan_whole *w = (struct plan_whole *)(void *)p;
    lane_close(&w->lane);
    plan_pool_release(p);
    mem_free(w);
}

static bool whole_fits(const struct plan_options *o, const char **reason) {
    *reason = o->n_units != 1 ? "it runs on one unit" : lane_misfit(o, &o->units[0]);
    if (*reason) return false;
    *reason = "";
    return true;
}

static const struct plan_ops whole_ops;

static enum tern_status whole_open(struct plan **out, const struct plan_options *o, struct tern_err *err) {
    struct plan_whole *w = mem_calloc(1, sizeof(*w));
    struct unit_caps caps;
    if (!w) return err_set(err, TERN_NO_MEMORY, "plan: no memory");
    w->base.ops = &whole_ops;
    w->base.model = o->model;
    w->lane.pool = &w->base.pool;
    unit_driver_of(o->units[0].unit)->caps(o->units[0].unit, &caps);
    plan_name_set(&w->base, "whole(%s)", caps.name);
    enum tern_status status = plan_pool_init(&w->base, o, o->units[0].unit, err);
    if (status == TERN_OK) status = lane_open(&w->lane, o, &o->units[0], err);
    if (status != TERN_OK)
        whole_close(&w->base);
    else
        *out = &w->base;
    return status;
}

static enum tern_status whole_run(struct plan *p, const struct step *s, uint32_t want, struct tern_err *err) {
    return lane_run(&((struct plan_whole *)(void *)p)->lane, p, s, want, err);
}

static enum tern_status whole_commit(struct plan *p, const struct step *s, struct tern_err *err) {
    return lane_commit(&((struct plan_whole *)(void *)p)->lane, p, s, err);
}

static uint64_t whole_bytes(const struct plan *p) {
    return lane_bytes(&((const struct plan_whole *)(const void *)p)->lane);
}

static bool whole_estimate(const struct plan_options *o, uint64_t *work) {
    return lane_bytes_estimate(o, &o->units[0], work);
}

static bool whole_explain(const struct plan *p, struct buf *out) {
    const struct plan_lane *l = &((const struct plan_whole *)(const void *)p)->lane;
    buf_putf(out, "%s: every step of %s on unit %s (%s)\n", p->name, p->model->name, l->caps.name, l->caps.detail);
    lane_explain(l, out);
    return plan_pool_explain(p, out);
}

static const struct plan_ops whole_ops = {
    .run = whole_run,
    .commit = whole_commit,
    .bytes = whole_bytes,
    .explain = whole_explain,
    .close = whole_close,
};

const struct plan_kind plan_whole_kind = {
    .name = "whole",
    .n_units = 1,
    .fits = whole_fits,
    .open = whole_open,
    .estimate = whole_estimate,
};
