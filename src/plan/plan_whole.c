// The plan `whole`: every step on one unit, each by one program.
//
// All programs are compiled when the plan opens, so that a step never compiles or allocates and the memory of the worst
// case is held from the start: for each window and each kind of output (none, logits, argmax) one, and a commit. On a
// unit whose cost follows the rows the full window serves every step; on one whose cost follows the window there is a
// ladder of windows, each four times the last (a step pays at most four times the rows it has; finer ladders cost
// compile time and memory), and the smallest that holds the rows is taken.
//
// A run without rows that want output takes the program without a head, which leaves the same state.
#include "base/base.h"
#include "plan/plan_int.h"

#define WINDOW_STEP 4
#define WINDOWS_MAX 8 // 1, 4, … 4096 and the full window
enum { GIVES_NONE, GIVES_LOGITS, GIVES_ARGMAX, N_GIVES };
static const uint32_t gives_outputs[N_GIVES] = {0, PROG_OUT_LOGITS, PROG_OUT_ARGMAX};
static const char *const gives_names[N_GIVES] = {"fill", "logits", "argmax"};

struct compiled {
    struct prog *prog;
    struct unit_program *program;
};
struct plan_whole {
    struct plan base;
    struct unit *unit;
    struct unit_caps caps;
    int windows[WINDOWS_MAX]; // rising; the last is the full window
    int n_windows;
    int n_out_max, n_features;
    struct compiled programs[WINDOWS_MAX][N_GIVES];
    struct compiled commit;
    struct unit_buffer *logits, *argmax; // [n_out_max]
    float *logits_host;                  // copies for the caller; NULL when the unit's memory is the host's
    struct prog_argmax *argmax_host;
    uint64_t out_bytes; // of these
};

static int windows_list(const struct plan_options *o, bool cost_follows_rows, int out[WINDOWS_MAX]) {
    int n = 0;
    for (int w = 1; !cost_follows_rows && w < o->window; w *= WINDOW_STEP) out[n++] = w;
    out[n++] = o->window;
    return n;
}

