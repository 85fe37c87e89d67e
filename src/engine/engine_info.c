// What an engine says about itself, and what one token of text costs it: a mixture of experts reads a part of its
// weights only, and an embedding that is not the head is looked up, not read.
#include "base/base.h"
#include "engine/engine_int.h"

#define ROWS_ALL 4096 // rows of a step that reads every expert

enum tern_status engine_token_cost_init(struct tern_engine *e, struct tern_err *err) {
    bool encoder = e->model->hyper.bidirectional;
    struct prog_spec spec = {.kind = encoder ? PROG_ENCODER : PROG_WHOLE,
                             .numerics = e->numerics,
                             .kv_type = e->kv_type,
                             .window = 1,
                             .n_out_max = encoder ? 0 : 1,
                             .outputs = encoder ? PROG_OUT_HIDDEN : PROG_OUT_LOGITS};
    struct prog *p;
    TRY(prog_build(&p, e->model, &spec, err));
    struct prog_cost one = prog_cost_get(p, 1, encoder ? 0 : 1, 0), fill = prog_cost_get(p, 1, 0, 0),
                     all = prog_cost_get(p, ROWS_ALL, encoder ? 0 : 1, 0);
    prog_free(p);
    double share = all.weight_bytes > 0 ? one.weight_bytes / all.weight_bytes : 1;
    e->bytes_token = (uint64_t)((double)e->weights_info.bytes * MIN(share, 1));
    e->n_params_token = (uint64_t)(MIN(fill.flops, one.flops) / 2);
    return TERN_OK;
}

// The worst case, told once at start: nothing grows beyond it later.
void engine_memory_tell(const struct tern_engine *e) {
    struct tern_model_info i;
    char text[5][24];
    tern_engine_info(e, &i);
    log_info(
        "memory: weights %s, cache %s per position, state of %d session(s) of %d positions %s, work %s; at most %s",
        bytes_format(i.bytes_weights, text[0]), bytes_format(i.bytes_kv_token, text[1]), e->n_sessions, e->n_ctx,
        bytes_format(i.bytes_state_max, text[2]), bytes_format(i.bytes_work, text[3]),
        bytes_format(i.bytes_weights + i.bytes_state_max + i.bytes_work + i.bytes_drafter, text[4]));
}

void tern_engine_info(const struct tern_engine *e, struct tern_model_info *out) {
    const struct model *m = e->model;
    const struct state_layout *l = &plan_pool(e->plan)->layout;
    uint64_t state = l->block_bytes * (uint64_t)e->n_blocks + l->slot_bytes * (uint64_t)e->n_slots;
    *out = (struct tern_model_info){.name = m->name,
                                    .architecture = m->arch_name,
                                    .format = format_table[m->format_main].name,
                                    .unit = e->then_unit ? plan_name(e->plan) : e->caps.name,
                                    .kernels = e->caps.isa,
                                    .numerics = e->numerics_text,
                                    .has_template = e->template_ != NULL,
                                    .pack_cached = e->weights_info.from_cache,
                                    .n_layers = m->hyper.n_layers,
                                    .n_vocab = m->hyper.n_vocab,
                                    .n_embd = m->hyper.n_embd,
                                    .n_ctx = e->n_ctx,
                                    .n_ctx_model = m->hyper.n_ctx,
                                    .n_threads = e->caps.n_threads,
                                    .window = e->window,
                                    .n_params = m->n_params,
                                    .n_params_token = e->n_params_token,
                                    .bytes_token = e->bytes_token,
                                    .bytes_weights = e->weights_info.bytes,
                                    .bytes_kv_token = l->block_bytes / OP_BLOCK,
                                    .bytes_state_max = state,
                                    .drafter = e->draft.model ? e->draft.model->name : NULL,
                                    .draft = e->draft.note,
                                    .bytes_drafter = engine_draft_bytes(e),
                                    .bytes_work = plan_work_bytes(e->plan) - MIN(state, plan_work_bytes(e->plan))};
}
