// The tokenizer object: made from GGUF arrays or a tokenizer.json, then immutable, so that threads share it.
//
// Both forms become struct tokenizer_parts first (tokenizer_int.h); everything is checked once, in tokenizer_build.c.
#include "base/base.h"
#include "text/tokenizer_int.h"

#define NOTE_BYTES_MAX 512

// GGUF token types.
enum { GGUF_NORMAL = 1, GGUF_UNKNOWN, GGUF_CONTROL, GGUF_USER_DEFINED, GGUF_UNUSED, GGUF_BYTE };

static bool kind_from_gguf(int32_t type, struct part_token *token) {
    switch (type) {
    case GGUF_NORMAL: token->kind = TOKEN_NORMAL; return true;
    case GGUF_UNKNOWN:
    case GGUF_CONTROL: token->kind = TOKEN_CONTROL; return true;
    case GGUF_USER_DEFINED:
        token->kind = TOKEN_ADDED;
        token->flags = TOKEN_NORMALIZED;
        return true;
    case GGUF_UNUSED: token->kind = TOKEN_NONE; return true;
    case GGUF_BYTE: token->kind = TOKEN_BYTE; return true;
    default: return false;
    }
}

bool merge_split(struct str text, struct part_merge *out) {
    const char *blank = text.len > 2 ? memchr(text.data, ' ', text.len) : NULL;
    if (!blank) return false;
    size_t at = (size_t)(blank - text.data);
    if (at == 0 || at + 1 == text.len || memchr(blank + 1, ' ', text.len - at - 1)) return false;
    out->left = (struct str){text.data, at};
    out->right = (struct str){blank + 1, text.len - at - 1};
    return true;
}

static enum tern_status arrays_read(struct tokenizer_parts *parts, const struct tokenizer_source *src,
                                    struct tern_err *err) {
    if (src->n_tokens < 0 || (uint32_t)src->n_tokens > TOKENIZER_VOCAB_MAX || src->n_merges < 0 ||
        (uint32_t)src->n_merges > BPE_MERGES_MAX) {
        return err_set(err, TERN_LIMIT, "%d tokens and %d merges; at most %u and %u are allowed", src->n_tokens,
                       src->n_merges, TOKENIZER_VOCAB_MAX, BPE_MERGES_MAX);
    }
    parts->tokens = arena_calloc(&parts->arena, (size_t)src->n_tokens + 1, sizeof *parts->tokens);
    parts->merges = arena_calloc(&parts->arena, (size_t)src->n_merges + 1, sizeof *parts->merges);
    if (!parts->tokens || !parts->merges) return err_set(err, TERN_NO_MEMORY, "out of memory for the tokenizer");
    for (int i = 0; i < src->n_tokens; i++) {
        struct part_token *token = &parts->tokens[i];
        *token = (struct part_token){.text = src->tokens[i], .id = i, .kind = TOKEN_NORMAL};
        if (src->types && !kind_from_gguf(src->types[i], token)) {
            return err_set(err, TERN_BAD_FORMAT, "token %d \"%.*s\" has the type %d; types are 1 to 6", i,
                           TOKEN_SHOWN(token->text), src->types[i]);
        }
    }
    parts->n_tokens = src->n_tokens;
    for (int i = 0; i < src->n_merges; i++) {
        if (merge_split(src->merges[i], &parts->merges[i])) continue;
        return err_set(err, TERN_BAD_FORMAT,
                       "merge %d of %d is \"%.*s\"; expected two tokens with one blank between them", i + 1,
                       src->n_merges, TOKEN_SHOWN(src->merges[i]));
    }
    parts->n_merges = src->n_merges;
    if (!src->types && src->n_tokens > 0) {
        buf_puts(&parts->note, "the file gives no token types: control tokens cannot be told from text");
    }
    return TERN_OK;
}

static void family_set(struct tokenizer_parts *parts, struct str name) {
    if (pretok_from_gguf(name, &parts->pretok, &parts->ignore_merges, &parts->adds_bos)) return;
    parts->pretok = PRETOK_GPT2;
    const char *gap = parts->note.len ? "; " : "";
    if (name.len == 0) {
        buf_putf(&parts->note, "%sthe file names no pre-tokenizer: text is split as in %s", gap,
                 pretok_name(PRETOK_GPT2));
    } else {
        buf_putf(&parts->note, "%sunknown pre-tokenizer '", gap);
        str_put_escaped(&parts->note, name, TOKEN_SHOWN_MAX);
        buf_putf(&parts->note, "': text is split as in %s", pretok_name(PRETOK_GPT2));
    }
}

