// Fuzz target: GGUF token arrays, splitting and merging, taint.
//
// Input: family, number of rules, two bytes for each rule (which tokens to join), a tainted range, the text. The tokens
// are the 256 bytes, what the rules make, and a few markers. Whatever the rules: the tokens' bytes are the text again,
// no control token stands over a tainted byte, and a piece of the text without markers gives no control token.
#include "base/base.h"
#include "text/text.h"

#define RULES_MAX 60
#define TOKEN_BYTES_MAX 64
#define TOKENS_MAX (256 + RULES_MAX + 4)

struct arrays {
    char spelled[TOKENS_MAX][2 * TOKEN_BYTES_MAX + 1];
    char rules[RULES_MAX][4 * TOKEN_BYTES_MAX + 2];
    struct str tokens[TOKENS_MAX], merges[RULES_MAX];
    int32_t types[TOKENS_MAX];
    int n_tokens, n_merges;
};

static void token_put(struct arrays *a, const char *text, int32_t type) {
    char *to = a->spelled[a->n_tokens];
    size_t len = strlen(text);
    memcpy(to, text, len + 1);
    a->tokens[a->n_tokens] = (struct str){to, len};
    a->types[a->n_tokens++] = type;
}

static void bytes_put(struct arrays *a) {
    for (int b = 0; b < 256; b++) {
        bool is_plain = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        int n = b <= 0x20 ? b : b <= 0xa0 ? b - 0x7f + 0x21 : 0x43;
        char rune[5] = "";
        utf8_encode(is_plain ? (uint32_t)b : 0x100 + (uint32_t)n, rune);
        token_put(a, rune, 1);
    }
}

// A rule is left out when its token exists already or would be too long.
static void rule_put(struct arrays *a, struct str left, struct str right) {
    char joined[4 * TOKEN_BYTES_MAX + 2];
    if (left.len + right.len > 2 * TOKEN_BYTES_MAX) return;
    memcpy(joined, left.data, left.len);
    memcpy(joined + left.len, right.data, right.len);
    joined[left.len + right.len] = 0;
    for (int i = 0; i < a->n_tokens; i++) {
        if (str_eqz(a->tokens[i], joined)) return;
    }
    char *rule = a->rules[a->n_merges];
    memcpy(rule, left.data, left.len);
    rule[left.len] = ' ';
    memcpy(rule + left.len + 1, right.data, right.len);
    a->merges[a->n_merges++] = (struct str){rule, left.len + 1 + right.len};
    token_put(a, joined, 1);
}

static void encode_check(const struct tokenizer *t, struct str text, struct text_range tainted) {
    struct id_list ids = {0};
    struct tern_err err;
    struct encode_options o = {.parse_special = true, .tainted = &tainted, .n_tainted = 1};
    TERN_ASSERT(tokenizer_encode(t, &ids, text, &o, &err) == TERN_OK);
    size_t at = 0;
    for (size_t i = 0; i < ids.len; i++) {
        struct str bytes = tokenizer_token_bytes(t, ids.ids[i]);
        TERN_ASSERT(bytes.len > 0 && bytes.len <= text.len - at);
        TERN_ASSERT(memcmp(bytes.data, text.data + at, bytes.len) == 0);
        bool over = tainted.begin < tainted.end && at < tainted.end && at + bytes.len > tainted.begin;
        TERN_ASSERT(!over || !tokenizer_is_control(t, ids.ids[i]));
        at += bytes.len;
    }
    TERN_ASSERT(at == text.len);
    id_list_release(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const families[] = {"lfm2", "qwen2", "gpt-2", "smollm", ""};
    static struct arrays a;
    if (size < 4) return 0;
    a.n_tokens = a.n_merges = 0;
    bytes_put(&a);
    int n_rules = data[1] % RULES_MAX;
    size_t at = 4;
    for (int i = 0; i < n_rules && at + 2 <= size; i++, at += 2) {
        int left = data[at] < 128 || a.n_merges == 0 ? data[at] : (data[at] - 128) % a.n_merges + 256;
        int right = data[at + 1] < 128 || a.n_merges == 0 ? data[at + 1] : (data[at + 1] - 128) % a.n_merges + 256;
        if (left < a.n_tokens && right < a.n_tokens) rule_put(&a, a.tokens[left], a.tokens[right]);
    }
    token_put(&a, "<|", 4);
    token_put(&a, "<|a|>", 3);
    token_put(&a, "<|a|>b", 3);
    struct tokenizer_source src = {.tokens = a.tokens,
                                   .n_tokens = a.n_tokens,
                                   .types = a.types,
                                   .merges = a.merges,
                                   .n_merges = a.n_merges,
                                   .pre = str_from(families[data[0] % 5]),
                                   .bos = -1,
                                   .eos = -1,
                                   .add_bos = -1};
    struct tokenizer *t = NULL;
    struct tern_err err;
    if (tokenizer_create(&t, &src, &err) != TERN_OK) TERN_BUG("%s", err.message);
    struct text_range tainted = {MIN(data[2], data[3]), MAX(data[2], data[3])};
    encode_check(t, (struct str){(const char *)data + at, size - at}, tainted);
    tokenizer_free(t);
    return 0;
}
