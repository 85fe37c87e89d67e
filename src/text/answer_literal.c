// Python literals in tool calls, rewritten as JSON. Strict where a guess could make wrong data: bytes literals, sets,
// names, positional arguments and broken escapes are refused, and the caller then shows the text instead.
#include "base/base.h"
#include "text/answer_int.h"

size_t literal_skip_blanks(struct str s, size_t pos) {
    while (pos < s.len && (s.data[pos] == ' ' || (s.data[pos] >= '\t' && s.data[pos] <= '\r'))) pos++;
    return pos;
}

bool literal_name(struct str s, size_t *pos, const char *also, struct str *out) {
    size_t i = *pos;
    for (; i < s.len; i++) {
        uint8_t c = (uint8_t)s.data[i];
        bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
        bool digit = c >= '0' && c <= '9';
        if (!letter && !digit && c != '_' && c < 0x80 && !(c && strchr(also, c))) break;
        if (digit && i == *pos) break;
    }
    *out = (struct str){s.data + *pos, i - *pos};
    if (i == *pos) return false;
    *pos = i;
    return true;
}

void balance_put(struct balance *b, char c) {
    if (b->quote) {
        if (b->escaped)
            b->escaped = false;
        else if (c == '\\')
            b->escaped = true;
        else if (c == b->quote)
            b->quote = 0;
        return;
    }
    if (c == '\'' || c == '"') b->quote = c;
    if (c == '(' || c == '[' || c == '{') b->depth++;
    if (c == ')' || c == ']' || c == '}') b->depth--;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    char low = (char)(c | 32);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

static bool hex_rune(struct str s, size_t *pos, int n, uint32_t *out) {
    uint32_t v = 0;
    for (int i = 0; i < n; i++) {
        int d = *pos < s.len ? hex_digit(s.data[*pos]) : -1;
        if (d < 0) return false;
        v = v * 16 + (uint32_t)d;
        (*pos)++;
    }
    *out = v;
    return true;
}

// An escape after its backslash at *pos.
static bool unescape(struct str s, size_t *pos, struct buf *out) {
    static const char from[] = "\\'\"abfnrtv/", to[] = "\\'\"\a\b\f\n\r\t\v/";
    if (*pos >= s.len) return false;
    char c = s.data[(*pos)++];
    const char *p = c ? strchr(from, c) : NULL;
    uint32_t r = 0, low;
    if (p) return buf_putc(out, to[p - from]);
    if (c == '\n') return true; // a continued line
    if (c >= '0' && c <= '7') {
        r = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *pos < s.len && s.data[*pos] >= '0' && s.data[*pos] <= '7'; i++)
            r = r * 8 + (uint32_t)(s.data[(*pos)++] - '0');
        return buf_put_rune(out, r);
    }
    if (c != 'x' && c != 'u' && c != 'U') return buf_putc(out, '\\') && buf_putc(out, c); // unknown: kept, as in Python
    if (!hex_rune(s, pos, c == 'x' ? 2 : c == 'u' ? 4 : 8, &r)) return false;
    if (r >= 0xD800 && r < 0xDC00) { // a pair of surrogates is one character, as in JSON
        if (*pos + 1 >= s.len || s.data[*pos] != '\\' || s.data[*pos + 1] != 'u') return false;
        *pos += 2;
        if (!hex_rune(s, pos, 4, &low) || low < 0xDC00 || low > 0xDFFF) return false;
        r = 0x10000 + ((r - 0xD800) << 10) + (low - 0xDC00);
    }
    if (r > 0x10FFFF || (r >= 0xD800 && r < 0xE000)) return false;
    return buf_put_rune(out, r);
}

// One quoted string at *pos; its text goes to out. Real line breaks inside are part of it.
static bool quoted(struct str s, size_t *pos, struct buf *out) {
    char quote = s.data[*pos];
    bool triple = s.len - *pos >= 6 && s.data[*pos + 1] == quote && s.data[*pos + 2] == quote;
    size_t i = *pos + (triple ? 3 : 1);
    while (i < s.len) {
        bool ends = s.data[i] == quote;
        if (ends && triple) ends = i + 2 < s.len && s.data[i + 1] == quote && s.data[i + 2] == quote;
        if (ends) {
            *pos = i + (triple ? 3 : 1);
            return true;
        }
        if (s.data[i] == '\\') {
            i++;
            if (!unescape(s, &i, out)) return false;
            continue;
        }
        size_t run = i + 1;
        while (run < s.len && s.data[run] != quote && s.data[run] != '\\') run++;
        if (!buf_put(out, s.data + i, run - i)) return false;
        i = run;
    }
    return false;
}

// A string, or several side by side.
static bool string_to_json(struct str s, size_t *pos, struct buf *out) {
    struct buf text;
    buf_init(&text, ANSWER_CALL_BYTES_MAX * 4);
    bool ok = true;
    do {
        ok = quoted(s, pos, &text);
        size_t next = literal_skip_blanks(s, *pos);
        if (!ok || next >= s.len || (s.data[next] != '\'' && s.data[next] != '"')) break;
        *pos = next;
    } while (true);
    if (text.failed) out->failed = true; // memory, not bad input: the caller tells them apart by this
    ok = ok && !text.failed && json_put_quoted(out, buf_str(&text));
    buf_release(&text);
    return ok;
}

static bool is_digit(struct str s, size_t i) { return i < s.len && s.data[i] >= '0' && s.data[i] <= '9'; }

