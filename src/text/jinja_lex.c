// The template lexer: pulls tokens from the source, one tag at a time, with Jinja's whitespace rules.
//
// It mirrors Jinja2's regular expressions (trim_blocks and lstrip_blocks on): text up to the next tag is one data
// token; a "-" strips all blanks on its side, a "+" switches the automatic trimming off; inside brackets an end tag is
// two operators. Nothing here recurses, and each byte is looked at a bounded number of times.
#include "base/base.h"
#include "text/jinja_int.h"

#define JINJA_BRACKETS_MAX (JINJA_DEPTH_MAX * 4)

void jinja_line_col(struct str source, size_t pos, int *line, int *col) {
    int l = 1, c = 1;
    for (size_t i = 0; i < pos && i < source.len; i++) {
        if (source.data[i] == '\n') {
            l++;
            c = 1;
        } else if (((uint8_t)source.data[i] & 0xC0) != 0x80) {
            c++;
        }
    }
    *line = l;
    *col = c;
}

bool jlex_fail_done(struct jlexer *l, enum tern_status code, size_t pos) {
    int line, col;
    jinja_line_col(l->src, pos, &line, &col);
    err_prefix(l->err, "template line %d, column %d", line, col);
    l->status = code;
    return false;
}

// Length of the blank (Python's str.isspace) at the start of s, 0 if there is none.
static int space_len(struct str s) {
    if (s.len == 0) return 0;
    uint8_t c = (uint8_t)s.data[0];
    if (c < 0x80) return jrune_space(c) ? 1 : 0;
    int n;
    uint32_t r = utf8_decode(s, &n);
    return r != RUNE_BAD && jrune_space(r) ? n : 0;
}

static struct str src_from(const struct jlexer *l, size_t pos) {
    return (struct str){l->src.data + pos, l->src.len - pos};
}

static size_t skip_spaces(const struct jlexer *l, size_t pos) {
    int n;
    while (pos < l->src.len && (n = space_len(src_from(l, pos))) > 0) pos += (size_t)n;
    return pos;
}

// The end of text [begin, end) without the blanks before it.
static size_t strip_end(const struct jlexer *l, size_t begin, size_t end) {
    while (end > begin) {
        size_t p = end - 1;
        while (p > begin && ((uint8_t)l->src.data[p] & 0xC0) == 0x80) p--;
        if (space_len((struct str){l->src.data + p, end - p}) != (int)(end - p)) break;
        end = p;
    }
    return end;
}

static bool at(const struct jlexer *l, size_t pos, const char *z) {
    return pos <= l->src.len && str_starts(src_from(l, pos), str_from(z));
}

static void queue_put(struct jlexer *l, struct jtoken t) { l->queue[(l->q_head + l->q_len++) % 3] = t; }

static void queue_data(struct jlexer *l, size_t begin, size_t end) {
    if (end > begin)
        queue_put(l,
                  (struct jtoken){.type = T_DATA, .pos = (uint32_t)begin, .text = {l->src.data + begin, end - begin}});
}

// Where text before a tag ends, after the tag's sign and lstrip_blocks had their say.
static size_t text_end(const struct jlexer *l, size_t begin, size_t end, char sign, bool is_variable) {
    if (sign == '-') return strip_end(l, begin, end);
    if (sign == '+' || is_variable) return end;
    size_t line = end;
    while (line > begin && l->src.data[line - 1] != '\n') line--;
    if (line == begin && !l->line_starting) return end;
    return skip_spaces(l, line) >= end ? line : end;
}

// After an end marker at pos (before it: sign): trims as the sign says and notes whether a line starts.
static void after_tag(struct jlexer *l, size_t pos, char sign, bool trim_newline) {
    size_t end = pos;
    if (sign == '-')
        end = skip_spaces(l, pos);
    else if (sign != '+' && trim_newline && at(l, pos, "\n"))
        end = pos + 1;
    l->pos = end;
    l->line_starting = end > 0 && l->src.data[end - 1] == '\n';
}

// "{% raw %}" at pos: *end is the position after it. False if it is another tag.
static bool raw_begin(const struct jlexer *l, size_t pos, size_t *end, bool *strip) {
    pos += 2;
    if (at(l, pos, "-") || at(l, pos, "+")) pos++;
    pos = skip_spaces(l, pos);
    if (!at(l, pos, "raw")) return false;
    pos = skip_spaces(l, pos + 3);
    *strip = at(l, pos, "-");
    if (*strip) pos++;
    if (!at(l, pos, "%}")) return false;
    *end = pos + 2;
    return true;
}

