// What may be asked of a builder: each field of a spec in its range, outputs that the kind can give, layers that the
// pools hold.
#include "base/base.h"
#include "prog/prog_int.h"

const char *prog_class_name(enum prog_class c) {
    static const char *const names[] = {
        [PROG_CLASS_INT8] = "int8", [PROG_CLASS_FP32] = "fp32", [PROG_CLASS_BF16] = "bf16"};
    return (unsigned)c < ARRAY_LEN(names) ? names[c] : "?";
}

_Static_assert(MODEL_FEATURES_MAX <= PROG_FEATURES_MAX, "a target gives all that a drafter reads");

// Layers that the program touches, and those whose residual it finishes (feature taps lie there).
static enum tern_status spec_range(const struct model *m, const struct prog_spec *s, int range[2], int finished[2],
                                   struct tern_err *err) {
    int n_layers = m->hyper.n_layers;
    int n_attn = prog_layer_count(m, LAYER_ATTENTION, 0, n_layers);
    range[0] = 0;
    range[1] = n_layers;
    if (s->kind == PROG_LAYERS) {
        if (s->layer_begin < 0 || s->layer_begin >= s->layer_end || s->layer_end > n_layers)
            return err_set(err, TERN_INVALID_ARGUMENT, "program: layers %d to %d of a model with %d", s->layer_begin,
                           s->layer_end, n_layers);
        range[0] = s->layer_begin;
        range[1] = s->layer_end;
    }
    finished[0] = range[0];
    finished[1] = range[1];
    if (s->kind == PROG_SEGMENT || s->kind == PROG_ATTN) {
        int last = s->kind == PROG_SEGMENT ? n_attn : n_attn - 1;
        if (s->index < 0 || s->index > last)
            return err_set(err, TERN_INVALID_ARGUMENT, "program: %s %d of a model with %d attention layers",
                           prog_kind_name(s->kind), s->index, n_attn);
        range[0] = s->kind == PROG_ATTN ? prog_attn_layer(m, s->index) : MAX(prog_attn_layer(m, s->index - 1), 0);
        range[1] = s->index < n_attn ? prog_attn_layer(m, s->index) + 1 : n_layers;
        finished[0] = range[0];
        finished[1] = s->index < n_attn ? range[1] - 1 : n_layers;
    }
    bool none = s->kind == PROG_COMMIT || s->kind == PROG_LINEAR || s->kind == PROG_ATTN || s->kind == PROG_INJECT ||
                s->kind == PROG_DRAFT;
    if (none) finished[1] = finished[0];
    return TERN_OK;
}

static bool ends_with_head(const struct model *m, const struct prog_spec *s) {
    int n_attn = prog_layer_count(m, LAYER_ATTENTION, 0, m->hyper.n_layers);
    return s->kind == PROG_WHOLE || s->kind == PROG_DRAFT ||
           (s->kind == PROG_LAYERS && s->layer_end == m->hyper.n_layers) ||
           (s->kind == PROG_SEGMENT && s->index == n_attn);
}

static enum tern_status check_outputs(const struct model *m, const struct prog_spec *s, struct tern_err *err) {
    uint32_t allowed = 0;
    if (ends_with_head(m, s)) allowed |= PROG_HEAD_OUTPUTS;
    if (s->kind == PROG_ENCODER) allowed |= PROG_OUT_HIDDEN;
    if (s->kind == PROG_WHOLE || s->kind == PROG_LAYERS || s->kind == PROG_SEGMENT) allowed |= PROG_OUT_ROWS;
    if (s->n_features > 0) allowed |= PROG_OUT_FEATURES;
    if (s->outputs & ~allowed)
        return err_set(err, TERN_INVALID_ARGUMENT, "program %s: outputs 0x%x; it can give 0x%x",
                       prog_kind_name(s->kind), s->outputs, allowed);
    if (s->n_features > 0 && !(s->outputs & PROG_OUT_FEATURES))
        return err_set(err, TERN_INVALID_ARGUMENT, "program %s: %d feature layers but no feature output",
                       prog_kind_name(s->kind), s->n_features);
    bool head = ends_with_head(m, s) && (s->outputs & PROG_HEAD_OUTPUTS);
    if (s->kind == PROG_DRAFT && !head)
        return err_set(err, TERN_INVALID_ARGUMENT, "program draft: no output is asked for");
    if (s->n_out_max < -1 || s->n_out_max > s->window || (head && s->n_out_max == 0))
        return err_set(err, TERN_INVALID_ARGUMENT, "program %s: %d rows with output; 1 to %d (or -1: all) are possible",
                       prog_kind_name(s->kind), s->n_out_max, s->window);
    return TERN_OK;
}

