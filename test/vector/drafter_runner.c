// See drafter_runner.h.
#include "base/base.h"
#include "drafter_runner.h"
#include <math.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void must(enum tern_status status, const struct tern_err *err) {
    if (status != TERN_OK) fail_msg("%s: %s", tern_status_text(status), err->message);
}

static const struct unit_driver *driver(const struct drafter_runner *r) { return unit_driver_of(r->unit); }

static struct unit_buffer *buffer_make(struct drafter_runner *r, uint64_t bytes) {
    struct tern_err err = {0};
    struct unit_buffer *b = NULL;
    must(driver(r)->buffer_alloc(r->unit, &b, bytes, &err), &err);
    return b;
}

static void program_make(struct drafter_runner *r, struct drafter_program *p, const struct model *m,
                         struct unit_weights *w, const struct prog_spec *spec) {
    struct tern_err err = {0};
    must(prog_build(&p->prog, m, spec, &err), &err);
    must(driver(r)->program_compile(r->unit, &p->program, p->prog, w, &err), &err);
}

static void programs_make(struct drafter_runner *r, const struct drafter_options *o) {
    const struct model_drafter *d = r->drafter->drafter;
    struct prog_spec spec = {.kind = PROG_WHOLE,
                             .numerics = o->numerics,
                             .kv_type = o->kv_type,
                             .window = o->window,
                             .outputs = PROG_OUT_FEATURES,
                             .n_features = d->n_features};
    memcpy(spec.feature_layers, d->feature_layers, sizeof d->feature_layers);
    program_make(r, &r->features, r->target, r->target_weights, &spec);
    spec = (struct prog_spec){.kind = PROG_INJECT, .numerics = o->numerics, .kv_type = o->kv_type, .window = o->window};
    program_make(r, &r->inject, r->drafter, r->weights, &spec);
    spec.kind = PROG_DRAFT;
    spec.window = d->n_rows;
    spec.n_out_max = d->n_proposals;
    spec.outputs = PROG_OUT_LOGITS | PROG_OUT_HIDDEN;
    program_make(r, &r->draft, r->drafter, r->weights, &spec);
}

static int32_t *pool_make(struct drafter_runner *r, struct state_pool *pool, const struct model *m,
                          const struct drafter_options *o, int n_blocks) {
    struct tern_err err = {0};
    uint64_t bytes = 0;
    must(state_layout_init(&pool->layout, m, o->kv_type, 0, m->hyper.n_layers, 0, &err), &err);
    pool->n_blocks = n_blocks;
    pool->n_slots = 1;
    assert_true(state_kv_bytes(&pool->layout, n_blocks, &bytes));
    pool->kv = buffer_make(r, bytes);
    assert_true(state_conv_bytes(&pool->layout, 1, &bytes));
    if (pool->layout.n_conv > 0) pool->conv = buffer_make(r, bytes);
    int32_t *blocks = arena_calloc(&r->arena, (size_t)n_blocks, sizeof *blocks);
    assert_non_null(blocks);
    for (int i = 0; i < n_blocks; i++) blocks[i] = n_blocks - 1 - i; // any order serves
    return blocks;
}

static float *floats_of(struct drafter_runner *r, const struct tensor *t) {
    float *v = arena_calloc(&r->arena, (size_t)(t->ne[0] * t->ne[1]), sizeof *v);
    uint64_t row_bytes = 0;
    assert_true(v && format_row_bytes(t->format, (uint64_t)t->ne[0], &row_bytes));
    for (int64_t i = 0; i < t->ne[1]; i++)
        op_dequant_row(t->format, t->data + (uint64_t)i * row_bytes, t->ne[0], v + i * t->ne[0]);
    return v;
}

void drafter_runner_open(struct drafter_runner *r, const struct drafter_options *o) {
    struct tern_err err = {0};
    *r = (struct drafter_runner){.window = o->window, .n_blocks = int_div_up(o->n_ctx, OP_BLOCK)};
    arena_init(&r->arena, 0);
    must(model_open(&r->target, o->target, &err), &err);
    must(model_open_drafter(&r->drafter, o->drafter, r->target, &err), &err);
    const struct model_drafter *d = r->drafter->drafter;
    bool has_heads = d->markov == MARKOV_VANILLA && d->conf_with_markov;
    assert_true(d->n_proposals <= DRAFTER_PROPOSALS_MAX && (has_heads || (d->markov == MARKOV_NONE && !d->conf)));
    if (has_heads) { // before packing gives the file's pages up
        r->w1 = floats_of(r, d->markov_w1);
        r->w2 = floats_of(r, d->markov_w2);
        r->conf = floats_of(r, d->conf);
        r->conf_bias = *floats_of(r, d->conf_bias);
    }
    struct unit_options uo = {.n_threads = o->n_threads};
    must(unit_open(&r->unit, "cpu", &uo, &err), &err);
    struct weights_options wo = {.numerics = o->numerics};
    must(driver(r)->weights_import(r->unit, &r->target_weights, r->target, &wo, NULL, &err), &err);
    wo.shared = r->target_weights;
    must(driver(r)->weights_import(r->unit, &r->weights, r->drafter, &wo, &r->info, &err), &err);
    programs_make(r, o);
    r->target_blocks = pool_make(r, &r->target_pool, r->target, o, r->n_blocks);
    r->blocks = pool_make(r, &r->pool, r->drafter, o, 2 * r->n_blocks);
    must(step_builder_init(&r->target_builder, &r->arena, o->window, r->target->hyper.conv_len, 1, &err), &err);
    must(step_builder_init(&r->builder, &r->arena, MAX(o->window, d->n_rows), 0, 1, &err), &err);
    r->feature_bytes = sizeof(float) * (uint64_t)d->n_features * (uint64_t)d->n_embd_target;
    r->features_buffer = buffer_make(r, r->feature_bytes * (uint64_t)o->n_ctx);
    uint64_t row = sizeof(float) * (uint64_t)d->n_proposals;
    r->logits_buffer = buffer_make(r, row * (uint64_t)r->drafter->hyper.n_vocab);
    r->hidden_buffer = buffer_make(r, row * (uint64_t)r->drafter->hyper.n_embd);
    r->logits = driver(r)->buffer_host(r->logits_buffer);
    r->hidden = driver(r)->buffer_host(r->hidden_buffer);
}

