// JSON numbers between bounds, exactly, as automata over their digits.
//
// Whole numbers are walked digit by digit beside both bounds ("tight" while equal so far); once free of them, what is
// left depends only on how many digits remain and, for multipleOf, on the remainder. Decimals do the same on both sides
// of the point. Bounded decimals have at most DECIMAL_DIGITS_MAX digits and no exponent, so that whoever compares them
// as doubles comes to the same verdict. Numbers without bounds may have NUMBER_DIGITS_MAX digits on each side and an
// exponent of two: small enough for any reader.
#include "base/base.h"
#include "text/constraint_int.h"

#define NUMBER_DIGITS_MAX 18
#define DECIMAL_PLACES_MAX 24 // of a bound, on either side of the point
#define MULTIPLE_MAX 1000

struct decimal {
    bool negative;
    int n_int, n_frac; // digits before and behind the point; no leading zeros but a single one, no trailing ones
    char digits[2 * DECIMAL_PLACES_MAX + 2];
};

static bool decimal_digits(struct str s, size_t *pos, struct decimal *d, int *n) {
    for (; *pos < s.len && s.data[*pos] >= '0' && s.data[*pos] <= '9'; (*pos)++) {
        if (*n >= 2 * DECIMAL_PLACES_MAX) return false;
        d->digits[(*n)++] = s.data[*pos];
    }
    return true;
}

// A JSON number, its exponent worked in. False: more digits than could ever matter here.
static bool decimal_read(struct str s, struct decimal *d) {
    struct decimal raw = {.negative = s.len > 0 && s.data[0] == '-'};
    size_t pos = raw.negative;
    int n = 0, first = 0;
    int64_t exp = 0;
    if (!decimal_digits(s, &pos, &raw, &n)) return false;
    int64_t point = n; // digits before the point, of digits[0 … n)
    if (pos < s.len && s.data[pos] == '.') {
        pos++;
        if (!decimal_digits(s, &pos, &raw, &n)) return false;
    }
    if (pos < s.len && (s.data[pos] | 32) == 'e') {
        pos += pos + 1 < s.len && s.data[pos + 1] == '+' ? 2 : 1;
        if (!str_to_i64((struct str){s.data + pos, s.len - pos}, &exp)) return false;
    }
    while (n > 0 && raw.digits[n - 1] == '0') n--;
    while (first < n && raw.digits[first] == '0') first++;
    *d = (struct decimal){.n_int = 1, .digits = "0"};
    if (first == n) return true;
    if (exp < -DECIMAL_PLACES_MAX || exp > DECIMAL_PLACES_MAX) return false;
    point += exp;
    if (point - first > DECIMAL_PLACES_MAX || n - point > DECIMAL_PLACES_MAX) return false;
    d->negative = raw.negative;
    d->n_int = 0;
    for (int64_t i = first; i < point; i++) d->digits[d->n_int++] = i < n ? raw.digits[i] : '0';
    if (d->n_int == 0) d->n_int = 1; // "0", as initialised
    for (int64_t i = point; i < n; i++) d->digits[d->n_int + d->n_frac++] = i < first ? '0' : raw.digits[i];
    return true;
}

// ------------------------------------------------------------------------------------------------------ whole numbers

struct digit_walk {
    struct nfa *nfa;
    int32_t to;
    int k;               // multiple of
    int32_t *free_nodes; // [(NUMBER_DIGITS_MAX + 1) * k] by digits left and remainder; GRAMMAR_NONE: not made
};

static int32_t free_get(struct digit_walk *w, int left, int rest) {
    if (left == 0) return rest == 0 ? w->to : GRAMMAR_NONE;
    int32_t *at = &w->free_nodes[left * w->k + rest];
    if (*at == GRAMMAR_NONE) *at = nfa_node(w->nfa);
    return *at;
}

// Moves of the free nodes, from many digits left to few, so that every target is asked for before its turn.
static void free_connect(struct digit_walk *w) {
    for (int left = NUMBER_DIGITS_MAX; left > 0; left--)
        for (int rest = 0; rest < w->k; rest++) {
            int32_t from = w->free_nodes[left * w->k + rest];
            for (int d = 0; from != GRAMMAR_NONE && d < 10; d++) {
                int32_t to = free_get(w, left - 1, (rest * 10 + d) % w->k);
                if (to != GRAMMAR_NONE) nfa_byte(w->nfa, from, '0' + d, '0' + d, to);
            }
        }
}

