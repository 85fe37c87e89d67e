// What the wire formats beside OpenAI's chat share: reading nested lists and objects, messages in the engine's form,
// and the runs of thoughts, text and calls that an answer is made of.
#include "base/base.h"
#include "serve_parts.h"

#include <stdio.h>

// ----------------------------------------------------------------------------------------------------------- reading

bool serve_part_read(struct serve_ask *a, struct serve_part *p, struct str raw, const char *prefix,
                     const struct serve_field *fields) {
    *p = (struct serve_part){.ask = {.arena = a->arena}};
    const bool ok = serve_fields_read(&p->ask, raw, prefix, fields);
    a->arena = p->ask.arena;
    if (!ok) a->fault = p->ask.fault;
    return ok;
}

// A value reaches to where the next token starts, without the blanks and the comma between.
static struct str value_between(struct str input, size_t from, size_t to) {
    struct str v = str_trim((struct str){input.data + from, to - from});
    if (v.len > 0 && v.data[v.len - 1] == ',') v.len--;
    return str_trim(v);
}

bool serve_list_each(struct serve_ask *a, struct str raw, const char *name, int max,
                     bool (*fn)(void *arg, struct str raw, int i), void *arg) {
    const struct json_options o = {.depth_max = SERVE_JSON_DEPTH_MAX};
    struct json *j;
    struct json_item item;
    struct tern_err err = {0};
    if (json_create(&j, raw, &o, &err) != TERN_OK) return serve_bad(a, name, "%s: %s", name, err.message);
    bool ok = json_next(j, &item, &err) == JSON_ARRAY;
    if (!ok) serve_bad(a, name, "%s must be a list", name);
    size_t from = 0;
    for (int n = 0; ok; n++) {
        const enum json_event e = json_next(j, &item, &err);
        if (e == JSON_ERROR) ok = serve_bad(a, name, "%s: %s", name, err.message);
        if (ok && n > 0) ok = fn(arg, value_between(raw, from, item.pos), n - 1);
        if (!ok || e == JSON_ARRAY_END) break;
        if (n == max) ok = serve_bad(a, name, "%s has more than %d entries", name, max);
        from = item.pos;
        if (ok && (e == JSON_OBJECT || e == JSON_ARRAY) && json_skip(j, &err) != TERN_OK)
            ok = serve_bad(a, name, "%s: %s", name, err.message);
    }
    json_free(j);
    return ok;
}

bool serve_string_read(struct serve_ask *a, struct str raw, struct str *out) {
    struct json *j;
    struct json_item item;
    if (json_create(&j, raw, NULL, NULL) != TERN_OK) return false;
    const bool ok = json_next(j, &item, NULL) == JSON_STRING;
    if (ok) *out = (struct str){serve_ask_dup(a, item.text), item.text.len};
    json_free(j);
    return ok && out->data;
}

void serve_chat_init(struct serve_chat *c, struct serve_ask *a) {
    *c = (struct serve_chat){.a = a};
    buf_init(&c->messages, SERVE_TEXT_BYTES_MAX);
    buf_init(&c->tools, SERVE_TEXT_BYTES_MAX);
    buf_init(&c->text, SERVE_TEXT_BYTES_MAX);
    buf_init(&c->calls, SERVE_TEXT_BYTES_MAX);
    buf_init(&c->thoughts, SERVE_TEXT_BYTES_MAX);
    buf_putc(&c->messages, '[');
    buf_putc(&c->tools, '[');
}

void serve_chat_text(struct serve_chat *c, struct str text) {
    if (c->text.len > 0 && text.len > 0) buf_putc(&c->text, '\n');
    buf_put(&c->text, text.data, text.len);
}

void serve_chat_thoughts(struct serve_chat *c, struct str text) { buf_put(&c->thoughts, text.data, text.len); }

void serve_chat_call(struct serve_chat *c, struct str id, struct str name, struct str arguments) {
    struct json_writer w;
    if (c->calls.len > 0) buf_putc(&c->calls, ',');
    json_write_init(&w, &c->calls);
    json_write_object(&w);
    if (id.len > 0) serve_put_str(&w, "id", id);
    serve_put_text(&w, "type", "function");
    json_write_key(&w, "function");
    json_write_object(&w);
    serve_put_str(&w, "name", name);
    json_write_key(&w, "arguments");
    json_write_raw(&w, arguments.len > 0 ? arguments : STR("{}"));
    json_write_object_end(&w);
    json_write_object_end(&w);
}

