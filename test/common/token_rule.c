// See token_rule.h.
#include "token_rule.h"

#include <stdlib.h>

#define N_FIRST 5
#define N_LAST 2 // then N_FIRST again

struct rule {
    int n;
};

static void *rule_clone(const void *state) {
    struct rule *r = malloc(sizeof *r);
    *r = *(const struct rule *)state;
    return r;
}

static bool rule_advance(void *state, int32_t id) {
    struct rule *r = state;
    bool allowed = id % r->n != 1;
    r->n = r->n == N_LAST ? N_FIRST : r->n - 1;
    return allowed;
}

static void rule_mask(const void *state, uint32_t *mask, int n_vocab) {
    int n = ((const struct rule *)state)->n;
    for (int id = 1; id < n_vocab; id += n) mask[id / 32] &= ~(1u << id % 32);
}

static struct rule rule_start = {N_FIRST};
const struct tern_constraint token_rule = {&rule_start, rule_clone, free, rule_advance, rule_mask};