static enum tern_status check_features(const struct prog_spec *s, const int finished[2], struct tern_err *err) {
    if (s->n_features < 0 || s->n_features > PROG_FEATURES_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "program: %d feature layers; at most %d are possible", s->n_features,
                       PROG_FEATURES_MAX);
    for (int i = 0; i < s->n_features; i++)
        if (s->feature_layers[i] < finished[0] || s->feature_layers[i] >= finished[1])
            return err_set(err, TERN_INVALID_ARGUMENT, "program %s: feature layer %d; it finishes layers %d to %d",
                           prog_kind_name(s->kind), s->feature_layers[i], finished[0], finished[1] - 1);
    return TERN_OK;
}

static enum tern_status check_layers(const struct model *m, struct tern_err *err) {
    if (m->hyper.n_layers < 1 || m->hyper.n_layers > MODEL_LAYERS_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "program: a model of %d layers", m->hyper.n_layers);
    struct state_layout unused;
    return state_layout_init(&unused, m, OP_KV_F16, 0, m->hyper.n_layers, 0, err); // shapes that state can hold
}

// Rows that see one another in both directions have no window here.
static enum tern_status check_windows(const struct model *m, const struct prog_spec *s, struct tern_err *err) {
    if (s->kind != PROG_ENCODER && s->kind != PROG_DRAFT) return TERN_OK;
    for (int i = 0; i < m->hyper.n_layers; i++)
        if (m->layers[i].window > 0)
            return err_set(err, TERN_UNSUPPORTED, "program %s of model %s: layer %d has a sliding window",
                           prog_kind_name(s->kind), m->name, i);
    return TERN_OK;
}

static enum tern_status check_linear(const struct model *m, const struct prog_spec *s, struct tern_err *err) {
    if (s->kind != PROG_LINEAR) return TERN_OK;
    const struct tensor *w = s->weight;
    if (!w) return err_set(err, TERN_INVALID_ARGUMENT, "program linear: no weight");
    bool ours = w == m->output || w == m->embedding;
    for (int i = 0; i < m->hyper.n_layers && !ours; i++) {
        const struct model_layer *l = &m->layers[i];
        const struct tensor *const list[] = {l->q,        l->k,        l->v,      l->o,       l->conv_in,
                                             l->conv_out, l->ffn_gate, l->ffn_up, l->ffn_down};
        for (size_t j = 0; j < ARRAY_LEN(list); j++) ours = ours || list[j] == w;
    }
    if (m->drafter) ours = ours || w == m->drafter->fc || w == m->drafter->markov_w2;
    if (!ours)
        return err_set(err, TERN_INVALID_ARGUMENT, "program linear: tensor %.*s is no weight of a product of model %s",
                       (int)w->name.len, w->name.data, m->name);
    return TERN_OK;
}

static enum tern_status check_role(const struct model *m, const struct prog_spec *s, struct tern_err *err) {
    bool of_drafter = s->kind == PROG_INJECT || s->kind == PROG_DRAFT;
    if (s->kind == PROG_LINEAR || of_drafter == (m->drafter != NULL)) return TERN_OK;
    return err_set(err, TERN_INVALID_ARGUMENT, "program %s of model %s, which is %s drafter", prog_kind_name(s->kind),
                   m->name, m->drafter ? "a" : "no");
}

int prog_state_end(const struct model *m, const struct prog_spec *s) {
    return s->state_begin == 0 && s->state_end == 0 ? m->hyper.n_layers : s->state_end;
}

static enum tern_status check_state_range(const struct model *m, const struct prog_spec *s, const int range[2],
                                          struct tern_err *err) {
    int begin = s->state_begin, end = prog_state_end(m, s);
    bool any = s->kind == PROG_COMMIT || s->kind == PROG_LINEAR;
    if (begin < 0 || end > m->hyper.n_layers || begin >= end || (!any && (range[0] < begin || range[1] > end)))
        return err_set(err, TERN_INVALID_ARGUMENT, "program %s: layers %d to %d on state of layers %d to %d",
                       prog_kind_name(s->kind), range[0], range[1], begin, end);
    return TERN_OK;
}

enum tern_status prog_spec_check(const struct model *m, const struct prog_spec *s, int range[2], struct tern_err *err) {
    int finished[2] = {0};
    if ((unsigned)s->kind > PROG_DRAFT)
        return err_set(err, TERN_INVALID_ARGUMENT, "program: unknown kind %d", (int)s->kind);
    if ((unsigned)s->numerics >= PROG_CLASS_COUNT)
        return err_set(err, TERN_INVALID_ARGUMENT, "program: unknown numerics class %d", (int)s->numerics);
    if (s->window < 1 || s->window > STEP_WINDOW_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "program: a window of %d rows; 1 to %d are possible", s->window,
                       STEP_WINDOW_MAX);
    if ((unsigned)s->kv_type > OP_KV_F32)
        return err_set(err, TERN_INVALID_ARGUMENT, "program: unknown K/V type %d", (int)s->kv_type);
    TRY(check_role(m, s, err));
    TRY(check_layers(m, err));
    TRY(spec_range(m, s, range, finished, err));
    TRY(check_windows(m, s, err));
    TRY(check_features(s, finished, err));
    TRY(check_outputs(m, s, err));
    TRY(check_state_range(m, s, range, err));
    return check_linear(m, s, err);
}