void serve_chat_close(struct serve_chat *c, const char *role, struct str call_id, struct str name, bool even_empty) {
    if (c->text.len == 0 && c->calls.len == 0 && !even_empty) {
        buf_clear(&c->thoughts);
        return;
    }
    struct json_writer w;
    if (c->n_messages++ > 0) buf_putc(&c->messages, ',');
    json_write_init(&w, &c->messages);
    json_write_object(&w);
    serve_put_text(&w, "role", role);
    json_write_key(&w, "content");
    if (c->text.len == 0 && c->calls.len > 0)
        json_write_null(&w);
    else
        json_write_str(&w, buf_str(&c->text));
    if (c->thoughts.len > 0) serve_put_str(&w, "reasoning_content", buf_str(&c->thoughts));
    if (call_id.len > 0) serve_put_str(&w, "tool_call_id", call_id);
    if (name.len > 0) serve_put_str(&w, "name", name);
    if (c->calls.len > 0) {
        json_write_key(&w, "tool_calls");
        json_write_array(&w);
        json_write_raw(&w, buf_str(&c->calls));
        json_write_array_end(&w);
    }
    json_write_object_end(&w);
    c->messages.failed = c->messages.failed || c->text.failed || c->calls.failed || c->thoughts.failed;
    buf_clear(&c->text);
    buf_clear(&c->calls);
    buf_clear(&c->thoughts);
}

void serve_chat_tool(struct serve_chat *c, struct str name, struct str description, struct str parameters) {
    struct json_writer w;
    if (c->n_tools++ > 0) buf_putc(&c->tools, ',');
    json_write_init(&w, &c->tools);
    json_write_object(&w);
    serve_put_text(&w, "type", "function");
    json_write_key(&w, "function");
    json_write_object(&w);
    serve_put_str(&w, "name", name);
    if (description.len > 0) serve_put_str(&w, "description", description);
    json_write_key(&w, "parameters");
    json_write_raw(&w, parameters.len > 0 ? parameters : STR("{\"type\":\"object\",\"properties\":{}}"));
    json_write_object_end(&w);
    json_write_object_end(&w);
}

struct tools_reading {
    struct serve_chat *chat;
    const struct serve_tool_form *form;
};

static bool tool_take(void *arg, struct str raw, int i) {
    const struct tools_reading *t = arg;
    struct serve_ask *a = t->chat->a;
    struct serve_part p;
    char path[SERVE_PATH_MAX];
    snprintf(path, sizeof path, "tools[%d].", i);
    if (!serve_part_read(a, &p, raw, path, t->form->fields)) return false;
    path[strlen(path) - 1] = 0;
    if (!str_eqz(p.type, t->form->type) && (p.type.len > 0 || t->form->type_needed))
        return serve_bad(a, path, "%s: the tool '%.*s' would have to be run by the server, which runs none", path,
                         (int)MIN(p.type.len, (size_t)40), p.type.data ? p.type.data : "");
    if (p.name.len == 0) return serve_bad(a, path, "%s has no name", path);
    serve_chat_tool(t->chat, p.name, p.description, p.parameters);
    return true;
}

bool serve_chat_tools(struct serve_chat *c, struct str raw, const struct serve_tool_form *form) {
    struct tools_reading t = {c, form};
    return raw.len == 0 || serve_list_each(c->a, raw, "tools", SERVE_TOOLS_MAX, tool_take, &t);
}

bool serve_tool_choice_named(struct serve_ask *a, struct str name) {
    struct buf named;
    buf_init(&named, 4096 + 8 * name.len);
    buf_puts(&named, "{\"type\":\"function\",\"function\":{\"name\":");
    json_put_quoted(&named, name);
    buf_puts(&named, "}}");
    if (named.failed) serve_fault_set(&a->fault, 503, NULL, "no_memory", "no memory for the request");
    a->tool_choice = (struct str){named.failed ? NULL : serve_ask_dup(a, buf_str(&named)), named.len};
    buf_release(&named);
    return a->tool_choice.data != NULL;
}

