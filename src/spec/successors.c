// The table of likely successors (spec.h): a cache of rows by token, with an index over the whole vocabulary and clock
// replacement. A table of every row at once was rejected as the only form: it takes rank × n_vocab² multiply-adds (17 G
// for pico, about 1 s; 1,100 G for 65,536 tokens and rank 256), while a text visits a few thousand tokens. Who wants
// the whole table calls successors_get for every token.
#include "base/base.h"
#include "spec/spec.h"

struct successors {
    int n_vocab, n_used, n_rows, n_rows_max, hand;
    successors_product_fn *product;
    void *arg;
    int32_t *row_of;    // [n_vocab] row, -1: not computed
    int32_t *token_of;  // [n_rows_max]
    int32_t *counts;    // [n_rows_max] successors in the row
    uint8_t *is_recent; // [n_rows_max]
    int32_t *ids;       // [n_rows_max][SUCCESSORS_N]
    float *logits;      // [n_vocab] of the product
    uint64_t n_fills, n_evictions;
    size_t bytes;
};

enum tern_status successors_create(struct successors **out, int n_vocab, int n_used, size_t bytes_max,
                                   successors_product_fn *product, void *arg, struct tern_err *err) {
    if (n_vocab < 1 || n_used < 1 || n_used > n_vocab)
        return err_set(err, TERN_INVALID_ARGUMENT, "successors: %d ids used of a vocabulary of %d", n_used, n_vocab);
    size_t row_bytes = SUCCESSORS_N * sizeof(int32_t);
    int n_rows = (int)MAX(1, MIN(bytes_max / row_bytes, (size_t)n_vocab));
    struct successors *s = mem_calloc(1, sizeof *s);
    if (!s) return err_set(err, TERN_NO_MEMORY, "no memory for a table of successors");
    *s =
        (struct successors){.n_vocab = n_vocab, .n_used = n_used, .n_rows_max = n_rows, .product = product, .arg = arg};
    s->row_of = mem_alloc((size_t)n_vocab * sizeof *s->row_of);
    s->token_of = mem_alloc((size_t)n_rows * sizeof *s->token_of);
    s->counts = mem_alloc((size_t)n_rows * sizeof *s->counts);
    s->is_recent = mem_calloc((size_t)n_rows, 1);
    s->ids = mem_alloc((size_t)n_rows * row_bytes);
    s->logits = mem_alloc((size_t)n_vocab * sizeof *s->logits);
    if (!s->row_of || !s->token_of || !s->counts || !s->is_recent || !s->ids || !s->logits) {
        successors_free(s);
        return err_set(err, TERN_NO_MEMORY, "no memory for a table of successors of %d rows over %d tokens", n_rows,
                       n_vocab);
    }
    for (int i = 0; i < n_vocab; i++) s->row_of[i] = -1;
    s->bytes = (size_t)n_rows * (row_bytes + 2 * sizeof(int32_t) + 1) + (size_t)n_vocab * (4 + sizeof *s->logits);
    *out = s;
    return TERN_OK;
}

void successors_free(struct successors *s) {
    if (!s) return;
    mem_free(s->row_of);
    mem_free(s->token_of);
    mem_free(s->counts);
    mem_free(s->is_recent);
    mem_free(s->ids);
    mem_free(s->logits);
    mem_free(s);
}

const int32_t *successors_find(struct successors *s, int32_t token, int *n) {
    *n = 0;
    if (token < 0 || token >= s->n_vocab || s->row_of[token] < 0) return NULL;
    int row = s->row_of[token];
    s->is_recent[row] = 1;
    *n = s->counts[row];
    return s->ids + (size_t)row * SUCCESSORS_N;
}

// A row to write: a new one while there is room, else the first that was not used since the hand last passed.
static int row_take(struct successors *s) {
    if (s->n_rows < s->n_rows_max) return s->n_rows++;
    while (s->is_recent[s->hand]) {
        s->is_recent[s->hand] = 0;
        s->hand = (s->hand + 1) % s->n_rows_max;
    }
    int row = s->hand;
    s->hand = (s->hand + 1) % s->n_rows_max;
    s->row_of[s->token_of[row]] = -1;
    s->n_evictions++;
    return row;
}

const int32_t *successors_get(struct successors *s, int32_t token, int *n) {
    const int32_t *ids = successors_find(s, token, n);
    if (ids || token < 0 || token >= s->n_vocab) return ids;
    if (!s->product(s->arg, token, s->logits)) return NULL;
    float values[SUCCESSORS_N];
    int row = row_take(s);
    s->counts[row] = topk_select(s->logits, s->n_used, SUCCESSORS_N, s->ids + (size_t)row * SUCCESSORS_N, values);
    s->token_of[row] = token;
    s->row_of[token] = row;
    s->n_fills++;
    return successors_find(s, token, n);
}

struct successors_stats successors_stats_get(const struct successors *s) {
    return (struct successors_stats){.n_rows = s->n_rows,
                                     .n_rows_max = s->n_rows_max,
                                     .n_fills = s->n_fills,
                                     .n_evictions = s->n_evictions,
                                     .bytes = s->bytes};
}