// Puts the content of a raw block that starts at l->pos and moves behind its end tag.
static bool lex_raw(struct jlexer *l, size_t tag_pos) {
    size_t begin = l->pos;
    for (size_t p = begin; (p = str_find(l->src, STR("{%"), p)) != (size_t)-1; p++) {
        size_t q = p + 2;
        char sign = 0;
        if (at(l, q, "-") || at(l, q, "+")) sign = l->src.data[q++];
        q = skip_spaces(l, q);
        if (!at(l, q, "endraw")) continue;
        q = skip_spaces(l, q + 6);
        char sign_end = 0;
        if (at(l, q, "-") || at(l, q, "+")) sign_end = l->src.data[q++];
        if (!at(l, q, "%}")) continue;
        queue_data(l, begin, text_end(l, begin, p, sign, false));
        after_tag(l, q + 2, sign_end, true);
        return true;
    }
    return jlex_fail(l, TERN_BAD_FORMAT, tag_pos, "the raw block is never closed: expected {%% endraw %%}");
}

static bool skip_comment(struct jlexer *l, size_t tag_pos) {
    size_t begin = l->pos, p = str_find(l->src, STR("#}"), begin);
    if (p == (size_t)-1) return jlex_fail(l, TERN_BAD_FORMAT, tag_pos, "the comment is never closed: expected #}");
    char sign = p > begin && (l->src.data[p - 1] == '-' || l->src.data[p - 1] == '+') ? l->src.data[p - 1] : 0;
    after_tag(l, p + 2, sign, true);
    return true;
}

static size_t find_tag(const struct jlexer *l, size_t pos) {
    for (; pos + 1 < l->src.len; pos++) {
        const char *p = memchr(l->src.data + pos, '{', l->src.len - pos - 1);
        if (!p) break;
        pos = (size_t)(p - l->src.data);
        if (p[1] == '{' || p[1] == '%' || p[1] == '#') return pos;
    }
    return l->src.len;
}

// From template text to the next tokens: data, and the tag's begin.
static bool lex_root(struct jlexer *l) {
    size_t begin = l->pos, tag = find_tag(l, begin);
    if (tag >= l->src.len) {
        queue_data(l, begin, l->src.len);
        l->pos = l->src.len;
        if (l->q_len == 0) queue_put(l, (struct jtoken){.type = T_END, .pos = (uint32_t)l->src.len});
        return true;
    }
    char kind = l->src.data[tag + 1];
    char sign = at(l, tag + 2, "-") || at(l, tag + 2, "+") ? l->src.data[tag + 2] : 0;
    queue_data(l, begin, text_end(l, begin, tag, sign, kind == '{'));
    l->line_starting = false;
    size_t raw_end;
    bool raw_strip;
    if (kind == '%' && raw_begin(l, tag, &raw_end, &raw_strip)) {
        after_tag(l, raw_end, raw_strip ? '-' : 0, false);
        return lex_raw(l, tag);
    }
    l->pos = tag + (sign ? 3 : 2);
    if (kind == '#') return skip_comment(l, tag);
    l->state = kind == '{' ? LEX_VAR : LEX_BLOCK;
    queue_put(l, (struct jtoken){.type = kind == '{' ? T_VAR_BEGIN : T_BLOCK_BEGIN, .pos = (uint32_t)tag});
    return true;
}

static bool is_name_start(uint8_t c) {
    uint8_t low = c | 32;
    return (low >= 'a' && low <= 'z') || c == '_' || c >= 0x80;
}
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name(uint8_t c) { return is_name_start(c) || is_digit((char)c); }

static int digit_of(char c) {
    if (is_digit(c)) return c - '0';
    char low = (char)(c | 32);
    return low >= 'a' && low <= 'z' ? low - 'a' + 10 : 99;
}

// Digits of a base with single underscores between them, from pos; the end.
static size_t digits_end(const struct jlexer *l, size_t pos, int base) {
    while (pos < l->src.len) {
        size_t q = l->src.data[pos] == '_' ? pos + 1 : pos;
        if (q >= l->src.len || digit_of(l->src.data[q]) >= base) break;
        pos = q + 1;
    }
    return pos;
}

static size_t float_end(const struct jlexer *l, size_t int_end) {
    size_t end = int_end;
    if (at(l, end, ".") && end + 1 < l->src.len && is_digit(l->src.data[end + 1])) end = digits_end(l, end + 1, 10);
    if (end < l->src.len && (l->src.data[end] | 32) == 'e') {
        size_t q = end + 1;
        if (at(l, q, "+") || at(l, q, "-")) q++;
        if (q < l->src.len && is_digit(l->src.data[q])) end = digits_end(l, q, 10);
    }
    return end;
}