// Numbers of len digits in [lo, hi], spelled with as many digits.
static void same_len_walk(struct digit_walk *w, int32_t from, const char *lo, const char *hi, int len) {
    // By tightness to both (0), to lo (1), to hi (2): the node before digit i, or GRAMMAR_NONE; and its remainder.
    int32_t nodes[3] = {from, GRAMMAR_NONE, GRAMMAR_NONE};
    int rests[3] = {0};
    for (int i = 0; i < len; i++) {
        int32_t next[3] = {GRAMMAR_NONE, GRAMMAR_NONE, GRAMMAR_NONE};
        int next_rests[3] = {0};
        for (int t = 0; t < 3; t++) {
            if (nodes[t] == GRAMMAR_NONE) continue;
            int a = t != 2 ? lo[i] - '0' : 0, z = t != 1 ? hi[i] - '0' : 9;
            for (int d = a; d <= z; d++) {
                bool at_lo = t != 2 && d == a, at_hi = t != 1 && d == z;
                int rest = (rests[t] * 10 + d) % w->k, tight = at_lo && at_hi ? 0 : at_lo ? 1 : 2;
                int32_t to;
                if (i + 1 == len || (!at_lo && !at_hi)) {
                    to = free_get(w, len - i - 1, rest);
                } else {
                    if (next[tight] == GRAMMAR_NONE) next[tight] = nfa_node(w->nfa);
                    to = next[tight];
                    next_rests[tight] = rest;
                }
                if (to != GRAMMAR_NONE) nfa_byte(w->nfa, nodes[t], '0' + d, '0' + d, to);
            }
        }
        memcpy(nodes, next, sizeof nodes);
        memcpy(rests, next_rests, sizeof rests);
    }
}

static void digits_put(int64_t v, int len, char *out) {
    for (int i = len; i-- > 0; v /= 10) out[i] = (char)('0' + v % 10);
}

// 0 <= lo <= hi
static void whole_walk(struct digit_walk *w, int32_t from, int64_t lo, int64_t hi) {
    int64_t first = 0, next = 10; // numbers of len digits: first … next - 1; 10^18 at most
    for (int len = 1; len <= NUMBER_DIGITS_MAX; len++) {
        int64_t a = MAX(lo, first), z = MIN(hi, next - 1);
        char from_digits[NUMBER_DIGITS_MAX + 1], to_digits[NUMBER_DIGITS_MAX + 1];
        if (a <= z) {
            digits_put(a, len, from_digits);
            digits_put(z, len, to_digits);
            same_len_walk(w, from, from_digits, to_digits, len);
        }
        first = next;
        if (len < NUMBER_DIGITS_MAX) next *= 10;
    }
}

static int64_t whole_of(const struct decimal *d) {
    int64_t v = 0;
    for (int i = 0; i < d->n_int; i++) v = v * 10 + (d->digits[i] - '0');
    return d->negative ? -v : v;
}

static bool whole_to_nfa(struct nfa *n, const struct number_range *r, const struct decimal *lo,
                         const struct decimal *hi, int32_t from, int32_t to) {
    // Remainders are often taken of doubles: then no more digits than these hold.
    const int64_t most = r->multiple_of > 1 ? 999999999999999 : 999999999999999999;
    int64_t a = -most, z = most;
    if (lo) { // the ceiling; one more when the bound itself is out
        a = whole_of(lo);
        if (lo->n_frac > 0 && !lo->negative) a++;
        if (lo->n_frac == 0 && r->lo_open) a++;
    }
    if (hi) {
        z = whole_of(hi);
        if (hi->n_frac > 0 && hi->negative) z--;
        if (hi->n_frac == 0 && r->hi_open) z--;
    }
    a = MAX(a, -most);
    z = MIN(z, most);
    int k = r->multiple_of > 0 ? (int)r->multiple_of : 1;
    size_t n_free = (size_t)(NUMBER_DIGITS_MAX + 1) * (size_t)k;
    struct digit_walk w = {.nfa = n, .to = to, .k = k, .free_nodes = mem_alloc(n_free * sizeof *w.free_nodes)};
    if (!w.free_nodes) return GRAMMAR_FAIL(n->b, TERN_NO_MEMORY, "no memory for a constraint");
    for (size_t i = 0; i < n_free; i++) w.free_nodes[i] = GRAMMAR_NONE;
    if (a <= z && z >= 0) whole_walk(&w, from, MAX(a, 0), z);
    if (a <= z && a < 0) {
        int32_t minus = nfa_node(n);
        nfa_byte(n, from, '-', '-', minus);
        whole_walk(&w, minus, MAX(-z, 1), -a);
    }
    free_connect(&w);
    mem_free(w.free_nodes);
    return n->b->status == TERN_OK;
}

// ---------------------------------------------------------------------------------------------------------- decimals

struct bound {
    const struct decimal *d; // magnitude; NULL: none
    bool open;
};

static int bound_digit(const struct bound *b, int i, int none) { // i-th digit behind the point
    if (!b) return none;
    return i < b->d->n_frac ? b->d->digits[b->d->n_int + i] - '0' : 0;
}

