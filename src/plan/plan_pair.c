// Plans of two units that share one state pool in host memory, so that going from one to the other moves nothing:
//
//   handoff ... prompts on the first unit, answers on the second
//   extend .... the first unit as long as its programs hold the contexts of a step, the second beyond that
//
// So are rows of features for a drafter: each unit writes its steps' rows into the drafter's buffer, which is host
// memory that both reach.
//
// Both units hold the model's weights. What a step leaves in the pool is a state of this plan: half of it may come from
// each unit's arithmetic, so a pair of units is a class of its own (tern fidelity measures it).
#include "base/base.h"
#include "plan/plan_lane.h"

struct plan_pair {
    struct plan base;
    struct plan_lane lanes[2];
    struct state_pool seen; // the pool's memory, as the second unit sees it
    struct plan_lane *last; // of the last run, whose rows a commit takes over
    bool extends;
    int ctx_max; // extend: positions that the first unit holds
    uint64_t n_steps[2];
};

static void pair_close(struct plan *p) {
    struct plan_pair *w = (struct plan_pair *)(void *)p;
    struct unit *u = w->lanes[1].unit;
    for (int i = 0; i < 2; i++) lane_close(&w->lanes[i]);
    if (u) {
        unit_driver_of(u)->buffer_free(u, w->seen.kv);
        unit_driver_of(u)->buffer_free(u, w->seen.conv);
    }
    plan_pool_release(p);
    mem_free(w);
}

static bool pair_fits(const struct plan_options *o, const char **reason) {
    *reason = o->n_units != 2 ? "it runs on two units" : NULL;
    for (int i = 0; i < 2 && !*reason; i++) {
        struct unit_caps caps;
        *reason = lane_misfit(o, &o->units[i]);
        if (*reason) break;
        unit_driver_of(o->units[i].unit)->caps(o->units[i].unit, &caps);
        if (!caps.host_memory) *reason = "a unit has memory of its own, so that no state can be shared";
    }
    if (*reason) return false;
    *reason = "";
    return true;
}

static bool extend_fits(const struct plan_options *o, const char **reason) {
    if (!pair_fits(o, reason)) return false;
    if (o->first_ctx_max > 0) return true;
    *reason = "the first unit holds any context";
    return false;
}

static enum tern_status memory_share(struct unit *to, struct unit_buffer **out, struct unit *from,
                                     struct unit_buffer *b, uint64_t bytes, struct tern_err *err) {
    if (!b) return TERN_OK;
    return unit_driver_of(to)->buffer_import(to, out, unit_driver_of(from)->buffer_host(b), bytes, err);
}

static const struct plan_ops pair_ops;

static enum tern_status pair_init(struct plan_pair *w, const struct plan_options *o, struct tern_err *err) {
    struct unit *first = o->units[0].unit, *second = o->units[1].unit;
    uint64_t kv = 0, conv = 0;
    TRY(plan_pool_init(&w->base, o, first, err));
    w->lanes[0].pool = &w->base.pool;
    TRY(lane_open(&w->lanes[0], o, &o->units[0], err));
    plan_pool_bytes(&w->base.pool.layout, o->n_blocks, o->n_slots, &kv, &conv); // plan_pool_init found them to fit
    w->seen = w->base.pool;
    w->seen.kv = w->seen.conv = NULL;
    w->lanes[1].pool = &w->seen;
    w->lanes[1].unit = second;
    TRY(memory_share(second, &w->seen.kv, first, w->base.pool.kv, kv, err));
    TRY(memory_share(second, &w->seen.conv, first, w->base.pool.conv, conv, err));
    return lane_open(&w->lanes[1], o, &o->units[1], err);
}

static enum tern_status pair_open(struct plan **out, const struct plan_options *o, bool extends, struct tern_err *err) {
    struct plan_pair *w = mem_calloc(1, sizeof *w);
    struct unit_caps caps[2];
    if (!w) return err_set(err, TERN_NO_MEMORY, "plan: no memory");
    w->base.ops = &pair_ops;
    w->base.model = o->model;
    w->extends = extends;
    w->ctx_max = o->first_ctx_max;
    w->last = &w->lanes[0];
    for (int i = 0; i < 2; i++) unit_driver_of(o->units[i].unit)->caps(o->units[i].unit, &caps[i]);
    plan_name_set(&w->base, "%s(%s, %s)", extends ? "extend" : "handoff", caps[0].name, caps[1].name);
    enum tern_status status = pair_init(w, o, err);
    if (status != TERN_OK)
        pair_close(&w->base);
    else
        *out = &w->base;
    return status;
}

static enum tern_status handoff_open(struct plan **out, const struct plan_options *o, struct tern_err *err) {
    return pair_open(out, o, false, err);
}
static enum tern_status extend_open(struct plan **out, const struct plan_options *o, struct tern_err *err) {
    return pair_open(out, o, true, err);
}

// handoff: a step of which fewer than half of the rows want output is prompt. extend: the longest context decides.
static int lane_choose(const struct plan_pair *w, const struct step *s) {
    if (!w->extends) return 2 * s->n_out < s->n_rows ? 0 : 1;
    for (int i = 0; i < s->n_seqs; i++)
        if (s->seqs[i].len > w->ctx_max) return 1;
    return 0;
}

static enum tern_status pair_run(struct plan *p, const struct step *s, uint32_t want, struct tern_err *err) {
    struct plan_pair *w = (struct plan_pair *)(void *)p;
    int i = lane_choose(w, s);
    w->last = &w->lanes[i];
    w->n_steps[i]++;
    return lane_run(w->last, p, s, want, err);
}

static enum tern_status pair_commit(struct plan *p, const struct step *s, struct tern_err *err) {
    return lane_commit(((struct plan_pair *)(void *)p)->last, p, s, err);
}

static uint64_t pair_bytes(const struct plan *p) {
    const struct plan_pair *w = (const struct plan_pair *)(const void *)p;
    return lane_bytes(&w->lanes[0]) + lane_bytes(&w->lanes[1]);
}

static bool pair_estimate(const struct plan_options *o, uint64_t *work) {
    return lane_bytes_estimate(o, &o->units[0], work) && lane_bytes_estimate(o, &o->units[1], work);
}

static bool pair_explain(const struct plan *p, struct buf *out) {
    const struct plan_pair *w = (const struct plan_pair *)(const void *)p;
    static const char *const when[2][2] = {{"prompts", "answers"}, {"contexts up to", "longer ones"}};
    for (int i = 0; i < 2; i++) {
        const struct plan_lane *l = &w->lanes[i];
        buf_putf(out, "%s: %s", p->name, when[w->extends][i]);
        if (w->extends && i == 0) buf_putf(out, " %d positions", w->ctx_max);
        buf_putf(out, " of %s on unit %s (%s); %llu steps so far\n", p->model->name, l->caps.name, l->caps.detail,
                 (unsigned long long)w->n_steps[i]);
        lane_explain(l, out);
    }
    buf_puts(out, "  one state for both units: nothing is moved between them\n");
    return plan_pool_explain(p, out);
}

static const struct plan_ops pair_ops = {
    .run = pair_run,
    .commit = pair_commit,
    .bytes = pair_bytes,
    .explain = pair_explain,
    .close = pair_close,
};

const struct plan_kind plan_handoff_kind = {
    .name = "handoff", .n_units = 2, .fits = pair_fits, .open = handoff_open, .estimate = pair_estimate};
const struct plan_kind plan_extend_kind = {
    .name = "extend", .n_units = 2, .fits = extend_fits, .open = extend_open, .estimate = pair_estimate};
