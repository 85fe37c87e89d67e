// Answers of /completion and /infill: one object for each choice, as a list where there are several, or as events whose
// last one is that object. There is no "[DONE]". With response_fields the object has only the members that are named.
#include "base/base.h"
#include "serve_native.h"

#include <stdio.h>

static const struct native *extra_of(const struct serve_answer *a) { return a->extra; }

static void settings_put(struct json_writer *w, const struct serve_answer *a) {
    const struct tern_request_options *r = &a->request;
    const struct {
        const char *key;
        double value;
    } rows[] = {{"temperature", (double)r->temperature},
                {"top_p", (double)r->top_p},
                {"min_p", (double)r->min_p},
                {"repeat_penalty", (double)r->repeat_penalty},
                {"presence_penalty", (double)r->presence_penalty},
                {"frequency_penalty", (double)r->frequency_penalty}};
    json_write_key(w, "generation_settings");
    json_write_object(w);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        json_write_key(w, rows[i].key);
        json_write_f64(w, rows[i].value);
    }
    serve_put_int(w, "top_k", r->top_k);
    serve_put_int(w, "repeat_last_n", r->repeat_last);
    serve_put_int(w, "n_predict", extra_of(a)->is_silent ? 0 : r->n_max);
    serve_put_int(w, "n_probs", extra_of(a)->with_probs ? r->n_logprobs : 0);
    serve_put_int(w, "n_ctx", a->m->info.n_ctx);
    serve_put_int(w, "seed", (int64_t)r->seed);
    serve_put_bool(w, "ignore_eos", r->ignore_eos);
    serve_put_bool(w, "stream", a->streams);
    json_write_key(w, "stop");
    json_write_array(w);
    for (int i = 0; i < r->n_stop; i++) json_write_str(w, str_from(r->stop[i]));
    json_write_array_end(w);
    json_write_object_end(w);
}

static void tokens_put(struct json_writer *w, const struct serve_choice *c, bool wanted) {
    size_t n = 0;
    const int32_t *ids = wanted ? tern_job_ids(c->job, &n) : NULL;
    json_write_key(w, "tokens");
    json_write_array(w);
    for (size_t i = 0; ids && i < n; i++) json_write_int(w, ids[i]);
    json_write_array_end(w);
}

// Of a choice that is done.
static void object_put(struct json_writer *w, const struct serve_answer *a, const struct serve_choice *c) {
    const struct native *x = extra_of(a);
    const struct tern_usage *u = &c->usage;
    const char *word = serve_stop_found(a, c);
    json_write_object(w);
    serve_put_int(w, "index", c->index);
    serve_put_str(w, "content", a->streams || x->is_silent ? STR("") : buf_str(&c->text));
    tokens_put(w, c, x->with_tokens && !a->streams && !x->is_silent);
    serve_put_int(w, "id_slot", -1);
    serve_put_bool(w, "stop", true);
    serve_put_text(w, "model", a->m->id);
    serve_put_int(w, "tokens_predicted", x->is_silent ? 0 : u->n_answer);
    serve_put_int(w, "tokens_evaluated", u->n_prompt);
    serve_put_int(w, "tokens_cached", u->n_cached);
    settings_put(w, a);
    serve_put_str(w, "prompt", x->prompts[c->index / (int)a->ask.n]);
    serve_put_bool(w, "has_new_line", c->text.len > 0 && memchr(c->text.data, '\n', c->text.len));
    serve_put_bool(w, "truncated", false);
    serve_put_text(w, "stop_type", c->finish == TERN_FINISH_LENGTH ? "limit" : word ? "word" : "eos");
    serve_put_text(w, "stopping_word", word ? word : "");
    serve_timings_put(w, a);
    serve_energy_put(w, a);
    if (x->with_probs && !a->streams) {
        json_write_key(w, "completion_probabilities");
        json_write_array(w);
        if (c->logprobs.len > 0) json_write_raw(w, buf_str(&c->logprobs));
        json_write_array_end(w);
    }
    json_write_object_end(w);
}

// The raw member of a raw object; data NULL: there is none.
static struct str member_of(struct str object, struct str key) {
    struct json *j;
    struct json_item item;
    struct str raw, found = {0};
    if (object.len == 0 || object.data[0] != '{' || json_create(&j, object, NULL, NULL) != TERN_OK) return found;
    bool more = json_next(j, &item, NULL) == JSON_OBJECT;
    while (more && json_next(j, &item, NULL) == JSON_KEY) {
        const bool is_it = str_eq(item.text, key);
        more = json_raw(j, &raw, NULL) == TERN_OK && !is_it;
        if (is_it) found = raw;
    }
    json_free(j);
    return found;
}