// May the number end after `i` digits behind the point, all equal to lo's / hi's so far?
static bool ends_above(const struct bound *lo, int i) { return !lo || (i >= lo->d->n_frac && !lo->open); }
static bool ends_below(const struct bound *hi, int i) { return !hi || i < hi->d->n_frac || !hi->open; }

// What follows the whole part, with at most `room` digits behind the point. lo, hi: NULL when no longer tight.
static void fraction_walk(struct nfa *n, int32_t from, const struct bound *lo, const struct bound *hi, int room,
                          int32_t to) {
    if (ends_above(lo, 0) && ends_below(hi, 0)) nfa_empty(n, from, to);
    if (room <= 0) return;
    // By tightness: both, lo, hi, none.
    int32_t nodes[4] = {GRAMMAR_NONE, GRAMMAR_NONE, GRAMMAR_NONE, GRAMMAR_NONE};
    int32_t first = nfa_node(n);
    nfa_byte(n, from, '.', '.', first);
    nodes[lo && hi ? 0 : lo ? 1 : hi ? 2 : 3] = first;
    for (int i = 0; i < room; i++) {
        int32_t next[4] = {GRAMMAR_NONE, GRAMMAR_NONE, GRAMMAR_NONE, GRAMMAR_NONE};
        for (int t = 0; t < 4; t++) {
            if (nodes[t] == GRAMMAR_NONE) continue;
            const struct bound *l = t < 2 ? lo : NULL, *h = t == 0 || t == 2 ? hi : NULL;
            int a = bound_digit(l, i, 0), z = bound_digit(h, i, 9);
            for (int d = a; d <= z; d++) {
                bool at_lo = l && d == a, at_hi = h && d == z;
                int u = at_lo && at_hi ? 0 : at_lo ? 1 : at_hi ? 2 : 3;
                if (next[u] == GRAMMAR_NONE) next[u] = nfa_node(n);
                nfa_byte(n, nodes[t], '0' + d, '0' + d, next[u]);
            }
        }
        for (int u = 0; u < 4; u++) {
            const struct bound *l = u < 2 ? lo : NULL, *h = u == 0 || u == 2 ? hi : NULL;
            if (next[u] != GRAMMAR_NONE && ends_above(l, i + 1) && ends_below(h, i + 1)) nfa_empty(n, next[u], to);
        }
        memcpy(nodes, next, sizeof nodes);
    }
}

// Magnitudes in [lo, hi] (hi->d NULL: without end).
static void decimal_walk(struct nfa *n, int32_t from, const struct bound *lo, const struct bound *hi, int32_t to) {
    int most = hi->d ? hi->d->n_int : DECIMAL_DIGITS_MAX;
    for (int len = lo->d->n_int; len <= most; len++) {
        bool has_lo = len == lo->d->n_int, has_hi = hi->d && len == hi->d->n_int;
        int32_t nodes[4] = {GRAMMAR_NONE, GRAMMAR_NONE, GRAMMAR_NONE, GRAMMAR_NONE};
        nodes[has_lo && has_hi ? 0 : has_lo ? 1 : has_hi ? 2 : 3] = from;
        for (int i = 0; i < len; i++) {
            int32_t next[4] = {GRAMMAR_NONE, GRAMMAR_NONE, GRAMMAR_NONE, GRAMMAR_NONE};
            for (int t = 0; t < 4; t++) {
                if (nodes[t] == GRAMMAR_NONE) continue;
                bool l = t < 2, h = t == 0 || t == 2;
                int a = l ? lo->d->digits[i] - '0' : i == 0 && len > 1, z = h ? hi->d->digits[i] - '0' : 9;
                for (int d = a; d <= z; d++) {
                    bool at_lo = l && d == a, at_hi = h && d == z;
                    int u = at_lo && at_hi ? 0 : at_lo ? 1 : at_hi ? 2 : 3;
                    if (next[u] == GRAMMAR_NONE) next[u] = nfa_node(n);
                    nfa_byte(n, nodes[t], '0' + d, '0' + d, next[u]);
                }
            }
            memcpy(nodes, next, sizeof nodes);
        }
        for (int u = 0; u < 4; u++)
            if (nodes[u] != GRAMMAR_NONE)
                fraction_walk(n, nodes[u], u < 2 ? lo : NULL, u == 0 || u == 2 ? hi : NULL, DECIMAL_DIGITS_MAX - len,
                              to);
    }
}

static int magnitude_cmp(const struct decimal *a, const struct decimal *b) {
    if (a->n_int != b->n_int) return a->n_int < b->n_int ? -1 : 1;
    for (int i = 0; i < a->n_int + MAX(a->n_frac, b->n_frac); i++) {
        int x = i < a->n_int + a->n_frac ? a->digits[i] : '0', y = i < b->n_int + b->n_frac ? b->digits[i] : '0';
        if (x != y) return x < y ? -1 : 1;
    }
    return 0;
}