// Digits with single underscores between them.
static bool put_digits(struct str s, size_t *pos, struct buf *out) {
    if (!is_digit(s, *pos)) return false;
    while (is_digit(s, *pos)) {
        buf_putc(out, s.data[(*pos)++]);
        if (*pos < s.len && s.data[*pos] == '_' && is_digit(s, *pos + 1)) (*pos)++;
    }
    return true;
}

static bool number_to_json(struct str s, size_t *pos, struct buf *out) {
    size_t i = *pos;
    if (s.data[i] == '+' || s.data[i] == '-') {
        if (s.data[i] == '-') buf_putc(out, '-');
        i++;
    }
    size_t begin = out->len;
    if (i + 2 < s.len && s.data[i] == '0' && (s.data[i + 1] | 32) == 'x') {
        uint64_t v = 0;
        size_t first = i += 2;
        for (; i < s.len && hex_digit(s.data[i]) >= 0; i++)
            if (i - first >= 15)
                return false;
            else
                v = v * 16 + (uint64_t)hex_digit(s.data[i]);
        *pos = i;
        return i > first && buf_putf(out, "%llu", (unsigned long long)v);
    }
    if (is_digit(s, i))
        put_digits(s, &i, out);
    else if (i < s.len && s.data[i] == '.' && is_digit(s, i + 1))
        buf_putc(out, '0');
    else
        return false;
    if (out->failed || (out->len - begin > 1 && out->data[begin] == '0')) return false;
    if (i < s.len && s.data[i] == '.') {
        i++;
        buf_putc(out, '.');
        if (!put_digits(s, &i, out)) buf_putc(out, '0');
    }
    if (i < s.len && (s.data[i] | 32) == 'e') {
        i++;
        buf_putc(out, 'e');
        if (i < s.len && (s.data[i] == '+' || s.data[i] == '-')) buf_putc(out, s.data[i++]);
        if (!put_digits(s, &i, out)) return false;
    }
    *pos = i;
    struct str rest;
    size_t after = i;
    return !literal_name(s, &after, "", &rest) && !out->failed; // "1x" is no number
}

static bool value_to_json(struct str s, size_t *pos, struct buf *out, int depth);

// Items up to `close`; a tuple of one item without comma is the item itself.
static bool items_to_json(struct str s, size_t *pos, struct buf *out, char close, int depth) {
    size_t begin = out->len;
    bool comma = false;
    int n = 0;
    if (!buf_putc(out, '[')) return false;
    for (;;) {
        *pos = literal_skip_blanks(s, *pos);
        if (*pos >= s.len) return false;
        if (s.data[*pos] == close) break;
        if (n > 0 && !comma) return false;
        if (n > 0) buf_putc(out, ',');
        if (!value_to_json(s, pos, out, depth + 1)) return false;
        n++;
        *pos = literal_skip_blanks(s, *pos);
        comma = *pos < s.len && s.data[*pos] == ',';
        if (comma) (*pos)++;
    }
    (*pos)++;
    if (close == ')' && n == 1 && !comma) { // (x) is x
        memmove(out->data + begin, out->data + begin + 1, out->len - begin - 1);
        out->len--;
        return true;
    }
    return buf_putc(out, ']');
}

static bool dict_to_json(struct str s, size_t *pos, struct buf *out, int depth) {
    bool comma = true;
    if (!buf_putc(out, '{')) return false;
    for (int n = 0;; n++) {
        *pos = literal_skip_blanks(s, *pos);
        if (*pos >= s.len) return false;
        if (s.data[*pos] == '}') break;
        if (!comma) return false;
        if (n > 0) buf_putc(out, ',');
        if (s.data[*pos] != '\'' && s.data[*pos] != '"') return false; // JSON has no other keys
        if (!string_to_json(s, pos, out)) return false;
        *pos = literal_skip_blanks(s, *pos);
        if (*pos >= s.len || s.data[(*pos)++] != ':') return false;
        buf_putc(out, ':');
        if (!value_to_json(s, pos, out, depth + 1)) return false;
        *pos = literal_skip_blanks(s, *pos);
        comma = *pos < s.len && s.data[*pos] == ',';
        if (comma) (*pos)++;
    }
    (*pos)++;
    return buf_putc(out, '}');
}

static bool word_to_json(struct str s, size_t *pos, struct buf *out) {
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    struct str name;
    size_t i = *pos;
    if (!literal_name(s, &i, "", &name)) return false;
    for (size_t k = 0; k < ARRAY_LEN(words); k++)
        if (str_eqz(name, words[k][0])) {
            *pos = i;
            return buf_puts(out, words[k][1]);
        }
    return false;
}

static bool value_to_json(struct str s, size_t *pos, struct buf *out, int depth) {
    *pos = literal_skip_blanks(s, *pos);
    if (*pos >= s.len || depth > ANSWER_NESTING_MAX) return false;
    char c = s.data[*pos];
    switch (c) {
    case '\'':
    case '"': return string_to_json(s, pos, out);
    case '[':
    case '(': (*pos)++; return items_to_json(s, pos, out, c == '[' ? ']' : ')', depth);
    case '{': (*pos)++; return dict_to_json(s, pos, out, depth);
    default: break;
    }
    if (c == '-' || c == '+' || c == '.' || is_digit(s, *pos)) return number_to_json(s, pos, out);
    return word_to_json(s, pos, out);
}

bool literal_to_json(struct str s, size_t *pos, struct buf *out) { return value_to_json(s, pos, out, 0); }
