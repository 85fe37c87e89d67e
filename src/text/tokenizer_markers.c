// Added tokens: finding them in text before it is split.
//
// All markers of a pass lie sorted in one array; from a position the range of those that fit is narrowed byte by byte.
// A bit per pair of first bytes rejects nearly every position with one load, which an Aho-Corasick automaton would not
// beat; the work per byte is bounded by the longest marker (TOKENIZER_MARKER_BYTES_MAX).
//
// Which one counts is as in the reference: leftmost, then longest, first over the markers that are looked for in the
// raw text, then over the others in what is left. A control token that may not be read here (not asked for, or any of
// its bytes tainted) is not there at all, so that it neither matches nor hides a shorter or later marker.
#include "base/base.h"
#include "text/tokenizer_int.h"

// Heap sort: no recursion, and no worst case that a file could choose.
static void markers_sift(struct marker *m, int at, int n) {
    struct marker moved = m[at];
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && str_cmp(m[child + 1].text, m[child].text) > 0) child++;
        if (str_cmp(m[child].text, moved.text) <= 0) break;
        m[at] = m[child];
    }
    m[at] = moved;
}

static void markers_sort(struct marker *m, int n) {
    for (int i = n / 2 - 1; i >= 0; i--) markers_sift(m, i, n);
    for (int i = n - 1; i > 0; i--) {
        struct marker last = m[i];
        m[i] = m[0];
        m[0] = last;
        markers_sift(m, 0, i);
    }
}

static void set_index(struct marker_set *s) {
    int i = 0;
    for (int b = 0; b < 256; b++) {
        s->first[b] = (uint32_t)i;
        for (; i < s->n && (uint8_t)s->markers[i].text.data[0] == b; i++) {
            struct str text = s->markers[i].text;
            if (text.len == 1) {
                memset(s->pair + b * 32, 0xff, 32);
            } else {
                uint8_t second = (uint8_t)text.data[1];
                s->pair[b * 32 + second / 8] |= (uint8_t)(1u << second % 8);
            }
        }
    }
    s->first[256] = (uint32_t)i;
}

static bool is_marker(const struct token *token) {
    return (token->kind == TOKEN_ADDED || token->kind == TOKEN_CONTROL) && token->len > 0;
}

// All markers, sorted, each once. flags_of is [size].
static enum tern_status markers_collect(const struct tokenizer *t, const uint8_t *flags_of, struct marker *all,
                                        struct tern_err *err) {
    int n = 0;
    for (int32_t id = 0; id < t->size; id++) {
        const struct token *token = &t->tokens[id];
        if (!is_marker(token)) continue;
        if (token->len > TOKENIZER_MARKER_BYTES_MAX) {
            return err_set(err, TERN_LIMIT, "added token %d is %u bytes long, at most %d are allowed", id, token->len,
                           TOKENIZER_MARKER_BYTES_MAX);
        }
        struct str text = {t->pool + token->offset, token->len};
        all[n++] = (struct marker){text, id, flags_of[id], token->kind == TOKEN_CONTROL};
    }
    markers_sort(all, n);
    for (int i = 1; i < n; i++) {
        if (!str_eq(all[i].text, all[i - 1].text)) continue;
        return err_set(err, TERN_BAD_FORMAT, "the added tokens %d and %d have the same text \"%.*s\"", all[i - 1].id,
                       all[i].id, TOKEN_SHOWN(all[i].text));
    }
    return TERN_OK;
}

enum tern_status marker_sets_build(struct tokenizer *t, const struct tokenizer_parts *parts, struct tern_err *err) {
    size_t n = 0;
    for (int32_t id = 0; id < t->size; id++) n += is_marker(&t->tokens[id]);
    if (n > TOKENIZER_MARKERS_MAX) {
        return err_set(err, TERN_LIMIT, "the tokenizer has %zu added tokens, at most %u are allowed", n,
                       TOKENIZER_MARKERS_MAX);
    }
    enum tern_status status = TERN_OK;
    struct marker *all = mem_calloc(n, sizeof *all);
    uint8_t *flags_of = mem_calloc((size_t)t->size, 1);
    for (int pass = 0; pass < 2; pass++) t->markers[pass].markers = mem_calloc(n, sizeof *all);
    if (!all || !flags_of || !t->markers[0].markers || !t->markers[1].markers) {
        status = err_set(err, TERN_NO_MEMORY, "out of memory for %zu added tokens", n);
        goto done;
    }
    for (int i = 0; i < parts->n_tokens; i++) flags_of[parts->tokens[i].id] = parts->tokens[i].flags;
    TRY_GOTO(markers_collect(t, flags_of, all, err), done);
    for (size_t i = 0; i < n; i++) {
        struct marker_set *s = &t->markers[all[i].flags & TOKEN_NORMALIZED ? 1 : 0];
        s->markers[s->n++] = all[i];
    }
    for (int pass = 0; pass < 2; pass++) set_index(&t->markers[pass]);
done:
    mem_free(all);
    mem_free(flags_of);
    return status;
}

void marker_set_release(struct marker_set *s) {
    mem_free(s->markers);
    s->markers = NULL;
}

