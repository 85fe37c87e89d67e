// Between sessions and the prefix cache. A job begins with the longest run of blocks that the cache has of its prompt;
// whatever blocks its prompt and answer complete go there, each with the convolution rows behind it: those of the live
// slot where a step ended with the block, else the rows that the step showed. Blocks that lie in one piece of a prompt
// have the rows behind their middle too: where two prompts part within a block, half of it may still be taken, and 8
// positions are run again on average instead of 16, for a fifth more memory (LFM2-350M: 80 of 480 KiB).
#include "base/base.h"
#include "service_int.h"

// ------------------------------------------------------------------------------------------------------- open, close

enum tern_status service_prefix_open(struct tern_service *s, struct tern_err *err) {
    struct tern_engine *e = s->engine;
    const struct tern_service_options *o = &s->options;
    const struct state_layout *l = &plan_pool(e->plan)->layout;
    if (o->prefix_ram_max == 0) return TERN_OK;
    s->held = mem_calloc((size_t)engine_blocks_per_session(e), sizeof *s->held);
    struct buf identity;
    buf_init(&identity, STATE_IDENTITY_MAX);
    struct prefix_options po = {.shape = {.kv_bytes = l->block_bytes, .conv_bytes = 2 * l->slot_bytes},
                                .ram_max = o->prefix_ram_max,
                                .dir = o->prefix_dir,
                                .disk_max = o->prefix_disk_max};
    if (e->draft.plan) {
        struct sha256 h;
        po.shape.draft_bytes = plan_draft_pool(e->draft.plan)->layout.block_bytes;
        sha256_init(&h);
        sha256_update(&h, e->draft.model->digest, strlen(e->draft.model->digest));
        sha256_final(&h, po.drafter.b);
    }
    enum tern_status status = TERN_OK;
    if (!s->held || !engine_state_identity(e, &identity))
        status = err_set(err, TERN_NO_MEMORY, "no memory for a prefix cache");
    po.identity = buf_str(&identity);
    if (status == TERN_OK) status = prefix_cache_open(&s->prefix, &po, err);
    buf_release(&identity);
    s->options.prefix_dir = NULL; // the caller's string ends here
    return status;
}

void service_prefix_close(struct tern_service *s) {
    prefix_cache_close(s->prefix);
    mem_free(s->held);
}

// -------------------------------------------------------------------------------------------- what a job begins with

enum tern_status service_prefix_keys(struct tern_service *s, struct tern_job *j, struct tern_str tenant,
                                     struct tern_err *err) {
    if (!s->prefix) return TERN_OK;
    const struct id_list *p = &j->request->prompt;
    prefix_key_root(s->prefix, (struct str){tenant.data, tenant.len}, &j->root);
    j->last = j->root;
    j->n_keys = (p->len - 1) / OP_BLOCK; // the last token runs again: its logits are needed
    j->keys = mem_alloc(j->n_keys * sizeof *j->keys);
    if (!j->keys) return err_set(err, TERN_NO_MEMORY, "no memory for a job");
    struct prefix_key key = j->root;
    for (size_t i = 0; i < j->n_keys; i++) {
        prefix_key_next(&key, p->ids + i * OP_BLOCK, OP_BLOCK);
        j->keys[i] = key;
    }
    return TERN_OK;
}

static void staged(void *arg) {
    struct tern_job *j = arg;
    struct tern_service *s = j->service;
    mutex_lock(s->mutex);
    j->staging = false;
    s->n_staging--;
    cond_signal(s->work);
    mutex_unlock(s->mutex);
}

bool service_prefix_stage(struct tern_service *s, struct tern_job *j) {
    if (!s->prefix || j->request->scores) return false;
    const struct id_list *p = &j->request->prompt;
    j->stage = (struct prefix_task){.root = &j->root,
                                    .keys = j->keys,
                                    .n = j->n_keys,
                                    .ids = p->ids,
                                    .n_ids = p->len - 1, // the last token runs again
                                    .done = staged,
                                    .arg = j};
    if (!prefix_stage(s->prefix, &j->stage)) return false;
    s->n_staging++;
    return true;
}

// Under the engine's mutex.
// n blocks are held, of the last of which the first half is taken if `half`.
static enum tern_status blocks_take(struct tern_service *s, struct tern_session *t, size_t n, bool half,
                                    struct tern_err *err) {
    const struct state_layout *l = &plan_pool(s->engine->plan)->layout;
    const struct prefix_held *last = &s->held[n - 1];
    bool has_draft = t->draft.lane >= 0;
    for (size_t i = 0; i < n; i++) {
        TRY(plan_block_write(s->engine->plan, t->blocks[i], s->held[i].data, err));
        has_draft = has_draft && s->held[i].has_draft;
    }
    if (t->slot >= 0)
        TRY(plan_slot_write(s->engine->plan, t->slot, half ? service_held_middle(s, last) : last->data + l->block_bytes,
                            err));
    t->len = n * OP_BLOCK - (half ? PREFIX_HALF : 0);
    session_draft_cut(t, 0);
    t->draft.base = t->len;
    if (!has_draft) return TERN_OK;
    for (size_t i = 0; i < n; i++)
        TRY(plan_draft_block_write(s->engine->draft.plan, t->draft.blocks[i], service_held_draft(s, &s->held[i]), err));
    t->draft.base = 0;
    t->draft.len = t->len;
    return TERN_OK;
}

