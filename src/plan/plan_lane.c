// A lane: all of a model's programs on one unit, and the run of a step on them. A plan has one lane or two.
//
// All programs are compiled when the plan opens, so that a step never compiles or allocates and the memory of the worst
// case is held from the start: for each window and each kind of output (none, logits, argmax) one, and a commit. On a
// unit whose cost follows the rows the full window serves every step; on one whose cost follows the window there is a
// ladder of windows, each four times the last (a step pays at most four times the rows it has; finer ladders cost
// compile time and memory), and the smallest that holds the rows is taken.
//
// A run without rows that want output takes the program without a head, which leaves the same state.
#include "base/base.h"
#include "plan/plan_lane.h"

static const uint32_t gives_outputs[LANE_GIVES] = {0, PROG_OUT_LOGITS, PROG_OUT_ARGMAX};
static const char *const gives_names[LANE_GIVES] = {"fill", "logits", "argmax"};

static int windows_list(const struct plan_options *o, bool cost_follows_rows, int out[LANE_WINDOWS_MAX]) {
    int n = 0;
    for (int w = 1; !cost_follows_rows && w < o->window; w *= LANE_WINDOW_STEP) out[n++] = w;
    out[n++] = o->window;
    return n;
}

static struct prog_spec spec_make(const struct plan_options *o, int window, int gives) {
    struct prog_spec s = {
        .kind = PROG_WHOLE,
        .numerics = o->numerics,
        .kv_type = o->kv_type,
        .window = window,
        .n_out_max = gives == LANE_NONE ? 0 : MIN(o->n_out_max, window),
        .outputs = gives_outputs[gives] | (o->n_features > 0 ? (uint32_t)PROG_OUT_FEATURES : 0),
        .n_features = o->n_features,
    };
    for (int i = 0; i < o->n_features; i++) s.feature_layers[i] = o->feature_layers[i];
    return s;
}

static struct prog_spec spec_commit(const struct plan_options *o) {
    return (struct prog_spec){.kind = PROG_COMMIT, .numerics = o->numerics, .kv_type = o->kv_type, .window = o->window};
}

static bool out_bytes(const struct plan_options *o, uint64_t *logits, uint64_t *argmax) {
    return u64_mul((uint64_t)o->n_out_max * sizeof(float), (uint64_t)o->model->hyper.n_vocab, logits) &&
           u64_mul((uint64_t)o->n_out_max, sizeof(struct prog_argmax), argmax);
}

// -------------------------------------------------------------------------------------------------------- open, close

static void program_release(struct plan_lane *l, struct lane_program *c) {
    unit_driver_of(l->unit)->program_free(l->unit, c->program);
    prog_free(c->prog);
}

void lane_close(struct plan_lane *l) {
    if (!l->unit) return;
    for (int i = 0; i < l->n_windows; i++)
        for (int g = 0; g < LANE_GIVES; g++) program_release(l, &l->programs[i][g]);
    program_release(l, &l->commit);
    unit_driver_of(l->unit)->buffer_free(l->unit, l->logits);
    unit_driver_of(l->unit)->buffer_free(l->unit, l->argmax);
    mem_free(l->logits_host);
    mem_free(l->argmax_host);
    l->unit = NULL;
}

static enum tern_status compile(struct plan_lane *l, struct lane_program *c, const struct plan_options *o,
                                struct unit_weights *weights, const struct prog_spec *spec, struct tern_err *err) {
    TRY(prog_build(&c->prog, o->model, spec, err));
    return unit_driver_of(l->unit)->program_compile(l->unit, &c->program, c->prog, weights, err);
}

