// POST /tokenize, /detokenize, /apply-template: what the model gets to see.
#include "base/base.h"
#include "serve.h"

struct text_ask {
    struct serve_ask ask; // first: the field tables reach what is behind it by offsets from it
    struct str content, tokens;
    bool add_special, parse_special, with_pieces, no_generation_prompt, add_generation_prompt;
};
#define TEXT_FIELD(name_, kind_, member_) \
    { name_, kind_, offsetof(struct text_ask, member_), 0, 0, 0, 0 }

// Reads the fields; false: answered, and the ask released.
static bool text_ask_read(struct serve *s, struct net_request *r, struct text_ask *t,
                          const struct serve_field *fields) {
    *t = (struct text_ask){.add_generation_prompt = true};
    serve_ask_init(&t->ask, s);
    bool ok = serve_fields_read(&t->ask, r->body, "", fields) && serve_tools_check(&t->ask);
    if (!ok) serve_fail(r, &t->ask.fault);
    if (ok) ok = serve_model_check(s, r, t->ask.model);
    if (!ok) serve_ask_release(&t->ask);
    return ok;
}

static void status_fail(struct net_request *r, enum tern_status status, const struct tern_err *err, const char *param) {
    struct serve_fault f = {0};
    serve_fault_from(&f, status, err, param);
    serve_fail(r, &f);
}

static void no_memory(struct net_request *r) {
    serve_failf(r, 503, NULL, "no_memory", "no memory for the request; try again");
}