static bool lex_number(struct jlexer *l, struct jtoken *t) {
    size_t begin = l->pos;
    int base = 10;
    if (l->src.data[begin] == '0' && begin + 2 < l->src.len) {
        char x = (char)(l->src.data[begin + 1] | 32);
        base = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 10;
        if (base != 10 && digits_end(l, begin + 2, base) == begin + 2) base = 10;
    }
    size_t end = digits_end(l, base == 10 ? begin : begin + 2, base);
    size_t fend = base == 10 && !(begin > 0 && l->src.data[begin - 1] == '.') ? float_end(l, end) : end;
    bool is_float = fend > end;
    if (!is_float && base == 10 && l->src.data[begin] == '0') { // 007 is the two numbers 0 and 7 to Jinja: refused
        for (size_t i = begin; i < end; i++)
            if (l->src.data[i] != '0' && l->src.data[i] != '_')
                return jlex_fail(l, TERN_BAD_FORMAT, begin, "a number must not start with 0");
    }
    char *text = arena_alloc(l->arena, fend - begin + 1);
    if (!text) return jlex_fail(l, TERN_NO_MEMORY, begin, "out of memory while reading the template");
    size_t n = 0;
    for (size_t i = begin; i < fend; i++)
        if (l->src.data[i] != '_') text[n++] = l->src.data[i];
    l->pos = fend;
    t->type = is_float ? T_FLOAT : T_INT;
    t->text = (struct str){l->src.data + begin, fend - begin};
    bool overflow = false;
    if (is_float)
        return jparse_float((struct str){text, n}, &t->number) ||
               jlex_fail(l, TERN_BAD_FORMAT, begin, "not a number: '%.*s'", (int)MIN(n, 40), text);
    struct str digits = base == 10 ? (struct str){text, n} : (struct str){text + 2, n - 2};
    if (jparse_int(digits, base, &t->integer, &overflow)) return true;
    return jlex_fail(l, TERN_LIMIT, begin, "the integer is beyond 64 bits");
}

static bool hex_value(struct str s, size_t n, uint32_t *out) {
    uint32_t v = 0;
    if (s.len < n) return false;
    for (size_t i = 0; i < n; i++) {
        int d = digit_of(s.data[i]);
        if (d >= 16 || v > 0x0FFFFFFF) return false;
        v = v * 16 + (uint32_t)d;
    }
    *out = v;
    return true;
}

// One escape of a string literal after the backslash at s; writes it to out and returns the bytes read, 0: broken.
static size_t unescape(struct str s, char *out, size_t *n_out) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = s.data[0];
    const char *p = strchr(from, c);
    uint32_t r = 0;
    size_t n = 1;
    *n_out = 0;
    if (c == '\n') return 1;
    if (c && p) {
        out[0] = to[p - from];
        *n_out = 1;
        return 1;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
        n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        if (!hex_value((struct str){s.data + 1, s.len - 1}, n, &r)) return 0;
        n++;
    } else if (c >= '0' && c <= '7') {
        for (n = 0; n < 3 && n < s.len && s.data[n] >= '0' && s.data[n] <= '7'; n++)
            r = r * 8 + (uint32_t)(s.data[n] - '0');
    } else {
        out[0] = '\\';
        *n_out = 1;
        return c == 'N' ? 0 : (size_t)-1; // unknown escapes stay as they are
    }
    if (r > 0x10FFFF || (r >= 0xD800 && r < 0xE000)) return 0;
    *n_out = (size_t)utf8_encode(r, out);
    return n;
}

static bool lex_string(struct jlexer *l, struct jtoken *t) {
    size_t begin = l->pos, end = begin + 1;
    char quote = l->src.data[begin];
    while (end < l->src.len && l->src.data[end] != quote) end += l->src.data[end] == '\\' ? 2 : 1;
    if (end >= l->src.len)
        return jlex_fail(l, TERN_BAD_FORMAT, begin, "the string is never closed: expected %c", quote);
    char *out = arena_alloc(l->arena, end - begin);
    if (!out) return jlex_fail(l, TERN_NO_MEMORY, begin, "out of memory while reading the template");
    size_t n = 0;
    for (size_t i = begin + 1; i < end;) {
        if (l->src.data[i] != '\\') {
            out[n++] = l->src.data[i++];
            continue;
        }
        char piece[4];
        size_t n_piece, used = unescape((struct str){l->src.data + i + 1, end - i - 1}, piece, &n_piece);
        if (used == 0) return jlex_fail(l, TERN_BAD_FORMAT, i, "the escape in this string is not understood");
        memcpy(out + n, piece, n_piece);
        n += n_piece;
        i += used == (size_t)-1 ? 1 : used + 1;
    }
    l->pos = end + 1;
    t->type = T_STRING;
    t->text = (struct str){out, n};
    return true;
}

