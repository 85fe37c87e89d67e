// The list of plans, what all kinds share (options, the state pool, results of the last run), and dispatch.
#include "base/base.h"
#include "plan/plan_int.h"
#include <stdarg.h>
#include <stdio.h>

const struct plan_kind *const plan_kinds[] = {
    &plan_whole_kind,
    &plan_handoff_kind,
    &plan_extend_kind,
    NULL,
};

static enum tern_status kind_find(const struct plan_kind **out, const char *name, struct tern_err *err) {
    struct buf names;
    buf_init(&names, 256);
    for (int i = 0; plan_kinds[i]; i++) {
        buf_putf(&names, "%s%s", i > 0 ? ", " : "", plan_kinds[i]->name);
        if (!str_eqz(str_from(name), plan_kinds[i]->name)) continue;
        *out = plan_kinds[i];
        buf_release(&names);
        return TERN_OK;
    }
    err_set(err, TERN_NOT_FOUND, "plan '%s' does not exist; there are: %s", name, names.failed ? "" : names.data);
    buf_release(&names);
    return TERN_NOT_FOUND;
}

int plan_kind_units(const char *kind) {
    const struct plan_kind *k = NULL;
    if (kind_find(&k, kind, NULL) != TERN_OK) return 0;
    return k->n_units;
}

enum tern_status plan_options_check(const struct plan_options *o, struct tern_err *err) {
    if (!o->model || !o->units || o->n_units < 1)
        return err_set(err, TERN_INVALID_ARGUMENT, "plan: a model and at least one unit are needed");
    if (o->window < 1 || o->window > STEP_WINDOW_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "plan: a window of %d rows; 1 to %d are possible", o->window,
                       STEP_WINDOW_MAX);
    if (o->n_out_max < 1 || o->n_out_max > o->window)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "plan: %d rows with output in one step; 1 to %d (the window) are possible", o->n_out_max,
                       o->window);
    if (o->n_features < 0 || o->n_features > PROG_FEATURES_MAX || (o->n_features > 0 && !o->feature_layers))
        return err_set(err, TERN_INVALID_ARGUMENT, "plan: features of %d layers; at most %d are possible",
                       o->n_features, PROG_FEATURES_MAX);
    if (o->n_blocks < 0 || o->n_slots < 0)
        return err_set(err, TERN_INVALID_ARGUMENT, "plan: a pool of %d blocks and %d conv slots", o->n_blocks,
                       o->n_slots);
    return TERN_OK;
}

enum tern_status plan_open(struct plan **out, const char *kind, const struct plan_options *o, struct tern_err *err) {
    const struct plan_kind *k = NULL;
    const char *reason = "";
    TRY(kind_find(&k, kind, err));
    TRY(plan_options_check(o, err));
    if (!k->fits(o, &reason)) return err_set(err, TERN_UNSUPPORTED, "plan %s does not fit: %s", kind, reason);
    return k->open(out, o, err);
}

void plan_name_set(struct plan *p, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(p->name, sizeof p->name, fmt, args);
    va_end(args);
}

bool plan_pool_explain(const struct plan *p, struct buf *out) {
    char text[24];
    return buf_putf(out, "  state: %d blocks, %d conv slots, %s\n", p->pool.n_blocks, p->pool.n_slots,
                    bytes_format(p->pool_bytes, text));
}

void plan_close(struct plan *p) {
    if (p) p->ops->close(p);
}

const struct state_pool *plan_pool(const struct plan *p) { return &p->pool; }
const char *plan_name(const struct plan *p) { return p->name; }
uint64_t plan_work_bytes(const struct plan *p) { return p->ops->bytes(p) + p->pool_bytes; }
bool plan_explain(const struct plan *p, struct buf *out) { return p->ops->explain(p, out); }

enum tern_status plan_run(struct plan *p, const struct step *s, uint32_t want, struct tern_err *err) {
    p->logits = NULL;
    p->argmax = NULL;
    p->n_out = 0;
    if (s->pool != &p->pool)
        return err_set(err, TERN_INVALID_ARGUMENT, "plan %s: the step is on another pool", p->name);
    if (want != 0 && want != PROG_OUT_LOGITS && want != PROG_OUT_ARGMAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "plan %s: outputs 0x%x; logits, argmax or none are possible",
                       p->name, want);
    if (want == 0 && s->n_out > 0)
        return err_set(err, TERN_INVALID_ARGUMENT, "plan %s: %d rows want output of a run that gives none", p->name,
                       s->n_out);
    return p->ops->run(p, s, want, err);
}

enum tern_status plan_commit(struct plan *p, const struct step *s, struct tern_err *err) {
    if (s->pool != &p->pool)
        return err_set(err, TERN_INVALID_ARGUMENT, "plan %s: the commit is on another pool", p->name);
    return p->ops->commit(p, s, err);
}

const float *plan_logits(const struct plan *p, int out_index) {
    if (!p->logits || out_index < 0 || out_index >= p->n_out)
        TERN_BUG("plan %s: logits of output %d; the last run gave %d", p->name, out_index, p->logits ? p->n_out : 0);
    return p->logits + (size_t)out_index * (size_t)p->model->hyper.n_vocab;
}

const struct prog_argmax *plan_argmax(const struct plan *p) {
    if (!p->argmax) TERN_BUG("plan %s: the last run gave no argmax", p->name);
    return p->argmax;
}

// A model that no program can be built of estimates 0: plan_open says why.
bool plan_bytes_estimate(const char *kind, const struct plan_options *o, uint64_t *work, uint64_t *state) {
    const struct plan_kind *k = NULL;
    const char *reason;
    struct state_layout layout;
    uint64_t kv = 0, conv = 0;
    *work = *state = 0;
    if (kind_find(&k, kind, NULL) != TERN_OK || plan_options_check(o, NULL) != TERN_OK || !k->fits(o, &reason))
        return true;
    if (state_layout_init(&layout, o->model, o->kv_type, 0, o->model->hyper.n_layers, o->window, NULL) != TERN_OK)
        return true;
    if (!plan_pool_bytes(&layout, o->n_blocks, o->n_slots, &kv, &conv) || !u64_add(kv, conv, state)) return false;
    return k->estimate(o, work);
}