static enum tern_status outputs_init(struct plan_lane *l, const struct plan_options *o, struct tern_err *err) {
    const struct unit_driver *d = unit_driver_of(l->unit);
    uint64_t logits = 0, argmax = 0;
    if (!out_bytes(o, &logits, &argmax) || logits > SIZE_MAX)
        return err_set(err, TERN_LIMIT, "plan: logits of %d rows and %d ids do not fit 64 bits", o->n_out_max,
                       o->model->hyper.n_vocab);
    TRY(d->buffer_alloc(l->unit, &l->logits, logits, err));
    TRY(d->buffer_alloc(l->unit, &l->argmax, argmax, err));
    l->out_bytes = logits + argmax;
    if (l->caps.host_memory) return TERN_OK;
    l->logits_host = mem_alloc((size_t)logits);
    l->argmax_host = mem_alloc((size_t)argmax);
    if (!l->logits_host || !l->argmax_host)
        return err_set(err, TERN_NO_MEMORY, "plan: no memory for the logits of %d rows", o->n_out_max);
    l->out_bytes *= 2;
    return TERN_OK;
}

const char *lane_misfit(const struct plan_options *o, const struct plan_unit *u) {
    struct unit_caps caps;
    if (!u->unit) return "no unit is given";
    unit_driver_of(u->unit)->caps(u->unit, &caps);
    if (caps.state_tag != STATE_CPU_V1) return "the unit reads another state layout";
    return o->window > caps.window_max ? "the window is larger than the unit's largest" : NULL;
}

enum tern_status lane_open(struct plan_lane *l, const struct plan_options *o, const struct plan_unit *u,
                           struct tern_err *err) {
    *l = (struct plan_lane){.unit = u->unit, .pool = l->pool, .n_out_max = o->n_out_max, .n_features = o->n_features};
    unit_driver_of(l->unit)->caps(l->unit, &l->caps);
    TRY(outputs_init(l, o, err));
    l->n_windows = windows_list(o, l->caps.cost_follows_rows, l->windows);
    for (int i = 0; i < l->n_windows; i++)
        for (int g = 0; g < LANE_GIVES; g++) {
            struct prog_spec spec = spec_make(o, l->windows[i], g);
            TRY(compile(l, &l->programs[i][g], o, u->weights, &spec, err));
        }
    struct prog_spec spec = spec_commit(o);
    return compile(l, &l->commit, o, u->weights, &spec, err);
}

// ---------------------------------------------------------------------------------------------------------------- run

static enum tern_status submit_and_wait(struct plan_lane *l, struct unit_program *program, const struct step *s,
                                        struct tern_err *err) {
    const struct unit_driver *d = unit_driver_of(l->unit);
    struct unit_event event;
    TRY(d->submit(l->unit, program, s, &event, err));
    return d->event_wait(l->unit, &event, err);
}

static enum tern_status results_take(struct plan_lane *l, struct plan *p, int gives, int n_out, struct tern_err *err) {
    const struct unit_driver *d = unit_driver_of(l->unit);
    uint64_t row_bytes = (uint64_t)p->model->hyper.n_vocab * sizeof(float);
    if (gives == LANE_LOGITS) {
        p->logits = l->logits_host ? l->logits_host : d->buffer_host(l->logits);
        if (l->logits_host)
            TRY(d->buffer_read(l->unit, l->logits, 0, l->logits_host, (uint64_t)n_out * row_bytes, err));
    }
    if (gives == LANE_ARGMAX) {
        uint64_t bytes = (uint64_t)n_out * sizeof(struct prog_argmax);
        p->argmax = l->argmax_host ? l->argmax_host : d->buffer_host(l->argmax);
        if (l->argmax_host) TRY(d->buffer_read(l->unit, l->argmax, 0, l->argmax_host, bytes, err));
    }
    p->n_out = gives == LANE_NONE ? 0 : n_out;
    return TERN_OK;
}

