// A drafter on a unit: three programs (inject, draft, the Markov head's product), the pool of its context and the rows
// of features between target and drafter.
//
// On its target's unit features stay where the target's programs wrote them, and the drafter borrows the target's
// packed embedding and output. On another unit each injection's rows cross through host memory: a few KiB a position,
// once for each position of the text. One window serves injections of every size: exact where the cost follows the
// rows, and on a unit that pays for its whole window one payment for each round.
#include "base/base.h"
#include "plan/plan.h"

struct draft_program {
    struct prog *prog;
    struct unit_program *program;
};
struct plan_draft {
    const struct model *model;
    struct unit *unit, *target_unit;
    struct unit_caps caps;
    struct state_pool pool;
    struct draft_program inject, draft, markov;
    struct unit_buffer *features;               // on the target's unit
    struct unit_buffer *crossed;                // [window] rows of them on the drafter's; NULL: it is the same
    void *crossing;                             // … on the way
    struct unit_buffer *logits, *hidden;        // hidden: NULL without
    struct unit_buffer *markov_in, *markov_out; // NULL without a Markov head
    float *logits_host, *hidden_host;           // copies, or the unit's own memory
    bool owns_copies;
    uint64_t feature_row_bytes, bytes;
    int n_feature_rows, window;
};

struct sizes {
    uint64_t kv, features, crossed, logits, hidden, markov_in, markov_out;
};

static bool crosses(const struct plan_draft_options *o) { return o->target_unit && o->target_unit != o->unit; }

static bool sizes_get(const struct plan_draft_options *o, const struct state_layout *l, struct sizes *s) {
    const struct model_drafter *d = o->drafter->drafter;
    uint64_t rows = sizeof(float) * (uint64_t)d->n_proposals, row = 0;
    *s = (struct sizes){0};
    row = sizeof(float) * (uint64_t)d->n_features * (uint64_t)d->n_embd_target;
    s->markov_in = sizeof(float) * (uint64_t)d->markov_rank;
    s->markov_out = d->markov_rank > 0 ? sizeof(float) * (uint64_t)o->drafter->hyper.n_vocab : 0;
    return state_kv_bytes(l, o->n_blocks, &s->kv) && u64_mul(row, (uint64_t)o->n_feature_rows, &s->features) &&
           u64_mul(row, crosses(o) ? (uint64_t)o->window : 0, &s->crossed) &&
           u64_mul(rows, (uint64_t)o->drafter->hyper.n_vocab, &s->logits) &&
           u64_mul(o->hidden ? rows : 0, (uint64_t)o->drafter->hyper.n_embd, &s->hidden);
}

static uint64_t sizes_sum(const struct sizes *s) {
    return s->kv + s->features + 2 * s->crossed + s->logits + s->hidden + s->markov_in + s->markov_out;
}

static struct prog_spec inject_spec(const struct plan_draft_options *o) {
    return (struct prog_spec){.kind = PROG_INJECT, .numerics = o->numerics, .kv_type = o->kv_type, .window = o->window};
}

static struct prog_spec draft_spec(const struct plan_draft_options *o) {
    return (struct prog_spec){.kind = PROG_DRAFT,
                              .numerics = o->numerics,
                              .kv_type = o->kv_type,
                              .window = o->drafter->drafter->n_rows,
                              .n_out_max = o->drafter->drafter->n_proposals,
                              .outputs = PROG_OUT_LOGITS | (o->hidden ? (uint32_t)PROG_OUT_HIDDEN : 0)};
}

static struct prog_spec markov_spec(const struct plan_draft_options *o) {
    return (struct prog_spec){
        .kind = PROG_LINEAR, .numerics = o->numerics, .window = 1, .weight = o->drafter->drafter->markov_w2};
}

static enum tern_status compile(struct plan_draft *p, struct draft_program *out, const struct plan_draft_options *o,
                                const struct prog_spec *spec, struct tern_err *err) {
    TRY(prog_build(&out->prog, o->drafter, spec, err));
    return unit_driver_of(p->unit)->program_compile(p->unit, &out->program, out->prog, o->weights, err);
}

