// Constraints of the public header: those of text/ over this engine's vocabulary, behind the hook that any caller's own
// automaton could fill. The vocabulary's trie is made when the first one is opened.
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

enum tern_status tern_constraint_open(struct tern_constraint *out, struct tern_engine *e,
                                      enum tern_constraint_kind kind, struct tern_str spec, struct tern_err *err) {
    struct token_trie *trie;
    struct constraint *c;
    if (!e->tokenizer) return err_set(err, TERN_UNSUPPORTED, "constraints need a tokenizer, which this model has not");
    if ((unsigned)kind > TERN_CONSTRAINT_TOOL_CALL)
        return err_set(err, TERN_INVALID_ARGUMENT, "there is no constraint of kind %d", (int)kind);
    TRY(trie_get(e, &trie, err));
    const struct constraint_source src = {.kind = (enum constraint_kind)kind,
                                          .spec = {spec.data, spec.len},
                                          .style = e->style,
                                          .tokenizer = e->tokenizer,
                                          .trie = trie,
                                          .eos = e->eos,
                                          .n_eos = e->n_eos};
    TRY(constraint_create(&c, &src, err));
    struct constraint_state *state = constraint_state_create(c);
    if (!state) {
        constraint_free(c);
        return err_set(err, TERN_NO_MEMORY, "no memory for a constraint");
    }
    *out = (struct tern_constraint){
        .state = state, .state_clone = hook_clone, .state_free = hook_free, .advance = hook_advance, .mask = hook_mask};
    return TERN_OK;
}

void tern_constraint_close(struct tern_constraint *c) {
    if (!c || !c->state) return;
    struct constraint *of = constraint_of(c->state);
    constraint_state_free(c->state);
    constraint_free(of);
    *c = (struct tern_constraint){0};
}

const char *tern_constraint_note(const struct tern_constraint *c) {
    return c->state ? constraint_note(constraint_of(c->state)) : NULL;
}