void drafter_runner_close(struct drafter_runner *r) {
    const struct unit_driver *d = driver(r);
    struct drafter_program *programs[] = {&r->features, &r->inject, &r->draft};
    for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
        d->program_free(r->unit, programs[i]->program);
        prog_free(programs[i]->prog);
    }
    struct unit_buffer *buffers[] = {r->target_pool.kv,  r->target_pool.conv, r->pool.kv,
                                     r->features_buffer, r->logits_buffer,    r->hidden_buffer};
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++) d->buffer_free(r->unit, buffers[i]);
    d->weights_free(r->unit, r->weights);
    d->weights_free(r->unit, r->target_weights);
    unit_close(r->unit);
    model_close(r->drafter);
    model_close(r->target);
    arena_release(&r->arena);
}

static void submit(struct drafter_runner *r, const struct drafter_program *p, struct step_builder *b) {
    struct tern_err err = {0};
    struct unit_event event;
    must(driver(r)->submit(r->unit, p->program, step_end(b), &event, &err), &err);
    must(driver(r)->event_wait(r->unit, &event, &err), &err);
}

void drafter_features(struct drafter_runner *r, const int32_t *ids, int n) {
    struct step_builder *b = &r->target_builder;
    for (int at = 0; at < n; at += r->window) {
        step_begin(b, &r->target_pool, 0);
        int seq = step_add_seq(b, r->target_blocks, r->n_blocks, at, at > 0 ? 0 : -1, 0);
        for (int i = at; i < MIN(at + r->window, n); i++) step_add_chain_row(b, seq, ids[i], false);
        b->step.ports[PORT_FEATURES].buf = r->features_buffer;
        b->step.ports[PORT_FEATURES].offset = r->feature_bytes * (uint64_t)at;
        submit(r, &r->features, b);
    }
}

void drafter_inject(struct drafter_runner *r, const int32_t *blocks, int begin, int end, int chunk) {
    struct step_builder *b = &r->builder;
    for (int at = begin; at < end; at += chunk) {
        step_begin(b, &r->pool, 0);
        int seq = step_add_seq(b, blocks, r->n_blocks, at, -1, -1);
        for (int i = at; i < MIN(at + chunk, end); i++) step_add_chain_row(b, seq, 0, false);
        b->step.ports[PORT_ROWS_IN].buf = r->features_buffer;
        b->step.ports[PORT_ROWS_IN].offset = r->feature_bytes * (uint64_t)at;
        submit(r, &r->inject, b);
    }
}

void drafter_draft(struct drafter_runner *r, const int32_t *blocks, int len, int32_t anchor) {
    struct step_builder *b = &r->builder;
    const struct model_drafter *d = r->drafter->drafter;
    step_begin(b, &r->pool, STEP_FULL);
    int seq = step_add_seq(b, blocks, r->n_blocks, len, -1, -1);
    for (int i = 0; i < d->n_rows; i++) step_add_full_row(b, seq, i ? d->mask_id : anchor, false, i >= d->first_row);
    b->step.ports[PORT_LOGITS].buf = r->logits_buffer;
    b->step.ports[PORT_HIDDEN].buf = r->hidden_buffer;
    submit(r, &r->draft, b);
}

void drafter_chain_run(const struct drafter_runner *r, int32_t anchor, const int32_t *want, int n_want, bool stop,
                       struct drafter_chain *out) {
    const struct model_hyper *h = &r->drafter->hyper;
    int rank = r->drafter->drafter->markov_rank; // 0: no head
    int32_t prev = anchor;
    *out = (struct drafter_chain){0};
    for (int k = 0; k < r->drafter->drafter->n_proposals; k++) {
        const float *u = r->logits + (size_t)k * (size_t)h->n_vocab, *hidden = r->hidden + k * h->n_embd;
        const float *e = rank > 0 ? r->w1 + (size_t)prev * (size_t)rank : NULL;
        double c = (double)r->conf_bias;
        for (int i = 0; r->conf && i < h->n_embd; i++) c += (double)r->conf[i] * (double)hidden[i];
        for (int i = 0; i < rank; i++) c += (double)r->conf[h->n_embd + i] * (double)e[i];
        float best = -INFINITY;
        for (int v = 0; v < h->n_vocab_used; v++) {
            const float *w = rank > 0 ? r->w2 + (size_t)v * (size_t)rank : NULL;
            float bias = 0;
            for (int i = 0; i < rank; i++) bias += w[i] * e[i];
            if (u[v] + bias > best) {
                best = u[v] + bias;
                prev = v;
            }
        }
        out->proposals[k] = prev;
        out->confidence[k] = 1 / (1 + exp(-c));
        out->n = k + 1;
        if (out->accepted == k && k < n_want && prev == want[k]) out->accepted++;
        if (stop && out->accepted <= k) return;
    }
}
