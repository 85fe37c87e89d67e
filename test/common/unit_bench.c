// See unit_bench.h.
#include "base/base.h"
#include <setjmp.h>
#include <cmocka.h>
#include "unit_bench.h"
#include "tiny_model.h"

const char *const bench_isas[] = {"scalar",  "avx2", "avx512",  "avx512vnni", "avx512bf16", "amx",
                                  "avxvnni", "neon", "neondot", "i8mm",       NULL};

static void must(enum tern_status status, const struct tern_err *err) {
    if (status != TERN_OK) fail_msg("%s", err->message);
}

static struct unit_buffer *buffer_make(struct unit_bench *g, uint64_t bytes) {
    struct unit_buffer *b = NULL;
    struct tern_err err = {0};
    if (bytes > 0) must(g->d->buffer_alloc(g->unit, &b, bytes, &err), &err);
    return b;
}

struct bench_program bench_program_make(struct unit_bench *g, struct prog_spec spec) {
    struct bench_program p = {0};
    struct tern_err err = {0};
    spec.numerics = g->o.numerics;
    spec.kv_type = g->o.kv_type;
    spec.window = g->o.window;
    spec.n_out_max = -1;
    must(prog_build(&p.prog, g->o.model, &spec, &err), &err);
    must(g->d->program_compile(g->unit, &p.program, p.prog, g->weights, &err), &err);
    return p;
}

void bench_program_free(struct unit_bench *g, struct bench_program *p) {
    g->d->program_free(g->unit, p->program);
    prog_free(p->prog);
    *p = (struct bench_program){0};
}

static void seqs_make(struct unit_bench *g) {
    int per_seq = int_div_up(g->o.n_ctx, OP_BLOCK), n = per_seq * BENCH_SEQS_MAX;
    int32_t *order = arena_calloc(&g->arena, (size_t)n, sizeof(*order));
    uint64_t rng = 99;
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(tiny_random(&rng) % (uint64_t)(i + 1));
        int32_t swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (int i = 0; i < BENCH_SEQS_MAX; i++)
        g->seqs[i] = (struct bench_seq){.blocks = order + i * per_seq, .n_blocks = per_seq, .slot = i};
    g->pool.n_blocks = n;
    g->pool.n_slots = BENCH_SEQS_MAX;
}

static void ports_make(struct unit_bench *g) {
    const struct model_hyper *h = &g->o.model->hyper;
    uint64_t w = (uint64_t)g->o.window, head_dim = (uint64_t)h->head_dim;
    uint64_t widest = MAX((uint64_t)MAX(h->n_ff, 3 * h->n_embd), (uint64_t)h->n_head * head_dim);
    widest = MAX(widest, (uint64_t)h->n_vocab); // any weight's rows, for PROG_LINEAR
    const uint64_t bytes[BENCH_PORTS] = {
        [PORT_ROWS_IN] = w * widest * 4,
        [PORT_ROWS_OUT] = w * widest * 4,
        [PORT_QKV] = w * (uint64_t)(h->n_head + 2 * h->n_head_kv) * head_dim * 4,
        [PORT_ATTN] = w * (uint64_t)h->n_head * head_dim * 4,
        [PORT_LOGITS] = w * (uint64_t)h->n_vocab * 4,
        [PORT_ARGMAX] = w * sizeof(struct prog_argmax),
        [PORT_FEATURES] = w * PROG_FEATURES_MAX * (uint64_t)h->n_embd * 4,
        [PORT_HIDDEN] = w * (uint64_t)h->n_embd * 4,
    };
    for (int i = 0; i < BENCH_PORTS; i++) g->ports[i] = buffer_make(g, bytes[i]);
}

bool unit_bench_open(struct unit_bench *g, const struct unit_bench_options *o) {
    struct tern_err err = {0};
    *g = (struct unit_bench){.o = *o};
    struct unit_options uo = {.n_threads = o->n_threads, .isa = o->isa};
    if (unit_open(&g->unit, o->unit ? o->unit : "cpu", &uo, &err) != TERN_OK) {
        if (!o->isa) fail_msg("%s", err.message);
        return false;
    }
    struct unit_caps caps;
    g->d = unit_driver_of(g->unit);
    g->d->caps(g->unit, &caps);
    if (o->isa && strcmp(caps.isa, o->isa) != 0) { // a bound is no promise: a lower level would be tested twice
        unit_close(g->unit);
        return false;
    }
    arena_init(&g->arena, 0);
    struct weights_options wo = {.numerics = o->numerics};
    struct weights_info info;
    must(g->d->weights_import(g->unit, &g->weights, o->model, &wo, &info, &err), &err);
    must(state_layout_init(&g->pool.layout, o->model, o->kv_type, 0, o->model->hyper.n_layers, o->window, &err), &err);
    seqs_make(g);
    assert_true(state_kv_bytes(&g->pool.layout, g->pool.n_blocks, &g->kv_bytes));
    assert_true(state_conv_bytes(&g->pool.layout, g->pool.n_slots, &g->conv_bytes));
    g->pool.kv = buffer_make(g, g->kv_bytes);
    g->pool.conv = buffer_make(g, g->conv_bytes);
    ports_make(g);
    int n_taps = o->model->hyper.conv_len;
    must(step_builder_init(&g->b, &g->arena, o->window, n_taps, BENCH_SEQS_MAX, &err), &err);
    must(step_builder_init(&g->c, &g->arena, o->window, n_taps, BENCH_SEQS_MAX, &err), &err);
    g->whole =
        bench_program_make(g, (struct prog_spec){.kind = PROG_WHOLE, .outputs = PROG_OUT_LOGITS | PROG_OUT_ARGMAX});
    g->commit = bench_program_make(g, (struct prog_spec){.kind = PROG_COMMIT});
    return true;
}

