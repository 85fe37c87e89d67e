// Opening and closing an engine: model, unit, plan, tokenizer, template; the worst case of memory is computed and
// refused before weights are packed.
#include "base/base.h"
#include "engine_int.h"

extern const char tern_revision[];

const char *tern_version(void) {
    static const char *const compiler =
#if defined(__clang__)
        "clang " __clang_version__;
#else
        "gcc " __VERSION__;
#endif
    static char text[160];
    static struct buf b;
    if (!text[0]) {
        buf_init(&b, sizeof text);
        buf_putf(&b, "%s (%s, %s)", TERN_VERSION, tern_revision, compiler);
        if (!b.failed && b.len < sizeof text) memcpy(text, b.data, b.len + 1);
        buf_release(&b);
    }
    return text;
}

void tern_engine_options_default(struct tern_engine_options *o) {
    *o = (struct tern_engine_options){.unit = "cpu", .n_sessions = 1, .pack_cache = true};
}

bool engine_is_eos(const struct tern_engine *e, int32_t id) {
    for (int i = 0; i < e->n_eos; i++)
        if (e->eos[i] == id) return true;
    return false;
}

enum tern_status engine_progress(const struct tern_engine *e, const char *stage, uint64_t done, uint64_t total,
                                 struct tern_err *err) {
    const struct tern_engine_options *o = &e->options;
    if (o->on_progress && !o->on_progress(o->on_progress_arg, stage, done, total))
        return err_set(err, TERN_CANCELLED, "loading was cancelled while %s", stage);
    return TERN_OK;
}

static enum tern_status options_check(const struct tern_engine_options *o, struct tern_err *err) {
    int n_sources = (o->model_path != NULL) + (o->model_data != NULL) + (o->shape != NULL);
    if (n_sources != 1)
        return err_set(err, TERN_INVALID_ARGUMENT, "give exactly one of model_path, model_data and shape (%d given)",
                       n_sources);
    if (o->n_threads < 0 || o->n_threads > TEAM_THREADS_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "threads must be 0 (automatic) to %d, not %d", TEAM_THREADS_MAX,
                       o->n_threads);
    if (o->n_ctx < 0 || o->n_ctx > ENGINE_CTX_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "the context must be 1 to %d positions (0: the model's), not %d",
                       ENGINE_CTX_MAX, o->n_ctx);
    if (o->n_sessions < 1 || o->n_sessions > ENGINE_SESSIONS_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "n_sessions must be 1 to %d, not %d", ENGINE_SESSIONS_MAX,
                       o->n_sessions);
    if (o->window < 0 || o->window > ENGINE_WINDOW_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "the window must be 1 to %d rows (0: %d), not %d", ENGINE_WINDOW_MAX,
                       ENGINE_WINDOW_DEFAULT, o->window);
    if ((unsigned)o->kv_type > TERN_KV_F32 || (unsigned)o->numerics > TERN_CLASS_BF16)
        return err_set(err, TERN_INVALID_ARGUMENT, "unknown cache type or numerics class");
    return engine_draft_check(o, err);
}

static enum tern_status model_load(struct tern_engine *e, struct tern_err *err) {
    const struct tern_engine_options *o = &e->options;
    if (o->model_path) return model_open(&e->model, o->model_path, err);
    if (o->model_data) return model_open_memory(&e->model, "model in memory", o->model_data, o->model_data_len, err);
    return model_create_named_shape(&e->model, o->shape, o->shape_format, o->shape_seed, err);
}

static void eos_add(struct tern_engine *e, int32_t id) {
    if (id >= 0 && e->n_eos < ENGINE_EOS_MAX && !engine_is_eos(e, id)) e->eos[e->n_eos++] = id;
}