static enum tern_status buffers_init(struct plan_draft *p, const struct plan_draft_options *o, struct tern_err *err) {
    const struct unit_driver *d = unit_driver_of(p->unit);
    struct sizes s;
    if (!sizes_get(o, &p->pool.layout, &s) || s.logits > SIZE_MAX || s.features > SIZE_MAX || s.crossed > SIZE_MAX)
        return err_set(err, TERN_LIMIT, "drafter: a pool of %d blocks does not fit 64 bits", o->n_blocks);
    p->bytes = sizes_sum(&s);
    TRY(d->buffer_alloc(p->unit, &p->pool.kv, s.kv, err));
    TRY(unit_driver_of(p->target_unit)->buffer_alloc(p->target_unit, &p->features, s.features, err));
    if (s.crossed > 0) {
        TRY(d->buffer_alloc(p->unit, &p->crossed, s.crossed, err));
        p->crossing = mem_alloc((size_t)s.crossed);
        if (!p->crossing) return err_set(err, TERN_NO_MEMORY, "drafter: no memory for features on their way");
    }
    TRY(d->buffer_alloc(p->unit, &p->logits, s.logits, err));
    if (s.hidden > 0) TRY(d->buffer_alloc(p->unit, &p->hidden, s.hidden, err));
    if (s.markov_in > 0) TRY(d->buffer_alloc(p->unit, &p->markov_in, s.markov_in, err));
    if (s.markov_out > 0) TRY(d->buffer_alloc(p->unit, &p->markov_out, s.markov_out, err));
    p->owns_copies = !p->caps.host_memory;
    p->logits_host = p->owns_copies ? mem_alloc((size_t)s.logits) : d->buffer_host(p->logits);
    if (p->hidden) p->hidden_host = p->owns_copies ? mem_alloc((size_t)s.hidden) : d->buffer_host(p->hidden);
    if (!p->logits_host || (p->hidden && !p->hidden_host))
        return err_set(err, TERN_NO_MEMORY, "drafter: no memory for its logits");
    return TERN_OK;
}

static enum tern_status programs_init(struct plan_draft *p, const struct plan_draft_options *o, struct tern_err *err) {
    struct prog_spec spec = inject_spec(o);
    TRY(compile(p, &p->inject, o, &spec, err));
    spec = draft_spec(o);
    TRY(compile(p, &p->draft, o, &spec, err));
    if (o->drafter->drafter->markov == MARKOV_NONE) return TERN_OK;
    spec = markov_spec(o);
    return compile(p, &p->markov, o, &spec, err);
}

enum tern_status plan_draft_open(struct plan_draft **out, const struct plan_draft_options *o, struct tern_err *err) {
    if (!o->drafter || !o->drafter->drafter || o->n_blocks < 1 || o->n_feature_rows < 1 || o->window < 1)
        return err_set(err, TERN_INVALID_ARGUMENT, "drafter: %d blocks, %d feature rows, a window of %d rows",
                       o->n_blocks, o->n_feature_rows, o->window);
    struct plan_draft *p = mem_calloc(1, sizeof *p);
    if (!p) return err_set(err, TERN_NO_MEMORY, "drafter: no memory");
    const struct model_drafter *d = o->drafter->drafter;
    enum tern_status status;
    p->model = o->drafter;
    p->unit = o->unit;
    p->target_unit = o->target_unit ? o->target_unit : o->unit;
    p->window = o->window;
    p->n_feature_rows = o->n_feature_rows;
    p->feature_row_bytes = sizeof(float) * (uint64_t)d->n_features * (uint64_t)d->n_embd_target;
    p->pool.n_blocks = o->n_blocks;
    unit_driver_of(p->unit)->caps(p->unit, &p->caps);
    if (p->caps.state_tag != STATE_CPU_V1) {
        status = err_set(err, TERN_UNSUPPORTED, "drafter: unit %s reads another state layout", p->caps.name);
        goto fail;
    }
    TRY_GOTO(state_layout_init(&p->pool.layout, o->drafter, o->kv_type, 0, o->drafter->hyper.n_layers, 0, err), fail);
    TRY_GOTO(buffers_init(p, o, err), fail);
    TRY_GOTO(programs_init(p, o, err), fail);
    *out = p;
    return TERN_OK;
fail:
    plan_draft_close(p);
    return status;
}

void plan_draft_close(struct plan_draft *p) {
    if (!p) return;
    const struct unit_driver *d = unit_driver_of(p->unit);
    struct draft_program *programs[] = {&p->inject, &p->draft, &p->markov};
    for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
        d->program_free(p->unit, programs[i]->program);
        prog_free(programs[i]->prog);
    }
    struct unit_buffer *buffers[] = {p->pool.kv, p->crossed, p->logits, p->hidden, p->markov_in, p->markov_out};
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++) d->buffer_free(p->unit, buffers[i]);
    unit_driver_of(p->target_unit)->buffer_free(p->target_unit, p->features);
    mem_free(p->crossing);
    if (p->owns_copies) {
        mem_free(p->logits_host);
        mem_free(p->hidden_host);
    }
    mem_free(p);
}

