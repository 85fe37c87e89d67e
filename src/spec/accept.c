// From a tree to a verify step, from the target's choices to an accepted path, from the path to a commit step.
#include "base/base.h"
#include "spec/spec.h"

int tree_step_add(struct step_builder *b, int seq, const struct token_tree *t) {
    int row = 0;
    for (int i = 0; i < t->n; i++) {
        int parent = i == 0 ? STEP_NO_PARENT : row + t->nodes[i].parent;
        int added = step_add_tree_row(b, seq, t->nodes[i].token, parent, true);
        if (i == 0) row = added;
    }
    return row;
}

void accept_walk(const struct token_tree *t, accept_choose_fn *choose, void *arg, struct accept_path *out) {
    *out = (struct accept_path){.n = 1, .bonus = -1};
    for (int node = 0; node != TREE_NO_NODE;) {
        int32_t token = -1;
        bool goes_on = choose(arg, t, node, &token);
        if (token < 0) return;
        int child = goes_on ? token_tree_child(t, node, token) : TREE_NO_NODE;
        if (child == TREE_NO_NODE) {
            out->bonus = token;
            return;
        }
        out->nodes[out->n++] = (int16_t)child;
        node = child;
    }
}

bool accept_choose_greedy(void *arg, const struct token_tree *t, int node, int32_t *token) {
    (void)t;
    const struct accept_greedy *g = arg;
    *token = g->rows[node].id;
    return *token != g->end;
}

bool accept_choose_sampled(void *arg, const struct token_tree *t, int node, int32_t *token) {
    const struct accept_sampled *a = arg;
    const uint32_t *mask = a->mask ? a->mask(a->mask_arg, t, node) : NULL;
    const float *logits = a->logits + (size_t)node * a->stride;
    *token = sampler_pick(a->sampler, logits, a->pos + t->nodes[node].depth, mask).id;
    if (*token >= 0) sampler_accept(a->sampler, *token);
    return *token != a->end;
}

int accept_tokens(const struct accept_path *p, int k) {
    int n = 1;
    while (n < p->n && p->nodes[n] <= k) n++;
    return n;
}

void path_step_add(struct step_builder *b, int seq, const struct step *verify, int row, const struct accept_path *p) {
    for (int i = 0; i < p->n; i++) step_add_path_row(b, seq, verify, row + p->nodes[i]);
}
