// What the fuzz targets of constraints share: a vocabulary of bytes and a few longer tokens, and a walk of everything
// that was compiled.
#pragma once
#include "base/base.h"
#include "text/text.h"

#define FUZZ_EOS 0
#define FUZZ_STEPS 64

static struct tokenizer *fuzz_tokenizer;
static struct token_trie *fuzz_trie;

static inline void fuzz_vocab(void) {
    static const char *const words[] = {"\\u0120\\\"", "\\\":", "\\\",", "{\\\"", "\\\"}",         "ab",
                                        "abc",         "12",    "true",  "[[",    "\\u00c3\\u00a9"};
    if (fuzz_trie) return;
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_puts(&b, "{\"added_tokens\": [{\"id\": 0, \"content\": \"<eos>\", \"special\": true}], \"pre_tokenizer\": "
                 "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}, \"decoder\": {\"type\": "
                 "\"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {\"<eos>\": 0");
    for (int i = 0; i < 256; i++) { // the byte alphabet of GPT-2
        bool plain = (i >= 0x21 && i <= 0x7e) || (i >= 0xa1 && i <= 0xac) || i >= 0xae;
        int n = i <= 0x20 ? i : i <= 0xa0 ? i - 0x7f + 0x21 : 0x43;
        char rune[4];
        int len = utf8_encode(plain ? (uint32_t)i : 0x100 + (uint32_t)n, rune);
        buf_puts(&b, ", ");
        json_put_quoted(&b, (struct str){rune, (size_t)len});
        buf_putf(&b, ": %d", i + 1);
    }
    for (size_t i = 0; i < ARRAY_LEN(words); i++) buf_putf(&b, ", \"%s\": %d", words[i], 257 + (int)i);
    buf_puts(&b, "}}}");
    struct tern_err err;
    struct tokenizer_source src = {.tokenizer_json = buf_str(&b), .bos = -1, .eos = FUZZ_EOS, .add_bos = 0};
    if (tokenizer_create(&fuzz_tokenizer, &src, &err) != TERN_OK) TERN_BUG("%s", err.message);
    if (token_trie_create(&fuzz_trie, fuzz_tokenizer, tokenizer_size(fuzz_tokenizer), &err) != TERN_OK)
        TERN_BUG("%s", err.message);
    buf_release(&b);
}

// Compiles; what compiles is walked along its masks: there is always a way on, every allowed token can be taken, and
// the end is allowed where the state says so.
static inline void fuzz_constraint(enum constraint_kind kind, struct str spec, enum answer_style style) {
    static const int32_t eos[] = {FUZZ_EOS};
    struct constraint *c;
    fuzz_vocab();
    struct constraint_source src = {.kind = kind,
                                    .spec = spec,
                                    .style = style,
                                    .tokenizer = fuzz_tokenizer,
                                    .trie = fuzz_trie,
                                    .eos = eos,
                                    .n_eos = 1};
    if (constraint_create(&c, &src, NULL) != TERN_OK) return;
    struct constraint_state *s = constraint_state_create(c);
    uint32_t mask[16];
    uint64_t seed = hash_bytes(spec.data, spec.len, 1);
    int n_vocab = tokenizer_size(fuzz_tokenizer);
    for (int step = 0; s && step < FUZZ_STEPS; step++) {
        int allowed[512], n = 0;
        memset(mask, 0xff, sizeof mask);
        constraint_mask(s, mask, n_vocab);
        if ((mask[0] & 1) != (uint32_t)constraint_may_end(s)) TERN_BUG("the end is judged in two ways");
        for (int i = 1; i < n_vocab; i++)
            if (mask[i / 32] >> (i % 32) & 1) allowed[n++] = i;
        if (n == 0 && !constraint_may_end(s)) TERN_BUG("a dead end after %d tokens", step);
        if (n == 0) break;
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        int id = allowed[(seed >> 33) % (uint64_t)n];
        if (!constraint_advance(s, id)) TERN_BUG("token %d is allowed and refused", id);
    }
    constraint_state_free(s);
    constraint_free(c);
}
