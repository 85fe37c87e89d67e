// Constraints of the public header: those of text/ over this engine's vocabulary, behind the hook that any caller's own
// automaton could fill. The vocabulary's trie is made when the first one is opened.
//
// What was compiled is kept with its masks: clients send the same schema with each request. Compiling runs outside the
// cache's mutex; when two threads compile the same, the one that comes second takes the first's.
#include "base/base.h"
#include "engine_int.h"

static void *hook_clone(const void *state) { return constraint_state_clone(state); }
static void hook_free(void *state) { constraint_state_free(state); }
static bool hook_advance(void *state, int32_t id) { return constraint_advance(state, id); }
static void hook_mask(const void *state, uint32_t *mask, int n_vocab) { constraint_mask(state, mask, n_vocab); }

static enum tern_status trie_get(struct tern_engine *e, struct token_trie **out, struct tern_err *err) {
    enum tern_status status = TERN_OK;
    mutex_lock(e->mutex);
    if (!e->trie) status = token_trie_create(&e->trie, e->tokenizer, e->model->hyper.n_vocab_used, err);
    *out = e->trie;
    mutex_unlock(e->mutex);
    return status;
}

// --------------------------------------------------------------------------------------------------------------- cache

struct constraint_kept {
    struct tern_engine *engine;
    struct constraint *compiled;
    enum tern_constraint_kind kind;
    uint64_t hash, used_at;
    char *spec;
    size_t spec_len;
    uint64_t bytes;
    int n_users;
    bool listed; // else it goes with its last user
};

static void kept_free(struct constraint_kept *k) {
    if (!k) return;
    constraint_free(k->compiled);
    mem_free(k->spec);
    mem_free(k);
}

void constraint_cache_release(struct constraint_cache *c) {
    for (int i = 0; i < c->n; i++) kept_free(c->items[i]);
    mutex_free(c->mutex);
    *c = (struct constraint_cache){0};
}

// One more user of what is kept under this kind and spec, or NULL. Under the mutex.
static struct constraint_kept *kept_find(struct constraint_cache *c, enum tern_constraint_kind kind, uint64_t hash,
                                         struct tern_str spec) {
    for (int i = 0; i < c->n; i++) {
        struct constraint_kept *k = c->items[i];
        if (k->hash != hash || k->kind != kind || k->spec_len != spec.len) continue;
        if (spec.len > 0 && memcmp(k->spec, spec.data, spec.len) != 0) continue;
        k->n_users++;
        k->used_at = ++c->clock;
        return k;
    }
    return NULL;
}

// Takes those out that nobody uses, the longest unused first, until n and bytes more have room. Under the mutex.
static bool room_make(struct constraint_cache *c, uint64_t bytes) {
    while (c->n == TERN_CONSTRAINTS_KEPT_MAX || c->bytes + bytes > TERN_CONSTRAINTS_BYTES_MAX) {
        int oldest = -1;
        for (int i = 0; i < c->n; i++)
            if (c->items[i]->n_users == 0 && (oldest < 0 || c->items[i]->used_at < c->items[oldest]->used_at))
                oldest = i;
        if (oldest < 0) return false;
        c->bytes -= c->items[oldest]->bytes;
        kept_free(c->items[oldest]);
        c->items[oldest] = c->items[--c->n];
    }
    return true;
}

static struct constraint_kept *kept_create(struct tern_engine *e, enum tern_constraint_kind kind, uint64_t hash,
                                           struct tern_str spec, struct tern_err *err) {
    struct constraint_kept *k = mem_calloc(1, sizeof *k);
    char *copy = k ? mem_dup(spec.data ? spec.data : "", spec.len) : NULL;
    if (!copy) {
        mem_free(k);
        err_set(err, TERN_NO_MEMORY, "no memory for a constraint");
        return NULL;
    }
    *k = (struct constraint_kept){
        .engine = e, .kind = kind, .hash = hash, .spec = copy, .spec_len = spec.len, .n_users = 1};
    return k;
}