// Behind n whole blocks of the prompt: half of one more, if the cache has it.
static bool half_hold(struct tern_service *s, const struct tern_job *j, size_t n) {
    const struct id_list *p = &j->request->prompt;
    struct prefix_key half = n > 0 ? j->keys[n - 1] : j->root;
    if (p->len - 1 < n * OP_BLOCK + PREFIX_HALF) return false; // the last token runs again
    prefix_key_next(&half, p->ids + n * OP_BLOCK, PREFIX_HALF);
    return prefix_match_half(s->prefix, &half, &s->held[n]);
}

enum tern_status service_prefix_restore(struct tern_service *s, struct tern_job *j, struct tern_err *err) {
    struct tern_session *t = j->session;
    mutex_lock(s->engine->mutex);
    enum tern_status status = session_restore(t, 0, err); // nothing of whoever had it before
    mutex_unlock(s->engine->mutex);
    if (status != TERN_OK || !s->prefix || j->request->scores) return status;
    size_t n = prefix_match(s->prefix, j->keys, j->n_keys, s->held);
    bool half = half_hold(s, j, n);
    if (n + half == 0) return TERN_OK;
    mutex_lock(s->engine->mutex);
    status = blocks_take(s, t, n + half, half, err);
    mutex_unlock(s->engine->mutex);
    memcpy(t->ids, j->request->prompt.ids, t->len * sizeof *t->ids);
    prefix_let_go(s->prefix, s->held, n + half);
    j->n_known = n;
    if (n > 0) j->last = j->keys[n - 1];
    return status;
}

// ----------------------------------------------------------------------------------------------------- what it leaves

bool service_prefix_wants_rows(const struct tern_service *s, size_t len, int n) {
    if (!s->prefix || s->engine->model->hyper.conv_len < 2) return false;
    return len / PREFIX_HALF < (len + (size_t)n - 1) / PREFIX_HALF;
}

// row: of the step, behind which the state is asked for; whole: the session ends there.
static bool conv_is_known(const struct tern_session *t, int row, int row_first, bool whole) {
    if (t->slot < 0 || whole) return true;
    return row_first >= 0 && row - row_first >= t->engine->model->hyper.conv_len - 2;
}

static enum tern_status conv_read(const struct tern_session *t, int row, bool whole, uint8_t *to) {
    struct plan *p = t->engine->plan;
    if (t->slot < 0) return TERN_OK;
    if (whole) return plan_slot_read(p, t->slot, to, NULL);
    int rows[OP_CONV_LEN_MAX], n = t->engine->model->hyper.conv_len - 1;
    for (int i = 0; i < n; i++) rows[i] = row - (n - 1 - i);
    return plan_rows_read(p, rows, to, NULL);
}

// The drafter's part, when its context begins with the text; what is pending is injected first.
static enum tern_status draft_read(struct tern_session *t, size_t block, uint8_t *to, bool *has) {
    *has = false;
    if (t->draft.lane < 0 || t->draft.base > 0) return TERN_OK;
    if (t->draft.len < (block + 1) * OP_BLOCK) TRY(session_draft_inject(t, NULL));
    if (t->draft.len < (block + 1) * OP_BLOCK) return TERN_OK;
    *has = true;
    return plan_draft_block_read(t->engine->draft.plan, t->draft.blocks[block], to, NULL);
}

// Data of a block behind parent. row: with its last token; -1: the step did not show it.
static enum tern_status block_fill(struct tern_service *s, struct tern_job *j, struct prefix_held *to, size_t block,
                                   const struct prefix_key *parent, int row, int row_first) {
    const struct tern_session *t = j->session;
    bool whole = t->len == (block + 1) * OP_BLOCK;
    TRY(plan_block_read(s->engine->plan, t->blocks[block], to->data, NULL));
    if (to->has_conv) TRY(conv_read(t, row, whole, to->data + plan_pool(s->engine->plan)->layout.block_bytes));
    if (t->slot < 0 || conv_is_known(t, row - PREFIX_HALF, row_first, false)) {
        TRY(conv_read(t, row - PREFIX_HALF, false, service_held_middle(s, to)));
        to->half = *parent;
        prefix_key_next(&to->half, t->ids + block * OP_BLOCK, PREFIX_HALF);
        to->has_half = true;
    }
    return draft_read(j->session, block, service_held_draft(s, to), &to->has_draft);
}

static void block_store(struct tern_service *s, struct tern_job *j, size_t block, int row, int row_first) {
    struct tern_session *t = j->session;
    struct prefix_key parent = j->last;
    struct prefix_held held;
    bool has_conv = conv_is_known(t, row, row_first, t->len == (block + 1) * OP_BLOCK);
    prefix_key_next(&j->last, t->ids + block * OP_BLOCK, OP_BLOCK);
    j->n_known = block + 1;
    if (!prefix_place(s->prefix, &j->last, &parent, (int)block, has_conv, &held, &j->cache_off)) return;
    if (block_fill(s, j, &held, block, &parent, row, row_first) == TERN_OK)
        prefix_put(s->prefix, &held, true);
    else
        prefix_drop(s->prefix, &held);
}

void service_prefix_store(struct tern_service *s, struct tern_job *j, int n, int row) {
    const struct tern_session *t = j->session;
    if (!s->prefix) return;
    size_t before = t->len - (size_t)n;
    for (size_t b = j->n_known; !j->cache_off && (b + 1) * OP_BLOCK <= t->len; b++) {
        size_t end = (b + 1) * OP_BLOCK;
        bool in_step = row >= 0 && end > before;
        block_store(s, j, b, in_step ? row + (int)(end - 1 - before) : -1, in_step ? row : -1);
    }
}