enum tern_status engine_tokenizer_create(struct tokenizer **out, const struct model *m, struct tern_err *err) {
    const struct model_vocab *v = &m->vocab;
    *out = NULL;
    if (v->n_tokens == 0 && v->tokenizer_json.len == 0) return TERN_OK;
    struct tokenizer_source src = {.tokens = v->tokens,
                                   .n_tokens = v->n_tokens,
                                   .types = v->types,
                                   .merges = v->merges,
                                   .n_merges = v->n_merges,
                                   .kind = v->kind,
                                   .scores = v->scores,
                                   .add_blank = v->add_blank,
                                   .pre = v->pre,
                                   .tokenizer_json = v->tokenizer_json,
                                   .n_vocab_rows = m->hyper.n_vocab,
                                   .bos = v->bos,
                                   .eos = v->eos,
                                   .add_bos = v->add_bos};
    return tokenizer_create(out, &src, err);
}

static enum tern_status text_load(struct tern_engine *e, struct tern_err *err) {
    const struct model_vocab *v = &e->model->vocab;
    eos_add(e, v->eos);
    eos_add(e, v->eot);
    for (int i = 0; i < v->n_eos_more; i++) eos_add(e, v->eos_more[i]);
    TRY(engine_tokenizer_create(&e->tokenizer, e->model, err));
    if (!e->tokenizer) return TERN_OK;
    struct model_hyper *h = &e->model->hyper; // rows without a token are padding: never chosen
    h->n_vocab_used = MIN(h->n_vocab_used, tokenizer_size(e->tokenizer));
    if (tokenizer_note(e->tokenizer)) log_warn("%s", tokenizer_note(e->tokenizer));
    if (v->chat_template.len > 0 && jinja_create(&e->template_, v->chat_template, &e->template_err) != TERN_OK)
        log_warn("the model's chat template cannot be used: %s", e->template_err.message);
    e->style = answer_style_detect(v->chat_template, e->tokenizer);
    return TERN_OK;
}

static void plan_options_fill(const struct tern_engine *e, const struct plan_unit *units, struct plan_options *o) {
    *o = (struct plan_options){.model = e->model,
                               .units = units,
                               .n_units = e->then_unit ? 2 : 1,
                               .first_ctx_max = e->advice.ctx_max,
                               .numerics = e->numerics,
                               .kv_type = e->kv_type,
                               .window = e->window,
                               .n_blocks = e->n_blocks,
                               .n_slots = e->n_slots,
                               .n_out_max = MIN(e->window, ENGINE_OUT_ROWS_MAX)};
    if (!e->draft.model || !e->draft.model->drafter) return;
    o->feature_layers = e->draft.model->drafter->feature_layers;
    o->n_features = e->draft.model->drafter->n_features;
}

static const char *plan_kind_name(const struct tern_engine *e) { return e->options.plan ? e->options.plan : "whole"; }

// Weights, states of all sessions at full context, and work memory must fit before anything large is made.
static enum tern_status budget_check(struct tern_engine *e, const struct plan_options *po, struct tern_err *err) {
    uint64_t work, state, sum, draft, limit = e->options.memory_max ? e->options.memory_max : os_ram_available();
    uint64_t weights = e->model->n_bytes_file * (e->then_unit ? 2 : 1);
    if (!plan_bytes_estimate(plan_kind_name(e), po, &work, &state) || !u64_add(work, state, &sum) ||
        !u64_add(sum, weights, &sum) || !engine_draft_estimate(e, &draft) || !u64_add(sum, draft, &sum))
        return err_set(err, TERN_LIMIT, "the sizes of this model and context overflow");
    if (!e->options.memory_max) limit -= MIN(limit, ENGINE_BYTES_SPARE);
    char text[6][24];
    if (sum > limit)
        return err_set(err, TERN_NO_MEMORY,
                       "needs up to %s (weights %s, state of %d session(s) of %d positions %s, work %s, drafter %s) "
                       "but %s are available; use a smaller context or fewer sessions",
                       bytes_format(sum, text[0]), bytes_format(weights, text[1]), e->n_sessions, e->n_ctx,
                       bytes_format(state, text[2]), bytes_format(work, text[3]), bytes_format(draft, text[4]),
                       bytes_format(limit, text[5]));
    return TERN_OK;
}

struct import_progress {
    const struct tern_engine *engine;
};
static bool import_on_progress(void *arg, uint64_t done, uint64_t total) {
    const struct tern_engine *e = ((struct import_progress *)arg)->engine;
    return engine_progress(e, "packing weights", done, total, NULL) == TERN_OK;
}