static const struct {
    const char *text;
    enum jopc op;
} operators[] = {
    // two-byte ones first
    {"//", O_FLOORDIV}, {"**", O_POW},      {"==", O_EQ},      {"!=", O_NE},      {"<=", O_LE},    {">=", O_GE},
    {"+", O_ADD},       {"-", O_SUB},       {"*", O_MUL},      {"/", O_DIV},      {"%", O_MOD},    {"~", O_TILDE},
    {"(", O_LPAREN},    {")", O_RPAREN},    {"[", O_LBRACKET}, {"]", O_RBRACKET}, {"{", O_LBRACE}, {"}", O_RBRACE},
    {"<", O_LT},        {">", O_GT},        {"=", O_ASSIGN},   {".", O_DOT},      {":", O_COLON},  {",", O_COMMA},
    {"|", O_PIPE},      {";", O_SEMICOLON},
};

static bool lex_bracket(struct jlexer *l, size_t pos, char c) {
    if (c == '(' || c == '[' || c == '{') {
        if (l->n_brackets == JINJA_BRACKETS_MAX)
            return jlex_fail(l, TERN_LIMIT, pos, "brackets are nested more than %d deep", JINJA_BRACKETS_MAX);
        l->brackets[l->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        return true;
    }
    if (c != ')' && c != ']' && c != '}') return true;
    if (l->n_brackets == 0) return jlex_fail(l, TERN_BAD_FORMAT, pos, "unexpected '%c'", c);
    char want = l->brackets[--l->n_brackets];
    return want == c || jlex_fail(l, TERN_BAD_FORMAT, pos, "unexpected '%c', expected '%c'", c, want);
}

static bool lex_operator(struct jlexer *l, struct jtoken *t) {
    for (size_t i = 0; i < ARRAY_LEN(operators); i++) {
        struct str text = str_from(operators[i].text);
        if (!at(l, l->pos, operators[i].text)) continue;
        t->type = T_OP;
        t->op = operators[i].op;
        t->text = text;
        l->pos += text.len;
        return lex_bracket(l, t->pos, text.data[0]);
    }
    char shown[16] = {0};
    int n;
    uint32_t r = utf8_decode(src_from(l, l->pos), &n);
    memcpy(shown, l->src.data + l->pos, r == RUNE_BAD ? 0 : (size_t)n);
    return jlex_fail(l, TERN_BAD_FORMAT, l->pos, "unexpected character '%s'", shown);
}

// End of the tag at pos? Then moves behind it.
static bool lex_tag_end(struct jlexer *l) {
    if (l->n_brackets > 0) return false;
    bool is_var = l->state == LEX_VAR;
    size_t pos = l->pos;
    char sign = 0;
    if (at(l, pos, "-") || (!is_var && at(l, pos, "+"))) sign = l->src.data[pos++];
    if (!at(l, pos, is_var ? "}}" : "%}")) return false;
    after_tag(l, pos + 2, sign, !is_var);
    l->state = LEX_ROOT;
    return true;
}

// One token inside a tag.
static bool lex_tag(struct jlexer *l) {
    l->pos = skip_spaces(l, l->pos);
    struct jtoken t = {.pos = (uint32_t)l->pos};
    bool is_var = l->state == LEX_VAR;
    if (l->pos >= l->src.len)
        return jlex_fail(l, TERN_BAD_FORMAT, l->pos, "the template ends inside a tag: expected %s",
                         is_var ? "}}" : "%}");
    uint8_t c = (uint8_t)l->src.data[l->pos];
    if (lex_tag_end(l)) {
        t.type = is_var ? T_VAR_END : T_BLOCK_END;
    } else if (is_digit((char)c)) {
        if (!lex_number(l, &t)) return false;
    } else if (is_name_start(c)) {
        size_t end = l->pos;
        while (end < l->src.len && is_name((uint8_t)l->src.data[end])) end++;
        t.type = T_NAME;
        t.text = (struct str){l->src.data + l->pos, end - l->pos};
        l->pos = end;
    } else if (c == '\'' || c == '"') {
        if (!lex_string(l, &t)) return false;
    } else if (!lex_operator(l, &t)) {
        return false;
    }
    queue_put(l, t);
    return true;
}

bool jlex_next(struct jlexer *l, struct jtoken *out) {
    if (l->status != TERN_OK) return false;
    if (!l->brackets && !(l->brackets = arena_alloc(l->arena, JINJA_BRACKETS_MAX)))
        return jlex_fail(l, TERN_NO_MEMORY, l->pos, "out of memory while reading the template");
    while (l->q_len == 0) {
        l->q_head = 0;
        if (!(l->state == LEX_ROOT ? lex_root(l) : lex_tag(l))) return false;
    }
    *out = l->queue[l->q_head];
    l->q_head = (l->q_head + 1) % 3;
    l->q_len--;
    return true;
}
