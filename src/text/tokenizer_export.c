// A tokenizer.json as the arrays that GGUF files hold, named as llama.cpp's converters name them.
//
// Ids without a token become unused padding "[PAD<id>]", so that every row of the embedding has one; special added
// tokens become control tokens, other added ones user-defined.
//
// A vocabulary spelled as text has scores in place of merges: a token's is minus the rank of the merges that make it.
// Such a tokenizer.json was made from scores once, so the merges of a token stand together and are all there are; where
// that is not so, the scores cannot say the same, which is told.
#include "base/base.h"
#include "text/tokenizer_int.h"

#include <stdio.h>

// GGUF token types.
enum {
    GGUF_TOKEN_NORMAL = 1,
    GGUF_TOKEN_UNKNOWN,
    GGUF_TOKEN_CONTROL,
    GGUF_TOKEN_USER,
    GGUF_TOKEN_UNUSED,
    GGUF_TOKEN_BYTE
};
#define SCORE_UNMADE (-1e9f) // of a token that no merge makes

static enum tern_status no_memory(int n, struct tern_err *err) {
    return err_set(err, TERN_NO_MEMORY, "out of memory for a vocabulary of %d tokens", n);
}

static enum tern_status tokens_place(struct tokenizer_export *x, const struct tokenizer_parts *parts,
                                     struct tern_err *err) {
    for (int i = 0; i < parts->n_tokens; i++) {
        const struct part_token *t = &parts->tokens[i];
        bool is_added = t->kind == TOKEN_CONTROL || t->kind == TOKEN_ADDED;
        if (is_added && t->id >= x->n_tokens) continue; // no row: never in a text (tokenizer.c leaves it out too)
        if (t->id < 0 || t->id >= x->n_tokens)
            return err_set(err, TERN_BAD_FORMAT, "tokenizer.json: token %d is past the last of %d rows", t->id,
                           x->n_tokens);
        struct str copy = {arena_dup(&x->arena, t->text.data, t->text.len), t->text.len};
        if (!copy.data) return no_memory(x->n_tokens, err);
        x->tokens[t->id] = copy; // added tokens come last and have the last word
        bool is_unknown = parts->is_plain && t->kind == TOKEN_CONTROL && str_eqz(t->text, "<unk>");
        if (is_unknown) x->unk = t->id;
        x->types[t->id] = is_unknown                 ? GGUF_TOKEN_UNKNOWN
                          : t->kind == TOKEN_CONTROL ? GGUF_TOKEN_CONTROL
                          : t->kind == TOKEN_ADDED   ? GGUF_TOKEN_USER
                          : t->kind == TOKEN_BYTE    ? GGUF_TOKEN_BYTE
                                                     : GGUF_TOKEN_NORMAL;
    }
    for (int i = 0; i < x->n_tokens; i++) {
        if (x->tokens[i].data) continue;
        char name[24];
        int len = snprintf(name, sizeof name, "[PAD%d]", i);
        x->tokens[i] = (struct str){arena_dup(&x->arena, name, (size_t)len), (size_t)len};
        if (!x->tokens[i].data) return no_memory(x->n_tokens, err);
        x->types[i] = GGUF_TOKEN_UNUSED;
    }
    return TERN_OK;
}

static enum tern_status merges_join(struct tokenizer_export *x, const struct tokenizer_parts *parts,
                                    struct tern_err *err) {
    x->n_merges = parts->n_merges;
    x->merges = arena_calloc(&x->arena, (size_t)parts->n_merges + 1, sizeof *x->merges);
    if (!x->merges) return no_memory(x->n_tokens, err);
    for (int i = 0; i < parts->n_merges; i++) {
        const struct part_merge *m = &parts->merges[i];
        char *text = arena_alloc(&x->arena, m->left.len + 1 + m->right.len);
        if (!text) return no_memory(x->n_tokens, err);
        memcpy(text, m->left.data, m->left.len);
        text[m->left.len] = ' ';
        memcpy(text + m->left.len + 1, m->right.data, m->right.len);
        x->merges[i] = (struct str){text, m->left.len + 1 + m->right.len};
    }
    return TERN_OK;
}

// The token that a merge makes; -1: none.
static int32_t merge_result(const struct tokenizer *t, const struct part_merge *m, struct buf *bytes) {
    buf_clear(bytes);
    plain_decode(bytes, m->left);
    plain_decode(bytes, m->right);
    return bytes->failed ? -1 : tokenizer_map_find(t, bytes->data, bytes->len);
}