void unit_bench_close(struct unit_bench *g) {
    bench_program_free(g, &g->whole);
    bench_program_free(g, &g->commit);
    for (int i = 0; i < BENCH_PORTS; i++) g->d->buffer_free(g->unit, g->ports[i]);
    g->d->buffer_free(g->unit, g->pool.kv);
    g->d->buffer_free(g->unit, g->pool.conv);
    g->d->weights_free(g->unit, g->weights);
    unit_close(g->unit);
    arena_release(&g->arena);
}

void bench_run(struct unit_bench *g, const struct bench_program *p, const struct step *s) {
    struct step bound = *s;
    struct unit_event event;
    struct tern_err err = {0};
    for (int i = 0; i < BENCH_PORTS; i++)
        if (!bound.ports[i].buf) bound.ports[i].buf = g->ports[i];
    mem_freeze(true);
    enum tern_status status = g->d->submit(g->unit, p->program, &bound, &event, &err);
    if (status == TERN_OK) status = g->d->event_wait(g->unit, &event, &err);
    mem_freeze(false);
    must(status, &err);
}

const float *bench_port(struct unit_bench *g, enum prog_port port) { return g->d->buffer_host(g->ports[port]); }

int bench_seq_add(struct unit_bench *g, struct step_builder *b, const struct bench_seq *q, bool writes) {
    int32_t in = q->len > 0 ? q->slot : -1;
    (void)g;
    return step_add_seq(b, q->blocks, q->n_blocks, q->len, in, writes ? q->slot : -1);
}

void bench_chain(struct unit_bench *g, struct bench_seq *q, const int32_t *tokens, int n, float *logits) {
    step_begin(&g->b, &g->pool, 0);
    int seq = bench_seq_add(g, &g->b, q, true);
    for (int i = 0; i < n; i++) step_add_chain_row(&g->b, seq, tokens[i], logits != NULL);
    bench_run(g, &g->whole, step_end(&g->b));
    q->len += n;
    size_t bytes = (size_t)n * (size_t)g->o.model->hyper.n_vocab * sizeof(float);
    if (logits) memcpy(logits, bench_port(g, PORT_LOGITS), bytes);
}

void bench_reset(struct unit_bench *g) {
    if (g->kv_bytes > 0) memset(g->d->buffer_host(g->pool.kv), 0, (size_t)g->kv_bytes);
    if (g->conv_bytes > 0) memset(g->d->buffer_host(g->pool.conv), 0, (size_t)g->conv_bytes);
    for (int i = 0; i < BENCH_SEQS_MAX; i++) g->seqs[i].len = 0;
}

uint8_t *bench_state(struct unit_bench *g, const struct bench_seq *q, size_t *n_bytes) {
    const struct state_layout *l = &g->pool.layout;
    size_t n_blocks = (size_t)int_div_up(q->len, OP_BLOCK);
    *n_bytes = n_blocks * (size_t)l->block_bytes + (size_t)l->slot_bytes;
    uint8_t *out = mem_calloc(1, *n_bytes + 1);
    const uint8_t *kv = l->block_bytes > 0 ? g->d->buffer_host(g->pool.kv) : NULL;
    for (int pos = 0; pos < q->len && kv; pos++)
        for (int a = 0; a < l->n_attn; a++)
            for (int h = 0; h < l->n_head_kv; h++) {
                int32_t from = q->blocks[pos / OP_BLOCK], to = pos / OP_BLOCK;
                op_kv_move(l->kv_type, out + state_k_offset(l, to, a, h), out + state_v_offset(l, to, a, h),
                           pos % OP_BLOCK, kv + state_k_offset(l, from, a, h), kv + state_v_offset(l, from, a, h),
                           pos % OP_BLOCK, l->head_dim);
            }
    if (l->slot_bytes > 0)
        memcpy(out + n_blocks * (size_t)l->block_bytes,
               (const uint8_t *)g->d->buffer_host(g->pool.conv) + state_conv_offset(l, q->slot, 0),
               (size_t)l->slot_bytes);
    return out;
}
