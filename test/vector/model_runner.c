// See model_runner.h.
#include "base/base.h"
#include "model_runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#if defined(__x86_64__)
const char *const runner_isas[] = {"scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx", NULL};
#elif defined(__aarch64__)
const char *const runner_isas[] = {"scalar", "neon", "neondot", "i8mm", NULL};
#else
const char *const runner_isas[] = {"scalar", NULL};
#endif

#define FILE_BYTES_MAX (64u << 20)

static void must(enum tern_status status, const struct tern_err *err) {
    if (status != TERN_OK) fail_msg("%s: %s", tern_status_text(status), err->message);
}

static void program_make(struct runner *r, const struct runner_options *o) {
    struct tern_err err = {0};
    const struct model_hyper *h = &r->model->hyper;
    const struct unit_driver *d = unit_driver_of(r->unit);
    struct prog_spec spec = {.kind = PROG_WHOLE,
                             .numerics = o->numerics,
                             .kv_type = o->kv_type,
                             .window = o->window,
                             .n_out_max = -1,
                             .outputs = PROG_OUT_LOGITS};
    uint64_t row = sizeof(float) * (uint64_t)o->window;
    if (o->residuals) {
        assert_true(h->n_layers <= PROG_FEATURES_MAX);
        spec.outputs |= PROG_OUT_FEATURES;
        spec.n_features = h->n_layers;
        for (int i = 0; i < h->n_layers; i++) spec.feature_layers[i] = i;
        must(d->buffer_alloc(r->unit, &r->residuals_buffer, row * (uint64_t)h->n_layers * (uint64_t)h->n_embd, &err),
             &err);
        r->residuals = d->buffer_host(r->residuals_buffer);
    }
    must(d->buffer_alloc(r->unit, &r->logits_buffer, row * (uint64_t)h->n_vocab, &err), &err);
    r->logits = d->buffer_host(r->logits_buffer);
    must(prog_build(&r->prog, r->model, &spec, &err), &err);
    must(prog_verify(r->prog, &err), &err);
    must(d->program_compile(r->unit, &r->program, r->prog, r->weights, &err), &err);
}

static void pools_make(struct runner *r, const struct runner_options *o) {
    struct tern_err err = {0};
    const struct unit_driver *d = unit_driver_of(r->unit);
    uint64_t kv, conv;
    must(state_layout_init(&r->pool.layout, r->model, o->kv_type, 0, r->model->hyper.n_layers, o->window, &err), &err);
    r->n_blocks = r->pool.n_blocks = int_div_up(o->n_ctx, OP_BLOCK);
    r->pool.n_slots = 1;
    assert_true(state_kv_bytes(&r->pool.layout, r->pool.n_blocks, &kv));
    assert_true(state_conv_bytes(&r->pool.layout, r->pool.n_slots, &conv));
    must(d->buffer_alloc(r->unit, &r->pool.kv, kv, &err), &err);
    must(d->buffer_alloc(r->unit, &r->pool.conv, conv, &err), &err);
    r->blocks = arena_calloc(&r->arena, (size_t)r->n_blocks, sizeof *r->blocks);
    assert_non_null(r->blocks);
    for (int i = 0; i < r->n_blocks; i++) r->blocks[i] = r->n_blocks - 1 - i; // any order serves
    must(step_builder_init(&r->builder, &r->arena, o->window, r->model->hyper.conv_len, 1, &err), &err);
}

void runner_open(struct runner *r, const struct runner_options *o) {
    struct tern_err err = {0};
    *r = (struct runner){.window = o->window};
    arena_init(&r->arena, 0);
    must(model_open(&r->model, o->path, &err), &err);
    struct unit_options uo = {.n_threads = o->n_threads, .isa = o->isa};
    must(unit_open(&r->unit, "cpu", &uo, &err), &err);
    const struct unit_driver *d = unit_driver_of(r->unit);
    d->caps(r->unit, &r->caps);
    struct weights_options wo = {.numerics = o->numerics};
    struct weights_info info;
    must(d->weights_import(r->unit, &r->weights, r->model, &wo, &info, &err), &err);
    pools_make(r, o);
    program_make(r, o);
}

void runner_close(struct runner *r) {
    const struct unit_driver *d = unit_driver_of(r->unit);
    d->program_free(r->unit, r->program);
    prog_free(r->prog);
    d->buffer_free(r->unit, r->logits_buffer);
    if (r->residuals_buffer) d->buffer_free(r->unit, r->residuals_buffer);
    d->buffer_free(r->unit, r->pool.kv);
    d->buffer_free(r->unit, r->pool.conv);
    d->weights_free(r->unit, r->weights);
    unit_close(r->unit);
    model_close(r->model);
    arena_release(&r->arena);
}

void runner_restart(struct runner *r) { r->len = 0; }

void runner_step(struct runner *r, const int32_t *ids, int n, int n_out) {
    struct tern_err err = {0};
    assert_true(n > 0 && n <= r->window && n_out <= n && r->len + n <= r->n_blocks * OP_BLOCK);
    struct step_builder *b = &r->builder;
    bool has_conv = r->pool.layout.n_conv > 0;
    step_begin(b, &r->pool, 0);
    int seq = step_add_seq(b, r->blocks, r->n_blocks, r->len, has_conv && r->len > 0 ? 0 : -1, has_conv ? 0 : -1);
    for (int i = 0; i < n; i++) step_add_chain_row(b, seq, ids[i], i >= n - n_out);
    b->step.ports[PORT_LOGITS].buf = r->logits_buffer;
    b->step.ports[PORT_FEATURES].buf = r->residuals_buffer;
    const struct step *step = step_end(b);
    must(step_check(r->prog, step, &err), &err);
    struct unit_event event;
    const struct unit_driver *d = unit_driver_of(r->unit);
    must(d->submit(r->unit, r->program, step, &event, &err), &err);
    must(d->event_wait(r->unit, &event, &err), &err);
    r->len += n;
}

void runner_file_read(struct buf *out, const char *path) {
    struct tern_err err = {0};
    buf_init(out, FILE_BYTES_MAX);
    must(file_read_all(out, path, &err), &err);
}
