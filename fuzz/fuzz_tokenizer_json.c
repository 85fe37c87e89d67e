// Fuzz target: tokenizer.json. The whole input is the file; a tokenizer that is made must encode some texts, with ids
// inside its table, in the same way twice, and stream them back as whole characters.
#include "base/base.h"
#include "text/text.h"

static void text_try(const struct tokenizer *t, struct str text, bool parse_special) {
    struct encode_options o = {.parse_special = parse_special, .add_bos = tokenizer_adds_bos(t)};
    struct id_list ids = {0}, again = {0};
    struct tern_err err;
    enum tern_status status = tokenizer_encode(t, &ids, text, &o, &err);
    TERN_ASSERT(tokenizer_encode(t, &again, text, &o, &err) == status);
    TERN_ASSERT(ids.len == again.len);
    TERN_ASSERT(status == TERN_OK || ids.len == 0);
    struct detok d;
    struct buf shown;
    buf_init(&shown, 1u << 20);
    detok_init(&d, t, true);
    for (size_t i = 0; i < ids.len; i++) {
        TERN_ASSERT(ids.ids[i] == again.ids[i] && ids.ids[i] >= 0 && ids.ids[i] < tokenizer_size(t));
        if (!parse_special) TERN_ASSERT((i == 0 && o.add_bos) || !tokenizer_is_control(t, ids.ids[i]));
        TERN_ASSERT(detok_put(&d, ids.ids[i], &shown));
    }
    TERN_ASSERT(detok_flush(&d, &shown));
    TERN_ASSERT(utf8_valid(buf_str(&shown), NULL));
    buf_release(&shown);
    id_list_release(&ids);
    id_list_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tokenizer *t = NULL;
    struct tern_err err = {0};
    struct tokenizer_source src = {.tokenizer_json = {(const char *)data, size}, .bos = -1, .eos = -1, .add_bos = -1};
    if (size == 0) return 0;
    if (tokenizer_create(&t, &src, &err) != TERN_OK) {
        TERN_ASSERT(err.code != TERN_OK && err.message[0]);
        return 0;
    }
    text_try(t, STR(""), true);
    text_try(t, STR("ab aab <s>ab\n\n 12's \xc3\xa9\xff"), true);
    text_try(t, STR("ab aab <s>ab\n\n 12's \xc3\xa9\xff"), false);
    text_try(t, (struct str){(const char *)data, MIN(size, (size_t)300)}, true);
    tokenizer_free(t);
    return 0;
}
