// From what a caller gives (text, ids, messages) to prompt ids. Text that came from users can never become a control
// token: the template engine says which bytes are tainted and the tokenizer honours it.
#include "base/base.h"
#include "engine_int.h"

enum tern_status prompt_render(const struct tern_engine *e, struct str messages_json, struct str tools_json,
                               struct str values_json, bool add_generation_prompt, struct jinja_output *out,
                               struct tern_err *err) {
    if (!e->template_) {
        if (e->template_err.code != TERN_OK)
            return err_set(err, e->template_err.code, "the model's chat template cannot be used: %s",
                           e->template_err.message);
        return err_set(err, TERN_UNSUPPORTED,
                       "this model has no chat template; give a plain prompt instead of messages");
    }
    struct buf normal;
    buf_init(&normal, JINJA_MEMORY_BYTES_MAX);
    enum tern_status status = messages_normalise(&normal, messages_json, err);
    if (status == TERN_OK) {
        const struct model_vocab *v = &e->model->vocab;
        struct jinja_input in = {.messages = buf_str(&normal),
                                 .tools = tools_json,
                                 .extra = values_json,
                                 .add_generation_prompt = add_generation_prompt,
                                 .bos_token = v->bos >= 0 ? tokenizer_token_bytes(e->tokenizer, v->bos) : STR(""),
                                 .eos_token = v->eos >= 0 ? tokenizer_token_bytes(e->tokenizer, v->eos) : STR("")};
        status = jinja_render(e->template_, out, &in, err);
    }
    buf_release(&normal);
    return status;
}

// Does the rendered prompt leave a thinking block open for the model to go on in?
static bool prompt_opens_reasoning(struct str text) {
    struct str open = STR("<think>"), close = STR("</think>");
    size_t last_open = (size_t)-1, last_close = (size_t)-1;
    for (size_t at = 0; (at = str_find(text, open, at)) != (size_t)-1; at += open.len) last_open = at;
    for (size_t at = 0; (at = str_find(text, close, at)) != (size_t)-1; at += close.len) last_close = at;
    if (last_open == (size_t)-1) return false;
    struct str rest = {text.data + last_open + open.len, text.len - last_open - open.len};
    return (last_close == (size_t)-1 || last_close < last_open) && str_trim(rest).len == 0;
}

static enum tern_status prompt_from_messages(const struct tern_engine *e, const struct tern_request_options *o,
                                             struct id_list *out, bool *reasoning_open, struct tern_err *err) {
    struct jinja_output rendered = {0};
    TRY(prompt_render(e, (struct str){o->messages_json.data, o->messages_json.len},
                      (struct str){o->tools_json.data, o->tools_json.len},
                      (struct str){o->template_json.data, o->template_json.len}, true, &rendered, err));
    // The template writes the begin token itself where the model wants one.
    struct encode_options eo = {.parse_special = true, .tainted = rendered.tainted, .n_tainted = rendered.n_tainted};
    enum tern_status status = tokenizer_encode(e->tokenizer, out, buf_str(&rendered.text), &eo, err);
    *reasoning_open = prompt_opens_reasoning(buf_str(&rendered.text));
    jinja_output_release(&rendered);
    return status;
}

static enum tern_status prompt_from_ids(const struct tern_engine *e, const struct tern_request_options *o,
                                        struct id_list *out, struct tern_err *err) {
    for (size_t i = 0; i < o->n_prompt_ids; i++) {
        int32_t id = o->prompt_ids[i];
        if (id < 0 || id >= e->model->hyper.n_vocab)
            return err_set(err, TERN_INVALID_ARGUMENT, "prompt token %zu is %d, but ids go from 0 to %d", i, id,
                           e->model->hyper.n_vocab - 1);
        if (!id_list_push(out, id))
            return err_set(err, TERN_NO_MEMORY, "no memory for %zu prompt tokens", o->n_prompt_ids);
    }
    return TERN_OK;
}

enum tern_status prompt_build(const struct tern_engine *e, const struct tern_request_options *o, struct id_list *out,
                              bool *reasoning_open, struct tern_err *err) {
    *reasoning_open = false;
    if (o->n_prompt_ids > 0) return prompt_from_ids(e, o, out, err);
    if (!e->tokenizer)
        return err_set(err, TERN_UNSUPPORTED, "this model has no tokenizer; give token ids instead of text");
    if (o->messages_json.len > 0) return prompt_from_messages(e, o, out, reasoning_open, err);
    struct encode_options eo = {.add_bos = !o->append && tokenizer_adds_bos(e->tokenizer),
                                .parse_special = o->prompt_special};
    struct str text = {o->prompt.data, o->prompt.len};
    struct str bos =
        tokenizer_adds_bos(e->tokenizer) ? tokenizer_token_bytes(e->tokenizer, tokenizer_bos(e->tokenizer)) : STR("");
    if (o->prompt_special && bos.len && str_starts(text, bos)) eo.add_bos = false; // written out by the caller
    return tokenizer_encode(e->tokenizer, out, text, &eo, err);
}
