// Vocabularies that are spelled as text (SentencePiece, and its BPE form in tokenizer.json): U+2581 stands for a blank,
// characters without a token are spelled by byte tokens, and a text is one piece.
//
// The blank is put in when the vocabulary is read, so that nothing has to be replaced in a text: a text's own U+2581 is
// read as a blank, as it is in the reference. GGUF files give scores in place of merges. A token that two others make
// becomes a rule for each such two, all of one rank, that of its score: the queue of bpe.c then always merges the pair
// of the highest score, the leftmost of equals, as the reference does.
#include "base/base.h"
#include "text/tokenizer_int.h"

void plain_decode(struct buf *out, struct str text) {
    for (size_t at = 0; at < text.len;) {
        size_t next = str_find(text, PLAIN_BLANK, at);
        size_t end = next == (size_t)-1 ? text.len : next;
        buf_put(out, text.data + at, end - at);
        if (next == (size_t)-1) break;
        buf_putc(out, ' ');
        at = next + PLAIN_BLANK.len;
    }
}

int64_t plain_symbols(const struct tokenizer *t, struct str text, int32_t *ids, size_t *bad) {
    int64_t n = 0;
    for (size_t at = 0; at < text.len;) {
        struct str rest = {text.data + at, text.len - at};
        int len = 1;
        uint32_t rune = utf8_decode(rest, &len);
        bool is_blank = str_starts(rest, PLAIN_BLANK);
        int32_t id = is_blank ? tokenizer_map_find(t, " ", 1) : -1;
        if (!is_blank && rune != RUNE_BAD) id = tokenizer_map_find(t, rest.data, (size_t)len);
        if (id >= 0) {
            ids[n++] = id;
            at += (size_t)len;
            continue;
        }
        for (int i = 0; i < len; i++, at++) {
            id = t->byte_id[(uint8_t)text.data[at]];
            *bad = at;
            if (id < 0) return -1;
            ids[n++] = id;
        }
    }
    return n;
}

// Tokens by falling score, equal ones by rising id. Heap sort: no recursion, no worst case that a file could choose.
static bool comes_after(const float *scores, int32_t a, int32_t b) {
    return scores[a] < scores[b] || (scores[a] == scores[b] && a > b);
}
static void order_sift(const float *scores, int32_t *order, int at, int n) {
    int32_t moved = order[at];
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && comes_after(scores, order[child + 1], order[child])) child++;
        if (!comes_after(scores, order[child], moved)) break;
        order[at] = order[child];
    }
    order[at] = moved;
}
static void order_sort(const float *scores, int32_t *order, int n) {
    for (int i = n / 2 - 1; i >= 0; i--) order_sift(scores, order, i, n);
    for (int i = n - 1; i > 0; i--) {
        int32_t last = order[i];
        order[i] = order[0];
        order[0] = last;
        order_sift(scores, order, 0, i);
    }
}

// The ways to cut a token's text into two tokens, added to `rules` with this rank, or only counted (NULL).
static int64_t cuts_add(const struct tokenizer *t, int32_t id, uint32_t rank, struct bpe *rules) {
    const struct token *token = &t->tokens[id];
    const char *text = t->pool + token->offset;
    int64_t n = 0;
    for (uint32_t cut = 1; cut < token->len; cut++) {
        if (((uint8_t)text[cut] & 0xc0) == 0x80) continue; // inside a character
        int32_t left = tokenizer_map_find(t, text, cut), right;
        if (left < 0 || (right = tokenizer_map_find(t, text + cut, token->len - cut)) < 0) continue;
        uint32_t rank_old;
        if (rules) bpe_add(rules, left, right, id, rank, &rank_old);
        n++;
    }
    return n;
}

int64_t plain_rules_count(const struct tokenizer *t) {
    int64_t n = 0;
    for (int32_t id = 0; id < t->size; id++)
        if (t->tokens[id].kind == TOKEN_NORMAL) n += cuts_add(t, id, 0, NULL);
    return n;
}

enum tern_status plain_scores_build(struct tokenizer *t, const struct tokenizer_parts *parts, struct tern_err *err) {
    int32_t *order = mem_alloc(((size_t)t->size + 1) * sizeof *order);
    int n = 0;
    int64_t n_rules = 0;
    if (!order) return err_set(err, TERN_NO_MEMORY, "out of memory for the merges of %d tokens", t->size);
    enum tern_status status = TERN_OK;
    for (int32_t id = 0; id < t->size && id < parts->n_tokens; id++) {
        const struct token *token = &t->tokens[id];
        if (token->kind != TOKEN_NORMAL || token->len < 2) continue;
        if (parts->scores[id] != parts->scores[id]) {
            status = err_set(err, TERN_BAD_FORMAT, "the score of token %d is no number", id);
            goto done;
        }
        order[n++] = id;
        n_rules += cuts_add(t, id, 0, NULL);
    }
    if (n_rules > BPE_MERGES_MAX) {
        status = err_set(err, TERN_LIMIT, "the tokens are made of one another in %lld ways, at most %u are allowed",
                         (long long)n_rules, BPE_MERGES_MAX);
        goto done;
    }
    TRY_GOTO(bpe_init(&t->bpe, (int)MAX(n_rules, n), err), done);
    order_sort(parts->scores, order, n);
    for (int i = 0; i < n; i++) cuts_add(t, order[i], (uint32_t)i, &t->bpe);
done:
    mem_free(order);
    return status;
}