static void ids_put(const struct serve_model *m, struct json_writer *w, const int32_t *ids, int64_t n,
                    bool with_pieces) {
    json_write_array(w);
    for (int64_t i = 0; i < n; i++) {
        if (!with_pieces) {
            json_write_int(w, ids[i]);
            continue;
        }
        char piece[4096];
        int64_t len = tern_detokenize(m->engine, &ids[i], 1, true, piece, sizeof piece, NULL);
        struct str bytes = {piece, (size_t)MIN(MAX(len, 0), (int64_t)sizeof piece)};
        json_write_object(w);
        json_write_key(w, "id");
        json_write_int(w, ids[i]);
        json_write_key(w, "piece");
        if (utf8_valid(bytes, NULL)) {
            json_write_str(w, bytes);
        } else { // as llama-server: bytes where they are no text
            json_write_array(w);
            for (size_t b = 0; b < bytes.len; b++) json_write_int(w, (uint8_t)bytes.data[b]);
            json_write_array_end(w);
        }
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

void serve_tokenize(struct serve *s, struct net_request *r) {
    static const struct serve_field fields[] = {TEXT_FIELD("content", SERVE_FIELD_STR, content),
                                                TEXT_FIELD("prompt", SERVE_FIELD_STR, content), // vLLM's name
                                                TEXT_FIELD("model", SERVE_FIELD_STR, ask.model),
                                                TEXT_FIELD("add_special", SERVE_FIELD_BOOL, add_special),
                                                TEXT_FIELD("add_special_tokens", SERVE_FIELD_BOOL, add_special),
                                                TEXT_FIELD("parse_special", SERVE_FIELD_BOOL, parse_special),
                                                TEXT_FIELD("with_pieces", SERVE_FIELD_BOOL, with_pieces),
                                                {0}};
    const struct serve_model *m = serve_model_of(s, r);
    struct text_ask t;
    if (!text_ask_read(s, r, &t, fields)) return;
    struct tern_err err = {0};
    struct tern_str text = serve_str(t.content);
    int64_t n = -1;
    int32_t *ids = NULL;
    if (!t.content.data) {
        serve_failf(r, 400, "content", "invalid_value", "content is missing: the text to tokenize");
    } else if ((n = tern_tokenize(m->engine, text, t.add_special, t.parse_special, NULL, 0, &err)) < 0) {
        status_fail(r, (enum tern_status)n, &err, "content");
    } else if (!(ids = mem_calloc((size_t)n + 1, sizeof *ids))) {
        no_memory(r);
    } else {
        n = tern_tokenize(m->engine, text, t.add_special, t.parse_special, ids, (size_t)n, &err);
        struct buf out;
        buf_init(&out, 4 * SERVE_TEXT_BYTES_MAX);
        struct json_writer w;
        json_write_init(&w, &out);
        json_write_object(&w);
        json_write_key(&w, "tokens");
        ids_put(m, &w, ids, n, t.with_pieces);
        json_write_key(&w, "count");
        json_write_int(&w, n);
        json_write_key(&w, "max_model_len");
        json_write_int(&w, m->info.n_ctx);
        json_write_object_end(&w);
        serve_reply_json(r, &out);
    }
    mem_free(ids);
    serve_ask_release(&t.ask);
}

void serve_detokenize(struct serve *s, struct net_request *r) {
    static const struct serve_field fields[] = {
        TEXT_FIELD("tokens", SERVE_FIELD_RAW, tokens), TEXT_FIELD("model", SERVE_FIELD_STR, ask.model), {0}};
    const struct serve_model *m = serve_model_of(s, r);
    struct text_ask t;
    if (!text_ask_read(s, r, &t, fields)) return;
    int32_t *ids = NULL;
    size_t n = 0;
    struct tern_err err = {0};
    bool ok = t.tokens.len > 0 || serve_bad(&t.ask, "tokens", "tokens is missing: a list of token ids");
    ok = ok && serve_ids_read(&t.ask, t.tokens, "tokens", m->info.n_vocab, &ids, &n);
    int64_t len = ok ? tern_detokenize(m->engine, ids, n, true, NULL, 0, &err) : 0;
    char *text = ok && len >= 0 ? mem_alloc((size_t)len + 1) : NULL;
    if (!ok) {
        serve_fail(r, &t.ask.fault);
    } else if (len < 0) {
        status_fail(r, (enum tern_status)len, &err, "tokens");
    } else if (!text) {
        no_memory(r);
    } else {
        len = tern_detokenize(m->engine, ids, n, true, text, (size_t)len, &err);
        struct buf out;
        buf_init(&out, 8 * SERVE_TEXT_BYTES_MAX);
        struct json_writer w;
        json_write_init(&w, &out);
        json_write_object(&w);
        json_write_key(&w, "content");
        json_write_str(&w, (struct str){text, (size_t)len});
        json_write_object_end(&w);
        serve_reply_json(r, &out);
    }
    mem_free(text);
    serve_ask_release(&t.ask);
}

void serve_apply_template(struct serve *s, struct net_request *r) {
    static const struct serve_field fields[] = {
        TEXT_FIELD("messages", SERVE_FIELD_RAW, ask.messages),
        TEXT_FIELD("tools", SERVE_FIELD_RAW, ask.tools),
        TEXT_FIELD("model", SERVE_FIELD_STR, ask.model),
        TEXT_FIELD("add_generation_prompt", SERVE_FIELD_BOOL, add_generation_prompt),
        {"reasoning_effort", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_effort, 0},
        {"chat_template_kwargs", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_template_values, 0},
        {"chat_template", SERVE_FIELD_REFUSE, 0, 0, 0, 0, "templates of clients are not run"},
        {0}};
    const struct serve_model *m = serve_model_of(s, r);
    struct text_ask t;
    if (!text_ask_read(s, r, &t, fields)) return;
    struct tern_err err = {0};
    struct tern_request_options prompt;
    serve_prompt_options(s, &t.ask, &prompt);
    int64_t len = 0;
    char *text = NULL;
    if (t.ask.messages.len == 0) {
        serve_failf(r, 400, "messages", "invalid_value", "messages is missing: a list of messages");
    } else if ((len = tern_prompt_render(m->engine, &prompt, t.add_generation_prompt, NULL, 0, &err)) < 0) {
        status_fail(r, (enum tern_status)len, &err, "messages");
    } else if (!(text = mem_alloc((size_t)len + 1))) {
        no_memory(r);
    } else {
        len = tern_prompt_render(m->engine, &prompt, t.add_generation_prompt, text, (size_t)len, &err);
        struct buf out;
        buf_init(&out, SERVE_TEXT_BYTES_MAX);
        struct json_writer w;
        json_write_init(&w, &out);
        json_write_object(&w);
        json_write_key(&w, "prompt");
        json_write_str(&w, (struct str){text, (size_t)MAX(len, 0)});
        json_write_object_end(&w);
        serve_reply_json(r, &out);
    }
    mem_free(text);
    serve_ask_release(&t.ask);
}
