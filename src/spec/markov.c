// The Markov head of a drafter (model.h says what each kind computes), for the candidates of one node at a time.
//
// w2 and the gates are kept as floats: a node asks for about a hundred scattered rows of w2, each of which would have
// to be dequantised for one dot product. w1 is read from the file row by row. A head with memory (rnn) keeps its state
// by node; parents are asked before their children, as the tree builder does.
#include "base/base.h"
#include "spec/markov_int.h"

#include <math.h>

struct markov {
    enum markov_kind kind;
    int rank, n_embd, n_vocab;
    const struct tensor *w1;
    uint64_t w1_row_bytes;
    float *w2;          // [n_vocab][rank]
    float *gate, *bias; // gated: [rank][n_embd + rank]; rnn, joint: [3 * rank][2 * rank + n_embd]; bias or NULL
    float *e, *in;      // [rank]; [2 * rank + n_embd]
    float *states;      // rnn: [TREE_NODES_MAX][rank]
    const float *hidden;
};

static const struct tensor *gate_of(const struct model_drafter *d) {
    return d->markov == MARKOV_GATED ? d->markov_gate : d->markov == MARKOV_RNN ? d->markov_joint : NULL;
}

static uint64_t floats_of(const struct tensor *t) { return t ? (uint64_t)t->ne[0] * (uint64_t)t->ne[1] : 0; }

uint64_t markov_bytes(const struct model *m) {
    const struct model_drafter *d = m->drafter;
    uint64_t states = d->markov == MARKOV_RNN ? TREE_NODES_MAX * (uint64_t)d->markov_rank : 0;
    return sizeof(float) * (floats_of(d->markov_w2) + floats_of(gate_of(d)) + floats_of(d->markov_bias) + states);
}

// The tensor in float; NULL without memory.
static float *tensor_floats(const struct tensor *t) {
    uint64_t row_bytes = 0;
    size_t n = (size_t)t->ne[0], rows = (size_t)t->ne[1], total = 0;
    if (!size_mul(n, rows, &total) || !format_row_bytes(t->format, n, &row_bytes)) return NULL;
    float *out = mem_alloc(total * sizeof *out);
    for (size_t i = 0; out && i < rows; i++)
        op_dequant_row(t->format, t->data + (uint64_t)i * row_bytes, (int64_t)n, out + i * n);
    return out;
}

enum tern_status markov_create(struct markov **out, const struct model *m, struct tern_err *err) {
    const struct model_drafter *d = m->drafter;
    const struct tensor *gate = gate_of(d);
    struct markov *k = mem_calloc(1, sizeof *k);
    if (!k) return err_set(err, TERN_NO_MEMORY, "no memory for a Markov head");
    *k = (struct markov){.kind = d->markov,
                         .rank = d->markov_rank,
                         .n_embd = m->hyper.n_embd,
                         .n_vocab = m->hyper.n_vocab,
                         .w1 = d->markov_w1};
    bool fine = format_row_bytes(k->w1->format, (uint64_t)k->rank, &k->w1_row_bytes);
    k->w2 = tensor_floats(d->markov_w2);
    k->e = mem_alloc((size_t)k->rank * sizeof *k->e);
    k->in = mem_alloc((size_t)(2 * k->rank + k->n_embd) * sizeof *k->in);
    fine = fine && k->w2 && k->e && k->in;
    if (gate) fine = (k->gate = tensor_floats(gate)) && fine;
    if (gate && d->markov_bias) fine = (k->bias = tensor_floats(d->markov_bias)) && fine;
    if (k->kind == MARKOV_RNN)
        fine = (k->states = mem_calloc(TREE_NODES_MAX * (size_t)k->rank, sizeof *k->states)) && fine;
    if (!fine) {
        markov_free(k);
        return err_set(err, TERN_NO_MEMORY, "no memory for a Markov head of rank %d over %d tokens", d->markov_rank,
                       m->hyper.n_vocab);
    }
    *out = k;
    return TERN_OK;
}

void markov_free(struct markov *k) {
    if (!k) return;
    mem_free(k->w2);
    mem_free(k->gate);
    mem_free(k->bias);
    mem_free(k->e);
    mem_free(k->in);
    mem_free(k->states);
    mem_free(k);
}

void markov_w1(const struct markov *k, int32_t token, float *out) {
    op_dequant_row(k->w1->format, k->w1->data + (uint64_t)token * k->w1_row_bytes, k->rank, out);
}

void markov_begin(struct markov *k, const float *hidden) { k->hidden = hidden; }

static float dot(const float *a, const float *b, int n) {
    float sum[8] = {0};
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) sum[j] += a[i + j] * b[i + j];
    for (; i < n; i++) sum[0] += a[i] * b[i];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

static float gate_row(const struct markov *k, int row, int n_in) {
    return dot(k->gate + (size_t)row * (size_t)n_in, k->in, n_in) + (k->bias ? k->bias[row] : 0);
}

static void gated_e(struct markov *k, const struct token_tree *t, int node) {
    const float *h = k->hidden + (size_t)t->nodes[node].depth * (size_t)k->n_embd;
    float *w1 = k->in + k->n_embd;
    memcpy(k->in, h, (size_t)k->n_embd * sizeof *h);
    markov_w1(k, t->nodes[node].token, w1);
    for (int i = 0; i < k->rank; i++) k->e[i] = sigmoid(gate_row(k, i, k->n_embd + k->rank)) * w1[i];
}

static void rnn_e(struct markov *k, const struct token_tree *t, int node) {
    int r = k->rank, n_in = 2 * r + k->n_embd, parent = t->nodes[node].parent;
    const float *h = k->hidden + (size_t)t->nodes[node].depth * (size_t)k->n_embd;
    float *s = k->states + (size_t)node * (size_t)r;
    if (parent == TREE_NO_NODE)
        memset(k->in, 0, (size_t)r * sizeof *k->in);
    else
        memcpy(k->in, k->states + (size_t)parent * (size_t)r, (size_t)r * sizeof *k->in);
    markov_w1(k, t->nodes[node].token, k->in + r);
    memcpy(k->in + 2 * r, h, (size_t)k->n_embd * sizeof *h);
    for (int i = 0; i < r; i++) {
        float g = sigmoid(gate_row(k, i, n_in));
        s[i] = g * k->in[i] + (1 - g) * tanhf(gate_row(k, r + i, n_in));
        k->e[i] = tanhf(gate_row(k, 2 * r + i, n_in));
    }
}

void markov_bias(void *arg, const struct token_tree *t, int node, const int32_t *ids, int n, float *out) {
    struct markov *k = arg;
    switch (k->kind) {
    case MARKOV_VANILLA: markov_w1(k, t->nodes[node].token, k->e); break;
    case MARKOV_GATED: gated_e(k, t, node); break;
    case MARKOV_RNN: rnn_e(k, t, node); break;
    case MARKOV_NONE: TERN_BUG("a Markov head of no kind");
    }
    for (int i = 0; i < n; i++) out[i] = dot(k->w2 + (size_t)(ids ? ids[i] : i) * (size_t)k->rank, k->e, k->rank);
}
