// The lab over model, unit and plan: the engine's way to a plan without sessions and requests.
#include "base/base.h"
#include "bench_lab.h"

#include <stdio.h>

#define LAB_WINDOW 256

static enum tern_status lab_model_open(struct lab *l, const struct tern_engine_options *o, struct tern_err *err) {
    if (o->shape) return model_create_named_shape(&l->model, o->shape, o->shape_format, o->shape_seed, err);
    if (o->model_path) return model_open(&l->model, o->model_path, err);
    return model_open_memory(&l->model, "model in memory", o->model_data, o->model_data_len, err);
}

// The plan, and its second unit.
static enum tern_status lab_plan_open(struct lab *l, const struct tern_engine_options *o, const struct unit_options *uo,
                                      const struct weights_options *wo, struct tern_err *err) {
    struct unit_advice advice;
    l->plan = o->plan;
    if (o->plan && plan_kind_units(o->plan) == 2 && !o->then_unit)
        return err_set(err, TERN_INVALID_ARGUMENT, "the plan %s has two units: a second one is needed", o->plan);
    if (!o->then_unit) return TERN_OK;
    TRY(unit_advise(l->unit, l->model, wo->pack_cache, &advice, err));
    l->first_ctx_max = advice.ctx_max;
    TRY(unit_open(&l->then_unit, o->then_unit, uo, err));
    return unit_driver_of(l->then_unit)->weights_import(l->then_unit, &l->then_weights, l->model, wo, NULL, err);
}

enum tern_status lab_open(struct lab *out, const struct tern_engine_options *o, struct tern_err *err) {
    return lab_open_changed(out, o, NULL, NULL, err);
}

enum tern_status lab_open_changed(struct lab *out, const struct tern_engine_options *o,
                                  enum tern_status (*change)(void *arg, struct model *m, struct tern_err *err),
                                  void *arg, struct tern_err *err) {
    static const enum prog_class classes[] = {[TERN_CLASS_AUTO] = PROG_CLASS_INT8,
                                              [TERN_CLASS_INT8] = PROG_CLASS_INT8,
                                              [TERN_CLASS_FP32] = PROG_CLASS_FP32,
                                              [TERN_CLASS_BF16] = PROG_CLASS_BF16};
    *out = (struct lab){.window = o->window ? o->window : LAB_WINDOW};
    struct unit_options uo = {.n_threads = o->n_threads, .pin = true};
    struct weights_options wo = {.pack_cache = o->pack_cache && !o->shape && !change};
    enum tern_status status;
    out->numerics = classes[o->numerics];
    TRY_GOTO(lab_model_open(out, o, err), fail);
    if (change) TRY_GOTO(change(arg, out->model, err), fail);
    if (o->numerics == TERN_CLASS_AUTO && format_is_float(out->model->format_main)) out->numerics = PROG_CLASS_FP32;
    (void)snprintf(out->class_name, sizeof out->class_name, "%s", prog_class_name(out->numerics));
    TRY_GOTO(unit_open(&out->unit, o->unit ? o->unit : "cpu", &uo, err), fail);
    unit_driver_of(out->unit)->caps(out->unit, &out->caps);
    wo.numerics = out->numerics;
    TRY_GOTO(unit_driver_of(out->unit)->weights_import(out->unit, &out->weights, out->model, &wo, &out->info, err),
             fail);
    TRY_GOTO(lab_plan_open(out, o, &uo, &wo, err), fail);
    return TERN_OK;
fail:
    lab_close(out);
    return status;
}

void lab_close(struct lab *l) {
    if (l->then_weights) unit_driver_of(l->then_unit)->weights_free(l->then_unit, l->then_weights);
    if (l->weights) unit_driver_of(l->unit)->weights_free(l->unit, l->weights);
    unit_close(l->then_unit);
    unit_close(l->unit);
    model_close(l->model);
    *l = (struct lab){0};
}

enum tern_status lab_cost(const struct lab *l, enum op_kv_type kv, int n_rows, int ctx, struct prog_cost *out,
                          struct tern_err *err) {
    struct prog *p;
    struct prog_spec spec = {.kind = PROG_WHOLE,
                             .numerics = l->numerics,
                             .kv_type = kv,
                             .window = n_rows,
                             .n_out_max = n_rows,
                             .outputs = PROG_OUT_ARGMAX};
    TRY(prog_build(&p, l->model, &spec, err));
    *out = prog_cost_get(p, n_rows, n_rows, ctx);
    prog_free(p);
    return TERN_OK;
}

// ------------------------------------------------------------------------------------------------------------ running