bool serve_chat_finish(struct serve_chat *c) {
    struct serve_ask *a = c->a;
    buf_putc(&c->messages, ']');
    buf_putc(&c->tools, ']');
    bool ok = !c->messages.failed && !c->tools.failed;
    if (!ok) serve_fault_set(&a->fault, 503, NULL, "no_memory", "no memory for the request");
    if (ok) a->messages = (struct str){serve_ask_dup(a, buf_str(&c->messages)), c->messages.len};
    if (ok && c->n_tools > 0) a->tools = (struct str){serve_ask_dup(a, buf_str(&c->tools)), c->tools.len};
    ok = ok && a->messages.data && (c->n_tools == 0 || a->tools.data);
    serve_chat_release(c);
    return ok;
}

void serve_chat_release(struct serve_chat *c) {
    buf_release(&c->messages);
    buf_release(&c->tools);
    buf_release(&c->text);
    buf_release(&c->calls);
    buf_release(&c->thoughts);
}

// ----------------------------------------------------------------------------------------------------------- writing

static bool bits_fail(struct serve_answer *a) {
    a->out.failed = true;
    return false;
}

bool serve_bits_take(struct serve_answer *a, struct serve_choice *c, const struct tern_event *e,
                     struct serve_bit **opened, struct serve_bit **closed) {
    struct serve_bits *bits = serve_bits_of(a);
    const struct buf *whole = e->type == TERN_EVENT_TEXT ? &c->text : &c->reasoning;
    *opened = *closed = NULL;
    if (e->type == TERN_EVENT_PROGRESS) return true;
    const enum serve_bit_kind kind = e->type == TERN_EVENT_TEXT        ? SERVE_BIT_TEXT
                                     : e->type == TERN_EVENT_REASONING ? SERVE_BIT_THOUGHTS
                                                                       : SERVE_BIT_CALL;
    if (e->type != TERN_EVENT_DONE && kind != SERVE_BIT_CALL && bits->is_open && bits->last->kind == kind) {
        bits->last->to = whole->len;
        return true;
    }
    if (bits->is_open) *closed = bits->last;
    bits->is_open = false;
    if (e->type == TERN_EVENT_DONE) return true;
    struct serve_bit *b = arena_calloc(&a->ask.arena, 1, sizeof *b);
    if (!b) return bits_fail(a);
    b->kind = kind;
    b->index = bits->last ? bits->last->index + 1 : 0;
    if (kind == SERVE_BIT_CALL) {
        snprintf(b->id, sizeof b->id, "%s", c->call_id);
        b->name = (struct str){serve_ask_dup(&a->ask, serve_view(e->tool_name)), e->tool_name.len};
        b->arguments = (struct str){serve_ask_dup(&a->ask, serve_view(e->tool_arguments)), e->tool_arguments.len};
        if (!b->name.data || !b->arguments.data) return bits_fail(a);
    } else {
        b->from = whole->len - MIN(whole->len, e->text.len);
        b->to = whole->len;
        bits->is_open = true;
    }
    if (bits->last)
        bits->last->next = b;
    else
        bits->first = b;
    *opened = bits->last = b;
    return true;
}

struct str serve_bit_text(const struct serve_choice *c, const struct serve_bit *b) {
    const struct buf *whole = b->kind == SERVE_BIT_TEXT ? &c->text : &c->reasoning;
    return (struct str){whole->data + b->from, b->to - b->from};
}

struct tern_str serve_indent_take(const struct serve_ask *a, struct serve_choice *c, struct tern_str text, bool *over) {
    buf_clear(&c->shown);
    *over = false;
    for (size_t i = 0; i < text.len && !*over; i++) {
        const char ch = text.data[i];
        if (c->at_line_begin && (ch == ' ' || ch == '\t')) {
            buf_putc(&c->blanks, ch);
            continue;
        }
        *over = c->at_line_begin && ch != '\n' && (int64_t)c->blanks.len < a->n_indent;
        if (*over) break;
        buf_put(&c->shown, c->blanks.data, c->blanks.len);
        buf_clear(&c->blanks);
        buf_putc(&c->shown, ch);
        c->at_line_begin = ch == '\n';
    }
    if (c->blanks.failed || c->shown.failed) c->text.failed = true;
    return serve_str(buf_str(&c->shown));
}

