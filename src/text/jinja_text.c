// Strings of the template language: building, slicing, splitting and joining by code points, with taint.
//
// A string is a view: bytes, a parallel taint byte each (or NULL), and the buffer it was built in. Slices share, only
// what makes new bytes copies. Concatenation appends in place when the left side ends where its buffer ends, which
// turns the templates' habit of growing a string in a loop from quadratic into linear.
#include "base/base.h"
#include "text/jinja_int.h"

struct str jstr_str(const struct jstr *s) {
    return (struct str){s->data, s->len};
}

static bool check_size(struct jinterp *it, size_t len) {
    if (it->status != TERN_OK) return false;
    if (len <= JINJA_OUTPUT_BYTES_MAX) return true;
    jfail(it, TERN_LIMIT, "the template makes a text of more than %u MiB (JINJA_OUTPUT_BYTES_MAX)",
          JINJA_OUTPUT_BYTES_MAX >> 20);
    return false;
}

static bool buf_reserve_more(struct jinterp *it, struct jbuf *b, size_t extra) {
    size_t need;
    if (!size_add(b->len, extra, &need) || !check_size(it, need)) return check_size(it, SIZE_MAX);
    if (need <= b->cap) return true;
    size_t cap = MAX(need, MIN(b->len * 2, (size_t)JINJA_OUTPUT_BYTES_MAX));
    cap = MAX(cap, (size_t)48);
    char *data = jalloc(it, cap, 1);
    if (!data) return false;
    uint8_t *taint = b->taint ? jalloc(it, cap, 1) : NULL;
    if (b->taint && !taint) return false;
    if (b->len) memcpy(data, b->data, b->len);
    if (b->len && taint) memcpy(taint, b->taint, b->len);
    b->data = data;
    b->taint = taint;
    b->cap = cap;
    return true;
}

bool jbuf_put(struct jinterp *it, struct jbuf *b, const char *data, const uint8_t *taint, size_t len) {
    if (!jstep(it, len / 256) || !buf_reserve_more(it, b, len)) return false;
    if (len == 0) return true;
    if (taint && !b->taint) {
        if (!(b->taint = jalloc(it, b->cap, 1))) return false;
        memset(b->taint, 0, b->len);
    }
    memcpy(b->data + b->len, data, len);
    if (b->taint && taint) memcpy(b->taint + b->len, taint, len);
    if (b->taint && !taint) memset(b->taint + b->len, 0, len);
    b->len += len;
    return true;
}

bool jbuf_puts(struct jinterp *it, struct jbuf *b, const char *z) { return jbuf_put(it, b, z, NULL, strlen(z)); }
bool jbuf_put_str(struct jinterp *it, struct jbuf *b, const struct jstr *s) {
    return jbuf_put(it, b, s->data, s->taint, s->len);
}
bool jbuf_put_rune(struct jinterp *it, struct jbuf *b, uint32_t rune, bool tainted) {
    static const uint8_t ones[4] = {1, 1, 1, 1};
    char out[4];
    size_t n = (size_t)utf8_encode(rune, out);
    return jbuf_put(it, b, out, tainted ? ones : NULL, n);
}

static struct jval str_new(struct jinterp *it, struct jstr s) {
    struct jstr *p = jalloc(it, 1, sizeof(*p));
    if (!p) return jval_undef;
    *p = s;
    return (struct jval){.type = J_STR, .u.s = p};
}

struct jval jbuf_val(struct jinterp *it, struct jbuf *b) {
    struct jbuf *own = jalloc(it, 1, sizeof(*own));
    if (!own) return jval_undef;
    *own = *b;
    return str_new(
        it, (struct jstr){
                .data = b->data ? b->data : "", .taint = b->taint, .len = b->len, .n_runes = SIZE_MAX, .own = own});
}

struct jval jstr_lit(struct jinterp *it, const char *z) {
    return str_new(it, (struct jstr){.data = z, .len = strlen(z), .n_runes = SIZE_MAX});
}

struct jval jstr_copy(struct jinterp *it, struct str s, bool tainted) {
    TERN_ASSERT(!tainted || s.len <= it->n_ones);
    char *data = jalloc(it, s.len + 1, 1);
    if (!data) return jval_undef;
    if (s.len) memcpy(data, s.data, s.len);
    return str_new(it,
                   (struct jstr){.data = data, .taint = tainted ? it->ones : NULL, .len = s.len, .n_runes = SIZE_MAX});
}

