// The kind of text an answer is in. Bytes are counted in two fading sums: signs of code and signs of arithmetic. Fences
// and tool markers decide alone; otherwise shares do, with a wait before a change, because a wrong class costs little
// and a restless one learns nothing.
#include "base/base.h"
#include "spec/spec.h"

#define FADE_SHIFT 7    // a byte fades to 1/e after 128 more
#define ONE 256         // weight of a sign
#define CODE_SHARE 24   // of 256: above it is code
#define MATH_SHARE 40   // … arithmetic
#define BYTES_MIN 24    // bytes before shares mean anything
#define CHANGE_BYTES 24 // that a new kind must last

void width_text_init(struct width_text *t) {
    *t = (struct width_text){.line_start = true, .now = WIDTH_PROSE, .next = WIDTH_PROSE};
}

void width_text_tool(struct width_text *t, bool inside) {
    if (t->in_tool && !inside) t->now = t->next = WIDTH_PROSE;
    t->in_tool = inside;
}

static bool is_code_sign(uint8_t c) {
    return c == '{' || c == '}' || c == ';' || c == '_' || c == '[' || c == ']' || c == '<' || c == '>' || c == '#' ||
           c == '&' || c == '|';
}

static bool is_math_sign(uint8_t c) {
    return (c >= '0' && c <= '9') || c == '=' || c == '+' || c == '*' || c == '/' || c == '^' || c == '\\' ||
           c == '$' || c == '%';
}

static enum width_class kind_now(const struct width_text *t) {
    if (t->in_tool) return WIDTH_TOOL;
    if (t->in_fence) return WIDTH_CODE;
    if (t->bytes < BYTES_MIN * ONE) return WIDTH_PROSE;
    uint32_t code = t->signs_code * 256u / t->bytes, math = t->signs_math * 256u / t->bytes;
    if (code >= CODE_SHARE && code * 2 >= math) return WIDTH_CODE;
    return math >= MATH_SHARE ? WIDTH_MATH : WIDTH_PROSE;
}

static void byte_put(struct width_text *t, uint8_t c) {
    t->bytes += ONE - (t->bytes >> FADE_SHIFT);
    t->signs_code -= t->signs_code >> FADE_SHIFT;
    t->signs_math -= t->signs_math >> FADE_SHIFT;
    bool indent = t->line_start && (c == ' ' || c == '\t');
    if (is_code_sign(c) || indent) t->signs_code += ONE;
    if (is_math_sign(c)) t->signs_math += ONE;
    t->fence = c == '`' ? t->fence + 1 : 0;
    if (t->fence == 3) t->in_fence = !t->in_fence;
    t->line_start = c == '\n' || indent;
    enum width_class kind = kind_now(t);
    t->next_bytes = kind == t->next ? t->next_bytes + 1 : 1;
    t->next = kind;
    if (t->in_fence || t->next_bytes >= CHANGE_BYTES) t->now = kind;
}

void width_text_put(struct width_text *t, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++) byte_put(t, p[i]);
}

enum width_class width_text_class(const struct width_text *t) { return t->in_tool ? WIDTH_TOOL : t->now; }