const char *serve_stop_found(const struct serve_answer *a, const struct serve_choice *c) {
    const char *found = NULL;
    size_t n, first = (size_t)-1;
    const int32_t *ids = tern_job_ids(c->job, &n);
    if (c->finish != TERN_FINISH_STOP || a->ask.n_stop == 0 || !ids) return NULL;
    const int64_t len = tern_detokenize(a->m->engine, ids, n, false, NULL, 0, NULL);
    char *text = len > 0 ? mem_alloc((size_t)len) : NULL;
    if (!text) return NULL;
    tern_detokenize(a->m->engine, ids, n, false, text, (size_t)len, NULL);
    for (int i = 0; i < a->ask.n_stop; i++) {
        const size_t at = str_find((struct str){text, (size_t)len}, str_from(a->ask.stop[i]), 0);
        if (at >= first) continue;
        first = at;
        found = a->ask.stop[i];
    }
    mem_free(text);
    return found;
}

// Left open. Ill-formed bytes of the token are U+FFFD; the bytes are told beside it.
static void token_put(struct json_writer *w, const struct tern_logprob *l, bool id) {
    json_write_object(w);
    if (id) serve_put_int(w, "id", l->id);
    serve_put_str(w, "token", serve_view(l->bytes));
    json_write_key(w, "logprob");
    json_write_f64(w, (double)l->logprob);
    json_write_key(w, "bytes");
    json_write_array(w);
    for (size_t i = 0; i < l->bytes.len; i++) json_write_int(w, (uint8_t)l->bytes.data[i]);
    json_write_array_end(w);
}

void serve_logprobs_put(struct json_writer *w, const struct tern_event *e, bool ids) {
    const int per = e->n_logprobs_token;
    for (int i = 0; i + per <= e->n_logprobs && per > 0; i += per) {
        token_put(w, &e->logprobs[i], ids);
        json_write_key(w, "top_logprobs");
        json_write_array(w);
        for (int k = 1; k < per; k++) {
            if (e->logprobs[i + k].id < 0) continue;
            token_put(w, &e->logprobs[i + k], ids);
            json_write_object_end(w);
        }
        json_write_array_end(w);
        json_write_object_end(w);
    }
}

void serve_logprobs_keep(struct serve_choice *c, const struct tern_event *e, bool ids) {
    if (e->n_logprobs <= 0 || e->n_logprobs_token <= 0) return;
    if (c->logprobs.len > 0) buf_putc(&c->logprobs, ',');
    struct buf items;
    buf_init(&items, SERVE_TEXT_BYTES_MAX);
    struct json_writer w;
    json_write_init(&w, &items);
    json_write_array(&w);
    serve_logprobs_put(&w, e, ids);
    json_write_array_end(&w);
    if (items.failed)
        c->logprobs.failed = true;
    else
        buf_put(&c->logprobs, items.data + 1, items.len - 2);
    buf_release(&items);
}

void serve_put_str(struct json_writer *w, const char *key, struct str value) {
    json_write_key(w, key);
    json_write_str(w, value);
}
void serve_put_text(struct json_writer *w, const char *key, const char *value) {
    json_write_key(w, key);
    if (value)
        json_write_str(w, str_from(value));
    else
        json_write_null(w);
}
void serve_put_int(struct json_writer *w, const char *key, int64_t value) {
    json_write_key(w, key);
    json_write_int(w, value);
}
void serve_put_bool(struct json_writer *w, const char *key, bool value) {
    json_write_key(w, key);
    json_write_bool(w, value);
}
void serve_put_raw(struct json_writer *w, const char *key, struct str raw) {
    json_write_key(w, key);
    if (raw.len > 0)
        json_write_raw(w, raw);
    else
        json_write_null(w);
}

// The calendar's date of a day since 1970: years begin in March, so that the odd day is a year's last.
const char *serve_time_text(char out[24], int64_t wall_s) {
    const unsigned long long t = (unsigned long long)MAX(wall_s, 0), day = t / 86400 + 719468;
    const unsigned long long d = day % 146097, year = (d - d / 1460 + d / 36524 - d / 146096) / 365;
    const unsigned long long in_year = d - (365 * year + year / 4 - year / 100), month = (5 * in_year + 2) / 153;
    const unsigned m = (unsigned)(month < 10 ? month + 3 : month - 9);
    const unsigned y = (unsigned)(year + 400 * (day / 146097) + (m <= 2)), s = (unsigned)(t % 86400);
    snprintf(out, 24, "%04u-%02u-%02uT%02u:%02u:%02uZ", y % 10000, m % 100,
             (unsigned)(in_year - (153 * month + 2) / 5 + 1) % 100, s / 3600, s / 60 % 60, s % 60);
    return out;
}