struct jval jstr_view(struct jinterp *it, const struct jstr *s, size_t begin, size_t len) {
    return str_new(it, (struct jstr){.data = s->data + begin,
                                     .taint = s->taint ? s->taint + begin : NULL,
                                     .len = len,
                                     .n_runes = SIZE_MAX,
                                     .own = s->own});
}

struct jval jstr_concat(struct jinterp *it, const struct jstr *a, const struct jstr *b) {
    if (b->len == 0) return str_new(it, *a);
    if (a->len == 0) return str_new(it, *b);
    struct jbuf *own = a->own;
    bool in_place = own && a->data + a->len == own->data + own->len && own->cap - own->len >= b->len;
    if (!in_place) {
        size_t total;
        if (!size_add(a->len, b->len, &total) || !check_size(it, total)) return check_size(it, SIZE_MAX), jval_undef;
        if (!(own = jalloc(it, 1, sizeof(*own)))) return jval_undef;
        *own = (struct jbuf){0};
        size_t slack = MIN(total / 2, JINJA_OUTPUT_BYTES_MAX - total); // for the next append
        if (!buf_reserve_more(it, own, total + slack) || !jbuf_put_str(it, own, a)) return jval_undef;
    }
    size_t begin = in_place ? (size_t)(a->data - own->data) : 0;
    if (!jbuf_put_str(it, own, b)) return jval_undef;
    return str_new(it, (struct jstr){.data = own->data + begin,
                                     .taint = own->taint ? own->taint + begin : NULL,
                                     .len = a->len + b->len,
                                     .n_runes = SIZE_MAX,
                                     .own = own});
}

size_t jrunes_count(struct str s) {
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) n += ((uint8_t)s.data[i] & 0xC0) != 0x80;
    return n;
}

size_t jstr_runes(struct jinterp *it, const struct jstr *s) {
    if (s->n_runes != SIZE_MAX) return s->n_runes;
    jstep(it, s->len / 256);
    ((struct jstr *)s)->n_runes = jrunes_count(jstr_str(s)); // literals come counted, so this one is the render's own
    return s->n_runes;
}

size_t jstr_offset(struct jinterp *it, const struct jstr *s, size_t rune) {
    if (jstr_runes(it, s) == s->len) return MIN(rune, s->len);
    size_t i = 0;
    for (; i < s->len && rune > 0; rune--) {
        i++;
        while (i < s->len && ((uint8_t)s->data[i] & 0xC0) == 0x80) i++;
    }
    jstep(it, i / 64);
    return i;
}

// n code points from start on, every step-th; the caller has clipped them.
struct jval jstr_slice(struct jinterp *it, const struct jstr *s, int64_t start, int64_t step, size_t n) {
    if (n == 0) return jstr_lit(it, "");
    size_t begin = jstr_offset(it, s, (size_t)start);
    if (step == 1) {
        struct jstr rest = {.data = s->data + begin, .len = s->len - begin, .n_runes = SIZE_MAX};
        if (s->n_runes == s->len) rest.n_runes = rest.len;
        return jstr_view(it, s, begin, jstr_offset(it, &rest, n));
    }
    struct jbuf b = {0};
    size_t pos = begin;
    for (size_t i = 0; i < n && jstep(it, 1); i++) {
        int len;
        utf8_decode((struct str){s->data + pos, s->len - pos}, &len);
        jbuf_put(it, &b, s->data + pos, s->taint ? s->taint + pos : NULL, (size_t)len);
        if (i + 1 == n) break;
        for (int64_t k = 0; k < (step < 0 ? -step : step); k++) {
            if (step < 0) {
                do pos--;
                while (pos > 0 && ((uint8_t)s->data[pos] & 0xC0) == 0x80);
            } else {
                do pos++;
                while (pos < s->len && ((uint8_t)s->data[pos] & 0xC0) == 0x80);
            }
        }
    }
    return jbuf_val(it, &b);
}

static bool in_set(uint32_t r, const struct jstr *chars) {
    if (!chars) return jrune_space(r);
    for (size_t i = 0; i < chars->len;) {
        int n;
        if (utf8_decode((struct str){chars->data + i, chars->len - i}, &n) == r) return true;
        i += (size_t)n;
    }
    return false;
}

