// The text functions of the public header: tokenize, detokenize, render the template.
#include "base/base.h"
#include "engine_int.h"

static enum tern_status tokenizer_require(const struct tern_engine *e, struct tern_err *err) {
    return e->tokenizer ? TERN_OK : err_set(err, TERN_UNSUPPORTED, "this model has no tokenizer");
}

int64_t tern_tokenize(const struct tern_engine *e, struct tern_str text, bool add_bos, bool parse_special, int32_t *ids,
                      size_t cap, struct tern_err *err) {
    TRY(tokenizer_require(e, err));
    struct id_list list = {0};
    struct encode_options o = {.add_bos = add_bos && tokenizer_adds_bos(e->tokenizer), .parse_special = parse_special};
    enum tern_status status = tokenizer_encode(e->tokenizer, &list, (struct str){text.data, text.len}, &o, err);
    int64_t n = status == TERN_OK ? (int64_t)list.len : (int64_t)status;
    if (n > 0 && cap > 0) memcpy(ids, list.ids, MIN((size_t)n, cap) * sizeof *ids);
    id_list_release(&list);
    return n;
}

int64_t tern_detokenize(const struct tern_engine *e, const int32_t *ids, size_t n, bool with_special, char *out,
                        size_t cap, struct tern_err *err) {
    TRY(tokenizer_require(e, err));
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= tokenizer_size(e->tokenizer))
            return err_set(err, TERN_INVALID_ARGUMENT, "token %zu is %d, but ids go from 0 to %d", i, ids[i],
                           tokenizer_size(e->tokenizer) - 1);
        if (!with_special && tokenizer_is_control(e->tokenizer, ids[i])) continue;
        struct str bytes = tokenizer_token_bytes(e->tokenizer, ids[i]);
        if (bytes.len > 0 && len < cap) memcpy(out + len, bytes.data, MIN(bytes.len, cap - len));
        if (!size_add(len, bytes.len, &len)) return err_set(err, TERN_LIMIT, "the text is too long");
    }
    return (int64_t)len;
}

int64_t tern_template_render(const struct tern_engine *e, struct tern_str messages_json, struct tern_str tools_json,
                             bool add_generation_prompt, char *out, size_t cap, struct tern_err *err) {
    const struct tern_request_options o = {.messages_json = messages_json, .tools_json = tools_json};
    return tern_prompt_render(e, &o, add_generation_prompt, out, cap, err);
}

int64_t tern_prompt_render(const struct tern_engine *e, const struct tern_request_options *prompt,
                           bool add_generation_prompt, char *out, size_t cap, struct tern_err *err) {
    struct jinja_output rendered = {0};
    TRY(prompt_render(e, (struct str){prompt->messages_json.data, prompt->messages_json.len},
                      (struct str){prompt->tools_json.data, prompt->tools_json.len},
                      (struct str){prompt->template_json.data, prompt->template_json.len}, add_generation_prompt,
                      &rendered, err));
    size_t len = rendered.text.len;
    if (len > 0 && cap > 0) memcpy(out, rendered.text.data, MIN(len, cap));
    jinja_output_release(&rendered);
    return (int64_t)len;
}

int64_t tern_prompt_count(const struct tern_engine *e, const struct tern_request_options *prompt,
                          struct tern_err *err) {
    struct id_list ids = {0};
    bool reasoning_open;
    const enum tern_status status = prompt_build(e, prompt, &ids, &reasoning_open, err);
    const int64_t n = (int64_t)ids.len;
    id_list_release(&ids);
    return status == TERN_OK ? n : (int64_t)status;
}
