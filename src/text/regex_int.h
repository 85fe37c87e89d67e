// Private to text/: the pieces of the pattern reader.
#pragma once
#include "text/constraint_int.h"

#define RUNE_LAST 0x10FFFFu
#define RUNE_RANGES_MAX 512

struct rune_range {
    uint32_t lo, hi;
};
struct rune_set {
    struct rune_range ranges[RUNE_RANGES_MAX];
    int n;
    bool full; // more ranges than fit were asked for
};
void rune_set_add(struct rune_set *s, uint32_t lo, uint32_t hi);
bool rune_set_add_class(struct rune_set *s, char letter); // d w s D W S; false: none of these
void rune_set_settle(struct rune_set *s, bool negate);    // sorted, disjoint
void rune_set_any(struct rune_set *s);                    // what . stands for
void rune_set_to_nfa(const struct rune_set *s, struct nfa *n, bool json, int32_t from, int32_t to);