enum tern_status lane_run(struct plan_lane *l, struct plan *p, const struct step *s, uint32_t want,
                          struct tern_err *err) {
    int full = l->windows[l->n_windows - 1];
    if (s->n_rows < 1 || s->n_rows > full)
        return err_set(err, TERN_INVALID_ARGUMENT, "plan %s: a step of %d rows; its window has %d", p->name, s->n_rows,
                       full);
    if (s->n_out > l->n_out_max)
        return err_set(err, TERN_INVALID_ARGUMENT, "plan %s: %d rows want output; it serves %d in one step", p->name,
                       s->n_out, l->n_out_max);
    int gives = s->n_out == 0 ? LANE_NONE : want == PROG_OUT_LOGITS ? LANE_LOGITS : LANE_ARGMAX;
    int i = 0;
    while (l->windows[i] < s->n_rows) i++;
    struct step bound = *s;
    bound.pool = l->pool;
    bound.ports[PORT_LOGITS] = (struct step_port){.buf = l->logits};
    bound.ports[PORT_ARGMAX] = (struct step_port){.buf = l->argmax};
    enum tern_status status = submit_and_wait(l, l->programs[i][gives].program, &bound, err);
    if (status == TERN_OK) status = results_take(l, p, gives, s->n_out, err);
    if (status != TERN_OK) err_prefix(err, "plan %s", p->name);
    return status;
}

enum tern_status lane_commit(struct plan_lane *l, const struct plan *p, const struct step *s, struct tern_err *err) {
    struct step bound = *s;
    bound.pool = l->pool;
    enum tern_status status = submit_and_wait(l, l->commit.program, &bound, err);
    if (status != TERN_OK) err_prefix(err, "plan %s, commit", p->name);
    return status;
}

// ------------------------------------------------------------------------------------------------------------ figures

uint64_t lane_bytes(const struct plan_lane *l) {
    const struct unit_driver *d = unit_driver_of(l->unit);
    uint64_t sum = l->out_bytes + d->program_bytes(l->commit.program);
    for (int i = 0; i < l->n_windows; i++)
        for (int g = 0; g < LANE_GIVES; g++) sum += d->program_bytes(l->programs[i][g].program);
    return sum;
}

// A program that cannot be built adds nothing: plan_open says why.
static bool program_add(const struct plan_options *o, struct unit *u, const struct prog_spec *spec, uint64_t *sum) {
    struct prog *p = NULL;
    uint64_t bytes = 0;
    if (prog_build(&p, o->model, spec, NULL) != TERN_OK) return true;
    bool fits = unit_driver_of(u)->program_estimate(u, p, &bytes) && u64_add(*sum, bytes, sum);
    prog_free(p);
    return fits;
}

bool lane_bytes_estimate(const struct plan_options *o, const struct plan_unit *u, uint64_t *work) {
    struct unit_caps caps;
    int windows[LANE_WINDOWS_MAX];
    uint64_t logits = 0, argmax = 0, sum = 0;
    unit_driver_of(u->unit)->caps(u->unit, &caps);
    if (!out_bytes(o, &logits, &argmax) || !u64_add(logits, argmax, &sum)) return false;
    if (!caps.host_memory && !u64_mul(sum, 2, &sum)) return false;
    int n = windows_list(o, caps.cost_follows_rows, windows);
    for (int i = 0; i < n; i++)
        for (int g = 0; g < LANE_GIVES; g++) {
            struct prog_spec spec = spec_make(o, windows[i], g);
            if (!program_add(o, u->unit, &spec, &sum)) return false;
        }
    struct prog_spec spec = spec_commit(o);
    return program_add(o, u->unit, &spec, &sum) && u64_add(*work, sum, work);
}

bool lane_explain(const struct plan_lane *l, struct buf *out) {
    const struct unit_driver *d = unit_driver_of(l->unit);
    char text[24];
    for (int i = 0; i < l->n_windows; i++) {
        buf_putf(out, "  window %d:", l->windows[i]);
        for (int g = 0; g < LANE_GIVES; g++)
            buf_putf(out, "%s %s (%s)", g > 0 ? "," : "", gives_names[g],
                     bytes_format(d->program_bytes(l->programs[i][g].program), text));
        buf_putc(out, '\n');
    }
    buf_putf(out, "  at most %d rows with output in one step; commit of %d rows\n", l->n_out_max,
             l->windows[l->n_windows - 1]);
    if (l->n_features > 0) buf_putf(out, "  features of %d layers from every run, for a drafter\n", l->n_features);
    return buf_puts(out, l->caps.cost_follows_rows
                             ? "  one window: the unit's cost follows the rows of a step\n"
                             : "  the smallest window that holds a step: the unit's cost follows the window\n");
}