// A vocabulary of pieces with scores. Families that put a blank before each text are another matter.
static enum tern_status plain_set(struct tokenizer_parts *parts, const struct tokenizer_source *src,
                                  struct tern_err *err) {
    if (!src->scores)
        return err_set(err, TERN_BAD_FORMAT, "a vocabulary of kind llama needs a score for each of its %d tokens",
                       src->n_tokens);
    if (src->add_blank != 0)
        return err_set(err, TERN_UNSUPPORTED,
                       "a vocabulary of kind llama that puts a blank before each text (tokenizer.ggml.add_space_prefix "
                       "is not false) is not supported");
    parts->is_plain = true;
    parts->scores = src->scores;
    parts->adds_bos = true;
    return TERN_OK;
}

// Added tokens that the embedding has no row for (Gemma 3's text models name the images' token): no text can hold them.
static void rowless_drop(struct tokenizer_parts *parts, int n_vocab_rows) {
    int n = 0, n_dropped = 0;
    for (int i = 0; i < parts->n_tokens; i++) {
        const struct part_token *t = &parts->tokens[i];
        bool is_added = t->kind == TOKEN_ADDED || t->kind == TOKEN_CONTROL;
        if (!is_added || n_vocab_rows <= 0 || t->id < n_vocab_rows)
            parts->tokens[n++] = *t;
        else if (n_dropped++ == 0)
            buf_putf(&parts->note, "%stoken %d \"%.*s\" has no row in the embedding and is left out",
                     parts->note.len ? "; " : "", t->id, TOKEN_SHOWN(t->text));
    }
    if (n_dropped > 1) buf_putf(&parts->note, ", with %d more", n_dropped - 1);
    parts->n_tokens = n;
}

static enum tern_status parts_read(struct tokenizer_parts *parts, const struct tokenizer_source *src,
                                   struct tern_err *err) {
    if (src->tokenizer_json.len > 0) {
        TRY(tokenizer_parts_from_json(parts, src->tokenizer_json, err));
        rowless_drop(parts, src->n_vocab_rows);
        if (src->bos != -1) parts->bos = src->bos;
    } else {
        TRY(arrays_read(parts, src, err));
        if (str_eqz(src->kind, "llama"))
            TRY(plain_set(parts, src, err));
        else
            family_set(parts, src->pre);
        parts->bos = src->bos;
        if (src->bos == -1) parts->adds_bos = false; // the family adds one, this file has none to add
    }
    parts->eos = src->eos;
    if (src->add_bos != -1) parts->adds_bos = src->add_bos != 0;
    return TERN_OK;
}

enum tern_status tokenizer_create(struct tokenizer **out, const struct tokenizer_source *src, struct tern_err *err) {
    struct tern_err unwanted;
    if (!err) err = &unwanted;
    struct tokenizer_parts parts = {.bos = -1, .eos = -1};
    arena_init(&parts.arena, 0);
    buf_init(&parts.note, NOTE_BYTES_MAX);
    struct tokenizer *t = mem_calloc(1, sizeof *t);
    enum tern_status status = TERN_OK;
    if (!t) {
        status = err_set(err, TERN_NO_MEMORY, "out of memory for the tokenizer");
        goto done;
    }
    TRY_GOTO(parts_read(&parts, src, err), done);
    TRY_GOTO(tokenizer_build(t, &parts, src->n_vocab_rows, err), done);
    if (parts.note.len > 0 || parts.note.failed) t->note = mem_strdup(parts.note.data ? parts.note.data : "");
    if ((parts.note.len > 0 || parts.note.failed) && !t->note) {
        status = err_set(err, TERN_NO_MEMORY, "out of memory for the tokenizer");
        goto done;
    }
    *out = t;
    t = NULL;
done:
    tokenizer_free(t);
    buf_release(&parts.note);
    arena_release(&parts.arena);
    return status;
}

void tokenizer_free(struct tokenizer *t) {
    if (!t) return;
    for (int pass = 0; pass < 2; pass++) marker_set_release(&t->markers[pass]);
    bpe_release(&t->bpe);
    mem_free(t->tokens);
    mem_free(t->pool);
    mem_free(t->map);
    mem_free(t->note);
    mem_free(t);
}

int tokenizer_size(const struct tokenizer *t) { return t->size; }
bool tokenizer_adds_bos(const struct tokenizer *t) { return t->adds_bos; }
int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }
const char *tokenizer_note(const struct tokenizer *t) { return t->note; }

struct str tokenizer_token_bytes(const struct tokenizer *t, int32_t id) {
    if (id < 0 || id >= t->size || t->tokens[id].len == 0) return (struct str){"", 0};
    return (struct str){t->pool + t->tokens[id].offset, t->tokens[id].len};
}

bool tokenizer_is_control(const struct tokenizer *t, int32_t id) {
    return id >= 0 && id < t->size && t->tokens[id].kind == TOKEN_CONTROL;
}
