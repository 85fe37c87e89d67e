// The split patterns of the known tokenizer families, as hand-written scanners.
//
// A general regular-expression engine was rejected: it is slow on these patterns, its worst case is not linear, and its
// Unicode tables follow a version of their own. Each scanner below is the ordered choice of its pattern written out;
// every branch that looks ahead consumes what it has seen within the next two pieces, so the time is linear. The only
// two spots where the patterns backtrack are marked. What each family does with every code point is compared with the
// reference (test/unit/text/test_pretok.c).
#include "base/base.h"
#include "text/pretok.h"

static const struct pretok_family {
    const char *name;
    const char *regex;
} families[PRETOK_COUNT] = {
    [PRETOK_LLAMA3] = {"llama-3", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                                  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    [PRETOK_QWEN2] = {"qwen2", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                               "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    [PRETOK_GPT2] = {"gpt-2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    [PRETOK_SMOLLM] = {"smollm", NULL}, // a digits splitter, then the pattern of gpt-2
};

static const struct {
    const char *name;
    enum pretok_kind kind;
    bool ignore_merges, adds_bos;
} gguf_names[] = {
    {"lfm2", PRETOK_LLAMA3, true, true},        {"llama-bpe", PRETOK_LLAMA3, true, true},
    {"llama3", PRETOK_LLAMA3, true, true},      {"llama-v3", PRETOK_LLAMA3, true, true},
    {"qwen2", PRETOK_QWEN2, false, false},      {"deepseek-r1-qwen", PRETOK_QWEN2, false, true},
    {"gpt-2", PRETOK_GPT2, false, false},       {"smollm", PRETOK_SMOLLM, false, false},
    {"starcoder", PRETOK_SMOLLM, false, false},
};

bool pretok_from_gguf(struct str name, enum pretok_kind *kind, bool *ignore_merges, bool *adds_bos) {
    for (size_t i = 0; i < ARRAY_LEN(gguf_names); i++) {
        if (!str_eqz(name, gguf_names[i].name)) continue;
        *kind = gguf_names[i].kind;
        *ignore_merges = gguf_names[i].ignore_merges;
        *adds_bos = gguf_names[i].adds_bos;
        return true;
    }
    return false;
}

bool pretok_from_regex(struct str regex, enum pretok_kind *kind) {
    for (int i = 0; i < PRETOK_COUNT; i++) {
        if (!families[i].regex || !str_eqz(regex, families[i].regex)) continue;
        *kind = (enum pretok_kind)i;
        return true;
    }
    return false;
}

const char *pretok_name(enum pretok_kind kind) { return families[kind].name; }

void pretok_init(struct pretok *p, const struct unicode_map *map, enum pretok_kind kind, struct str text) {
    *p = (struct pretok){.map = map, .kind = kind, .text = (const uint8_t *)text.data, .end = text.len};
}

#define CLASS_NOT_OTHER (UNICODE_LETTER | UNICODE_NUMBER | UNICODE_SPACE)

static inline uint8_t class_at(const struct pretok *p, size_t pos, size_t end, int *n) {
    return unicode_class_at(p->map, p->text + pos, end - pos, n);
}

static inline bool is_newline(uint8_t c) { return c == '\r' || c == '\n'; }

// End of the longest run from pos of characters with (class & mask) == want.
static size_t run_end(const struct pretok *p, size_t pos, size_t end, uint8_t mask, uint8_t want) {
    while (pos < end) {
        int n;
        if ((class_at(p, pos, end, &n) & mask) != want) break;
        pos += (size_t)n;
    }
    return pos;
}

static size_t letters_end(const struct pretok *p, size_t pos, size_t end) {
    return run_end(p, pos, end, UNICODE_LETTER, UNICODE_LETTER);
}
static size_t others_end(const struct pretok *p, size_t pos, size_t end) {
    return run_end(p, pos, end, CLASS_NOT_OTHER, 0);
}

// 's 't 'm 'd 're 've 'll at an apostrophe: the end, or pos when there is none. With any_case also in capitals, and
// with U+017F, the long s, which folds to s (none of the other letters has such a relative).
static size_t contraction_end(const struct pretok *p, size_t pos, size_t end, bool any_case) {
    if (end - pos < 2) return pos;
    uint8_t fold = any_case ? 0x20 : 0;
    uint8_t a = p->text[pos + 1] | fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return pos + 2;
    if (end - pos < 3) return pos;
    if (any_case && p->text[pos + 1] == 0xc5 && p->text[pos + 2] == 0xbf) return pos + 3;
    uint8_t b = p->text[pos + 2] | fold;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return pos + 3;
    return pos;
}

// \s+(?!\S)|\s+ : a run of blanks up to the end of the text, or all but its last one before something else (the one
// step back that the lookahead asks for), or a single blank. With `newlines` first \s*[\r\n]+ : up to the last line end
// of the run (the greedy \s* steps back to it).
static size_t blanks_end(struct pretok *p, size_t pos, size_t end, bool newlines) {
    size_t at = pos, last = pos, newline_end = pos;
    while (at < end) {
        int n;
        if (!(class_at(p, at, end, &n) & UNICODE_SPACE)) break;
        last = at;
        if (is_newline(p->text[at])) newline_end = at + 1;
        at += (size_t)n;
    }
    p->n_steps += at - pos;
    if (newlines && newline_end > pos) return newline_end;
    if (at == end || last == pos) return at;
    return last;
}

static size_t llama3_end(struct pretok *p, size_t pos, size_t end, int n_digits_max) {
    uint8_t first = p->text[pos];
    if (first == '\'') {
        size_t e = contraction_end(p, pos, end, true);
        if (e > pos) return e;
    }
    int n;
    uint8_t class = class_at(p, pos, end, &n);
    size_t next = pos + (size_t)n;
    if (class & UNICODE_LETTER) return letters_end(p, next, end);
    if (class & UNICODE_NUMBER) {
        for (int i = 1; i < n_digits_max && next < end; i++) {
            if (!(class_at(p, next, end, &n) & UNICODE_NUMBER)) break;
            next += (size_t)n;
        }
        return next;
    }
    if (next < end && !is_newline(first)) {
        uint8_t class_next = class_at(p, next, end, &n);
        if (class_next & UNICODE_LETTER) return letters_end(p, next + (size_t)n, end);
        if (first == ' ' && !(class_next & CLASS_NOT_OTHER)) class = class_next;
    }
    if (class & UNICODE_SPACE) return blanks_end(p, pos, end, true);
    size_t e = others_end(p, next, end);
    while (e < end && is_newline(p->text[e])) e++;
    return e;
}

static size_t gpt2_end(struct pretok *p, size_t pos, size_t end) {
    uint8_t first = p->text[pos];
    if (first == '\'') {
        size_t e = contraction_end(p, pos, end, false);
        if (e > pos) return e;
    }
    int n;
    uint8_t class = class_at(p, pos, end, &n);
    size_t next = pos + (size_t)n;
    if (first == ' ' && next < end) {
        uint8_t class_next = class_at(p, next, end, &n);
        if (!(class_next & UNICODE_SPACE)) {
            class = class_next;
            next += (size_t)n;
        }
    }
    if (class & UNICODE_LETTER) return letters_end(p, next, end);
    if (class & UNICODE_NUMBER) return run_end(p, next, end, UNICODE_NUMBER, UNICODE_NUMBER);
    if (class & UNICODE_SPACE) return blanks_end(p, pos, end, false);
    return others_end(p, next, end);
}

// The digits splitter cuts first, so that the pattern of gpt-2 never sees over a digit.
static size_t smollm_end(struct pretok *p, size_t pos) {
    if (pos >= p->limit) {
        int n;
        if (class_at(p, pos, p->end, &n) & UNICODE_DIGIT) return pos + (size_t)n;
        p->limit = run_end(p, pos, p->end, UNICODE_DIGIT, 0);
        p->n_steps += p->limit - pos;
    }
    return gpt2_end(p, pos, p->limit);
}

bool pretok_next(struct pretok *p, struct str *piece) {
    if (p->pos >= p->end) return false;
    size_t end = 0;
    switch (p->kind) {
    case PRETOK_LLAMA3: end = llama3_end(p, p->pos, p->end, 3); break;
    case PRETOK_QWEN2: end = llama3_end(p, p->pos, p->end, 1); break;
    case PRETOK_GPT2: end = gpt2_end(p, p->pos, p->end); break;
    case PRETOK_SMOLLM: end = smollm_end(p, p->pos); break;
    case PRETOK_COUNT: TERN_BUG("no such family of split patterns");
    }
    *piece = (struct str){(const char *)p->text + p->pos, end - p->pos};
    p->n_steps += piece->len;
    p->pos = end;
    return true;
}
