// The engine's part of drafting: the draft model beside the target, its place on the unit, and which mode runs and
// why.
//
// The drafter's pool and rows of features are taken at open for all sessions at full context, as the target's are.
// Every session has a lane, a fixed range of blocks and rows: a drafter's context is never shared.
#include "base/base.h"
#include "engine_int.h"

#define CHAIN_TOKENS 9 // drafted tokens by mode, where nothing is asked for
#define TREE_TOKENS 46
#define NGRAM_TOKENS 8

static const char *const mode_names[] = {
    [TERN_DRAFT_DEFAULT] = "default",
    [TERN_DRAFT_AUTO] = "auto",
    [TERN_DRAFT_OFF] = "off",
    [TERN_DRAFT_CHAIN] = "chain",
    [TERN_DRAFT_TREE] = "tree",
    [TERN_DRAFT_NGRAM] = "ngram",
    [TERN_DRAFT_TREE_BIASED] = "tree-biased",
    [TERN_DRAFT_TREE_FACTORISED] = "tree-factorised",
};

const char *draft_mode_name(enum tern_draft mode) {
    return (unsigned)mode < ARRAY_LEN(mode_names) ? mode_names[mode] : "unknown";
}

int draft_max_of(const struct tern_engine *e, enum tern_draft mode, int asked) {
    int max = asked > 0 ? asked : e->draft.max;
    if (max == 0 && mode == TERN_DRAFT_CHAIN) max = CHAIN_TOKENS;
    if (max == 0 && mode == TERN_DRAFT_NGRAM) max = NGRAM_TOKENS;
    if (max == 0) max = mode == TERN_DRAFT_AUTO ? TERN_DRAFT_MAX : TREE_TOKENS;
    return MIN(max, MIN(e->window, ENGINE_OUT_ROWS_MAX) - 1);
}

static bool needs_model(enum tern_draft mode) {
    return mode != TERN_DRAFT_DEFAULT && mode != TERN_DRAFT_AUTO && mode != TERN_DRAFT_OFF && mode != TERN_DRAFT_NGRAM;
}

enum tern_status engine_draft_check(const struct tern_engine_options *o, struct tern_err *err) {
    int window = o->window ? o->window : ENGINE_WINDOW_DEFAULT;
    if ((unsigned)o->draft >= ARRAY_LEN(mode_names))
        return err_set(err, TERN_INVALID_ARGUMENT, "unknown draft mode %d", (int)o->draft);
    if (o->draft_max < 0 || o->draft_max > TERN_DRAFT_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "drafted tokens of a round must be 1 to %d (0: by the mode), not %d",
                       TERN_DRAFT_MAX, o->draft_max);
    if (o->draft_max >= window)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "%d drafted tokens and the one before them do not fit a window of %d rows", o->draft_max,
                       window);
    if (needs_model(o->draft) && !o->draft_path)
        return err_set(err, TERN_INVALID_ARGUMENT, "drafting by %s needs a draft model, and none is given",
                       draft_mode_name(o->draft));
    if (o->draft_unit && !o->draft_path)
        return err_set(err, TERN_INVALID_ARGUMENT, "a unit for a draft model (%s) is given, and no draft model",
                       o->draft_unit);
    if (needs_model(o->draft) && window < 2)
        return err_set(err, TERN_INVALID_ARGUMENT, "drafting needs a window of at least 2 rows");
    return TERN_OK;
}

static void plan_draft_options_fill(const struct tern_engine *e, struct plan_draft_options *o) {
    const struct engine_draft *d = &e->draft;
    *o = (struct plan_draft_options){.drafter = d->model,
                                     .unit = d->unit,
                                     .target_unit = e->unit,
                                     .weights = d->weights,
                                     .numerics = e->numerics,
                                     .kv_type = e->kv_type,
                                     .window = d->window,
                                     .n_blocks = d->n_blocks * e->n_sessions,
                                     // one lane each, and a step of several sessions
                                     .n_feature_rows = d->n_rows * e->n_sessions + (e->n_sessions > 1 ? e->window : 0),
                                     .hidden = drafter_wants_hidden(d->model)};
}

// What requests do that say nothing, and why.
static void note_set(struct tern_engine *e, bool is_plain) {
    struct engine_draft *d = &e->draft;
    struct buf b;
    buf_init(&b, ENGINE_DRAFT_NOTE - 1);
    bool by_text = d->mode == TERN_DRAFT_NGRAM || (d->mode == TERN_DRAFT_AUTO && !d->model);
    bool elsewhere = !by_text && d->unit_name[0];
    if (!is_plain)
        buf_putf(&b, "%s: %.80s%s%s%s, at most %d tokens a round%s", draft_mode_name(d->mode),
                 by_text ? "what followed the last words earlier in the text" : d->model->name, elsewhere ? " on " : "",
                 elsewhere ? d->unit_name : "",
                 d->mode == TERN_DRAFT_AUTO && d->model ? " and what followed earlier in the text" : "",
                 draft_max_of(e, d->mode, 0), by_text && !d->model ? "; no draft model is given" : "");
    else
        buf_puts(&b, d->mode == TERN_DRAFT_OFF ? "off" : "off: a window of one row checks no drafts");
    if (!b.failed && b.len < sizeof d->note) memcpy(d->note, b.data, b.len + 1);
    buf_release(&b);
}

