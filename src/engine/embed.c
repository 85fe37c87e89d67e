// Vectors of texts from encoders.
//
// A text is one step of an encoder program made for its length, with a pool of its own: encoders keep no state between
// texts, so nothing is worth keeping but the weights. Rows and their mean have a fixed order of sums, so a text's
// vector does not depend on threads or instruction set.
#include "base/base.h"
#include "engine_int.h"

#include <math.h>

// What one text needs on the unit.
struct embedding {
    struct tern_engine *e;
    const struct unit_driver *d;
    struct prog *prog;
    struct unit_program *program;
    struct state_pool pool;
    struct unit_buffer *rows; // [n][n_embd]
    struct arena arena;
    struct step_builder builder;
    int32_t *blocks;
};

static void embedding_release(struct embedding *b) {
    if (b->program) b->d->program_free(b->e->unit, b->program);
    prog_free(b->prog);
    if (b->rows) b->d->buffer_free(b->e->unit, b->rows);
    if (b->pool.kv) b->d->buffer_free(b->e->unit, b->pool.kv);
    if (b->pool.conv) b->d->buffer_free(b->e->unit, b->pool.conv);
    arena_release(&b->arena);
}

static enum tern_status buffer_make(const struct embedding *b, struct unit_buffer **out, uint64_t bytes,
                                    struct tern_err *err) {
    return bytes > 0 ? b->d->buffer_alloc(b->e->unit, out, bytes, err) : TERN_OK;
}

static enum tern_status embedding_make(struct embedding *b, int n, struct tern_err *err) {
    struct tern_engine *e = b->e;
    const struct model_hyper *h = &e->model->hyper;
    struct prog_spec spec = {.kind = PROG_ENCODER,
                             .numerics = e->numerics,
                             .kv_type = e->kv_type,
                             .window = n,
                             .n_out_max = -1,
                             .outputs = PROG_OUT_HIDDEN};
    uint64_t kv = 0, conv = 0;
    TRY(prog_build(&b->prog, e->model, &spec, err));
    TRY(b->d->program_compile(e->unit, &b->program, b->prog, e->weights, err));
    TRY(state_layout_init(&b->pool.layout, e->model, e->kv_type, 0, h->n_layers, n, err));
    b->pool.n_blocks = int_div_up(n, OP_BLOCK);
    b->pool.n_slots = 1;
    if (!state_kv_bytes(&b->pool.layout, b->pool.n_blocks, &kv) ||
        !state_conv_bytes(&b->pool.layout, b->pool.n_slots, &conv))
        return err_set(err, TERN_LIMIT, "the state of a text of %d tokens does not fit 64 bits", n);
    TRY(buffer_make(b, &b->pool.kv, kv, err));
    TRY(buffer_make(b, &b->pool.conv, conv, err));
    TRY(buffer_make(b, &b->rows, sizeof(float) * (uint64_t)n * (uint64_t)h->n_embd, err));
    b->blocks = arena_calloc(&b->arena, (size_t)b->pool.n_blocks, sizeof *b->blocks);
    if (!b->blocks) return err_set(err, TERN_NO_MEMORY, "no memory for a text of %d tokens", n);
    for (int i = 0; i < b->pool.n_blocks; i++) b->blocks[i] = i;
    return step_builder_init(&b->builder, &b->arena, n, h->conv_len, 1, err);
}

static enum tern_status rows_run(struct embedding *b, const int32_t *ids, int n, struct tern_err *err) {
    struct unit_event event;
    step_begin(&b->builder, &b->pool, STEP_FULL);
    int seq = step_add_seq(&b->builder, b->blocks, b->pool.n_blocks, 0, -1, -1);
    for (int i = 0; i < n; i++) step_add_full_row(&b->builder, seq, ids[i], true, false);
    b->builder.step.ports[PORT_HIDDEN].buf = b->rows;
    TRY(b->d->submit(b->e->unit, b->program, step_end(&b->builder), &event, err));
    return b->d->event_wait(b->e->unit, &event, err);
}