enum tern_status lab_run_open(struct lab_run *out, const struct lab *l, enum op_kv_type kv, int n_ctx, int n_seqs,
                              int n_out_max, struct tern_err *err) {
    *out = (struct lab_run){
        .lab = l, .n_seqs = n_seqs, .n_ctx = n_ctx, .n_blocks = int_div_up(n_ctx, OP_BLOCK), .random = 1};
    arena_init(&out->arena, 0);
    bool conv = l->model->hyper.conv_len > 1;
    const struct plan_unit units[] = {{l->unit, l->weights}, {l->then_unit, l->then_weights}};
    struct plan_options po = {.model = l->model,
                              .units = units,
                              .n_units = l->then_unit ? 2 : 1,
                              .first_ctx_max = l->first_ctx_max,
                              .numerics = l->numerics,
                              .kv_type = kv,
                              .window = MAX(l->window, MAX(n_out_max, n_seqs)),
                              .n_blocks = out->n_blocks * n_seqs,
                              .n_slots = conv ? n_seqs : 0,
                              .n_out_max = MAX(n_out_max, n_seqs)};
    enum tern_status status;
    TRY_GOTO(plan_open(&out->plan, l->plan ? l->plan : "whole", &po, err), fail);
    TRY_GOTO(step_builder_init(&out->b, &out->arena, po.window, l->model->hyper.conv_len, n_seqs, err), fail);
    out->blocks = arena_calloc(&out->arena, (size_t)po.n_blocks, sizeof *out->blocks);
    out->len = arena_calloc(&out->arena, (size_t)n_seqs, sizeof *out->len);
    out->next = arena_calloc(&out->arena, (size_t)n_seqs, sizeof *out->next);
    if (!out->blocks || !out->len || !out->next) {
        status = err_set(err, TERN_NO_MEMORY, "no memory for %d sequences", n_seqs);
        goto fail;
    }
    for (int i = 0; i < po.n_blocks; i++) out->blocks[i] = i;
    return TERN_OK;
fail:
    lab_run_close(out);
    return status;
}

void lab_run_close(struct lab_run *r) {
    plan_close(r->plan);
    arena_release(&r->arena);
    *r = (struct lab_run){0};
}

int32_t lab_token(struct lab_run *r) {
    r->random = r->random * 6364136223846793005ull + 1442695040888963407ull;
    return (int32_t)((r->random >> 33) % (uint64_t)r->lab->model->hyper.n_vocab_used);
}

// The sequence's entry in the step; writes: its convolution state is written.
static int seq_add(struct lab_run *r, int seq, bool writes) {
    int32_t slot = plan_pool(r->plan)->n_slots > 0 ? seq : -1;
    return step_add_seq(&r->b, r->blocks + seq * r->n_blocks, r->n_blocks, r->len[seq], r->len[seq] > 0 ? slot : -1,
                        writes ? slot : -1);
}

static enum tern_status step_run(struct lab_run *r, uint32_t want, struct tern_err *err) {
    mem_freeze(true);
    enum tern_status status = plan_run(r->plan, step_end(&r->b), want, err);
    mem_freeze(false);
    return status;
}

enum tern_status lab_prefill(struct lab_run *r, int seq, int n, struct tern_err *err) {
    TERN_ASSERT(n > 0 && r->len[seq] + n <= r->n_ctx);
    while (n > 0) {
        int rows = MIN(n, r->b.window);
        step_begin(&r->b, plan_pool(r->plan), 0);
        int s = seq_add(r, seq, true);
        for (int i = 0; i < rows; i++) step_add_chain_row(&r->b, s, lab_token(r), n == rows && i == rows - 1);
        TRY(step_run(r, n == rows ? PROG_OUT_ARGMAX : 0, err));
        r->len[seq] += rows;
        n -= rows;
    }
    r->next[seq] = plan_argmax(r->plan)[0].id;
    return TERN_OK;
}

enum tern_status lab_decode(struct lab_run *r, int n, struct tern_err *err) {
    step_begin(&r->b, plan_pool(r->plan), 0);
    for (int i = 0; i < n; i++) {
        TERN_ASSERT(r->len[i] < r->n_ctx);
        step_add_chain_row(&r->b, seq_add(r, i, true), r->next[i], true);
    }
    TRY(step_run(r, PROG_OUT_ARGMAX, err));
    for (int i = 0; i < n; i++) {
        r->len[i]++;
        r->next[i] = plan_argmax(r->plan)[i].id;
    }
    return TERN_OK;
}

enum tern_status lab_verify(struct lab_run *r, int seq, const int32_t *ids, int n, struct prog_argmax *out,
                            struct tern_err *err) {
    TERN_ASSERT(r->len[seq] + n <= r->n_ctx);
    step_begin(&r->b, plan_pool(r->plan), STEP_KEEP_ROWS);
    int s = seq_add(r, seq, false);
    for (int i = 0; i < n; i++) step_add_chain_row(&r->b, s, ids[i], true);
    TRY(step_run(r, PROG_OUT_ARGMAX, err));
    memcpy(out, plan_argmax(r->plan), (size_t)n * sizeof *out);
    return TERN_OK;
}