static bool program_add(const struct plan_draft_options *o, const struct prog_spec *spec, uint64_t *sum) {
    struct prog *p = NULL;
    uint64_t bytes = 0;
    if (prog_build(&p, o->drafter, spec, NULL) != TERN_OK) return true; // plan_draft_open says why
    bool fits = unit_driver_of(o->unit)->program_estimate(o->unit, p, &bytes) && u64_add(*sum, bytes, sum);
    prog_free(p);
    return fits;
}

bool plan_draft_bytes_estimate(const struct plan_draft_options *o, uint64_t *bytes) {
    struct state_layout l;
    struct sizes s;
    *bytes = 0;
    if (state_layout_init(&l, o->drafter, o->kv_type, 0, o->drafter->hyper.n_layers, 0, NULL) != TERN_OK) return true;
    if (!sizes_get(o, &l, &s)) return false;
    *bytes = sizes_sum(&s);
    struct prog_spec inject = inject_spec(o), draft = draft_spec(o), markov = markov_spec(o);
    return program_add(o, &inject, bytes) && program_add(o, &draft, bytes) &&
           (o->drafter->drafter->markov == MARKOV_NONE || program_add(o, &markov, bytes));
}

// ---------------------------------------------------------------------------------------------------------------- run

const struct state_pool *plan_draft_pool(const struct plan_draft *p) { return &p->pool; }

struct step_port plan_draft_features(const struct plan_draft *p, int row) {
    TERN_ASSERT(row >= 0 && row < p->n_feature_rows);
    return (struct step_port){.buf = p->features, .offset = p->feature_row_bytes * (uint64_t)row};
}

enum tern_status plan_draft_features_copy(struct plan_draft *p, int dst_row, int src_row, int n, struct tern_err *err) {
    if (dst_row == src_row || n == 0) return TERN_OK;
    TERN_ASSERT(dst_row >= 0 && src_row >= 0 && MAX(dst_row, src_row) + n <= p->n_feature_rows);
    struct step_port dst = plan_draft_features(p, dst_row), src = plan_draft_features(p, src_row);
    return unit_driver_of(p->target_unit)
        ->buffer_copy(p->target_unit, dst.buf, dst.offset, src.buf, src.offset, p->feature_row_bytes * (uint64_t)n,
                      err);
}

uint64_t plan_draft_feature_row_bytes(const struct plan_draft *p) { return p->feature_row_bytes; }

enum tern_status plan_draft_features_read(struct plan_draft *p, int row, int n, void *out, struct tern_err *err) {
    TERN_ASSERT(row >= 0 && n >= 0 && row + n <= p->n_feature_rows);
    if (n == 0) return TERN_OK;
    return unit_driver_of(p->target_unit)
        ->buffer_read(p->target_unit, p->features, p->feature_row_bytes * (uint64_t)row, out,
                      p->feature_row_bytes * (uint64_t)n, err);
}

enum tern_status plan_draft_features_write(struct plan_draft *p, int row, int n, const void *in, struct tern_err *err) {
    TERN_ASSERT(row >= 0 && n >= 0 && row + n <= p->n_feature_rows);
    if (n == 0) return TERN_OK;
    return unit_driver_of(p->target_unit)
        ->buffer_write(p->target_unit, p->features, p->feature_row_bytes * (uint64_t)row, in,
                       p->feature_row_bytes * (uint64_t)n, err);
}

static enum tern_status submit_and_wait(struct plan_draft *p, struct unit_program *program, const struct step *s,
                                        const char *what, struct tern_err *err) {
    const struct unit_driver *d = unit_driver_of(p->unit);
    struct unit_event event;
    enum tern_status status = d->submit(p->unit, program, s, &event, err);
    if (status == TERN_OK) status = d->event_wait(p->unit, &event, err);
    if (status != TERN_OK) err_prefix(err, "%s", what);
    return status;
}

enum tern_status plan_draft_inject(struct plan_draft *p, const struct step *s, int feature_row, struct tern_err *err) {
    struct step bound = *s;
    TERN_ASSERT(feature_row + s->n_rows <= p->n_feature_rows && s->n_rows <= p->window);
    bound.ports[PORT_ROWS_IN] = plan_draft_features(p, feature_row);
    if (p->crossed) {
        uint64_t bytes = p->feature_row_bytes * (uint64_t)s->n_rows;
        TRY(plan_draft_features_read(p, feature_row, s->n_rows, p->crossing, err));
        TRY(unit_driver_of(p->unit)->buffer_write(p->unit, p->crossed, 0, p->crossing, bytes, err));
        bound.ports[PORT_ROWS_IN] = (struct step_port){.buf = p->crossed};
    }
    return submit_and_wait(p, p->inject.program, &bound, "drafter, injection", err);
}

