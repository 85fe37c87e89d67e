// Fuzz target: draft trees, acceptance, the n-gram drafter, top-k.
//
// Input: six bytes of shape, then a byte for each logit; a few bytes mean NaN, infinities and ties. Whatever they are:
// trees keep their rules and nest, walking a narrower tree gives what the wide one says it would, the verify step is
// the tree, n-gram proposals follow an occurrence in the text, and the text of the automaton is the text given.
#include "base/base.h"
#include "spec/spec.h"

#include <math.h>

#define VOCAB_MAX 200
#define TEXT_MAX 300

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *data;
    size_t size, at;
};
static uint8_t byte_get(struct input *in) { return in->size ? in->data[in->at++ % in->size] : 0; }
static float logit_get(struct input *in) {
    uint8_t b = byte_get(in);
    switch (b) {
    case 255: return NAN;
    case 254: return INFINITY;
    case 253: return -INFINITY;
    case 252: return 3e38f;
    case 251: return -3e38f;
    default: return (float)(b >> 3) * 0.5f;
    }
}

struct drafter {
    int n_vocab;
    float base[TREE_BLOCK_MAX * VOCAB_MAX], bias[VOCAB_MAX]; // bias of (token, id): entry (3 token + id) mod n_vocab
};
static void bias_put(void *arg, const struct token_tree *t, int node, const int32_t *ids, int n, float *out) {
    const struct drafter *m = arg;
    for (int i = 0; i < n; i++) out[i] = m->bias[(3 * t->nodes[node].token + (ids ? ids[i] : i)) % m->n_vocab];
}
static bool product_put(void *arg, int32_t token, float *out) {
    const struct drafter *m = arg;
    for (int i = 0; i < m->n_vocab; i++) out[i] = m->bias[(3 * token + i) % m->n_vocab];
    return token % 5 != 4; // some products fail
}

static bool choose_any(void *arg, const struct token_tree *t, int node, int32_t *token) {
    const uint8_t *picks = arg;
    uint8_t b = picks[node];
    int child = b % 4 == 0 ? -1 : node + 1 + b % 8; // a node that may be its child
    *token = b % 16 == 0 ? -1 : child > 0 && child < t->n ? t->nodes[child].token : 0;
    return b % 16 != 1;
}

static void tree_check(const struct token_tree *t, int n_vocab, const uint8_t *picks) {
    struct tern_err err = {0};
    if (token_tree_check(t, n_vocab, &err) != TERN_OK) TERN_BUG("%s", err.message);
    struct accept_path p, narrow;
    accept_walk(t, choose_any, (void *)(uintptr_t)picks, &p);
    for (int n = 1; n <= t->n; n++) {
        struct token_tree cut = *t;
        int32_t token;
        token_tree_cut(&cut, n);
        narrow = (struct accept_path){.n = 1};
        for (int node = 0; choose_any((void *)(uintptr_t)picks, t, node, &token) && token >= 0;) {
            node = token_tree_child(&cut, node, token);
            if (node == TREE_NO_NODE) break;
            narrow.nodes[narrow.n++] = (int16_t)node;
        }
        TERN_ASSERT(narrow.n == accept_tokens(&p, n - 1));
    }
    struct arena arena;
    struct step_builder b;
    arena_init(&arena, 0);
    if (step_builder_init(&b, &arena, TREE_NODES_MAX, 3, 1, &err) == TERN_OK) {
        step_begin(&b, NULL, STEP_KEEP_ROWS);
        int row = tree_step_add(&b, step_add_seq(&b, NULL, 0, 7, -1, -1), t);
        const struct step *s = step_end(&b);
        TERN_ASSERT(row == 0 && s->n_rows == t->n && s->n_out == t->n);
        for (int i = 0; i < t->n; i++) TERN_ASSERT(s->rows[i].pos == 7 + t->nodes[i].depth);
    }
    arena_release(&arena);
}

