// From parts to a tokenizer: checks everything that encoding relies on, so that encoding checks nothing.
//
// Two spellings meet here. Normal tokens are decoded from the byte alphabet; added and control tokens are verbatim. The
// map from bytes to ids holds the normal ones first; an added token enters it only where its bytes are free and its
// spelling is the same in both ways, because merges may name it ("python" in LFM2's vocabulary).
#include "base/base.h"
#include "text/tokenizer_int.h"

// Tokens up to this many bytes are checked for being their own encoding, which saves merging them each time.
#define WHOLE_BYTES_MAX 64

static inline uint64_t map_hash(const struct tokenizer *t, const char *data, size_t len) {
    return hash_bytes(data, len, t->map_seed);
}

int32_t tokenizer_map_find(const struct tokenizer *t, const char *data, size_t len) {
    uint64_t hash = map_hash(t, data, len);
    for (uint64_t i = hash & t->map_mask; t->map[i]; i = (i + 1) & t->map_mask) {
        if (t->map[i] >> 32 != hash >> 32) continue;
        int32_t id = (int32_t)(uint32_t)t->map[i] - 1;
        if (t->tokens[id].len == len && memcmp(t->pool + t->tokens[id].offset, data, len) == 0) return id;
    }
    return -1;
}

static void map_put(struct tokenizer *t, int32_t id) {
    uint64_t hash = map_hash(t, t->pool + t->tokens[id].offset, t->tokens[id].len);
    uint64_t i = hash & t->map_mask;
    while (t->map[i]) i = (i + 1) & t->map_mask;
    t->map[i] = (hash >> 32 << 32) | ((uint32_t)id + 1);
}

static enum tern_status ids_check(struct tokenizer *t, const struct tokenizer_parts *parts, int n_vocab_rows,
                                  struct tern_err *err) {
    int32_t id_max = -1;
    for (int i = 0; i < parts->n_tokens; i++) {
        const struct part_token *p = &parts->tokens[i];
        if (p->id < 0 || (uint32_t)p->id >= TOKENIZER_VOCAB_MAX) {
            return err_set(err, TERN_BAD_FORMAT, "token \"%.*s\" has the id %d; ids are 0 to %u", TOKEN_SHOWN(p->text),
                           p->id, TOKENIZER_VOCAB_MAX - 1);
        }
        if (p->text.len > TOKENIZER_TOKEN_BYTES_MAX) {
            return err_set(err, TERN_LIMIT, "token %d is %zu bytes long, at most %u are allowed", p->id, p->text.len,
                           TOKENIZER_TOKEN_BYTES_MAX);
        }
        id_max = MAX(id_max, p->id);
    }
    t->size = id_max + 1;
    if (t->size == 0) return err_set(err, TERN_BAD_FORMAT, "the tokenizer has no tokens");
    if (n_vocab_rows > 0 && t->size > n_vocab_rows) {
        return err_set(
            err, TERN_BAD_FORMAT,
            "the tokenizer has ids up to %d, but the model's embedding has only %d rows: the file is broken or "
            "the tokenizer belongs to another model",
            id_max, n_vocab_rows);
    }
    const int32_t ids[] = {parts->bos, parts->eos};
    const char *names[] = {"bos", "eos"};
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        if (ids[i] < -1 || ids[i] >= t->size) {
            return err_set(err, TERN_BAD_FORMAT, "the %s token id is %d, outside the tokenizer's %d tokens", names[i],
                           ids[i], t->size);
        }
    }
    return TERN_OK;
}

