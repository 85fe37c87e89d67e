// The merge rules of a tokenizer, resolved to ids.
//
// A merge must join two tokens to a third. Two kinds are left out. One that makes a control token could only turn
// ordinary text into control, since a marker that may act as one is cut out of the text before. And a file may leave
// out its last tokens (fewer tokens than rows of the embedding) but not the merges that lead to them; these are counted
// and noted, at most one distinct token per spare row.
#include "base/base.h"
#include "text/tokenizer_int.h"

// Merge results that the file leaves out together with its last tokens: hashes of their bytes.
struct cut_set {
    uint64_t *hashes; // [mask + 1]; 0 is empty
    uint64_t mask, seed;
    int n, n_max;  // distinct results left out; at most as many as the embedding has rows without a token
    int n_skipped; // merges left out
};

static bool cut_set_init(struct cut_set *c, int n_max) {
    size_t cap = 16;
    while (cap < (size_t)n_max * 2) cap *= 2;
    *c = (struct cut_set){
        .hashes = mem_calloc(cap, sizeof(uint64_t)), .mask = cap - 1, .seed = hash_seed(), .n_max = n_max};
    return c->hashes != NULL;
}

// Is it in the set, or, with `add`, does it find room there?
static bool cut_set_has(struct cut_set *c, const char *data, size_t len, bool add) {
    uint64_t hash = hash_bytes(data, len, c->seed) | 1, i = hash >> 1 & c->mask;
    for (; c->hashes[i]; i = (i + 1) & c->mask) {
        if (c->hashes[i] == hash) return true;
    }
    if (!add || c->n == c->n_max) return false;
    c->hashes[i] = hash;
    c->n++;
    return true;
}

struct merges_builder {
    struct tokenizer *t;
    const struct tokenizer_parts *parts;
    struct buf bytes; // of the merge at hand
    struct cut_set cut;
};

static enum tern_status merge_fail(const struct merges_builder *b, int i, const char *why, struct tern_err *err) {
    const struct part_merge *m = &b->parts->merges[i];
    return err_set(err, TERN_BAD_FORMAT, "merge %d of %d (\"%.*s\" and \"%.*s\"): %s", i + 1, b->parts->n_merges,
                   TOKEN_SHOWN(m->left), TOKEN_SHOWN(m->right), why);
}

// A merge with a token that is not in the vocabulary. That is an error, but where the embedding has rows beyond the
// file's tokens, the merges that lead to those are left out too: their parts are known, or left out themselves.
static enum tern_status merge_incomplete(struct merges_builder *b, int i, size_t n_left, const int32_t ids[3],
                                         struct tern_err *err) {
    const char *data = b->bytes.data;
    size_t len = b->bytes.len;
    if (n_left == 0 || (ids[0] < 0 && !cut_set_has(&b->cut, data, n_left, false))) {
        return merge_fail(b, i, "the left token is not in the vocabulary", err);
    }
    if (len == n_left || (ids[1] < 0 && !cut_set_has(&b->cut, data + n_left, len - n_left, false))) {
        return merge_fail(b, i, "the right token is not in the vocabulary", err);
    }
    if (ids[2] < 0 && !cut_set_has(&b->cut, data, len, true)) {
        return merge_fail(b, i, "the two together are not in the vocabulary", err);
    }
    b->cut.n_skipped++;
    return TERN_OK;
}

static enum tern_status merge_add(struct merges_builder *b, int i, struct tern_err *err) {
    struct tokenizer *t = b->t;
    const struct part_merge *m = &b->parts->merges[i];
    struct buf *bytes = &b->bytes;
    if (m->left.len > TOKENIZER_TOKEN_BYTES_MAX || m->right.len > TOKENIZER_TOKEN_BYTES_MAX) {
        return merge_fail(b, i, "the tokens are too long", err);
    }
    size_t bad;
    buf_clear(bytes);
    if (t->is_plain)
        plain_decode(bytes, m->left);
    else if (!alphabet_decode(bytes, m->left, &bad))
        return merge_fail(b, i, "the left token is not in the alphabet", err);
    size_t n_left = bytes->len;
    if (t->is_plain)
        plain_decode(bytes, m->right);
    else if (!alphabet_decode(bytes, m->right, &bad))
        return merge_fail(b, i, "the right token is not in the alphabet", err);
    if (bytes->failed) return err_set(err, TERN_NO_MEMORY, "out of memory for a merge of the tokenizer");
    const int32_t ids[3] = {tokenizer_map_find(t, bytes->data, n_left),
                            tokenizer_map_find(t, bytes->data + n_left, bytes->len - n_left),
                            tokenizer_map_find(t, bytes->data, bytes->len)};
    if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0) return merge_incomplete(b, i, n_left, ids, err);
    for (int k = 0; k < 3; k++) {
        if (t->tokens[ids[k]].kind == TOKEN_CONTROL) return TERN_OK;
    }
    uint32_t rank_old;
    if (bpe_add(&t->bpe, ids[0], ids[1], ids[2], (uint32_t)i, &rank_old)) return TERN_OK;
    return err_set(err, TERN_BAD_FORMAT, "merge %d of %d (\"%.*s\" and \"%.*s\") repeats merge %u", i + 1,
                   b->parts->n_merges, TOKEN_SHOWN(m->left), TOKEN_SHOWN(m->right), rank_old + 1);
}

enum tern_status tokenizer_merges_build(struct tokenizer *t, struct tokenizer_parts *parts, int n_vocab_rows,
                                        struct tern_err *err) {
    TRY(bpe_init(&t->bpe, parts->n_merges, err));
    struct merges_builder b = {.t = t, .parts = parts};
    enum tern_status status = TERN_OK;
    buf_init(&b.bytes, 2 * TOKENIZER_TOKEN_BYTES_MAX);
    if (!cut_set_init(&b.cut, MAX(n_vocab_rows - t->size, 0))) {
        status = err_set(err, TERN_NO_MEMORY, "out of memory for %d merges of the tokenizer", parts->n_merges);
    }
    for (int i = 0; i < parts->n_merges && status == TERN_OK; i++) status = merge_add(&b, i, err);
    if (status == TERN_OK && b.cut.n_skipped > 0) {
        buf_putf(&parts->note, "%s%d merges lead to tokens that the file leaves out (it has %d of %d)",
                 parts->note.len ? "; " : "", b.cut.n_skipped, t->size, n_vocab_rows);
    }
    mem_free(b.cut.hashes);
    buf_release(&b.bytes);
    return status;
}