// One member for each path that leads somewhere, under the path's name.
static void fields_put(struct json_writer *w, const struct native *x, struct str object) {
    json_write_object(w);
    for (int i = 0; i < x->n_fields; i++) {
        struct str at = object, rest = x->fields[i];
        while (at.data && rest.data) {
            const size_t slash = str_find(rest, STR("/"), 0);
            const bool last = slash == (size_t)-1;
            at = member_of(at, last ? rest : (struct str){rest.data, slash});
            rest = last ? (struct str){0} : (struct str){rest.data + slash + 1, rest.len - slash - 1};
        }
        if (!at.data) continue;
        json_write_key_str(w, x->fields[i]);
        json_write_raw(w, at);
    }
    json_write_object_end(w);
}

static void answer_put(struct serve_answer *a, const struct serve_choice *c, struct buf *out) {
    struct json_writer w;
    if (extra_of(a)->n_fields == 0) {
        json_write_init(&w, out);
        object_put(&w, a, c);
        return;
    }
    struct buf all;
    buf_init(&all, 4 * SERVE_TEXT_BYTES_MAX);
    json_write_init(&w, &all);
    object_put(&w, a, c);
    json_write_init(&w, out);
    fields_put(&w, extra_of(a), buf_str(&all));
    out->failed = out->failed || all.failed;
    buf_release(&all);
}

// ------------------------------------------------------------------------------------------------------------- stream

// "data: {"index", "content", "tokens", "stop", left open.
static void piece_open(struct json_writer *w, const struct serve_choice *c, const struct tern_event *e, bool tokens,
                       struct buf *out) {
    const int per = e->n_logprobs_token;
    buf_puts(out, "data: ");
    json_write_init(w, out);
    json_write_object(w);
    serve_put_int(w, "index", c->index);
    serve_put_str(w, "content", e->type == TERN_EVENT_PROGRESS ? STR("") : serve_view(e->text));
    json_write_key(w, "tokens");
    json_write_array(w);
    for (int i = 0; tokens && per > 0 && i + per <= e->n_logprobs; i += per) json_write_int(w, e->logprobs[i].id);
    json_write_array_end(w);
    serve_put_bool(w, "stop", false);
    serve_put_int(w, "id_slot", -1);
}

static void piece_close(struct json_writer *w, struct buf *out) {
    json_write_object_end(w);
    buf_puts(out, "\n\n");
}

static void progress_put(struct serve_answer *a, const struct serve_choice *c, const struct tern_event *e,
                         struct buf *out) {
    struct json_writer w;
    piece_open(&w, c, e, false, out);
    serve_progress_put(&w, a, e);
    piece_close(&w, out);
}

// Reasoning is text here: there is no other place for it.
static void on_event(struct serve_answer *a, struct serve_choice *c, const struct tern_event *e, struct buf *out) {
    const struct native *x = extra_of(a);
    const bool is_text = e->type == TERN_EVENT_TEXT || e->type == TERN_EVENT_REASONING;
    struct json_writer w;
    if (e->type == TERN_EVENT_REASONING) buf_put(&c->text, e->text.data, e->text.len);
    if (!a->streams) {
        if (is_text && x->with_probs) serve_logprobs_keep(c, e, true);
    } else if (is_text && !x->is_silent) {
        piece_open(&w, c, e, x->with_tokens, out);
        if (x->with_probs) {
            json_write_key(&w, "completion_probabilities");
            json_write_array(&w);
            serve_logprobs_put(&w, e, true);
            json_write_array_end(&w);
        }
        serve_timings_piece_put(&w, a);
        piece_close(&w, out);
    } else if (e->type == TERN_EVENT_PROGRESS && a->ask.return_progress) {
        progress_put(a, c, e, out);
    } else if (e->type == TERN_EVENT_DONE && c->finish != TERN_FINISH_CANCELLED) {
        buf_puts(out, "data: ");
        answer_put(a, c, out);
        buf_puts(out, "\n\n");
    }
}

static void stream_end(struct serve_answer *a, struct buf *out) { (void)a, (void)out; }

static void whole(struct serve_answer *a, struct buf *out) {
    if (a->n_choices > 1) buf_putc(out, '[');
    for (int i = 0; i < a->n_choices; i++) {
        if (i > 0) buf_putc(out, ',');
        answer_put(a, &a->choices[i], out);
    }
    if (a->n_choices > 1) buf_putc(out, ']');
}

const struct serve_wire serve_native_wire = {.stream_type = "text/event-stream",
                                             .ping = ": still here\n\n",
                                             .event = on_event,
                                             .end = stream_end,
                                             .fault = serve_fault_event,
                                             .whole = whole};
