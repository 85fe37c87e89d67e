// Private to the evaluator's files.
#pragma once
#include "unit/npu/npu_eval.h"

struct npu_place {
    int root;       // tensor whose memory this one lies in
    int64_t offset; // floats from its root's place
    int64_t at;     // of a root: floats from the scratch; -1: outside (constants, states)
};
struct npu_eval {
    const struct npu_list *list;
    const struct npu_rules *rules;
    const struct npu_kernels *k;
    enum npu_fix fix;
    enum npu_act act;
    struct team *team;
    struct npu_place *place; // [n_tensors]
    float **outside;         // [n_tensors] constants as floats (fp16 ones), states; else NULL
    bool *is_view;           // [n_ops] nothing to do: the result lies where its source does
    bool *is_solo;           // [n_ops] too little to share: the first member does it alone
    bool *is_half;           // [n_tensors] an input that is fp16, read by concatenations alone
    uint16_t **half_outside; // [n_tensors] where that lies when not in the scratch, or NULL
    bool *by_column;         // [n_tensors] the last axis is the window's columns, or the head's
    int columns;             // of those that are computed; 0: all
    float *scratch;
    uint64_t scratch_len; // floats
    void *owned;          // scratch of its own, or NULL
    uint64_t bytes;
    struct npu_site *sites; // [n_ops], or NULL
    struct npu_site *parts; // [members][n_ops] while observing
    struct arena arena;
};

static inline float *eval_data(const struct npu_eval *e, int id) {
    const struct npu_place *p = &e->place[id];
    return (e->outside[p->root] ? e->outside[p->root] : e->scratch + e->place[p->root].at) + p->offset;
}
static inline uint16_t *eval_half(const struct npu_eval *e, int id) {
    return e->half_outside[id] ? e->half_outside[id] : (uint16_t *)(void *)eval_data(e, id);
}
// Columns of a tensor that are computed: the rest is zero, or finite, and read by nobody.
static inline int eval_columns(const struct npu_eval *e, int id) {
    const struct npu_tensor *t = &e->list->tensors[id];
    int n = t->shape[t->rank - 1];
    return e->columns > 0 && e->by_column[id] ? MIN(n, e->columns) : n;
}
// This member's share of one op.
void eval_op(struct npu_eval *e, const struct npu_op *op, const struct team_member *self);