// The same name, the same unit: then weights and features are shared.
static enum tern_status unit_select(struct tern_engine *e, struct tern_err *err) {
    const struct tern_engine_options *o = &e->options;
    struct engine_draft *d = &e->draft;
    struct unit_caps caps;
    size_t len = o->draft_unit ? strlen(o->draft_unit) : 0;
    d->unit = e->unit;
    d->window = e->window;
    if (!o->draft_unit || strcmp(o->draft_unit, o->unit ? o->unit : "cpu") == 0) return TERN_OK;
    if (len >= sizeof d->unit_name)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "draft model: a unit's name of %zu characters; at most %zu are possible", len,
                       sizeof d->unit_name - 1);
    memcpy(d->unit_name, o->draft_unit, len + 1);
    struct unit_options uo = {.n_threads = o->n_threads, .pin = true};
    enum tern_status status = unit_open(&d->unit, o->draft_unit, &uo, err);
    if (status != TERN_OK) {
        d->unit = NULL;
        return err_prefix(err, "draft model");
    }
    unit_driver_of(d->unit)->caps(d->unit, &caps);
    d->window = MIN(e->window, caps.window_max);
    struct unit_advice a;
    TRY(unit_advise(d->unit, d->model, false, &a, err));
    status = engine_ctx_bound(e, o->draft_unit, &a, err);
    if (status != TERN_OK) return err_prefix(err, "draft model");
    engine_pools_size(e);
    return TERN_OK;
}

enum tern_status engine_draft_open(struct tern_engine *e, struct tern_err *err) {
    const struct tern_engine_options *o = &e->options;
    struct engine_draft *d = &e->draft;
    d->mode = o->draft == TERN_DRAFT_DEFAULT ? TERN_DRAFT_AUTO : o->draft;
    d->max = o->draft_max;
    if (o->draft_path && e->window > 1) {
        TRY(engine_progress(e, "opening the draft model", 0, 1, err));
        TRY(model_open_draft(&d->model, o->draft_path, e->model, err));
        TRY(unit_select(e, err));
        if (d->model->warning.len) log_warn("%.*s", (int)d->model->warning.len, d->model->warning.data);
        if (!d->model->drafter) TRY(draft_lm_check(e, o->draft_path, err));
        if (d->model->drafter) d->n_blocks = int_div_up(e->n_ctx + d->model->drafter->n_rows, OP_BLOCK);
        if (d->model->drafter) d->n_rows = e->window + TREE_NODES_MAX;
    }
    bool is_plain = d->mode == TERN_DRAFT_OFF || e->window < 2;
    note_set(e, is_plain);
    if (is_plain) d->mode = TERN_DRAFT_OFF;
    return TERN_OK;
}

bool engine_draft_estimate(const struct tern_engine *e, uint64_t *bytes) {
    struct plan_draft_options o;
    *bytes = 0;
    if (!e->draft.model) return true;
    if (!e->draft.model->drafter) return draft_lm_bytes_estimate(e, bytes);
    plan_draft_options_fill(e, &o);
    const struct tensor *in = e->model->embedding, *out = e->model->output;
    uint64_t borrowed = in->n_bytes + (out != in ? out->n_bytes : 0); // on another unit packed once more
    return plan_draft_bytes_estimate(&o, bytes) && u64_add(*bytes, e->draft.model->n_bytes_file, bytes) &&
           u64_add(*bytes, e->draft.unit == e->unit ? 0 : borrowed, bytes) &&
           u64_add(*bytes, drafter_bytes(e->draft.model), bytes);
}

enum tern_status engine_draft_load(struct tern_engine *e, struct tern_err *err) {
    struct engine_draft *d = &e->draft;
    if (!d->model) return TERN_OK;
    if (!d->model->drafter) return draft_lm_load(e, err);
    // The file is small beside the target's: packed anew, so that no second cache entry has to be kept in step.
    struct weights_options wo = {.numerics = e->numerics, .shared = d->unit == e->unit ? e->weights : NULL};
    TRY(unit_driver_of(d->unit)->weights_import(d->unit, &d->weights, d->model, &wo, &d->weights_info, err));
    struct plan_draft_options o;
    plan_draft_options_fill(e, &o);
    TRY(plan_draft_open(&d->plan, &o, err));
    TRY(drafter_create(&d->drafter, d->model, d->plan, d->window, err));
    d->free_lanes = mem_calloc((size_t)e->n_sessions, sizeof *d->free_lanes);
    if (!d->free_lanes) return err_set(err, TERN_NO_MEMORY, "no memory for the drafter's tables");
    for (int i = e->n_sessions - 1; i >= 0; i--) d->free_lanes[d->n_free_lanes++] = i;
    return TERN_OK;
}

void engine_draft_close(struct tern_engine *e) {
    struct engine_draft *d = &e->draft;
    drafter_free(d->drafter);
    draft_lm_free(d->lm);
    plan_draft_close(d->plan);
    if (d->weights) unit_driver_of(d->unit)->weights_free(d->unit, d->weights);
    if (d->unit != e->unit) unit_close(d->unit);
    model_close(d->model);
    mem_free(d->free_lanes);
}

uint64_t engine_draft_bytes(const struct tern_engine *e) {
    const struct engine_draft *d = &e->draft;
    if (d->lm) return d->weights_info.bytes + draft_lm_bytes(d->lm);
    return d->model ? d->weights_info.bytes + plan_draft_bytes(d->plan) + drafter_bytes(d->model) : 0;
}