static void trees_fuzz(struct input *in) {
    static struct drafter m;
    int shape = byte_get(in);
    m.n_vocab = 1 + byte_get(in) % VOCAB_MAX;
    struct tree_source s = {.n_depths = 1 + shape % TREE_BLOCK_MAX, .n_vocab = m.n_vocab, .base = m.base};
    s.n_used = 1 + byte_get(in) % m.n_vocab;
    uint8_t flags = byte_get(in), n = byte_get(in), picks[TREE_NODES_MAX];
    s.exact = flags & 1;
    s.bias = flags & 2 ? bias_put : NULL;
    s.bias_arg = &m;
    s.fills_max = flags >> 6;
    if (flags & 4)
        s.noise = (struct tree_noise){.temperature = 0.9f,
                                      .seed = n,
                                      .pos = n,
                                      .top_k = n,
                                      .top_p = flags & 8 ? 0.8f : 1,
                                      .min_p = flags & 16 ? 0.1f : 0};
    for (int i = 0; i < s.n_depths * m.n_vocab; i++) m.base[i] = logit_get(in);
    for (int i = 0; i < m.n_vocab; i++) m.bias[i] = logit_get(in);
    for (int i = 0; i < TREE_NODES_MAX; i++) picks[i] = byte_get(in);
    struct tree_builder *b = NULL;
    struct successors *succ = NULL;
    if (tree_builder_create(&b, m.n_vocab, s.exact, NULL) != TERN_OK) return;
    if ((flags & 32) && successors_create(&succ, m.n_vocab, s.n_used, 3 * 256, product_put, &m, NULL) == TERN_OK)
        s.successors = succ;
    for (int method = TREE_CHAIN; method <= TREE_CONDITIONED; method++) {
        struct token_tree t, narrow;
        token_tree_init(&t, shape % s.n_used);
        tree_build(b, (enum tree_method)method, &s, TREE_NODES_MAX, &t);
        tree_check(&t, s.n_used, picks);
        if (s.successors) continue; // a table that fills up on the way changes later trees
        token_tree_init(&narrow, shape % s.n_used);
        tree_build(b, (enum tree_method)method, &s, 1 + n % TREE_NODES_MAX, &narrow);
        token_tree_cut(&t, narrow.n);
        TERN_ASSERT(narrow.n == t.n);
        for (int i = 0; i < t.n; i++)
            TERN_ASSERT(narrow.nodes[i].token == t.nodes[i].token && narrow.nodes[i].parent == t.nodes[i].parent);
        token_tree_add_chain(&narrow, narrow.n - 1, (const int32_t[]){0, 0, 0}, 3, TREE_NODES_MAX);
        tree_build(b, (enum tree_method)method, &s, TREE_NODES_MAX, &narrow);
        tree_check(&narrow, s.n_used, picks);
    }
    successors_free(succ);
    tree_builder_free(b);
}

// The proposal's first token stands in the text behind what the text ends with, for as many tokens as was said.
static void proposal_check(const struct ngram *g, const int32_t *text, int n) {
    int32_t out[8];
    int len = ngram_match_len(g), got = ngram_propose(g, NULL, 0, 1, out, 8);
    TERN_ASSERT(got == (len > 0 ? 8 : 0));
    bool found = len == 0;
    for (int end = len - 1; end < n - 1 && !found; end++) {
        bool same = text[end + 1] == out[0];
        for (int i = 0; i < len && same; i++) same = text[end - i] == text[n - 1 - i];
        found = same;
    }
    TERN_ASSERT(found);
}

static void ngram_fuzz(struct input *in) {
    static int32_t text[TEXT_MAX];
    struct ngram *g = NULL;
    if (ngram_create(&g, TEXT_MAX, NULL) != TERN_OK) return;
    int n = 0, alphabet = 1 + byte_get(in) % 7;
    for (size_t i = 0; i < MIN(in->size, 2 * TEXT_MAX); i++) {
        uint8_t b = byte_get(in);
        if (b >= 250) {
            n = n * (b - 249) / 8;
            ngram_truncate(g, (size_t)n);
        } else if (n < TEXT_MAX) {
            text[n] = b % alphabet;
            ngram_append(g, &text[n++], 1);
        }
        TERN_ASSERT(ngram_len(g) == (size_t)n);
        if (i % 7 == 0) proposal_check(g, text, n);
    }
    struct token_tree t;
    token_tree_init(&t, 0);
    for (int i = 0; i < 12; i++) token_tree_add(&t, byte_get(in) % t.n, byte_get(in) % (alphabet + 1), 0);
    ngram_extend(g, &t, 1, 6, 40);
    struct tern_err err = {0};
    if (token_tree_check(&t, 256, &err) != TERN_OK || t.n > 40) TERN_BUG("%s", err.message);
    ngram_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {.data = data, .size = size};
    trees_fuzz(&in);
    ngram_fuzz(&in);
    return 0;
}