static void decimals_to_nfa(struct nfa *n, const struct number_range *r, const struct decimal *lo,
                            const struct decimal *hi, int32_t from, int32_t to) {
    static const struct decimal zero = {.n_int = 1, .digits = "0"};
    if (!hi || !hi->negative) {
        bool has_lo = lo && !lo->negative;
        struct bound a = {has_lo ? lo : &zero, has_lo && r->lo_open}, z = {hi, r->hi_open};
        if (!hi || magnitude_cmp(a.d, hi) <= 0) decimal_walk(n, from, &a, &z, to);
    }
    if (!lo || lo->negative) {
        bool has_hi = hi && hi->negative; // without it the magnitude is above 0: -0 would be 0
        struct bound a = {has_hi ? hi : &zero, has_hi ? r->hi_open : true}, z = {lo, r->lo_open};
        int32_t minus = nfa_node(n);
        nfa_byte(n, from, '-', '-', minus);
        if (!lo || magnitude_cmp(a.d, lo) <= 0) decimal_walk(n, minus, &a, &z, to);
    }
}

// ----------------------------------------------------------------------------------------------------------- numbers

// count digits at most, one at least; each may be the last.
static void digits_up_to(struct nfa *n, int32_t from, int count, int32_t to) {
    for (int i = 0; i < count; i++) {
        int32_t next = nfa_node(n);
        nfa_byte(n, from, '0', '9', next);
        nfa_empty(n, next, to);
        from = next;
    }
}

static void any_number(struct nfa *n, int32_t from, int32_t to) {
    int32_t sign = nfa_node(n), lead = nfa_node(n), whole = nfa_node(n), point = nfa_node(n), frac = nfa_node(n);
    int32_t e = nfa_node(n), e_sign = nfa_node(n);
    nfa_byte(n, from, '-', '-', sign);
    nfa_empty(n, from, sign);
    nfa_byte(n, sign, '0', '0', whole);
    nfa_byte(n, sign, '1', '9', lead);
    nfa_empty(n, lead, whole);
    digits_up_to(n, lead, NUMBER_DIGITS_MAX - 1, whole);
    nfa_empty(n, whole, frac);
    nfa_byte(n, whole, '.', '.', point);
    digits_up_to(n, point, NUMBER_DIGITS_MAX, frac);
    nfa_empty(n, frac, to);
    nfa_byte(n, frac, 'e', 'e', e);
    nfa_byte(n, frac, 'E', 'E', e);
    nfa_empty(n, e, e_sign);
    nfa_byte(n, e, '+', '+', e_sign);
    nfa_byte(n, e, '-', '-', e_sign);
    digits_up_to(n, e_sign, 2, to);
}

static bool bound_read(struct nfa *n, struct str s, int digits_max, const char *path, struct decimal *d) {
    if (decimal_read(s, d) && d->n_int + d->n_frac <= digits_max) return true;
    return GRAMMAR_FAIL(n->b, TERN_UNSUPPORTED,
                        "%s: the bound %.*s has too many digits; up to %d digits can be held exactly", path,
                        (int)MIN(s.len, 40), s.data, digits_max);
}

bool number_to_nfa(struct nfa *n, const struct number_range *r, const char *path, int32_t from, int32_t to) {
    struct decimal lo, hi;
    if (r->multiple_of > MULTIPLE_MAX)
        return GRAMMAR_FAIL(n->b, TERN_UNSUPPORTED, "%s: multipleOf %lld; at most %d is supported", path,
                            (long long)r->multiple_of, MULTIPLE_MAX);
    int digits_max = r->integer ? NUMBER_DIGITS_MAX : DECIMAL_DIGITS_MAX;
    if (r->lo.len && !bound_read(n, r->lo, digits_max, path, &lo)) return false;
    if (r->hi.len && !bound_read(n, r->hi, digits_max, path, &hi)) return false;
    const struct decimal *l = r->lo.len ? &lo : NULL, *h = r->hi.len ? &hi : NULL;
    if (r->integer) return whole_to_nfa(n, r, l, h, from, to);
    if (!l && !h)
        any_number(n, from, to);
    else
        decimals_to_nfa(n, r, l, h, from, to);
    return n->b->status == TERN_OK;
}

int decimal_cmp(struct str a, struct str b) {
    struct decimal x, y;
    if (!decimal_read(a, &x) || !decimal_read(b, &y)) return DECIMAL_UNKNOWN;
    if (x.negative != y.negative) return x.negative ? -1 : 1;
    int c = magnitude_cmp(&x, &y);
    return x.negative ? -c : c;
}

bool decimal_is_whole(struct str s, int64_t *out) {
    struct decimal d;
    if (!decimal_read(s, &d) || d.n_frac > 0 || d.n_int > NUMBER_DIGITS_MAX) return false;
    *out = whole_of(&d);
    return true;
}