struct jval jstr_strip(struct jinterp *it, const struct jstr *s, const struct jstr *chars, bool left, bool right) {
    size_t begin = 0, end = s->len, cost = chars ? 1 + chars->len / 16 : 0;
    int n;
    while (left && begin < end && jstep(it, cost)) {
        if (!in_set(utf8_decode((struct str){s->data + begin, end - begin}, &n), chars)) break;
        begin += (size_t)n;
    }
    while (right && end > begin && jstep(it, cost)) {
        size_t p = end - 1;
        while (p > begin && ((uint8_t)s->data[p] & 0xC0) == 0x80) p--;
        if (!in_set(utf8_decode((struct str){s->data + p, end - p}, &n), chars)) break;
        end = p;
    }
    jstep(it, (s->len - (end - begin)) / 64);
    return jstr_view(it, s, begin, end - begin);
}

// The scan is quadratic for long needles that nearly fit everywhere, which is charged before.
size_t jstr_rfind(struct jinterp *it, struct str hay, struct str needle, size_t from) {
    if (needle.len > hay.len) return (size_t)-1;
    if (needle.len > 256 && !jstep(it, hay.len / 64 * (needle.len / 64))) return (size_t)-1;
    size_t i = MIN(from, hay.len - needle.len) + 1;
    while (i-- > 0)
        if (needle.len == 0 || (hay.data[i] == needle.data[0] && memcmp(hay.data + i, needle.data, needle.len) == 0))
            return i;
    return (size_t)-1;
}

static void reverse_list(struct jlist *l) {
    for (size_t i = 0; l && i < l->len / 2; i++) {
        struct jval t = l->items[i];
        l->items[i] = l->items[l->len - 1 - i];
        l->items[l->len - 1 - i] = t;
    }
}

static size_t space_end(const struct jstr *s, size_t i) {
    int n;
    while (i < s->len && jrune_space(utf8_decode((struct str){s->data + i, s->len - i}, &n))) i += (size_t)n;
    return i;
}
static size_t word_end(const struct jstr *s, size_t i) {
    int n;
    while (i < s->len && !jrune_space(utf8_decode((struct str){s->data + i, s->len - i}, &n))) i += (size_t)n;
    return i;
}

// Splits at runs of blanks: at most max splits, from the left or the right.
static struct jval split_blanks(struct jinterp *it, const struct jstr *s, int64_t max, bool right) {
    struct jlist *words = jlist_new(it, JL_LIST, 0); // begin, end pairs as integers
    for (size_t i = space_end(s, 0); i < s->len && jstep(it, 1); i = space_end(s, i)) {
        size_t end = word_end(s, i);
        jlist_push(it, words, jint((int64_t)i));
        jlist_push(it, words, jint((int64_t)end));
        i = end;
    }
    struct jlist *out = jlist_new(it, JL_LIST, 0);
    if (!words || !out || !jstep(it, s->len / 64)) return jval_undef;
    size_t n = words->len / 2, cut = max < 0 || (uint64_t)max >= n ? n : (size_t)max;
    size_t first = right ? n - cut : 0, last = right ? n : cut; // the words that stand alone
    if (right && first > 0) {
        size_t begin = 0, end = (size_t)words->items[first * 2 - 1].u.i;
        jlist_push(it, out, jstr_view(it, s, begin, end - begin));
    }
    for (size_t i = first; i < last && it->status == TERN_OK; i++) {
        size_t begin = (size_t)words->items[i * 2].u.i;
        jlist_push(it, out, jstr_view(it, s, begin, (size_t)words->items[i * 2 + 1].u.i - begin));
    }
    if (!right && last < n) {
        size_t begin = (size_t)words->items[last * 2].u.i;
        jlist_push(it, out, jstr_view(it, s, begin, s->len - begin));
    }
    return jlist_val(out);
}

struct jval jstr_split(struct jinterp *it, const struct jstr *s, const struct jstr *sep, int64_t max, bool right) {
    if (!sep) return split_blanks(it, s, max, right);
    if (sep->len == 0) return jfail(it, TERN_BAD_FORMAT, "split() needs a separator that is not empty");
    struct jlist *out = jlist_new(it, JL_LIST, 0);
    struct str hay = jstr_str(s), needle = jstr_str(sep);
    size_t begin = 0, end = s->len;
    for (int64_t n = 0; out && (max < 0 || n < max) && jstep(it, 1); n++) {
        size_t hit = right ? jstr_rfind(it, (struct str){hay.data, end}, needle, end) : str_find(hay, needle, begin);
        if (hit == (size_t)-1) break;
        if (right) {
            jlist_push(it, out, jstr_view(it, s, hit + sep->len, end - hit - sep->len));
            end = hit;
        } else {
            jlist_push(it, out, jstr_view(it, s, begin, hit - begin));
            begin = hit + sep->len;
        }
    }
    jstep(it, s->len / 64);
    jlist_push(it, out, jstr_view(it, s, begin, end - begin));
    if (right) reverse_list(out);
    return jlist_val(out);
}

