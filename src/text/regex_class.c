// Character classes of patterns: sets of runes as sorted ranges.
#include "base/base.h"
#include "text/regex_int.h"

void rune_set_add(struct rune_set *s, uint32_t lo, uint32_t hi) {
    if (s->n == RUNE_RANGES_MAX) {
        s->full = true;
        return;
    }
    s->ranges[s->n++] = (struct rune_range){lo, hi};
}

static void ranges_sort(struct rune_set *s) {
    for (int i = 1; i < s->n; i++)
        for (int k = i; k > 0 && s->ranges[k].lo < s->ranges[k - 1].lo; k--) {
            struct rune_range t = s->ranges[k];
            s->ranges[k] = s->ranges[k - 1];
            s->ranges[k - 1] = t;
        }
}

void rune_set_settle(struct rune_set *s, bool negate) {
    ranges_sort(s);
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        if (n > 0 && s->ranges[i].lo <= s->ranges[n - 1].hi + 1)
            s->ranges[n - 1].hi = MAX(s->ranges[n - 1].hi, s->ranges[i].hi);
        else
            s->ranges[n++] = s->ranges[i];
    }
    s->n = n;
    if (!negate) return;
    struct rune_set out = {.full = s->full};
    uint32_t next = 0;
    for (int i = 0; i < n; i++) {
        if (s->ranges[i].lo > next) rune_set_add(&out, next, s->ranges[i].lo - 1);
        next = s->ranges[i].hi + 1;
    }
    if (next <= RUNE_LAST) rune_set_add(&out, next, RUNE_LAST);
    *s = out;
}

static void set_join(struct rune_set *to, const struct rune_set *from) {
    for (int i = 0; i < from->n; i++) rune_set_add(to, from->ranges[i].lo, from->ranges[i].hi);
}

// Blanks as ECMA-262 has them.
static const struct rune_range blanks[] = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                           {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                           {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

bool rune_set_add_class(struct rune_set *s, char letter) {
    struct rune_set c = {0};
    switch (letter | 32) {
    case 'd': rune_set_add(&c, '0', '9'); break;
    case 'w':
        rune_set_add(&c, '0', '9');
        rune_set_add(&c, 'A', 'Z');
        rune_set_add(&c, '_', '_');
        rune_set_add(&c, 'a', 'z');
        break;
    case 's':
        for (size_t i = 0; i < ARRAY_LEN(blanks); i++) rune_set_add(&c, blanks[i].lo, blanks[i].hi);
        break;
    default: return false;
    }
    rune_set_settle(&c, letter < 'a');
    set_join(s, &c);
    return true;
}

void rune_set_any(struct rune_set *s) { // but line ends
    *s = (struct rune_set){0};
    rune_set_add(s, '\n', '\n');
    rune_set_add(s, '\r', '\r');
    rune_set_add(s, 0x2028, 0x2029);
    rune_set_settle(s, true);
}

void rune_set_to_nfa(const struct rune_set *s, struct nfa *n, bool json, int32_t from, int32_t to) {
    for (int i = 0; i < s->n; i++) {
        if (json)
            nfa_json_runes(n, from, s->ranges[i].lo, s->ranges[i].hi, to);
        else
            nfa_runes(n, from, s->ranges[i].lo, s->ranges[i].hi, to);
    }
}