static struct prog_spec spec_make(const struct plan_options *o, int window, int gives) {
    struct prog_spec s = {
        .kind = PROG_WHOLE,
        .numerics = o->numerics,
        .kv_type = o->kv_type,
        .window = window,
        .n_out_max = gives == GIVES_NONE ? 0 : MIN(o->n_out_max, window),
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

static void compiled_release(struct plan_whole *w, struct compiled *c) {
    unit_driver_of(w->unit)->program_free(w->unit, c->program);
    prog_free(c->prog);
}

static void whole_close(struct plan *p) {
    struct plan_whole *w = (struct plan_whole *)(void *)p;
    for (int i = 0; i < w->n_windows; i++)
        for (int g = 0; g < N_GIVES; g++) compiled_release(w, &w->programs[i][g]);
    compiled_release(w, &w->commit);
    unit_driver_of(w->unit)->buffer_free(w->unit, w->logits);
    unit_driver_of(w->unit)->buffer_free(w->unit, w->argmax);
    mem_free(w->logits_host);
    mem_free(w->argmax_host);
    plan_pool_release(p);
    mem_free(w);
}

static enum tern_status compile(struct plan_whole *w, struct compiled *c, const struct plan_options *o,
                                const struct prog_spec *spec, struct tern_err *err) {
    TRY(prog_build(&c->prog, o->model, spec, err));
    return unit_driver_of(w->unit)->program_compile(w->unit, &c->program, c->prog, o->units[0].weights, err);
}

static enum tern_status outputs_init(struct plan_whole *w, const struct plan_options *o, struct tern_err *err) {
    const struct unit_driver *d = unit_driver_of(w->unit);
    uint64_t logits = 0, argmax = 0;
    if (!out_bytes(o, &logits, &argmax) || logits > SIZE_MAX)
        return err_set(err, TERN_LIMIT, "plan: logits of %d rows and %d ids do not fit 64 bits", o->n_out_max,
                       o->model->hyper.n_vocab);
    TRY(d->buffer_alloc(w->unit, &w->logits, logits, err));
    TRY(d->buffer_alloc(w->unit, &w->argmax, argmax, err));
    w->out_bytes = logits + argmax;
    if (w->caps.host_memory) return TERN_OK;
    w->logits_host = mem_alloc((size_t)logits);
    w->argmax_host = mem_alloc((size_t)argmax);
    if (!w->logits_host || !w->argmax_host)
        return err_set(err, TERN_NO_MEMORY, "plan: no memory for the logits of %d rows", o->n_out_max);
    w->out_bytes *= 2;
    return TERN_OK;
}

static bool whole_fits(const struct plan_options *o, const char **reason) {
    struct unit_caps caps;
    *reason = "";
    if (o->n_units != 1) *reason = "it runs on one unit";
    if (o->n_units == 1 && !o->units[0].unit) *reason = "no unit is given";
    if (**reason) return false;
    unit_driver_of(o->units[0].unit)->caps(o->units[0].unit, &caps);
    if (o->window > caps.window_max) *reason = "the window is larger than the unit's largest";
    if (caps.state_tag != STATE_CPU_V1) *reason = "the unit reads another state layout";
    return !**reason;
}

static const struct plan_ops whole_ops;

static enum tern_status whole_open(struct plan **out, const struct plan_options *o, struct tern_err *err) {
    struct plan_whole *w = mem_calloc(1, sizeof(*w));
    if (!w) return err_set(err, TERN_NO_MEMORY, "plan: no memory");
    w->base.ops = &whole_ops;
    w->base.model = o->model;
    w->unit = o->units[0].unit;
    w->n_out_max = o->n_out_max;
    w->n_features = o->n_features;
    unit_driver_of(w->unit)->caps(w->unit, &w->caps);
    struct buf name;
    buf_init(&name, sizeof(w->base.name) - 1);
    buf_putf(&name, "whole(%s)", w->caps.name);
    if (!name.failed) memcpy(w->base.name, name.data, name.len);
    buf_release(&name);
    enum tern_status status = TERN_OK;
    TRY_GOTO(plan_pool_init(&w->base, o, w->unit, err), fail);
    TRY_GOTO(outputs_init(w, o, err), fail);
    w->n_windows = windows_list(o, w->caps.cost_follows_rows, w->windows);
    for (int i = 0; i < w->n_windows; i++)
        for (int g = 0; g < N_GIVES; g++) {
            struct prog_spec spec = spec_make(o, w->windows[i], g);
            TRY_GOTO(compile(w, &w->programs[i][g], o, &spec, err), fail);
        }
    struct prog_spec spec = spec_commit(o);
    TRY_GOTO(compile(w, &w->commit, o, &spec, err), fail);
    *out = &w->base;
    return TERN_OK;
fail:
    whole_close(&w->base);
    return status;
}

// ---------------------------------------------------------------------------------------------------------------- run

static enum tern_status submit_and_wait(struct plan_whole *w, struct unit_program *program, const struct step *s,
                                        struct tern_err *err) {
    const struct unit_driver *d = unit_driver_of(w->unit);
    struct unit_event event;
    TRY(d->submit(w->unit, program, s, &event, err));
    return d->event_wait(w->unit, &event, err);
}

static enum tern_status results_take(struct plan_whole *w, int gives, int n_out, struct tern_err *err) {
    const struct unit_driver *d = unit_driver_of(w->unit);
    uint64_t row_bytes = (uint64_t)w->base.model->hyper.n_vocab * sizeof(float);
    if (gives == GIVES_LOGITS) {
        w->base.logits = w->logits_host ? w->logits_host : d->buffer_host(w->logits);
        if (w->logits_host)
            TRY(d->buffer_read(w->unit, w->logits, 0, w->logits_host, (uint64_t)n_out * row_bytes, err));
    }
    if (gives == GIVES_ARGMAX) {
        uint64_t bytes = (uint64_t)n_out * sizeof(struct prog_argmax);
        w->base.argmax = w->argmax_host ? w->argmax_host : d->buffer_host(w->argmax);
        if (w->argmax_host) TRY(d->buffer_read(w->unit, w->argmax, 0, w->argmax_host, bytes, err));
    }
    w->base.n_out = gives == GIVES_NONE ? 0 : n_out;
    return TERN_OK;
}

static enum tern_status whole_run(struct plan *p, const struct step *s, uint32_t want, struct tern_err *err) {
    struct plan_whole *w = (struct plan_whole *)(void *)p;
    int full = w->windows[w->n_windows - 1];
    if (s->n_rows < 1 || s->n_rows > full)
        return err_set(err, TERN_INVALID_ARGUMENT, "plan %s: a step of %d rows; its window has %d", p->name, s->n_rows,
                       full);
    if (s->n_out > w->n_out_max)
        return err_set(err, TERN_INVALID_ARGUMENT, "plan %s: %d rows want output; it serves %d in one step", p->name,
                       s->n_out, w->n_out_max);
    int gives = s->n_out == 0 ? GIVES_NONE : want == PROG_OUT_LOGITS ? GIVES_LOGITS : GIVES_ARGMAX;
    int i = 0;
    while (w->windows[i] < s->n_rows) i++;
    struct step bound = *s;
    bound.ports[PORT_LOGITS] = (struct step_port){.buf = w->logits};
    bound.ports[PORT_ARGMAX] = (struct step_port){.buf = w->argmax};
    enum tern_status status = submit_and_wait(w, w->programs[i][gives].program, &bound, err);
    if (status == TERN_OK) status = results_take(w, gives, s->n_out, err);
    if (status != TERN_OK) err_prefix(err, "plan %s", p->name);
    return status;
}

static enum tern_status whole_commit(struct plan *p, const struct step *s, struct tern_err *err) {
    struct plan_whole *w = (struct plan_whole *)(void *)p;
    enum tern_status status = submit_and_wait(w, w->commit.program, s, err);
    if (status != TERN_OK) err_prefix(err, "plan %s, commit", p->name);
    return status;
}

// ------------------------------------------------------------------------------------------------------------ figures

static uint64_t whole_bytes(const struct plan *p) {
    const struct plan_whole *w = (const struct plan_whole *)(const void *)p;
    const struct unit_driver *d = unit_driver_of(w->unit);
    uint64_t sum = w->out_bytes + d->program_bytes(w->commit.program);
    for (int i = 0; i < w->n_windows; i++)
        for (int g = 0; g < N_GIVES; g++) sum += d->program_bytes(w->programs[i][g].program);
    return sum;
}

// A program that cannot be built adds nothing: plan_open says why.
static bool program_add(const struct plan_options *o, const struct prog_spec *spec, uint64_t *sum) {
    struct prog *p = NULL;
    uint64_t bytes = 0;
    if (prog_build(&p, o->model, spec, NULL) != TERN_OK) return true;
    const struct unit *u = o->units[0].unit;
    bool fits = unit_driver_of(u)->program_estimate(u, p, &bytes) && u64_add(*sum, bytes, sum);
    prog_free(p);
    return fits;
}

bool plan_whole_bytes_estimate(const struct plan_options *o, uint64_t *work) {
    struct unit_caps caps;
    int windows[WINDOWS_MAX];
    uint64_t logits = 0, argmax = 0;
    unit_driver_of(o->units[0].unit)->caps(o->units[0].unit, &caps);
    if (!out_bytes(o, &logits, &argmax) || !u64_add(logits, argmax, work)) return false;
    if (!caps.host_memory && !u64_mul(*work, 2, work)) return false;
    int n = windows_list(o, caps.cost_follows_rows, windows);
    for (int i = 0; i < n; i++)
        for (int g = 0; g < N_GIVES; g++) {
            struct prog_spec spec = spec_make(o, windows[i], g);
            if (!program_add(o, &spec, work)) return false;
        }
    struct prog_spec spec = spec_commit(o);
    return program_add(o, &spec, work);
}

static bool whole_explain(const struct plan *p, struct buf *out) {
    const struct plan_whole *w = (const struct plan_whole *)(const void *)p;
    const struct unit_driver *d = unit_driver_of(w->unit);
    char text[24];
    buf_putf(out, "%s: every step of %s on unit %s (%s)\n", p->name, p->model->name, w->caps.name, w->caps.detail);
    for (int i = 0; i < w->n_windows; i++) {
        buf_putf(out, "  window %d:", w->windows[i]);
        for (int g = 0; g < N_GIVES; g++)
            buf_putf(out, "%s %s (%s)", g > 0 ? "," : "", gives_names[g],
                     bytes_format(d->program_bytes(w->programs[i][g].program), text));
        buf_putc(out, '\n');
    }
    buf_putf(out, "  at most %d rows with output in one step; commit of %d rows\n", w->n_out_max,
             w->windows[w->n_windows - 1]);
    if (w->n_features > 0) buf_putf(out, "  features of %d layers from every run, for a drafter\n", w->n_features);
    buf_puts(out, w->caps.cost_follows_rows
                      ? "  one window: the unit's cost follows the rows of a step\n"
                      : "  the smallest window that holds a step: the unit's cost follows the window\n");
    return buf_putf(out, "  state: %d blocks, %d conv slots, %s\n", p->pool.n_blocks, p->pool.n_slots,
                    bytes_format(p->pool_bytes, text));
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
    .fits = whole_fits,
    .open = whole_open,
};