static enum tern_status kept_compile(struct constraint_kept *k, struct tern_err *err) {
    struct tern_engine *e = k->engine;
    struct token_trie *trie;
    TRY(trie_get(e, &trie, err));
    const struct constraint_source src = {.kind = (enum constraint_kind)k->kind,
                                          .spec = {k->spec, k->spec_len},
                                          .style = e->style,
                                          .tokenizer = e->tokenizer,
                                          .trie = trie,
                                          .eos = e->eos,
                                          .n_eos = e->n_eos};
    TRY(constraint_create(&k->compiled, &src, err));
    constraint_owner_set(k->compiled, k);
    k->bytes = constraint_info(k->compiled).bytes_all + k->spec_len + sizeof *k;
    return TERN_OK;
}

// A user's hold on a compiled constraint, new or known.
static enum tern_status kept_get(struct constraint_kept **out, struct tern_engine *e, enum tern_constraint_kind kind,
                                 struct tern_str spec, struct tern_err *err) {
    struct constraint_cache *c = &e->constraints;
    uint64_t hash = hash_bytes(spec.data, spec.len, c->seed + (uint64_t)kind);
    mutex_lock(c->mutex);
    struct constraint_kept *k = kept_find(c, kind, hash, spec);
    c->n_opened += k != NULL;
    mutex_unlock(c->mutex);
    *out = k;
    if (k) return TERN_OK;
    k = kept_create(e, kind, hash, spec, err);
    if (!k) return TERN_NO_MEMORY;
    enum tern_status status = kept_compile(k, err);
    if (status != TERN_OK) return kept_free(k), status;
    mutex_lock(c->mutex);
    c->n_opened++;
    c->n_compiled++;
    struct constraint_kept *first = kept_find(c, kind, hash, spec);
    if (!first && room_make(c, k->bytes)) {
        k->listed = true;
        k->used_at = ++c->clock;
        c->bytes += k->bytes;
        c->items[c->n++] = k;
    }
    mutex_unlock(c->mutex);
    if (first) kept_free(k);
    *out = first ? first : k;
    return TERN_OK;
}

static void kept_unref(struct constraint_kept *k) {
    struct constraint_cache *c = &k->engine->constraints;
    mutex_lock(c->mutex);
    bool last = --k->n_users == 0 && !k->listed;
    mutex_unlock(c->mutex);
    if (last) kept_free(k);
}

void tern_constraint_info(const struct tern_engine *e, struct tern_constraint_info *out) {
    const struct constraint_cache *c = &e->constraints;
    mutex_lock(c->mutex);
    *out = (struct tern_constraint_info){
        .n_opened = c->n_opened, .n_compiled = c->n_compiled, .n_kept = c->n, .bytes_kept = c->bytes};
    mutex_unlock(c->mutex);
}

// -------------------------------------------------------------------------------------------------------------- public

enum tern_status tern_constraint_open(struct tern_constraint *out, struct tern_engine *e,
                                      enum tern_constraint_kind kind, struct tern_str spec, struct tern_err *err) {
    struct constraint_kept *k;
    if (!e->tokenizer) return err_set(err, TERN_UNSUPPORTED, "constraints need a tokenizer, which this model has not");
    if ((unsigned)kind > TERN_CONSTRAINT_TOOL_CALL)
        return err_set(err, TERN_INVALID_ARGUMENT, "there is no constraint of kind %d", (int)kind);
    TRY(kept_get(&k, e, kind, spec, err));
    struct constraint_state *state = constraint_state_create(k->compiled);
    if (!state) {
        kept_unref(k);
        return err_set(err, TERN_NO_MEMORY, "no memory for a constraint");
    }
    *out = (struct tern_constraint){
        .state = state, .state_clone = hook_clone, .state_free = hook_free, .advance = hook_advance, .mask = hook_mask};
    return TERN_OK;
}

void tern_constraint_close(struct tern_constraint *c) {
    if (!c || !c->state) return;
    struct constraint_kept *k = constraint_owner(constraint_of(c->state));
    constraint_state_free(c->state);
    kept_unref(k);
    *c = (struct tern_constraint){0};
}

const char *tern_constraint_note(const struct tern_constraint *c) {
    return c->state ? constraint_note(constraint_of(c->state)) : NULL;
}