static enum tern_status scores_make(struct tokenizer_export *x, const struct tokenizer_parts *parts,
                                    const struct tokenizer *t, struct tern_err *err) {
    struct buf bytes;
    int32_t last = -1;
    int rank = 0;
    int64_t n_rules = 0;
    x->scores = arena_calloc(&x->arena, (size_t)x->n_tokens, sizeof *x->scores);
    if (!x->scores) return no_memory(x->n_tokens, err);
    for (int i = 0; i < x->n_tokens; i++) x->scores[i] = SCORE_UNMADE;
    buf_init(&bytes, 2 * TOKENIZER_TOKEN_BYTES_MAX);
    for (int i = 0; i < parts->n_merges; i++) {
        int32_t id = merge_result(t, &parts->merges[i], &bytes);
        if (id < 0 || t->tokens[id].kind != TOKEN_NORMAL) continue; // others are found in the text before it is merged
        n_rules++;
        if (id == last) continue;
        x->differs = x->differs || x->scores[id] != SCORE_UNMADE;
        if (x->scores[id] == SCORE_UNMADE) x->scores[id] = -(float)++rank;
        last = id;
    }
    x->differs = x->differs || n_rules != plain_rules_count(t);
    bool failed = bytes.failed;
    buf_release(&bytes);
    if (failed) return no_memory(x->n_tokens, err);
    x->pre = "default";
    x->adds_bos = parts->adds_bos;
    return TERN_OK;
}

static enum tern_status plain_fill(struct tokenizer_export *x, const struct tokenizer_parts *parts, struct str json,
                                   struct tern_err *err) {
    struct tokenizer *t;
    const struct tokenizer_source src = {
        .tokenizer_json = json, .n_vocab_rows = x->n_tokens, .bos = -1, .eos = -1, .add_bos = -1};
    TRY(tokens_place(x, parts, err));
    TRY(tokenizer_create(&t, &src, err));
    enum tern_status status = scores_make(x, parts, t, err);
    tokenizer_free(t);
    return status;
}

static enum tern_status export_fill(struct tokenizer_export *x, struct tokenizer_parts *parts, struct str json,
                                    bool is_lfm2, struct tern_err *err) {
    TRY(tokenizer_parts_from_json(parts, json, err));
    if (parts->is_plain) return plain_fill(x, parts, json, err);
    static const char *const names[PRETOK_COUNT] = {
        [PRETOK_LLAMA3] = "llama-bpe", [PRETOK_QWEN2] = "qwen2", [PRETOK_GPT2] = "gpt-2", [PRETOK_SMOLLM] = "smollm"};
    x->pre = is_lfm2 && parts->pretok == PRETOK_LLAMA3 ? "lfm2" : names[parts->pretok];
    enum pretok_kind kind;
    bool ignore_merges = false, adds_bos;
    pretok_from_gguf(str_from(x->pre), &kind, &ignore_merges, &adds_bos);
    x->differs = ignore_merges != parts->ignore_merges;
    x->adds_bos = parts->adds_bos;
    TRY(tokens_place(x, parts, err));
    return merges_join(x, parts, err);
}

enum tern_status tokenizer_export_create(struct tokenizer_export **out, struct str tokenizer_json, int n_rows,
                                         bool is_lfm2, struct tern_err *err) {
    struct tokenizer_export *x = mem_calloc(1, sizeof *x);
    if (!x) return no_memory(n_rows, err);
    arena_init(&x->arena, 0);
    x->n_tokens = n_rows;
    x->unk = -1;
    x->tokens = arena_calloc(&x->arena, (size_t)n_rows, sizeof *x->tokens);
    x->types = arena_calloc(&x->arena, (size_t)n_rows, sizeof *x->types);
    struct tokenizer_parts parts = {.bos = -1, .eos = -1};
    arena_init(&parts.arena, 0);
    buf_init(&parts.note, 4096);
    enum tern_status status =
        x->tokens && x->types ? export_fill(x, &parts, tokenizer_json, is_lfm2, err) : no_memory(n_rows, err);
    buf_release(&parts.note);
    arena_release(&parts.arena);
    if (status == TERN_OK)
        *out = x;
    else
        tokenizer_export_free(x);
    return status;
}

void tokenizer_export_free(struct tokenizer_export *x) {
    if (!x) return;
    arena_release(&x->arena);
    mem_free(x);
}