static enum tern_status plan_load(struct tern_engine *e, struct tern_err *err) {
    struct plan_unit pu[2] = {{.unit = e->unit}, {.unit = e->then_unit}};
    struct plan_options po;
    plan_options_fill(e, pu, &po);
    TRY(budget_check(e, &po, err));
    struct import_progress progress = {e};
    struct weights_options wo = {.numerics = e->numerics,
                                 .pack_cache = e->options.pack_cache && !e->options.shape,
                                 .on_progress = import_on_progress,
                                 .on_progress_arg = &progress};
    TRY(unit_driver_of(e->unit)->weights_import(e->unit, &e->weights, e->model, &wo, &e->weights_info, err));
    if (e->weights_info.cache_note) log_info("pack cache: %s", e->weights_info.cache_note);
    if (e->then_unit)
        TRY(unit_driver_of(e->then_unit)->weights_import(e->then_unit, &e->then_weights, e->model, &wo, NULL, err));
    pu[0].weights = e->weights;
    pu[1].weights = e->then_weights;
    TRY(plan_open(&e->plan, plan_kind_name(e), &po, err));
    return engine_draft_load(e, err);
}

static enum tern_status pools_init(struct tern_engine *e, struct tern_err *err) {
    arena_init(&e->arena, 0);
    buf_init(&e->draft.profile_text, PROFILE_BYTES_MAX);
    e->mutex = mutex_create();
    e->lengths_mutex = mutex_create();
    e->constraints.mutex = mutex_create();
    e->constraints.seed = hash_seed();
    e->free_blocks = arena_calloc(&e->arena, (size_t)e->n_blocks, sizeof *e->free_blocks);
    e->free_slots = arena_calloc(&e->arena, (size_t)e->n_slots + 1, sizeof *e->free_slots);
    if (!e->mutex || !e->lengths_mutex || !e->constraints.mutex || !e->free_blocks || !e->free_slots)
        return err_set(err, TERN_NO_MEMORY, "no memory for the block tables");
    for (int i = e->n_blocks - 1; i >= 0; i--) e->free_blocks[e->n_free_blocks++] = i;
    for (int i = e->n_slots - 1; i >= 0; i--) e->free_slots[e->n_free_slots++] = i;
    int n_taps = e->model->hyper.conv_len;
    TRY(step_builder_init(&e->builder, &e->arena, e->window, n_taps, e->n_sessions, err));
    return step_builder_init(&e->draft.commit, &e->arena, MIN(e->window, TREE_NODES_MAX), n_taps, e->n_sessions, err);
}

void engine_pools_size(struct tern_engine *e) {
    e->n_blocks = engine_blocks_per_session(e) * e->n_sessions;
    e->n_slots = engine_slots_per_session(e) * e->n_sessions;
}

static enum tern_status sizes_init(struct tern_engine *e, struct tern_err *err) {
    const struct tern_engine_options *o = &e->options;
    e->n_ctx = o->n_ctx ? o->n_ctx : MIN(e->model->hyper.n_ctx, TERN_CTX_DEFAULT);
    e->n_sessions = o->n_sessions;
    e->window = o->window ? o->window : engine_window_default(e);
    TRY(engine_units_bound(e, err));
    engine_pools_size(e);
    static const enum prog_class classes[] = {[TERN_CLASS_AUTO] = PROG_CLASS_INT8,
                                              [TERN_CLASS_INT8] = PROG_CLASS_INT8,
                                              [TERN_CLASS_FP32] = PROG_CLASS_FP32,
                                              [TERN_CLASS_BF16] = PROG_CLASS_BF16};
    e->numerics = classes[o->numerics];
    static const enum op_kv_type kv[] = {[TERN_KV_F16] = OP_KV_F16, [TERN_KV_Q8] = OP_KV_Q8, [TERN_KV_F32] = OP_KV_F32};
    e->kv_type = kv[o->kv_type];
    return TERN_OK;
}