enum tern_status plan_draft_run(struct plan_draft *p, const struct step *s, struct tern_err *err) {
    const struct unit_driver *d = unit_driver_of(p->unit);
    struct step bound = *s;
    bound.ports[PORT_LOGITS] = (struct step_port){.buf = p->logits};
    if (p->hidden) bound.ports[PORT_HIDDEN] = (struct step_port){.buf = p->hidden};
    TRY(submit_and_wait(p, p->draft.program, &bound, "drafter", err));
    if (!p->owns_copies) return TERN_OK;
    uint64_t row = sizeof(float) * (uint64_t)s->n_out;
    TRY(d->buffer_read(p->unit, p->logits, 0, p->logits_host, row * (uint64_t)p->model->hyper.n_vocab, err));
    if (!p->hidden) return TERN_OK;
    return d->buffer_read(p->unit, p->hidden, 0, p->hidden_host, row * (uint64_t)p->model->hyper.n_embd, err);
}

const float *plan_draft_logits(const struct plan_draft *p) { return p->logits_host; }
const float *plan_draft_hidden(const struct plan_draft *p) { return p->hidden_host; }

enum tern_status plan_draft_markov(struct plan_draft *p, const float *e, float *out, struct tern_err *err) {
    const struct unit_driver *d = unit_driver_of(p->unit);
    uint64_t rank = (uint64_t)p->model->drafter->markov_rank;
    const struct step s = {.n_rows = 1,
                           .ports = {[PORT_ROWS_IN] = {.buf = p->markov_in}, [PORT_ROWS_OUT] = {.buf = p->markov_out}}};
    TRY(d->buffer_write(p->unit, p->markov_in, 0, e, sizeof(float) * rank, err));
    TRY(submit_and_wait(p, p->markov.program, &s, "drafter, Markov head", err));
    return d->buffer_read(p->unit, p->markov_out, 0, out, sizeof(float) * (uint64_t)p->model->hyper.n_vocab, err);
}

// -------------------------------------------------------------------------------------------------------------- state

static enum tern_status block_check(const struct plan_draft *p, int32_t i, struct tern_err *err) {
    if (i >= 0 && i < p->pool.n_blocks) return TERN_OK;
    return err_set(err, TERN_INVALID_ARGUMENT, "drafter: block %d; its pool has %d", i, p->pool.n_blocks);
}

static uint64_t block_at(const struct plan_draft *p, int32_t i) { return (uint64_t)i * p->pool.layout.block_bytes; }

enum tern_status plan_draft_block_copy(struct plan_draft *p, int32_t dst, int32_t src, struct tern_err *err) {
    TRY(block_check(p, dst, err));
    TRY(block_check(p, src, err));
    if (dst == src) return TERN_OK;
    return unit_driver_of(p->unit)->buffer_copy(p->unit, p->pool.kv, block_at(p, dst), p->pool.kv, block_at(p, src),
                                                p->pool.layout.block_bytes, err);
}

enum tern_status plan_draft_block_read(struct plan_draft *p, int32_t block, void *out, struct tern_err *err) {
    TRY(block_check(p, block, err));
    return unit_driver_of(p->unit)->buffer_read(p->unit, p->pool.kv, block_at(p, block), out,
                                                p->pool.layout.block_bytes, err);
}

enum tern_status plan_draft_block_write(struct plan_draft *p, int32_t block, const void *in, struct tern_err *err) {
    TRY(block_check(p, block, err));
    return unit_driver_of(p->unit)->buffer_write(p->unit, p->pool.kv, block_at(p, block), in,
                                                 p->pool.layout.block_bytes, err);
}

uint64_t plan_draft_bytes(const struct plan_draft *p) {
    const struct unit_driver *d = unit_driver_of(p->unit);
    uint64_t sum = p->bytes + d->program_bytes(p->inject.program) + d->program_bytes(p->draft.program);
    return p->markov.program ? sum + d->program_bytes(p->markov.program) : sum;
}

bool plan_draft_explain(const struct plan_draft *p, struct buf *out) {
    char text[24];
    struct unit_caps target;
    unit_driver_of(p->target_unit)->caps(p->target_unit, &target);
    if (p->crossed && !buf_putf(out, "features: %llu bytes a position, from unit %s through host memory\n",
                                (unsigned long long)p->feature_row_bytes, target.name))
        return false;
    return buf_putf(out,
                    "drafter: %s on unit %s; injections of at most %d rows, blocks of %d rows; %d feature rows, %d "
                    "blocks, %s\n",
                    p->model->name, p->caps.name, p->window, p->model->drafter->n_rows, p->n_feature_rows,
                    p->pool.n_blocks, bytes_format(plan_draft_bytes(p), text));
}