static bool tables_alloc(struct tokenizer *t) {
    size_t cap = 16;
    while (cap < (size_t)t->size * 2) cap *= 2;
    t->tokens = mem_calloc((size_t)t->size, sizeof *t->tokens);
    t->map = mem_calloc(cap, sizeof *t->map);
    t->map_mask = cap - 1;
    t->map_seed = hash_seed();
    return t->tokens && t->map;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

// "<0x0A>", exactly.
static bool byte_token_decode(struct buf *pool, struct str text) {
    if (text.len != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>') return false;
    int high = hex_digit(text.data[3]), low = hex_digit(text.data[4]);
    if (high < 0 || low < 0) return false;
    buf_putc(pool, (char)(high << 4 | low));
    return true;
}

// Appends the token's bytes to the pool.
static enum tern_status token_put(struct tokenizer *t, struct buf *pool, const struct part_token *p,
                                  struct tern_err *err) {
    struct token *token = &t->tokens[p->id];
    size_t bad;
    token->offset = (uint32_t)pool->len;
    if (!utf8_valid(p->text, &bad)) {
        return err_set(err, TERN_BAD_FORMAT, "the text of token %d is not valid UTF-8 at its byte %zu", p->id, bad);
    }
    if (p->kind == TOKEN_NORMAL && t->is_plain) {
        plain_decode(pool, p->text);
    } else if (p->kind == TOKEN_NORMAL) {
        if (!alphabet_decode(pool, p->text, &bad)) {
            return err_set(err, TERN_BAD_FORMAT,
                           "token %d \"%.*s\" is not spelled in the byte alphabet of byte-level BPE at its byte %zu",
                           p->id, TOKEN_SHOWN(p->text), bad);
        }
    } else if (p->kind == TOKEN_BYTE) {
        if (!byte_token_decode(pool, p->text)) {
            return err_set(err, TERN_BAD_FORMAT, "byte token %d is \"%.*s\"; expected the form <0x0A>", p->id,
                           TOKEN_SHOWN(p->text));
        }
    } else if (p->kind != TOKEN_NONE) {
        buf_put(pool, p->text.data, p->text.len);
    }
    if (pool->failed) return err_set(err, TERN_NO_MEMORY, "out of memory for the texts of %d tokens", t->size);
    token->len = (uint32_t)(pool->len - token->offset);
    token->kind = p->kind;
    return TERN_OK;
}

// Would the text mean other bytes if it were read in the byte alphabet ("\u00e9" for the byte 0xe9)?
static bool is_ambiguous(struct str text) {
    bool is_plain = true;
    for (size_t i = 0; i < text.len && is_plain; i++) is_plain = (uint8_t)text.data[i] < 0x80;
    if (is_plain) return false;
    struct buf bytes;
    size_t bad;
    buf_init(&bytes, TOKENIZER_TOKEN_BYTES_MAX);
    bool is_spelling = alphabet_decode(&bytes, text, &bad);
    buf_release(&bytes);
    return is_spelling;
}

// Which part gives each id: an added token replaces the normal one of the same text and id. part_of is [size].
static enum tern_status parts_assign(const struct tokenizer *t, const struct tokenizer_parts *parts, int32_t *part_of,
                                     struct tern_err *err) {
    for (int i = 0; i < t->size; i++) part_of[i] = -1;
    for (int i = 0; i < parts->n_tokens; i++) {
        const struct part_token *p = &parts->tokens[i];
        int32_t old = part_of[p->id];
        part_of[p->id] = i;
        if (old < 0) continue;
        const struct part_token *q = &parts->tokens[old];
        bool is_added = q->kind == TOKEN_NORMAL && (p->kind == TOKEN_ADDED || p->kind == TOKEN_CONTROL);
        if (is_added && str_eq(p->text, q->text)) {
            if (t->is_plain || !is_ambiguous(p->text)) continue;
            return err_set(err, TERN_UNSUPPORTED,
                           "token %d \"%.*s\" is in the vocabulary, where it spells other bytes, and added as text",
                           p->id, TOKEN_SHOWN(p->text));
        }
        return err_set(err, TERN_BAD_FORMAT, "two tokens have the id %d: \"%.*s\" and \"%.*s\"", p->id,
                       TOKEN_SHOWN(q->text), TOKEN_SHOWN(p->text));
    }
    return TERN_OK;
}

static enum tern_status normals_map(struct tokenizer *t, struct tern_err *err) {
    for (int32_t id = 0; id < t->size; id++) {
        const struct token *token = &t->tokens[id];
        if (token->kind != TOKEN_NORMAL || token->len == 0) continue;
        int32_t same = tokenizer_map_find(t, t->pool + token->offset, token->len);
        if (same >= 0 && t->is_plain) continue; // a blank and U+2581 may both be there: the first one counts
        if (same >= 0) {
            return err_set(err, TERN_BAD_FORMAT, "the tokens %d and %d have the same text", same, id);
        }
        map_put(t, id);
    }
    return TERN_OK;
}

// Added tokens whose text spells itself in the byte alphabet.
static void added_map(struct tokenizer *t) {
    for (int32_t id = 0; id < t->size; id++) {
        const struct token *token = &t->tokens[id];
        if ((token->kind != TOKEN_ADDED && token->kind != TOKEN_CONTROL) || token->len == 0) continue;
        const char *text = t->pool + token->offset;
        bool is_plain = true; // in a vocabulary spelled as text each of them is
        for (uint32_t i = 0; !t->is_plain && i < token->len && is_plain; i++)
            is_plain = text[i] >= 0x21 && text[i] <= 0x7e;
        if (is_plain && tokenizer_map_find(t, text, token->len) < 0) map_put(t, id);
    }
}

static void bytes_map(struct tokenizer *t) {
    for (int b = 0; b < 256; b++) t->byte_id[b] = -1;
    for (int32_t id = 0; id < t->size; id++) {
        const struct token *token = &t->tokens[id];
        if (token->kind == TOKEN_BYTE) t->byte_id[(uint8_t)t->pool[token->offset]] = id;
    }
    if (t->is_plain) return; // characters come first there, bytes are only what is left
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        int32_t id = tokenizer_map_find(t, &byte, 1);
        if (id >= 0 && t->tokens[id].kind != TOKEN_CONTROL) t->byte_id[b] = id;
    }
}

static enum tern_status tokens_build(struct tokenizer *t, const struct tokenizer_parts *parts, struct tern_err *err) {
    struct buf pool;
    buf_init(&pool, TOKENIZER_POOL_BYTES_MAX);
    enum tern_status status = TERN_OK;
    int32_t *part_of = mem_alloc((size_t)t->size * sizeof *part_of);
    if (!part_of || !tables_alloc(t)) {
        status = err_set(err, TERN_NO_MEMORY, "out of memory for a vocabulary of %d tokens", t->size);
        goto done;
    }
    TRY_GOTO(parts_assign(t, parts, part_of, err), done);
    for (int32_t id = 0; id < t->size; id++) {
        if (part_of[id] >= 0) TRY_GOTO(token_put(t, &pool, &parts->tokens[part_of[id]], err), done);
    }
    t->pool = pool.data;
    pool.data = NULL;
    TRY_GOTO(normals_map(t, err), done);
    added_map(t);
    bytes_map(t);
done:
    mem_free(part_of);
    mem_free(pool.data);
    return status;
}

// Is the token what its own bytes are merged into? -1: out of memory.
static int is_own_encoding(const struct tokenizer *t, struct bpe_work *w, int32_t id) {
    const struct token *token = &t->tokens[id];
    const uint8_t *bytes = (const uint8_t *)t->pool + token->offset;
    int32_t *ids = bpe_work_reserve(w, token->len);
    if (!ids) return -1;
    for (uint32_t i = 0; i < token->len; i++) {
        ids[i] = t->byte_id[bytes[i]];
        if (ids[i] < 0) return 0;
    }
    int64_t n = bpe_merge(&t->bpe, w, token->len);
    if (n < 0) return -1;
    return n == 1 && w->ids[0] == id;
}

static enum tern_status wholes_find(struct tokenizer *t, bool ignore_merges, struct tern_err *err) {
    struct bpe_work work = {0};
    int is_whole = 0;
    for (int32_t id = 0; id < t->size && is_whole >= 0; id++) {
        struct token *token = &t->tokens[id];
        if (token->kind != TOKEN_NORMAL || token->len == 0) continue;
        is_whole = ignore_merges ? 1 : token->len > WHOLE_BYTES_MAX ? 0 : is_own_encoding(t, &work, id);
        token->whole = is_whole > 0;
        if (token->whole) t->whole_len_max = MAX(t->whole_len_max, (size_t)token->len);
    }
    bpe_work_release(&work);
    return is_whole >= 0 ? TERN_OK : err_set(err, TERN_NO_MEMORY, "out of memory for merging tokens");
}

enum tern_status tokenizer_build(struct tokenizer *t, struct tokenizer_parts *parts, int n_vocab_rows,
                                 struct tern_err *err) {
    unicode_map_init(&t->unicode);
    t->pretok = parts->pretok;
    t->is_plain = parts->is_plain;
    t->adds_bos = parts->adds_bos;
    t->bos = parts->bos;
    t->eos = parts->eos;
    TRY(ids_check(t, parts, n_vocab_rows, err));
    TRY(tokens_build(t, parts, err));
    if (parts->scores) {
        TRY(plain_scores_build(t, parts, err));
    } else {
        TRY(tokenizer_merges_build(t, parts, n_vocab_rows, err));
    }
    if (!t->is_plain) TRY(wholes_find(t, parts->ignore_merges, err));
    TRY(marker_sets_build(t, parts, err));
    if (t->adds_bos && t->bos < 0) {
        return err_set(err, TERN_BAD_FORMAT, "the tokenizer wants a bos token before each text but names none");
    }
    return TERN_OK;
}
