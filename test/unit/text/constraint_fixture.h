// Constraints over pico's vocabulary, for tests.
#pragma once
#include "tokenizer_fixture.h"
#include "../../common/json_tree.h"

#define EOS 7

static struct tokenizer *vocab;
static struct token_trie *trie;

static inline int vocab_setup(void **state) {
    (void)state;
    struct tern_err err;
    vocab = pico_tokenizer();
    if (token_trie_create(&trie, vocab, tokenizer_size(vocab), &err) != TERN_OK) fail_msg("%s", err.message);
    return 0;
}
static inline int vocab_teardown(void **state) {
    (void)state;
    token_trie_free(trie);
    tokenizer_free(vocab);
    return 0;
}

static inline enum tern_status constraint_try(struct constraint **c, enum constraint_kind kind, struct str spec,
                                              enum answer_style style, struct tern_err *err) {
    static const int32_t eos[] = {EOS};
    const struct constraint_source src = {
        .kind = kind, .spec = spec, .style = style, .tokenizer = vocab, .trie = trie, .eos = eos, .n_eos = 1};
    *err = (struct tern_err){0};
    return constraint_create(c, &src, err);
}
static inline struct constraint *constraint_get(enum constraint_kind kind, struct str spec) {
    struct constraint *c;
    struct tern_err err;
    if (constraint_try(&c, kind, spec, ANSWER_LFM2, &err) != TERN_OK)
        fail_msg("%.*s: %s", (int)MIN(spec.len, 300), spec.data, err.message);
    return c;
}

static inline bool mask_has(const uint32_t *mask, int32_t id) { return mask[id / 32] >> (id % 32) & 1; }
static inline void mask_get(const struct constraint_state *s, uint32_t *mask) {
    memset(mask, 0xff, ((size_t)tokenizer_size(vocab) + 31) / 32 * 4);
    constraint_mask(s, mask, tokenizer_size(vocab));
}

// Byte by byte.
static inline bool accepts_bytes(struct constraint *c, struct str text) {
    struct constraint_state *s = constraint_state_create(c);
    assert_non_null(s);
    bool ok = constraint_put(s, text) && constraint_may_end(s);
    constraint_state_free(s);
    return ok;
}

// Token by token, as the tokenizer cuts it: the mask and the step must agree at every token.
static inline bool accepts_tokens(struct constraint *c, struct str text) {
    struct encode_options o = {.add_bos = false};
    struct id_list ids = encode(vocab, text, &o);
    struct constraint_state *s = constraint_state_create(c);
    uint32_t mask[2048];
    assert_true(tokenizer_size(vocab) <= 65536);
    bool ok = true;
    for (size_t i = 0; i < ids.len && ok; i++) {
        mask_get(s, mask);
        ok = mask_has(mask, ids.ids[i]);
        struct constraint_state *next = constraint_state_clone(s);
        if (constraint_advance(next, ids.ids[i]) != ok)
            fail_msg("token %zu of '%.*s': mask %d, step %d", i, (int)text.len, text.data, ok, !ok);
        constraint_state_free(s);
        s = next;
    }
    if (ok) {
        mask_get(s, mask);
        assert_int_equal(mask_has(mask, EOS), constraint_may_end(s));
        ok = constraint_may_end(s);
    }
    constraint_state_free(s);
    id_list_release(&ids);
    return ok;
}

static inline void verdict_check(struct constraint *c, const char *what, struct str text, bool want) {
    bool bytes = accepts_bytes(c, text), tokens = accepts_tokens(c, text);
    if (bytes != want) fail_msg("%s: %s '%.*s'", what, want ? "refuses" : "accepts", (int)text.len, text.data);
    if (tokens != want)
        fail_msg("%s: token by token it %s '%.*s'", what, want ? "refuses" : "accepts", (int)text.len, text.data);
}
