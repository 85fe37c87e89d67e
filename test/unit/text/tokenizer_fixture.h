// Small tokenizers for tests: 256 byte tokens and what a test adds, as GGUF arrays.
#pragma once
#include "base/base.h"
#include "text/text.h"
#include "text/tokenizer_int.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define FIXTURE_TOKENS_MAX 600
#define FIXTURE_MERGES_MAX 300

struct fixture {
    struct str tokens[FIXTURE_TOKENS_MAX];
    int32_t types[FIXTURE_TOKENS_MAX];
    struct str merges[FIXTURE_MERGES_MAX];
    struct tokenizer_source src;
    char spelled[256][3]; // byte alphabet
};

// Writes the spelling of a byte and a 0; returns its length, 1 or 2.
static inline int spell_byte(int b, char *out) {
    char rune[4];
    bool is_plain = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    int n = b <= 0x20 ? b : b <= 0xa0 ? b - 0x7f + 0x21 : 0x43;
    int len = utf8_encode(is_plain ? (uint32_t)b : 0x100 + (uint32_t)n, rune);
    memcpy(out, rune, (size_t)len);
    out[len] = 0;
    return len;
}

static inline int fixture_token(struct fixture *f, const char *text, int32_t type) {
    assert_true(f->src.n_tokens < FIXTURE_TOKENS_MAX);
    f->tokens[f->src.n_tokens] = str_from(text);
    f->types[f->src.n_tokens] = type;
    return f->src.n_tokens++;
}

static inline void fixture_merge(struct fixture *f, const char *text) {
    assert_true(f->src.n_merges < FIXTURE_MERGES_MAX);
    f->merges[f->src.n_merges++] = str_from(text);
}

// Token b spells byte b; no merges; pre-tokenizer lfm2.
static inline void fixture_init(struct fixture *f) {
    *f = (struct fixture){.src = {.bos = -1, .eos = -1, .add_bos = -1, .pre = STR("lfm2")}};
    f->src.tokens = f->tokens;
    f->src.types = f->types;
    f->src.merges = f->merges;
    for (int b = 0; b < 256; b++) {
        spell_byte(b, f->spelled[b]);
        fixture_token(f, f->spelled[b], 1);
    }
}

static inline struct tokenizer *fixture_create(const struct fixture *f) {
    struct tokenizer *t = NULL;
    struct tern_err err;
    if (tokenizer_create(&t, &f->src, &err) != TERN_OK) fail_msg("%s", err.message);
    return t;
}

static inline struct tokenizer *json_tokenizer(const char *json) {
    struct tokenizer *t = NULL;
    struct tern_err err;
    struct tokenizer_source src = {.tokenizer_json = str_from(json), .bos = -1, .eos = -1, .add_bos = -1};
    if (tokenizer_create(&t, &src, &err) != TERN_OK) fail_msg("%s", err.message);
    return t;
}

// models/tokenizer.json
static inline struct tokenizer *pico_tokenizer(void) {
    struct buf file;
    struct tern_err err;
    buf_init(&file, 16u << 20);
    if (file_read_all(&file, TEST_MODELS "/tokenizer.json", &err) != TERN_OK) fail_msg("%s", err.message);
    struct tokenizer *t = json_tokenizer(file.data);
    buf_release(&file);
    return t;
}

static inline struct id_list encode(const struct tokenizer *t, struct str text, const struct encode_options *o) {
    struct id_list ids = {0};
    struct tern_err err;
    if (tokenizer_encode(t, &ids, text, o, &err) != TERN_OK) fail_msg("%s", err.message);
    return ids;
}

static inline void put_bytes(const struct tokenizer *t, const struct id_list *ids, struct buf *out) {
    for (size_t i = 0; i < ids->len; i++) {
        struct str s = tokenizer_token_bytes(t, ids->ids[i]);
        assert_true(s.len > 0);
        buf_put(out, s.data, s.len);
    }
}

// The ids as "1 22 333", from text with the options.
static inline void check_ids(const struct tokenizer *t, const char *text, const struct encode_options *o,
                             const char *expected) {
    struct id_list ids = encode(t, str_from(text), o);
    struct buf shown;
    buf_init(&shown, 1u << 20);
    buf_puts(&shown, "");
    for (size_t i = 0; i < ids.len; i++) buf_putf(&shown, "%s%d", i ? " " : "", ids.ids[i]);
    assert_string_equal(shown.data ? shown.data : "", expected);
    buf_release(&shown);
    id_list_release(&ids);
}

// Creation fails with this status and a message that holds every one of the given words (NULL ends them).
static inline void check_refused(const struct tokenizer_source *src, enum tern_status status, ...) {
    struct tokenizer *t = NULL;
    struct tern_err err = {0};
    enum tern_status got = tokenizer_create(&t, src, &err);
    if (got != status) fail_msg("status %d instead of %d: %s", got, status, err.message);
    assert_null(t);
    va_list words;
    va_start(words, status);
    for (const char *w; (w = va_arg(words, const char *)) != NULL;) {
        if (!strstr(err.message, w)) fail_msg("\"%s\" is not in: %s", w, err.message);
    }
    va_end(words);
    assert_int_equal(tokenizer_create(&t, src, NULL), status);
}

static inline uint64_t random_next(uint64_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x * 0x2545F4914F6CDD1Dull;
}
