// A tokenizer.json as the arrays that GGUF files hold, named as llama.cpp's converters name them.
//
// Ids without a token become unused padding "[PAD<id>]", so that every row of the embedding has one; special added
// tokens become control tokens, other added ones user-defined.
#include "base/base.h"
#include "text/tokenizer_int.h"

#include <stdio.h>

// GGUF token types.
enum { GGUF_TOKEN_NORMAL = 1, GGUF_TOKEN_CONTROL = 3, GGUF_TOKEN_USER = 4, GGUF_TOKEN_UNUSED = 5 };

static enum tern_status no_memory(int n, struct tern_err *err) {
    return err_set(err, TERN_NO_MEMORY, "out of memory for a vocabulary of %d tokens", n);
}

static enum tern_status tokens_place(struct tokenizer_export *x, const struct tokenizer_parts *parts,
                                     struct tern_err *err) {
    for (int i = 0; i < parts->n_tokens; i++) {
        const struct part_token *t = &parts->tokens[i];
        if (t->id < 0 || t->id >= x->n_tokens)
            return err_set(err, TERN_BAD_FORMAT, "tokenizer.json: token %d is past the last of %d rows", t->id,
                           x->n_tokens);
        struct str copy = {arena_dup(&x->arena, t->text.data, t->text.len), t->text.len};
        if (!copy.data) return no_memory(x->n_tokens, err);
        x->tokens[t->id] = copy; // added tokens come last and have the last word
        x->types[t->id] = t->kind == TOKEN_CONTROL ? GGUF_TOKEN_CONTROL
                          : t->kind == TOKEN_ADDED ? GGUF_TOKEN_USER
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

static enum tern_status export_fill(struct tokenizer_export *x, struct tokenizer_parts *parts, struct str json,
                                    bool is_lfm2, struct tern_err *err) {
    TRY(tokenizer_parts_from_json(parts, json, err));
    if (parts->is_plain)
        return err_set(err, TERN_UNSUPPORTED,
                       "a vocabulary spelled as text (Gemma's) cannot be written as GGUF arrays");
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
