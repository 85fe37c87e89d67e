// Trees of drafted tokens as data: adding, finding, cutting, checking. At most 64 nodes, so every search is a scan.
#include "base/base.h"
#include "spec/spec.h"

#include <math.h>

void token_tree_init(struct token_tree *t, int32_t root) {
    t->n = 1;
    t->nodes[0] = (struct tree_node){.token = root, .parent = TREE_NO_NODE};
}

int token_tree_child(const struct token_tree *t, int node, int32_t token) {
    for (int i = node + 1; i < t->n; i++)
        if (t->nodes[i].parent == node && t->nodes[i].token == token) return i;
    return TREE_NO_NODE;
}

int token_tree_add(struct token_tree *t, int parent, int32_t token, float score) {
    if (parent < 0 || parent >= t->n) TERN_BUG("token tree: child of node %d of %d", parent, t->n);
    int found = token_tree_child(t, parent, token);
    if (found != TREE_NO_NODE || t->n == TREE_NODES_MAX) return found;
    int rank = 0;
    for (int i = parent + 1; i < t->n; i++) rank += t->nodes[i].parent == parent;
    t->nodes[t->n] = (struct tree_node){
        .token = token,
        .parent = (int16_t)parent,
        .depth = (int16_t)(t->nodes[parent].depth + 1),
        .rank = (int16_t)rank,
        .score = score,
    };
    return t->n++;
}

int token_tree_add_chain(struct token_tree *t, int node, const int32_t *tokens, int n, int nodes_max) {
    for (int i = 0; i < n; i++) {
        int next = token_tree_child(t, node, tokens[i]);
        if (next == TREE_NO_NODE && t->n < nodes_max) next = token_tree_add(t, node, tokens[i], t->nodes[node].score);
        if (next == TREE_NO_NODE) break;
        node = next;
    }
    return node;
}

void token_tree_cut(struct token_tree *t, int n) { t->n = MAX(1, MIN(n, t->n)); }

int token_tree_path(const struct token_tree *t, int node, int32_t *out) {
    int depth = t->nodes[node].depth;
    for (int d = depth; d > 0; d--, node = t->nodes[node].parent) out[d - 1] = t->nodes[node].token;
    return depth;
}

enum tern_status token_tree_check(const struct token_tree *t, int n_vocab, struct tern_err *err) {
    if (t->n < 1 || t->n > TREE_NODES_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "token tree: %d nodes; 1 to %d are possible", t->n, TREE_NODES_MAX);
    for (int i = 0; i < t->n; i++) {
        const struct tree_node *node = &t->nodes[i];
        if (node->token < 0 || node->token >= n_vocab)
            return err_set(err, TERN_INVALID_ARGUMENT, "token tree: node %d is token %d; the vocabulary has %d", i,
                           node->token, n_vocab);
        if (i == 0 ? node->parent != TREE_NO_NODE : node->parent < 0 || node->parent >= i)
            return err_set(err, TERN_INVALID_ARGUMENT,
                           "token tree: node %d has parent %d; the root is node 0 and parents come before children", i,
                           node->parent);
        int depth = i == 0 ? 0 : t->nodes[node->parent].depth + 1;
        if (node->depth != depth)
            return err_set(err, TERN_INVALID_ARGUMENT, "token tree: node %d has depth %d, expected %d", i, node->depth,
                           depth);
        if (isnan(node->score)) return err_set(err, TERN_INVALID_ARGUMENT, "token tree: node %d has no score", i);
        for (int j = 1; j < i; j++)
            if (t->nodes[j].parent == node->parent && t->nodes[j].token == node->token)
                return err_set(err, TERN_INVALID_ARGUMENT, "token tree: nodes %d and %d are the same child", j, i);
    }
    return TERN_OK;
}
