// The vocabulary as a trie in the order of a walk: node after node, each with the place behind its subtree, so that
// judging all tokens is one pass over an array that skips what a constraint refuses.
//
// Left out, and so never allowed by a constraint but where it names them: control tokens, tokens that the answer parser
// acts on (text inside an answer must not become a marker), tokens without text, and tokens of more than
// TRIE_TOKEN_BYTES_MAX bytes.
#include "base/base.h"
#include "text/constraint_int.h"

struct trie_item {
    struct str text;
    int32_t id;
};

static bool item_less(const struct trie_item *a, const struct trie_item *b) {
    int c = str_cmp(a->text, b->text);
    return c < 0 || (c == 0 && a->id < b->id);
}

// Merge sort between two arrays; the result is in the one that is returned.
static struct trie_item *items_sort(struct trie_item *from, struct trie_item *to, int n) {
    for (int width = 1; width < n; width *= 2) {
        for (int at = 0; at < n; at += 2 * width) {
            int mid = MIN(at + width, n), end = MIN(at + 2 * width, n), a = at, b = mid;
            for (int k = at; k < end; k++)
                to[k] = a < mid && (b >= end || !item_less(&from[b], &from[a])) ? from[a++] : from[b++];
        }
        struct trie_item *t = from;
        from = to;
        to = t;
    }
    return from;
}

// Nodes for items that are sorted; returns their number. With nodes NULL it only counts.
static int32_t nodes_put(struct token_trie *t, struct trie_node *nodes, const struct trie_item *items, int n_items) {
    int32_t open[TRIE_TOKEN_BYTES_MAX + 1] = {0}, n = 1;
    size_t depth = 0;
    if (nodes) nodes[0] = (struct trie_node){.token = -1};
    for (int i = 0; i < n_items; i++) {
        struct str s = items[i].text, before = i ? items[i - 1].text : (struct str){NULL, 0};
        size_t same = 0;
        while (same < s.len && same < before.len && s.data[same] == before.data[same]) same++;
        if (same == s.len && i > 0) { // equal: chained, so that one node stands for all
            if (nodes) t->same[items[i - 1].id] = items[i].id;
            if (nodes) nodes[open[depth]].several = true;
            continue;
        }
        for (; depth > same; depth--)
            if (nodes) nodes[open[depth]].skip = n;
        while (depth < s.len) {
            uint8_t byte = (uint8_t)s.data[depth++];
            open[depth] = n++;
            if (nodes) nodes[open[depth]] = (struct trie_node){.byte = byte, .depth = (uint8_t)depth, .token = -1};
        }
        if (nodes) nodes[open[depth]].token = items[i].id;
    }
    for (; nodes && depth > 0; depth--) nodes[open[depth]].skip = n;
    if (nodes) nodes[0].skip = n;
    return n;
}

static int items_gather(struct token_trie *t, const struct tokenizer *tok, struct trie_item *items) {
    int n = 0;
    for (int32_t id = 0; id < MIN(t->n_vocab, tokenizer_size(tok)); id++) {
        struct str s = tokenizer_token_bytes(tok, id);
        if (s.len == 0 || s.len > TRIE_TOKEN_BYTES_MAX || tokenizer_is_control(tok, id) || answer_is_marker(s))
            continue;
        items[n++] = (struct trie_item){s, id};
        t->usable[id] = 1;
        if (s.len == 1) t->bytes[(uint8_t)s.data[0] / 8] |= (uint8_t)(1u << ((uint8_t)s.data[0] % 8));
    }
    return n;
}

// Parents, and nodes by their byte.
static bool index_make(struct token_trie *t) {
    int32_t open[TRIE_TOKEN_BYTES_MAX + 1] = {0}, at[256];
    t->parent = mem_calloc((size_t)t->n, sizeof *t->parent);
    t->by_byte = mem_calloc((size_t)t->n, sizeof *t->by_byte);
    if (!t->parent || !t->by_byte) return false;
    for (int32_t i = 1; i < t->n; i++) {
        open[t->nodes[i].depth] = i;
        t->parent[i] = open[t->nodes[i].depth - 1];
        t->first[t->nodes[i].byte + 1]++;
    }
    for (int b = 0; b < 256; b++) {
        t->first[b + 1] += t->first[b];
        at[b] = t->first[b];
    }
    for (int32_t i = 1; i < t->n; i++) t->by_byte[at[t->nodes[i].byte]++] = i;
    return true;
}

enum tern_status token_trie_create(struct token_trie **out, const struct tokenizer *tok, int n_vocab,
                                   struct tern_err *err) {
    enum tern_status status = TERN_OK;
    struct token_trie *t = mem_calloc(1, sizeof *t);
    struct trie_item *items = mem_calloc((size_t)n_vocab + 1, sizeof *items);
    struct trie_item *spare = mem_calloc((size_t)n_vocab + 1, sizeof *spare), *sorted = NULL;
    int n = 0;
    if (t) {
        t->n_vocab = n_vocab;
        t->same = mem_alloc(((size_t)n_vocab + 1) * sizeof *t->same);
        t->usable = mem_calloc((size_t)n_vocab + 1, 1);
    }
    if (t && items && spare && t->same && t->usable) {
        for (int i = 0; i < n_vocab; i++) t->same[i] = -1;
        n = items_gather(t, tok, items);
        sorted = items_sort(items, spare, n);
        t->n = nodes_put(t, NULL, sorted, n);
        t->nodes = mem_calloc((size_t)t->n, sizeof *t->nodes);
    }
    if (sorted && t->nodes) nodes_put(t, t->nodes, sorted, n);
    if (!sorted || !t->nodes || !index_make(t)) {
        status = err_set(err, TERN_NO_MEMORY, "no memory for the trie of %d tokens", n_vocab);
        token_trie_free(t);
    } else {
        *out = t;
    }
    mem_free(items);
    mem_free(spare);
    return status;
}

void token_trie_free(struct token_trie *t) {
    if (!t) return;
    mem_free(t->nodes);
    mem_free(t->same);
    mem_free(t->parent);
    mem_free(t->by_byte);
    mem_free(t->usable);
    mem_free(t);
}