// rows: [n_rows][n].
static void rows_pool(const float *rows, int n_rows, int n, enum tern_pooling pooling, float *out) {
    const float *from = rows + (pooling == TERN_POOL_LAST ? (size_t)(n_rows - 1) * (size_t)n : 0);
    memcpy(out, from, (size_t)n * sizeof *out);
    for (int i = 1; pooling == TERN_POOL_MEAN && i < n_rows; i++) op_add(out, rows + (size_t)i * (size_t)n, n, out);
    float length = sqrtf(op_sum_squares(out, n)); // the mean's divisor falls away
    for (int i = 0; length > 0 && i < n; i++) out[i] /= length;
}

enum tern_status engine_encode(struct tern_engine *e, const struct id_list *ids, float **rows, struct tern_err *err) {
    int n_embd = e->model->hyper.n_embd;
    int n_max = MIN(e->model->hyper.n_ctx, STEP_WINDOW_MAX);
    *rows = NULL;
    if (ids->len == 0) return err_set(err, TERN_INVALID_ARGUMENT, "an empty text has no vector");
    if (ids->len > (size_t)n_max)
        return err_set(err, TERN_CONTEXT_FULL, "the text has %zu tokens, at most %d are read at once", ids->len, n_max);
    struct embedding b = {.e = e, .d = unit_driver_of(e->unit)};
    arena_init(&b.arena, 0);
    mutex_lock(e->mutex);
    int n = (int)ids->len;
    enum tern_status status = embedding_make(&b, n, err);
    if (status == TERN_OK) status = rows_run(&b, ids->ids, n, err);
    if (status == TERN_OK) {
        *rows = mem_calloc((size_t)n * (size_t)n_embd, sizeof **rows);
        uint64_t bytes = sizeof **rows * (uint64_t)n * (uint64_t)n_embd;
        status = *rows ? b.d->buffer_read(e->unit, b.rows, 0, *rows, bytes, err)
                       : err_set(err, TERN_NO_MEMORY, "no memory for the rows of %d tokens", n);
    }
    embedding_release(&b);
    mutex_unlock(e->mutex);
    return status;
}

static enum tern_status embed_check(const struct tern_engine *e, enum tern_pooling pooling, size_t n,
                                    struct tern_err *err) {
    const struct model_hyper *h = &e->model->hyper;
    if (!h->bidirectional)
        return err_set(err, TERN_UNSUPPORTED, "%s generates text; vectors come from encoders", e->model->name);
    if (n != (size_t)h->n_embd)
        return err_set(err, TERN_INVALID_ARGUMENT, "room for %zu values; the model's vectors have %d", n, h->n_embd);
    if ((unsigned)pooling > TERN_POOL_LAST)
        return err_set(err, TERN_INVALID_ARGUMENT, "unknown pooling %d", (int)pooling);
    return TERN_OK;
}

static enum tern_status ids_embed(struct tern_engine *e, const struct id_list *ids, enum tern_pooling pooling,
                                  float *out, struct tern_err *err) {
    float *rows = NULL;
    const enum tern_status status = engine_encode(e, ids, &rows, err);
    if (status == TERN_OK) rows_pool(rows, (int)ids->len, e->model->hyper.n_embd, pooling, out);
    mem_free(rows);
    return status;
}

enum tern_status tern_embed(struct tern_engine *e, struct tern_str text, enum tern_pooling pooling, float *out,
                            size_t n, struct tern_err *err) {
    TRY(embed_check(e, pooling, n, err));
    if (!e->tokenizer) return err_set(err, TERN_UNSUPPORTED, "this model has no tokenizer");
    struct id_list ids = {0};
    struct encode_options o = {.add_bos = tokenizer_adds_bos(e->tokenizer)};
    enum tern_status status = tokenizer_encode(e->tokenizer, &ids, (struct str){text.data, text.len}, &o, err);
    if (status == TERN_OK) status = ids_embed(e, &ids, pooling, out, err);
    id_list_release(&ids);
    return status;
}

enum tern_status tern_embed_ids(struct tern_engine *e, const int32_t *ids, size_t n_ids, enum tern_pooling pooling,
                                float *out, size_t n, struct tern_err *err) {
    TRY(embed_check(e, pooling, n, err));
    struct id_list list = {0};
    const struct tern_request_options o = {.prompt_ids = ids, .n_prompt_ids = n_ids};
    bool unused;
    enum tern_status status = n_ids > 0 ? prompt_build(e, &o, &list, &unused, err) : TERN_OK;
    if (status == TERN_OK) status = ids_embed(e, &list, pooling, out, err);
    id_list_release(&list);
    return status;
}