int32_t tokenizer_find(const struct tokenizer *t, struct str marker) {
    if (marker.len == 0) return -1;
    for (int pass = 0; pass < 2; pass++) {
        const struct marker_set *s = &t->markers[pass];
        int low = 0, high = s->n;
        while (low < high) {
            int middle = (low + high) / 2;
            int order = str_cmp(s->markers[middle].text, marker);
            if (order == 0) return s->markers[middle].id;
            if (order < 0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
    }
    return -1;
}

static uint8_t class_before(const struct marker_scan *s, size_t pos, size_t *begin) {
    size_t at = pos - 1;
    while (at > s->begin && pos - at < 4 && (s->text[at] & 0xc0) == 0x80) at--;
    int n;
    uint8_t class = unicode_class_at(&s->t->unicode, s->text + at, pos - at, &n);
    if (at + (size_t)n != pos) { // the bytes before pos are no whole character: an ill-formed byte
        *begin = pos - 1;
        return 0;
    }
    *begin = at;
    return class;
}

static uint8_t class_after(const struct marker_scan *s, size_t pos, size_t *end) {
    int n;
    uint8_t class = unicode_class_at(&s->t->unicode, s->text + pos, s->end - pos, &n);
    *end = pos + (size_t)n;
    return class;
}

// May a control token be read out of text[begin .. end)? Ranges before begin are left behind for good, as begin grows.
static bool control_may_be(struct marker_scan *s, size_t begin, size_t end) {
    const struct encode_options *o = s->options;
    if (!o->parse_special) return false;
    while (s->tainted_next < o->n_tainted && o->tainted[s->tainted_next].end <= begin) s->tainted_next++;
    for (int i = s->tainted_next; i < o->n_tainted && o->tainted[i].begin < end; i++) {
        if (o->tainted[i].end > o->tainted[i].begin) return false;
    }
    return true;
}

// The longest marker that starts at pos and counts there, or NULL.
static const struct marker *longest_at(struct marker_scan *s, size_t pos) {
    const struct marker *m = s->set->markers, *best = NULL;
    uint32_t low = s->set->first[s->text[pos]], high = s->set->first[s->text[pos] + 1];
    for (size_t depth = 1; low < high; depth++) {
        s->n_steps++;
        if (m[low].text.len == depth) { // sorted: the shortest of those that fit comes first
            if (!m[low].control || control_may_be(s, pos, pos + depth)) best = &m[low];
            low++;
        }
        if (pos + depth >= s->end || low == high) break;
        uint8_t byte = s->text[pos + depth];
        for (uint32_t above = high; low < above;) {
            uint32_t middle = (low + above) / 2;
            if ((uint8_t)m[middle].text.data[depth] < byte) {
                low = middle + 1;
            } else {
                above = middle;
            }
        }
        for (uint32_t below = low; below < high;) {
            uint32_t middle = (below + high) / 2;
            if ((uint8_t)m[middle].text.data[depth] <= byte) {
                below = middle + 1;
            } else {
                high = middle;
            }
        }
    }
    return best;
}

static bool stands_alone(const struct marker_scan *s, size_t begin, size_t end) {
    size_t unused;
    if (begin > s->begin && (class_before(s, begin, &unused) & UNICODE_WORD)) return false;
    return end == s->end || !(class_after(s, end, &unused) & UNICODE_WORD);
}

// Widens the match over the blanks that its flags swallow. A marker that starts with a blank may start in what the one
// before it has swallowed: it counts all the same, as in the reference.
static void match_widen(struct marker_scan *s, struct marker_match *m) {
    size_t next;
    if (m->marker->flags & TOKEN_LSTRIP) {
        while (m->begin > s->done && (class_before(s, m->begin, &next) & UNICODE_SPACE)) m->begin = next;
    }
    m->begin = MAX(m->begin, s->done);
    if (m->marker->flags & TOKEN_RSTRIP) {
        while (m->end < s->end && (class_after(s, m->end, &next) & UNICODE_SPACE)) m->end = next;
    }
}

bool marker_scan_next(struct marker_scan *s, struct marker_match *m) {
    const struct marker_set *set = s->set;
    size_t start = s->pos;
    if (set->n == 0) return false;
    for (size_t pos = s->pos; pos < s->end; pos++) {
        uint8_t first = s->text[pos];
        if (set->first[first] == set->first[first + 1]) continue;
        uint8_t second = pos + 1 < s->end ? s->text[pos + 1] : 0;
        if (pos + 1 < s->end && !(set->pair[first * 32 + second / 8] >> second % 8 & 1)) continue;
        const struct marker *found = longest_at(s, pos);
        if (!found) continue;
        size_t end = pos + found->text.len;
        if ((found->flags & TOKEN_SINGLE_WORD) && !stands_alone(s, pos, end)) {
            pos = end - 1;
            continue;
        }
        *m = (struct marker_match){found, pos, end};
        match_widen(s, m);
        s->n_steps += m->end - start;
        s->pos = end;
        s->done = m->end;
        return true;
    }
    s->n_steps += s->end - start;
    s->pos = s->end;
    return false;
}