// The class by name, with the order of sums where the unit chooses it.
static void numerics_name(struct tern_engine *e) {
    static const char *const kv_names[] = {[TERN_KV_F16] = "f16", [TERN_KV_Q8] = "q8", [TERN_KV_F32] = "f32"};
    const char *order = "";
    if (e->numerics == PROG_CLASS_BF16) order = e->caps.bf16_order == OP_BF16_TILES ? "-tiles" : "-pairs";
    struct buf b;
    buf_init(&b, sizeof e->numerics_text);
    buf_putf(&b, "%s%s/kv-%s", prog_class_name(e->numerics), order, kv_names[e->options.kv_type]);
    if (!b.failed) memcpy(e->numerics_text, b.data, b.len + 1);
    buf_release(&b);
}

// A class is offered where its fidelity was measured on this machine (policy.h). Random weights have none.
static enum tern_status validated_check(const struct tern_engine *e, struct tern_err *err) {
    struct validation_key key;
    if (e->options.shape) return TERN_OK;
    TRY(validation_key_make(&key, e->model->digest, e->options.unit ? e->options.unit : "cpu", &e->caps,
                            e->numerics_text, tern_version(), err));
    TRY(validation_require(&key, e->model->hyper.bidirectional, err));
    if (!e->then_unit) return TERN_OK;
    TRY(validation_key_make(&key, e->model->digest, e->options.then_unit, &e->then_caps, e->numerics_text,
                            tern_version(), err));
    return validation_require(&key, e->model->hyper.bidirectional, err);
}

enum tern_status tern_engine_open(struct tern_engine **out, const struct tern_engine_options *o, struct tern_err *err) {
    TRY(options_check(o, err));
    struct tern_engine *e = mem_calloc(1, sizeof *e);
    if (!e) return err_set(err, TERN_NO_MEMORY, "no memory for an engine");
    uint64_t start = clock_ns();
    e->options = *o;
    enum tern_status status;
    TRY_GOTO(engine_progress(e, "opening the model", 0, 1, err), fail);
    TRY_GOTO(model_load(e, err), fail);
    if (e->model->warning.len) log_warn("%.*s", (int)e->model->warning.len, e->model->warning.data);
    TRY_GOTO(engine_units_open(e, err), fail);
    TRY_GOTO(sizes_init(e, err), fail);
    if (e->n_ctx > e->model->hyper.n_ctx)
        log_warn("a context of %d positions is more than the model was made for (%d)", e->n_ctx, e->model->hyper.n_ctx);
    TRY_GOTO(text_load(e, err), fail);
    numerics_name(e);
    TRY_GOTO(validated_check(e, err), fail);
    TRY_GOTO(engine_draft_open(e, err), fail);
    TRY_GOTO(plan_load(e, err), fail);
    TRY_GOTO(pools_init(e, err), fail);
    if (e->draft.mode == TERN_DRAFT_AUTO) TRY_GOTO(draft_costs_open(e, err), fail);
    TRY_GOTO(engine_token_cost_init(e, err), fail);
    engine_memory_tell(e);
    e->load_ns = clock_ns() - start;
    e->options.model_path = NULL; // the caller's strings end here
    e->options.draft_path = NULL;
    e->options.draft_unit = NULL;
    e->options.unit = NULL;
    e->options.then_unit = NULL;
    e->options.plan = NULL;
    e->options.shape_format = NULL;
    *out = e;
    return TERN_OK;
fail:
    tern_engine_close(e);
    return status;
}

void tern_engine_close(struct tern_engine *e) {
    if (!e) return;
    if (e->n_open > 0) TERN_BUG("an engine was closed with %d open sessions", e->n_open);
    length_record_close(e);
    engine_draft_close(e);
    buf_release(&e->draft.profile_text);
    plan_close(e->plan);
    engine_units_close(e);
    jinja_free(e->template_);
    constraint_cache_release(&e->constraints);
    token_trie_free(e->trie);
    tokenizer_free(e->tokenizer);
    model_close(e->model);
    mutex_free(e->mutex);
    arena_release(&e->arena);
    mem_free(e);
}