// The line border at i: its length, 0 if there is none.
static size_t line_break(struct str s) {
    if (s.len == 0) return 0;
    uint8_t c = (uint8_t)s.data[0];
    if (c == '\r') return s.len > 1 && s.data[1] == '\n' ? 2 : 1;
    if ((c >= '\n' && c <= '\f') || (c >= 0x1c && c <= 0x1e)) return 1;
    int n = 1;
    uint32_t r = c < 0x80 ? c : utf8_decode(s, &n);
    return r == 0x85 || r == 0x2028 || r == 0x2029 ? (size_t)n : 0;
}

struct jval jstr_splitlines(struct jinterp *it, const struct jstr *s, bool keep) {
    struct jlist *out = jlist_new(it, JL_LIST, 0);
    size_t begin = 0;
    for (size_t i = 0; i < s->len;) {
        size_t n = line_break((struct str){s->data + i, s->len - i});
        if (n == 0) {
            i++;
            continue;
        }
        if (!jstep(it, 1)) break;
        jlist_push(it, out, jstr_view(it, s, begin, i - begin + (keep ? n : 0)));
        begin = i += n;
    }
    jstep(it, s->len / 64);
    if (begin < s->len) jlist_push(it, out, jstr_view(it, s, begin, s->len - begin));
    return jlist_val(out);
}

struct jval jstr_replace(struct jinterp *it, const struct jstr *s, const struct jstr *from, const struct jstr *to,
                         int64_t max) {
    struct jbuf b = {0};
    struct str hay = jstr_str(s), needle = jstr_str(from);
    size_t pos = 0;
    int64_t n = 0;
    jstep(it, s->len / 64);
    for (; (max < 0 || n < max) && jstep(it, 1); n++) {
        size_t hit = str_find(hay, needle, pos), skip = from->len;
        if (hit == (size_t)-1) break;
        jbuf_put(it, &b, s->data + pos, s->taint ? s->taint + pos : NULL, hit - pos);
        jbuf_put_str(it, &b, to);
        pos = hit + skip;
        if (from->len > 0) continue;
        if (pos >= s->len) { // an empty needle stands before every code point and at the end
            n++;
            break;
        }
        int len;
        utf8_decode((struct str){s->data + pos, s->len - pos}, &len);
        jbuf_put(it, &b, s->data + pos, s->taint ? s->taint + pos : NULL, (size_t)len);
        pos += (size_t)len;
    }
    if (n == 0) return str_new(it, *s);
    jbuf_put(it, &b, s->data + pos, s->taint ? s->taint + pos : NULL, s->len - pos);
    return jbuf_val(it, &b);
}

struct jval jstr_join(struct jinterp *it, const struct jstr *sep, const struct jlist *l, bool strict) {
    struct jbuf b = {0};
    for (size_t i = 0; i < l->len && jstep(it, 1); i++) {
        if (i > 0 && sep) jbuf_put_str(it, &b, sep);
        if (strict && l->items[i].type != J_STR)
            return jfail(it, TERN_BAD_FORMAT, "join() needs strings, found '%s' at index %zu", jtype_name(l->items[i]),
                         i);
        jbuf_put_val(it, &b, l->items[i]);
    }
    return jbuf_val(it, &b);
}

struct jval jstr_repeat(struct jinterp *it, const struct jstr *s, int64_t n) {
    size_t total;
    if (n <= 0 || s->len == 0) return jstr_lit(it, "");
    if (!size_mul(s->len, (size_t)n, &total) || !check_size(it, total)) return check_size(it, SIZE_MAX), jval_undef;
    struct jbuf b = {0};
    if (!buf_reserve_more(it, &b, total) || !jbuf_put_str(it, &b, s)) return jval_undef;
    while (b.len < total && jbuf_put(it, &b, b.data, b.taint, MIN(b.len, total - b.len))) {
    }
    return jbuf_val(it, &b);
}
